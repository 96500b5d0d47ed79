// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"weir/internal/change"
	"weir/internal/cli"
	"weir/internal/dualpi2"
	"weir/internal/hint"
	"weir/internal/host"
	"weir/internal/kernel"
	"weir/internal/plan"
	"weir/internal/qdisc"
)

// dualpi2Kind is what the BPF DualPI2 is called wherever tc would have a kind.
const dualpi2Kind = qdisc.BPF

// dualpi2Dir is where the journals of weir dualpi2 are, one for each device: they end with the boot, as what they are
// about does.
const dualpi2Dir = "/run/weir/dualpi2"

func newDualPI2Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dualpi2",
		Short: "DualPI2 (RFC 9332) as a BPF queue",
		Long: `DualPI2, the dual-queue coupled AQM of RFC 9332, as a BPF queue with a shaper of
its own. It is for kernels that have BPF queues and no sch_dualpi2: Debian's
since 6.17.

The commands are tc's, with tc's words. What was there before is written to a
journal in /run/weir/dualpi2, and del puts it back. No timer does. The queue
works without weir running, and ends with the reboot.

Besides the queue there is a program at the device's TCX hook, which marks. The
device's gso_max_segs is set to 1, so that TCP makes no superpackets. It takes
eight times the instructions for each packet then, unless no_split_gso is given.
UDP that is sent with GSO, as QUIC may be, still comes in superpackets.

To keep the queue over a reboot, let weir up have it:

  weir up --rate 50mbit --prefer l4s
  weir up --qdisc 'bpf_dualpi2 rate 50mbit typical_rtt 20ms'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return cli.Usage("weir dualpi2 add|change|show|del", "unknown command %q", "dualpi2 "+args[0])
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newDualPI2AddCommand(), newDualPI2ChangeCommand(), newDualPI2ShowCommand(), newDualPI2DelCommand())
	return cmd
}

// dualpi2Options are what the commands of weir dualpi2 have in common.
type dualpi2Options struct {
	dev, state string
	json       bool
}

func (o *dualpi2Options) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.dev, "dev", "", "the `device`; or as tc writes it: dev NAME")
	stateDir(cmd, &o.state, dualpi2Dir, "`directory` of the journals")
	cmd.Flags().BoolVar(&o.json, "json", false, "print JSON")
	complete(cmd, "dev", plan.DeviceNames)
}

// words takes from a command's arguments the device, which tc has among them, and leaves the discipline's options.
func (o *dualpi2Options) words(cmd *cobra.Command, args []string) (words []string, err error) {
	for i := 0; i < len(args); i++ {
		switch {
		case args[i] == "dev" && i+1 == len(args):
			return nil, cli.Usage(cmd.CommandPath()+" dev eth0", "dev needs a device")
		case args[i] == "dev" && o.dev != "":
			return nil, cli.Usage(cmd.CommandPath()+" dev "+o.dev, "two devices are given, %s and %s", o.dev, args[i+1])
		case args[i] == "dev":
			i++
			o.dev = args[i]
		case args[i] != "root": // where else
			words = append(words, args[i])
		}
	}
	return words, nil
}

// noOptions is words, for commands that take none.
func (o *dualpi2Options) noOptions(cmd *cobra.Command, args []string) error {
	words, err := o.words(cmd, args)
	if err == nil && len(words) > 0 {
		err = cli.Usage(cmd.CommandPath()+" dev NAME", "%s takes a device, and no %q", cmd.CommandPath(), words[0])
	}
	return err
}

// wrongQdisc is what is wrong with a discipline's options, on any host.
func wrongQdisc(cmd *cobra.Command, err error) error {
	if options := (*qdisc.OptionError)(nil); errors.As(err, &options) {
		err = options.Err // the command has named the discipline
	}
	what := err.Error()
	if word, is := err.(*qdisc.UnknownWord); is {
		what = word.Short // --help has those that are known, in a better order
	}
	return cli.Usage(cmd.CommandPath()+" --help, and man tc-dualpi2 for what each option does", "%s", what)
}

// device finds the link that a command is about.
func (o *dualpi2Options) device(cmd *cobra.Command) (host.Facts, host.Link, error) {
	if o.dev == "" {
		return host.Facts{}, host.Link{}, cli.Usage(cmd.CommandPath()+" dev eth0", "which device?")
	}
	facts, err := host.Read()
	if err != nil {
		return facts, host.Link{}, err
	}
	link, ok := facts.Link(o.dev)
	if !ok {
		return facts, link, plan.NoDevice(o.dev, facts)
	}
	return facts, link, nil
}

// change is device, for a command that changes something there: which needs root, and leaves alone what weir up looks
// after.
func (o *dualpi2Options) change(cmd *cobra.Command) (host.Facts, host.Link, error) {
	facts, link, err := o.device(cmd)
	if err != nil {
		return facts, link, err
	}
	if !facts.Admin {
		return facts, link, change.NeedsAdmin(cmd.Name(), cmd.CommandPath(), os.Geteuid())
	}
	// A journal that cannot be read is another namespace's, or damaged: weir up says so when it is asked.
	status, err := change.Open(change.Dir).Status()
	if _, has := plan.GoalOf(status.Goals, link.Name); err == nil && status.Up && has {
		return facts, link, &hint.Error{
			What: fmt.Sprintf("weir up is in force on %s, and what it has set is not changed behind its back",
				link.Name),
			Try: "weir up --qdisc '" + dualpi2Kind + " …', or weir down first",
		}
	}
	return facts, link, nil
}

// entry is what a device's journal is called. Another network namespace may have a device of the same name; no name has
// a colon.
func entry(f host.Facts, dev string) string {
	if _, initial := f.Sysctls["net.core.default_qdisc"]; initial {
		return dev
	}
	return dev + ":" + strings.Trim(f.Namespace, "net:[]")
}

// store is the one that knows of a device, under whatever name it had when it got its queue.
func (o *dualpi2Options) store(f host.Facts, dev string) change.Store {
	own := change.Open(filepath.Join(o.state, entry(f, dev)))
	if status, err := own.Status(); err != nil || len(status.Goals) > 0 {
		return own
	}
	for _, other := range o.stores(f) {
		status, err := other.Status()
		if _, has := plan.GoalOf(status.Goals, dev); err == nil && has {
			return other
		}
	}
	return own
}

// dualpi2Devices are those that have a queue of weir dualpi2's.
func dualpi2Devices() (names []string) {
	facts, err := host.Read()
	if err != nil {
		return nil
	}
	for _, l := range facts.Links {
		if root, _ := l.Tree.Root(); strings.HasPrefix(root.Kind, dualpi2.Prefix) {
			names = append(names, l.Name)
		}
	}
	return names
}

// stores are all of this network namespace.
func (o *dualpi2Options) stores(f host.Facts) (stores []change.Store) {
	entries, _ := os.ReadDir(o.state)
	for _, e := range entries {
		name, _, _ := strings.Cut(e.Name(), ":")
		if e.Name() == entry(f, name) {
			stores = append(stores, change.Open(filepath.Join(o.state, e.Name())))
		}
	}
	return stores
}

// removeEmptyDir removes the directory of a journal that is gone. One that is there keeps its directory.
func removeEmptyDir(s change.Store) {
	if os.Remove(s.Dir()) == nil && filepath.Dir(filepath.Dir(s.Dir())) == "/run/weir" {
		_ = os.Remove(filepath.Dir(s.Dir())) // the last of all devices
	}
}

// instance is the BPF DualPI2 at a link's root. One that cannot be read is an error.
func instance(f host.Facts, l host.Link) (qdisc.Qdisc, bool, error) {
	root, _ := l.Tree.Root()
	if strings.HasPrefix(root.Kind, dualpi2.Prefix) {
		try := "the version of weir that made it; or, if it is not needed: tc qdisc del dev " + l.Name + " root"
		if !f.Admin {
			try = "the same with sudo"
		}
		return root, false, &hint.Error{What: fmt.Sprintf("%s: %s cannot be read, which needs root (CAP_SYS_ADMIN) "+
			"and the version of weir that made it", l.Name, root.Kind), Try: try}
	}
	return root, root.Kind == dualpi2Kind, nil
}

func newDualPI2AddCommand() *cobra.Command {
	var o dualpi2Options
	cmd := &cobra.Command{
		Use:   "add dev NAME [OPTION VALUE] …",
		Short: "Put a BPF DualPI2 on a device",
		Long: `Puts a BPF DualPI2 at the root of a device, and verifies it. Without a rate it
