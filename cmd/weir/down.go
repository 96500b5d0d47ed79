// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"weir/internal/change"
	"weir/internal/cli"
	"weir/internal/hint"
	"weir/internal/text"
)

func newDownCommand() *cobra.Command {
	var options common
	var dev string
	var force, all bool
	cmd := &cobra.Command{
		Use: "down",
		SuggestFor: []string{"undo", "revert", "off", "stop", "rollback", "remove", "restore", "reset", "uninstall",
			"disable", "cancel"},
		Short: "Put back exactly what was there before up",
		Long: `Puts back the queues and settings that were there before the first weir up, and
verifies them. What others have changed since is left and named; --force
overwrites it. If there is nothing to undo, it says so and succeeds.

With goals for several devices, say which one to take down (--dev NAME), or
--all. Settings of the host that other goals ask for stay, or become what those
ask for.`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if all && dev != "" {
				return cli.Usage("weir down --all, or weir down --dev "+dev, "--all and --dev %s contradict each other",
					dev)
			}
			store := options.store()
			out, err := store.Down(change.Undo{Dev: dev, All: all, Force: force})
			if several := (*change.Several)(nil); errors.As(err, &several) {
				return cli.Usage("weir down --dev "+several.Devices[0]+", or weir down --all", "%v", several)
			}
			if err != nil {
				return err
			}
			removeEmptyDir(store)
			end := notDown(out, dev)
			w := cmd.OutOrStdout()
			if options.json {
				if err := cli.PrintJSON(w, out); err != nil {
					return err
				}
				return end
			}
			for _, c := range out.Done {
				printChange(w, c)
			}
			printNotes(w, out.Notes)
			printLeft(w, out.Left)
			switch {
			case len(out.Done) > 0:
				fmt.Fprintf(w, "%s taken back and verified.\n", text.Counted(len(out.Done), "change"))
			case len(out.Failed)+len(out.Left) == 0:
				fmt.Fprintln(w, "Nothing to undo.")
			}
			return end
		},
	}
	options.add(cmd)
	device(cmd, &dev, "take down only the goal of this `device`")
	cmd.Flags().BoolVar(&all, "all", false, "take down the goals of all devices")
	cmd.Flags().BoolVar(&force, "force", false, "also overwrite what others have changed since")
	return cmd
}

// notDown is the error of a down, of one device alone if it is named, after which not all is as it was.
func notDown(out change.Outcome, dev string) error {
	if len(out.Failed) > 0 || len(out.Left) == 0 {
		if dev != "" {
			return failed(out, "weir recover")
		}
		return failed(out, "weir down, again")
	}
	try := "weir down --force, which puts back what was there before weir"
	if dev != "" {
		// Without the device it would take down what stays.
		try = "weir down --dev " + dev + " --force, which puts back what was there before weir"
		if slices.ContainsFunc(out.Left, func(l change.Failure) bool { return l.Dev() == "" }) {
			try = "weir status, which says what of the host is not as the other goals want it"
		}
	}
	if len(out.Left) == 1 {
		l := out.Left[0]
		return &hint.Error{What: "left, since somebody else has changed it: " + text.Short(l.Target.String()) + " " +
			l.Error, Try: try}
	}
	return &hint.Error{What: fmt.Sprintf("%s left, since somebody else has changed them",
		text.Counted(len(out.Left), "thing")), Try: try}
}

// printLeft names each of several things that are left; of one the error does.
func printLeft(w io.Writer, left []change.Failure) {
	for _, l := range left {
		if len(left) > 1 {
			printText(w, text.Short(l.Target.String()), "left: "+l.Error)
		}
	}
}
