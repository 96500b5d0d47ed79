// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"weir/internal/change"
	"weir/internal/plan"
	"weir/internal/text"
)

// How long weir up waits for weir confirm: enough to log in again, and no longer than a person wants to be locked out.
const (
	leastTimeout = 10 * time.Second
	usualTimeout = time.Minute
	mostTimeout  = time.Hour
)

func newUpCommand() *cobra.Command {
	var options common
	var goal plan.Goal
	var timeout time.Duration
	var yes, boot bool
	cmd := &cobra.Command{
		Use:   "up [--dev NAME] [--rate RATE] …",
		Short: "Bring a goal into force: change what the plan says, and verify it",
		Long: `Makes the changes that weir plan prints, and verifies each. What was there before is written to a
journal first, so that weir down can put it back. A device's goal replaces the one before; without any
option it is the one in /etc/weir.toml, or else the last one again. If the queue cannot be set,
nothing is changed; any other setting that fails is reported and does not stop the rest.

Unless weir confirm is run within 60 s (--timeout), all that this run changed is put back: to the
last goal that was confirmed, or else to what was there before weir. That is done by a process that
waits, a service of systemd's (weir-revert-…) or, without systemd, one in a session of its own, so
neither the end of the ssh session nor of weir keeps it from it. It overwrites what somebody else
has changed meanwhile, and weir status says what. Where it could not outlive weir, as in a container
that ends with it, nothing is changed. --yes is for automation: no timer, what is changed stays.

What is confirmed is kept over a reboot: the goal in /etc/weir.toml, the settings in
/etc/sysctl.d/99-weir.conf, and weir.service, which runs weir up --boot at every boot and when the
device appears: it plans the goal again on the kernel that is there then. --runtime keeps nothing:
what is set ends with a reboot. So it does on a host without systemd, in a network namespace of its
own, and with another --state.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case yes && cmd.Flags().Changed("timeout"):
				return usage("weir up --yes, or weir up --timeout 30s", "with --yes nothing is put back, so it goes with no --timeout")
			case boot && (goal != plan.Goal{} || yes || cmd.Flags().Changed("timeout")):
				return usage("weir up --boot", "--boot is about the goal that is kept, so it goes with no other option")
			case yes:
				timeout = 0
			case timeout < leastTimeout || timeout > mostTimeout:
				return usage("--timeout 30s, from 10s to 1h", "timeout %s is out of range", timeout)
			}
			up := func() (change.Outcome, error) { return options.store().Up(goal, timeout) }
			if boot {
				// Another device may have appeared: what is begun is ended first.
				signal.Ignore(syscall.SIGTERM)
				up = options.store().Boot
			}
			out, err := up()
			if err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			if options.json {
				if err := printJSON(w, out); err != nil {
					return err
				}
				return failed(out, "weir plan, for the reasons of each")
			}
			for _, n := range out.Notes {
				if n.Subject == plan.RoleNote { // whatever else was thought about, weir plan tells
					printText(w, n.Subject, n.Text)
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
				done = "Nothing to change: the goal is in force."
			}
			if len(out.Done) < 2 {
				reverts = "It reverts"
			}
			switch {
			case len(out.Done) == 0 && len(out.Failed) > 0:
			case out.RevertsIn > 0:
				fmt.Fprintf(w, "%s %s in %s unless you run:  weir confirm\n", done, reverts, seconds(out.RevertsIn))
				if out.Kept {
					fmt.Fprintln(w, "That also writes the files that keep the goal over a reboot.")
				}
			case boot && len(out.Done) == 0 && len(out.Notes) > 0:
			case len(out.Done) > 0:
				fmt.Fprintln(w, done, "To undo:  weir down")
			default:
				fmt.Fprintln(w, done)
			}
			return failed(out, "weir plan, for the reasons of each")
		},
	}
	options.add(cmd)
	addGoal(cmd, &goal)
	cmd.Flags().DurationVar(&timeout, "timeout", usualTimeout, "put everything back unless confirmed within this `time`, 10s to 1h")
	cmd.Flags().BoolVar(&boot, "boot", false, "what weir.service runs: the goal that is kept, as far as it goes, with no timer")
	cmd.Flags().BoolVar(&yes, "yes", false, "no timer: what is changed stays without weir confirm")
	return cmd
}