acts on a queue at this device only. It ends with the reboot: weir up --qdisc
'bpf_dualpi2 …' keeps it over one. weir dualpi2 del puts back what was there.

Options of its own:
` + helpOf(dualpi2.Own()) + `

The others are those of tc-dualpi2(8), of which these come first:
` + helpOf(firstOfTCs()),
		Example: `  weir dualpi2 add dev eth0 rate 50mbit typical_rtt 20ms
  weir dualpi2 add dev eth0 rate 20mbit docsis any_ect`,
		ValidArgsFunction: completeWords,
		RunE: func(cmd *cobra.Command, args []string) error {
			words, err := o.words(cmd, args)
			if err != nil {
				return err
			}
			spec, err := qdisc.Parse(strings.Join(append([]string{dualpi2Kind}, words...), " "))
			if err != nil {
				return wrongQdisc(cmd, err)
			}
			facts, link, err := o.change(cmd)
			if err != nil {
				return err
			}
			if facts.Qdiscs[dualpi2Kind] == host.No {
				return &hint.Error{
					What: fmt.Sprintf("kernel %s does not take the BPF DualPI2: %s", facts.Kernel,
						facts.Lacks[qdisc.BPF]),
					Try: "weir up --rate RATE, for the best that works here",
				}
			}
			now, there, err := instance(facts, link)
			if err != nil {
				return err
			}
			store := o.store(facts, link.Name)
			status, err := store.Status()
			switch {
			case err != nil:
				return err
			case there && !status.Unconfirmed:
				return &hint.Error{What: fmt.Sprintf("%s has one already: %s", link.Name, now.Spec),
					Try: "weir dualpi2 change dev " + link.Name + " …"}
			case status.Up && !status.Unconfirmed && !there:
				// Somebody has taken that one away, for good by the looks of it: what is there now is what to go back
				// to.
				if err := store.Forget(); err != nil {
					return err
				}
			}
			return o.bringUp(cmd, store, link.Name, spec)
		},
	}
	o.add(cmd)
	return cmd
}

// bringUp puts a queue there, and says what became of it.
func (o *dualpi2Options) bringUp(cmd *cobra.Command, store change.Store, dev string, spec qdisc.Spec) error {
	out, err := store.Up(plan.Goal{Dev: dev, Qdisc: spec.String(), Only: true}, 0)
	if err != nil {
		removeEmptyDir(store)
		return err
	}
	w := cmd.OutOrStdout()
	if o.json {
		if err := cli.PrintJSON(w, out); err != nil {
			return err
		}
		return failed(out, "weir dualpi2 show dev "+dev)
	}
	for _, c := range out.Done {
		printChange(w, c)
	}
	switch {
	case len(out.Done) > 0:
		fmt.Fprintf(w, "Until the next reboot. To undo:  weir dualpi2 del dev %s\n", dev)
	case len(out.Failed) == 0:
		fmt.Fprintln(w, "Nothing to change.")
	}
	return failed(out, "weir dualpi2 show dev "+dev)
}

func newDualPI2ChangeCommand() *cobra.Command {
	var o dualpi2Options
	cmd := &cobra.Command{
		Use:   "change dev NAME OPTION VALUE …",
		Short: "Change options of a BPF DualPI2 in place",
		Long: `Changes the given options all at once, without losing a packet. All others stay
