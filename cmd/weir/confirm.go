// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"fmt"
	"weir/internal/cli"

	"github.com/spf13/cobra"
)

func newConfirmCommand() *cobra.Command {
	var options common
	var dev string
	cmd := &cobra.Command{
		Use:   "confirm",
		Short: "Keep what up has changed, also over a reboot",
		Long: `Keeps what the last weir up has changed, if all of it is still in force. It also
writes the files that bring it back after a reboot: weir up --help lists them.

If there is nothing to confirm, it says so and succeeds. If it has been put
back, or the machine was started again, it fails.`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			status, confirmed, err := options.store().ConfirmOf(dev)
			if err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			switch {
			case options.json:
				return cli.PrintJSON(w, status)
			case confirmed:
				until := "It ends with a reboot."
				if status.Kept {
					until = "It is kept over a reboot: /etc/weir.toml has the goal."
				}
				for _, goal := range status.Goals {
					fmt.Fprintf(w, "Confirmed:  %s\n", goal.Flags())
				}
				fmt.Fprintf(w, "%s To undo:  %s\n", until, options.sameJournal("weir down"))
			case !status.Up || !status.InForce: // what a file asks for may be another goal
				fmt.Fprintln(w, "Nothing to confirm.")
			default:
				for _, goal := range status.Goals {
					fmt.Fprintf(w, "Already confirmed:  %s\n", goal.Flags())
				}
			}
			return nil
		},
	}
	device(cmd, &dev, "only if it is about this `device`")
	options.add(cmd)
	return cmd
}
