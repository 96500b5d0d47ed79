// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"fmt"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"weir/internal/change"
	"weir/internal/cli"
	"weir/internal/text"
)

func newRecoverCommand() *cobra.Command {
	var options common
	var unconfirmed, detached bool
	cmd := &cobra.Command{
		Use:   "recover",
		Short: "Put back at once what is not confirmed",
		Long: `Puts back the last weir up if it is not confirmed: to the last confirmed goal,
or else to what was there before weir. It also ends a weir down that was cut
short; one with --dev it undoes.

It overwrites what others have changed meanwhile, and says what. If there is
nothing to put back, it says so and succeeds.`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			store, recover := options.store(), change.Store.Recover
			if unconfirmed {
				recover = func(s change.Store) (change.Outcome, error) { return s.Expire(readySignal(detached)) }
			}
			out, err := recover(store)
			if err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			if options.json {
				if err := cli.PrintJSON(w, out); err != nil {
					return err
				}
				return failed(out, "weir recover, again")
			}
			for _, c := range out.Done {
				printChange(w, c)
			}
			printNotes(w, out.Notes)
			switch {
			case len(out.Done) > 0:
				fmt.Fprintf(w, "%s put back and verified.\n", text.Counted(len(out.Done), "change"))
			case len(out.Failed) == 0:
				fmt.Fprintln(w, "Nothing to put back.")
			}
			return failed(out, "weir recover, again")
		},
	}
	options.add(cmd)
	cmd.Flags().BoolVar(&unconfirmed, "unconfirmed", false,
		"for the timer: wait until the time is over, and stop if it is confirmed")
	cmd.Flags().BoolVar(&detached, "detached", false, "started by weir up without systemd")
	for _, name := range []string{"unconfirmed", "detached"} {
		cmd.Flags().MarkHidden(name)
	}
	return cmd
}

// readySignal is what to do as soon as the time is running: tell weir up, which has made nothing dependent on it
// before.
func readySignal(detached bool) func() {
	if detached {
		// There is no terminal any more to hang up, but a session's manager may mean everybody.
		signal.Ignore(syscall.SIGHUP, syscall.SIGTERM, syscall.SIGINT)
	}
	return func() { _ = change.Ready(detached) } // who has not heard it puts back at once
}