as they are. Only a limit beyond the one it was made for makes it anew.`,
		Example:           `  weir dualpi2 change dev eth0 rate 60mbit`,
		ValidArgsFunction: completeWords,
		RunE: func(cmd *cobra.Command, args []string) error {
			words, err := o.words(cmd, args)
			if err != nil {
				return err
			}
			if len(words) == 0 {
				return cli.Usage("weir dualpi2 change dev NAME rate 60mbit", "nothing to change is given")
			}
			defaults, _ := qdisc.Default(dualpi2Kind)
			if _, err := qdisc.Edit(defaults, words); err != nil {
				return wrongQdisc(cmd, err)
			}
			facts, link, err := o.change(cmd)
			if err != nil {
				return err
			}
			now, there, err := instance(facts, link)
			if err != nil {
				return err
			}
			if !there {
				return notThere(link)
			}
			spec, err := qdisc.Edit(now.Spec, words)
			if err != nil {
				return wrongQdisc(cmd, err)
			}
			return o.bringUp(cmd, o.store(facts, link.Name), link.Name, spec)
		},
	}
	o.add(cmd)
	return cmd
}

func notThere(l host.Link) error {
	return &hint.Error{What: fmt.Sprintf("%s has no BPF DualPI2: its root is %s", l.Name,
		kernel.QueueOf(l.Tree).String()), Try: "weir dualpi2 add dev " + l.Name + " rate RATE"}
}

func newDualPI2DelCommand() *cobra.Command {
	var o dualpi2Options
	var force bool
	cmd := &cobra.Command{
		Use:     "del dev NAME",
		Aliases: []string{"delete"},
		Short:   "Remove a BPF DualPI2, and put back what was there",
		Long: `Puts back the queues that were there before weir dualpi2 add, and verifies them.
