// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"weir/internal/plan"
)

func newPlanCommand() *cobra.Command {
	var options common
	var goal plan.Goal
	cmd := &cobra.Command{
		Use:   "plan [--dev NAME] [--rate RATE] …",
		Short: "Every change that up would make, and why; changes nothing",
		Long: `Prints every change that weir up with the same options would make: what is there, what would be,
why, and what was measured. Without any option it is about the goal in /etc/weir.toml, or else the
one that was last brought up, if there is one. Changes nothing, and takes no root.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := options.store().Plan(goal)
			if err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			if options.json {
				return printJSON(w, p)
			}
			for _, c := range p.Changes {
				printChange(w, c)
				printOwner(w, c)
				if c.Evidence != "" {
					printText(w, "", c.Evidence)
				}
			}
			printNotes(w, p.Considered)
			if p.Empty() {
				fmt.Fprintln(w, "Nothing to change: the goal is in force.")
			} else {
				fmt.Fprintf(w, "%s. To make them:  weir up %s\n", counted(len(p.Changes), "change"), p.Goal.Flags())
			}
			return nil
		},
	}
	options.add(cmd)
	addGoal(cmd, &goal)
	return cmd
}
