// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"weir/internal/change"
	"weir/internal/cli"
	"weir/internal/follow/live"
	"weir/internal/hint"
	"weir/internal/kernel"
	"weir/internal/plan"
	"weir/internal/text"
	"weir/internal/units"
)

// upOptions are those that are not the goal's.
type upOptions struct {
	timeout   time.Duration
	timed     bool // that was said
	yes, boot bool
	peer      calibrateOptions
}

func newUpCommand() *cobra.Command {
	var options common
	var goal plan.Goal
	var o upOptions
	cmd := &cobra.Command{
		Use:   "up [--dev NAME] [--rate RATE] …",
		Short: "Change what the plan says, and verify it",
		Long: `Makes the changes that weir plan prints, and verifies each. Before the first
change it writes to a journal what was there, so that weir down can put it back.

A device's new goal replaces its last one. Without options the goal is the one
in /etc/weir.toml, or else the last one again. If the queue cannot be set,
nothing is changed. Any other setting that fails is reported, and the rest goes
on.

The timer: unless you run weir confirm within 60 s (--timeout), everything that
this run changed is put back. It goes back to the last confirmed goal, or else
to what was there before weir. The timer survives a lost ssh session and a
killed weir: it is a systemd service (weir-revert-…). Without systemd it is a
process in a session of its own. It overwrites what others have changed
meanwhile, and weir status says what. Where it could not outlive weir, as in a
container that ends with it, nothing is changed. --yes is for automation: it
starts no timer, and the changes stay.

The reboot: what you confirm is kept over it. The goal is in /etc/weir.toml, the
settings in /etc/sysctl.d/99-weir.conf. weir.service runs weir up --boot at
every boot. That plans the goal again, on the kernel that is there then. A udev
rule has it do so when the device appears, and weir-follow.service follows a
rate that moves. OpenRC starts scripts in their place, at the boot only.
Nothing is kept with --runtime, on a host with neither of the two, in another
network namespace, or with another --state.

A full link: what stands in the provider's queue would take a minute to drain.
So weir up has CAKE send 30 % less until it has gone, for ten seconds at most.

The rate: --calibrate PEER finds it first, with the framing, as weir calibrate
does. That fills the link for some 15 s. Unless the result is verified, nothing
is changed. --rate auto listens to this host's own traffic instead. While that
does not tell, the host is set up as without a rate, and weir follow listens on.`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.timed = cmd.Flags().Changed("timeout")
			if err := o.check(goal); err != nil {
				return err
			}
			if len(o.peer.peers) > 0 {
				var err error
				if goal, err = o.peer.goal(cmd, goal, options.json); err != nil {
					return err
				}
			}
			goal, _, err := withMeasuredRate(cmd, options, goal, listen, options.json, true)
			if err != nil {
				return err
			}
			up := func() (change.Outcome, error) {
				return cli.Until(cmd.ErrOrStderr(), "making the changes and verifying each",
					func() (change.Outcome, error) { return options.store().Up(goal, o.timeout) })
			}
			if o.boot {
				// Another device may have appeared: what is begun is ended first.
				signal.Ignore(syscall.SIGTERM)
				up = options.store().Boot
			}
			out, err := up()
			if err != nil {
				return err
			}
			if !options.json { // to be confirmed in time, even over a link that is full
				printUp(cmd.OutOrStdout(), out, o.boot, options.sameJournal)
			}
			drained, slow := o.drain(cmd, options.store(), &out)
			if options.json {
				err = cli.PrintJSON(cmd.OutOrStdout(), upOutcome{out, drained})
			} else {
				drained.print(cmd.OutOrStdout())
			}
			return cmp.Or(err, slow, failed(out, "weir plan, for the reasons of each"))
		},
	}
	addGoal(cmd, &goal)
	cmd.Flags().DurationVar(&o.timeout, "timeout", usualTimeout,
		"put everything back unless confirmed in this `time`, 10s to 1h")
	cmd.Flags().BoolVar(&o.yes, "yes", false, "start no timer: the changes stay without weir confirm")
	cmd.Flags().BoolVar(&o.boot, "boot", false,
		"bring up the kept goal as far as it goes, with no timer: for weir.service")
	cmd.Flags().StringArrayVar(&o.peer.peers, "calibrate", nil,
		"find the rate and the framing first, with this `peer`'s help")
	o.peer.addPeer(cmd.Flags())
	options.add(cmd)
	return cmd
}

// check finds options that do not go together. With --yes there is no time.
func (o *upOptions) check(goal plan.Goal) error {
	switch {
	case o.yes && o.timed:
		return cli.Usage("weir up --yes, or weir up --timeout 30s",
			"with --yes nothing is put back, so it goes with no --timeout")
	case len(o.peer.peers) > 0 && (goal.Rate != 0 || goal.Unknown() || goal.Overhead != plan.Goal{}.Overhead ||
		goal.Recipe != ""):
		return cli.Usage("weir up --calibrate PEER", "--calibrate finds the rate and the framing, so it goes with no "+
			"--rate, --overhead or --recipe")
	case len(o.peer.peers) == 0 && len(o.peer.tokens)+len(o.peer.tokenFiles)+len(o.peer.pins) > 0:
		return cli.Usage("weir up --calibrate PEER --token …", "--token and --pin are about the peer of --calibrate")
	case o.boot && (goal != plan.Goal{} || o.yes || o.timed || len(o.peer.peers) > 0):
		return cli.Usage("weir up --boot", "--boot is about the goal that is kept, so it goes with no other option")
	case o.yes:
		o.timeout = 0
	case o.timeout < minTimeout || o.timeout > maxTimeout:
		return cli.Usage("--timeout 30s, from 10s to 1h", "timeout %s is out of range", o.timeout)
	}
	return nil
}