What others have put in its place since is left and named. --force overwrites
that, too.`,
		ValidArgsFunction: completeDevice,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.noOptions(cmd, args); err != nil {
				return err
			}
			facts, link, err := o.change(cmd)
			if err != nil {
				return err
			}
			_, there, err := instance(facts, link)
			if err != nil && !force {
				return err
			}
			store := o.store(facts, link.Name)
			status, err := store.Status()
			switch {
			case err != nil:
				return err
			case len(status.Goals) == 0 && status.Why == "" && there:
				return &hint.Error{
					What: fmt.Sprintf("%s has one, and no journal in %s knows what was there before", link.Name,
						o.state),
					Try: "tc qdisc del dev " + link.Name + " root, after which the kernel puts its default there",
				}
			case len(status.Goals) == 0 && status.Why == "":
				return notThere(link)
			}
			out, err := store.Down(change.Undo{Force: force})
			if err != nil {
				return err
			}
			removeEmptyDir(store)
			w := cmd.OutOrStdout()
			if o.json {
				if err := cli.PrintJSON(w, out); err != nil {
					return err
				}
				return notDeleted(link.Name, out)
			}
			for _, c := range out.Done {
				printChange(w, c)
			}
			printNotes(w, out.Notes)
			if len(out.Done)+len(out.Failed)+len(out.Left) == 0 {
				fmt.Fprintln(w, "It was gone already, and what was there before is there.")
			}
			return notDeleted(link.Name, out)
		},
	}
	o.add(cmd)
	cmd.Flags().BoolVar(&force, "force", false, "also overwrite what others have put in its place")
	return cmd
}

// notDeleted is the error of a del after which not all is as it was.
func notDeleted(dev string, out change.Outcome) error {
	try := "weir dualpi2 del dev " + dev
	if len(out.Failed) > 0 || len(out.Left) == 0 {
		return failed(out, try+", again")
	}
	return &hint.Error{What: "left, since somebody else has changed it: " + dev + " " + out.Left[0].Error, Try: try +
		" --force, which puts back what was there before"}
}

func newDualPI2ShowCommand() *cobra.Command {
	var o dualpi2Options
	var statistics bool
	cmd := &cobra.Command{
		Use:   "show [dev NAME]",
		Short: "Show the BPF DualPI2s, as tc shows its own",
		Long: `Prints the BPF DualPI2s of this network namespace, as tc qdisc show prints
