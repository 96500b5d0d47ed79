// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newDownCommand() *cobra.Command {
	var options common
	var force bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Put back exactly what was there before up",
		Long: `Puts back the queueing disciplines and settings that were there before the first weir up, and
verifies it. What somebody else has changed since is not overwritten unless --force is given. With
nothing to undo it says so; that is no error.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out, err := options.store().Down(force)
			if err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			if options.json {
				if err := printJSON(w, out); err != nil {
					return err
				}
				return failed(out, "weir down, again")
			}
			for _, c := range out.Done {
				printChange(w, c)
			}
			printNotes(w, out.Notes)
			switch {
			case len(out.Failed) > 0:
			case len(out.Done) == 0:
				fmt.Fprintln(w, "Nothing to undo.")
			default:
				fmt.Fprintf(w, "%s taken back and verified.\n", counted(len(out.Done), "change"))
			}
			return failed(out, "weir down, again")
		},
	}
	options.add(cmd)
	cmd.Flags().BoolVar(&force, "force", false, "also overwrite what somebody else has changed since")
	return cmd
}
