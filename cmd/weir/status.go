// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weir/internal/bbr"
	"weir/internal/change"
	"weir/internal/cli"
	"weir/internal/text"
)

func newStatusCommand() *cobra.Command {
	var options common
	var dev string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Is the goal still in force, and what has drifted?",
		Long: `Plans the goal again and prints what differs from it. The goal is the one in
/etc/weir.toml, or else the one that was brought up last.

If nothing differs, the goal is in force. Otherwise status prints what has
drifted, or why the goal can no longer be planned. After a change of kernel it
also lists what could not be set as confirmed. With traffic to see it by, it
says if connections wait in another queue than this one.

Status needs no root, except for a BPF queue.

Exit status: 0 the goal is in force and the queue is here, 1 it is not or status
failed, 2 wrong usage.`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := options.store().Status()
			if err == nil && dev != "" {
				s, err = s.Of(dev)
			}
			if err != nil {
				return err
			}
			s.Control = change.ReadControlUse()
			if options.json {
				if err := cli.PrintJSON(cmd.OutOrStdout(), s); err != nil {
					return err
				}
			} else {
				printStatus(cmd.OutOrStdout(), s, options.sameJournal)
				printPending(cmd.OutOrStdout(), s, options.sameJournal)
			}
			if !s.InForce || s.Elsewhere != "" {
				return cli.ErrNo
			}
			return nil
		},
	}
	device(cmd, &dev, "this `device` alone, of several that have a goal")
	options.add(cmd)
	return cmd
}

// printStatus says how the host stands to its goals.
func printStatus(w io.Writer, s change.Status, same func(string) string) {
	switch {
	case !s.Up && s.Why == "":
		fmt.Fprintln(w, "Weir is not up.")
		for _, dev := range dualpi2Devices() {
			fmt.Fprintf(w, "On %s there is a queue of weir dualpi2's. See:  weir dualpi2 show --dev %s\n", dev, dev)
		}
	case !s.Up:
		fmt.Fprintf(w, "Weir is not up: %s.\n", s.Why)
	case s.InForce:
		printInForce(w, s)
	default:
		printDrift(w, s, same)
	}
}

func printInForce(w io.Writer, s change.Status) {
	printNotes(w, s.Notes)
	for _, goal := range s.Goals {
		fmt.Fprintf(w, "In force:  %s\n", goal.Flags())
	}
	for _, f := range s.Followed {
		for _, line := range f.Says(time.Now()) {
			printWrapped(w, "", line)
		}
	}
	if s.Elsewhere != "" {
		printWrapped(w, "", "But the queue is elsewhere: "+s.Elsewhere+". See:  weir doctor")
	}
	for _, f := range s.Filters {
		printWrapped(w, "", "A filter also drops traffic on this device: "+f+". See:  weir doctor")
	}
	if s.Owns != "" {
		printWrapped(w, "", s.Owns)
	}
	printControlUse(w, s.Control)
	if !s.Kept && !s.Unconfirmed {
		fmt.Fprintln(w, "Until the next reboot: nothing is kept over that.")
	}
}

// printControlUse says how many connections have which version of bpf_bbr, and who else uses it.
func printControlUse(w io.Writer, use *change.ControlUse) {
	if use == nil {
		return
	}
	older := 0
	for version, n := range use.Connections {
		if version != bbr.Version() {
			older += n
		}
	}
	line := text.Counted(use.Connections[bbr.Version()]+older, "connection") + " with " + bbr.Name
	if older > 0 {
		line += fmt.Sprintf(", %d of them with another version until they end", older)
	}
	printWrapped(w, "", line+". See:  weir cc show")
	if len(use.Namespaces) > 0 {
		printWrapped(w, "", fmt.Sprintf("New connections have it in %s, too: %s.",
			text.Counted(len(use.Namespaces), "other network namespace"), strings.Join(use.Namespaces, ", ")))
	}
}

func printDrift(w io.Writer, s change.Status, same func(string) string) {
	printNotes(w, s.Notes)
	for _, c := range s.Drift {
		printChange(w, c)
	}
	for _, goal := range s.Goals {
		holds := "Not in force"
		if s.Holds(goal) {
			holds = "In force"
		}
		fmt.Fprintf(w, "%s:  %s\n", holds, goal.Flags())
	}
	if s.Why != "" {
		fmt.Fprintf(w, "It cannot be brought back:  %s\n", s.Why)
		return
	}
	if s.Reboot {
		fmt.Fprintln(w, "The machine was started again since.")
	}
	if len(s.Drift) > 0 {
		fmt.Fprintf(w, "%s to bring it back:  %s\n", text.Counted(len(s.Drift), "change"), same("weir up"))
	}
}

// printPending says what becomes of a run that is not confirmed, or has become of it.
func printPending(w io.Writer, s change.Status, same func(string) string) {
	switch {
	case s.PutBack:
		fmt.Fprintln(w, "Not confirmed. All is put back; the journal does not say so yet.")
		fmt.Fprintln(w, "To write it, with room on its disk: ", same("weir recover"))
	case s.Unconfirmed && s.RevertsIn > 0:
		fmt.Fprintf(w, "Not confirmed: reverts in %s unless you run:  %s\n", seconds(s.RevertsIn), same("weir confirm"))
	case s.Unconfirmed:
		fmt.Fprintln(w, "Not confirmed, and not put back in time. To put it back now: ", same("weir recover"))
	case s.Reverted != nil:
		fmt.Fprintf(w, "Put back, since it was not confirmed:  %s\n", s.Reverted.Goal.Flags())
		printNotes(w, s.Reverted.Notes)
	}
}
