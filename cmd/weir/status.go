// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newStatusCommand() *cobra.Command {
	var options common
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Is the goal still in force, and if not, what has drifted?",
		Long: `Makes the plan again for the goal that was last brought up. If it is empty the goal is in force,
and the exit status is 0; otherwise it prints what has drifted. Takes no root.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := options.store().Status()
			if err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			switch {
			case options.json:
				if err := printJSON(w, s); err != nil {
					return err
				}
			case !s.Up:
				fmt.Fprintln(w, "Weir is not up.")
			case s.InForce:
				fmt.Fprintf(w, "In force:  %s\n", flags(s.Goal))
			default:
				for _, c := range s.Drift {
					printChange(w, c)
				}
				why := ""
				if s.Reboot {
					why = " The machine was started again since."
				}
				fmt.Fprintf(w, "Not in force:  %s\n%s to bring it back:  weir up%s\n", flags(s.Goal), counted(len(s.Drift), "change"), why)
			}
			if !s.InForce {
				return errNotSo
			}
			return nil
		},
	}
	options.add(cmd)
	return cmd
}