// upOutcome is what weir up prints as JSON.
type upOutcome struct {
	change.Outcome
	Drained drained `json:"drained,omitempty"`
}

// drained is what became of queues that had stood in front of the provider, by devices.
type drained map[string]live.Drained

// drain lets what stood in front of the provider go, where a queue was set while the link was full. It takes from the
// time that is left until all reverts. An error is a queue that sends less than its rate from now on.
func (o *upOptions) drain(cmd *cobra.Command, store change.Store, out *change.Outcome) (all drained, err error) {
	all = drained{}
	if o.boot {
		return all, nil
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP,
		syscall.SIGQUIT, syscall.SIGPIPE)
	defer stop()
	p := cli.NewProgress(cmd.ErrOrStderr())
	defer p.Clear()
	begin := time.Now()
	for _, c := range out.Done {
		if c.Kind != kernel.Root || ctx.Err() != nil {
			continue
		}
		d, errOne := live.Drain(ctx, store, c.Name, func(took time.Duration) {
			p.Say(took, func() string { return "sending less until the provider's queue has drained" })
		})
		switch {
		case errors.Is(errOne, live.ErrSlow):
			err = &hint.Error{What: c.Name + ": " + errOne.Error(), Try: "weir up, again"}
		case errOne != nil:
			d.Error = errOne.Error()
			all[c.Name] = d
		case d.Took > 0:
			all[c.Name] = d
		}
	}
	if out.RevertsIn > 0 && len(all) > 0 {
		left := time.Duration(out.RevertsIn) - time.Since(begin)
		out.RevertsIn = units.Duration(max(time.Second, left.Truncate(time.Second)))
	}
	return all, err
}

func (d drained) print(w io.Writer) {
	for _, dev := range slices.Sorted(maps.Keys(d)) {
		took := time.Duration(d[dev].Took).Seconds()
		switch fell := d[dev].Fell; {
		case d[dev].Overtaken:
			fmt.Fprintf(w, "%s: somebody else has changed its queue meanwhile. See:  weir status\n", dev)
		case d[dev].Error != "":
			fmt.Fprintf(w, "%s: what may stand at the provider drains slowly: %s.\n", dev, text.OneLine(d[dev].Error))
		case fell > 0:
			fmt.Fprintf(w, "%s sent less for %.1f s. The provider's queue is shorter by %.0f ms.\n", dev, took,
				time.Duration(fell).Seconds()*1e3)
		default:
			fmt.Fprintf(w, "%s sent less for %.1f s, to drain what may have stood at the provider.\n", dev, took)
		}
	}
}

// printUp says what was done, and what becomes of it; same is a command for the same journal.
func printUp(w io.Writer, out change.Outcome, boot bool, same func(string) string) {
	for _, n := range out.Notes {
		if n.Kind == plan.Role || n.Kind == plan.Lack && !boot { // whatever else was thought about, weir plan tells
			printNotes(w, []plan.Note{n})
		}
	}
	for _, c := range out.Done {
		printChange(w, c)
	}
	done, reverts := text.Counted(len(out.Done), "change")+" made and verified.", "They revert"
	if boot {
		printNotes(w, out.Notes)
	}
	if len(out.Done) == 0 {
		done = nothingToChange(out.Notes)
	}
	if len(out.Done) < 2 {
		reverts = "It reverts"
	}
	switch {
	case len(out.Done) == 0 && len(out.Failed) > 0:
	case out.RevertsIn > 0:
		fmt.Fprintf(w, "%s %s in %s unless you run:  %s\n", done, reverts, seconds(out.RevertsIn),
			same("weir confirm"))
		if out.Kept {
			fmt.Fprintln(w, "That also writes the files that keep the goal over a reboot.")
		}
	case boot && len(out.Done) == 0 && len(out.Notes) > 0:
	case len(out.Done) > 0:
		fmt.Fprintln(w, done, "To undo: ", same("weir down"))
	default:
		fmt.Fprintln(w, done)
	}
}

// nothingToChange says that a plan is empty, and what the goal wants and these notes say that this host cannot have.
func nothingToChange(notes []plan.Note) string {
	var names []string
	for _, n := range plan.LacksOf(notes) {
		names = append(names, text.Short(n.Subject))
	}
	if len(names) == 0 {
		return "Nothing to change: the goal is in force."
	}
	return "Nothing to change: the goal is in force, but for " + strings.Join(names, ", ") +
		", which cannot be set here."
}

// failed is the error of an outcome in which not all is in force.
func failed(out change.Outcome, try string) error {
	if len(out.Failed) == 0 {
		return nil
	}
	var which []string
	for _, f := range out.Failed {
		name := text.Short(f.Target.String()) + " = " + f.New.String()
		if f.IsFile() {
			name = f.Name
		}
		which = append(which, name+": "+f.Error)
	}
	return &hint.Error{What: fmt.Sprintf("%s not in force: %s", text.Counted(len(which), "change"),
		strings.Join(which, "; ")), Try: try}
}