dualpi2. Options that tc does not know follow. -s adds statistics, and how long
packets waited in each queue.

Show needs root, as everything does that looks into BPF. It fails if somebody
has removed a queue that weir dualpi2 add has put there.`,
		ValidArgsFunction: completeDevice,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.noOptions(cmd, args); err != nil {
				return err
			}
			facts, err := host.Read()
			if err != nil {
				return err
			}
			links := facts.Links
			if o.dev != "" {
				var link host.Link
				if facts, link, err = o.device(cmd); err != nil {
					return err
				}
				links = []host.Link{link}
			}
			return o.show(cmd.OutOrStdout(), facts, links, statistics)
		},
	}
	o.add(cmd)
	cmd.Flags().BoolVarP(&statistics, "statistics", "s", false, "also print statistics")
	return cmd
}

func (o *dualpi2Options) show(w io.Writer, facts host.Facts, links []host.Link, statistics bool) error {
	shown := []shownQdisc{}
	var has []string
	var unreadable error
	for _, l := range links {
		q, there, err := instance(facts, l)
		if err != nil {
			unreadable = err
		}
		if err != nil || there {
			has = append(has, l.Name)
		}
		if there {
			shown = append(shown, showQdisc(l.Name, q, statistics))
		}
	}
	if o.json {
		if err := cli.PrintJSON(w, shown); err != nil {
			return err
		}
	} else {
		for _, q := range shown {
			q.print(w)
		}
	}
	if unreadable != nil {
		return unreadable
	}
	for _, s := range o.stores(facts) {
		status, err := s.Status()
		if err != nil || !status.Up {
			continue
		}
		for _, l := range links {
			if goal, there := plan.GoalOf(status.Goals, l.Name); there && !slices.Contains(has, l.Name) {
				return &hint.Error{
					What: fmt.Sprintf("%s: somebody has taken away the %s that was added there; its root is %s", l.Name,
						goal.Qdisc, kernel.QueueOf(l.Tree).String()),
					Try: fmt.Sprintf("weir dualpi2 add%s to have it back, or weir dualpi2 del dev %s",
						strings.TrimPrefix(goal.Qdisc, dualpi2Kind)+" dev "+l.Name, l.Name),
				}
			}
		}
	}
	if o.dev != "" && len(has) == 0 {
		return notThere(links[0])
	}
	if len(has) == 0 && !o.json {
		fmt.Fprintln(w, "There is no BPF DualPI2 here.")
	}
	return nil
}

// completeDevice completes "dev NAME".
func completeDevice(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	switch {
	case len(args) > 0 && args[len(args)-1] == "dev":
		facts, err := host.Read()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return plan.DeviceNames(facts), cobra.ShellCompDirectiveNoFileComp
	case !slices.Contains(args, "dev"):
		return []string{"dev"}, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// completeWords completes that, and options that are not given yet.
func completeWords(cmd *cobra.Command, args []string, start string) ([]string, cobra.ShellCompDirective) {
	if words, directive := completeDevice(cmd, args, start); len(words) > 0 ||
		directive == cobra.ShellCompDirectiveError {
		return words, directive
	}
	words := qdisc.Words(dualpi2Kind)
	return slices.DeleteFunc(words, func(w string) bool { return slices.Contains(args, w) }),
		cobra.ShellCompDirectiveNoFileComp
}
