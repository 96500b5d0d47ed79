// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"weir/internal/plan"
)

func newUpCommand() *cobra.Command {
	var options common
	var goal plan.Goal
	cmd := &cobra.Command{
		Use:   "up [--dev NAME] [--rate RATE] …",
		Short: "Bring a goal into force: change what the plan says, and verify it",
		Long: `Makes the changes that weir plan prints, and verifies each. What was there before is written to a
journal first, so that weir down can put it back. A goal replaces the one before it; without any
option the last one is brought up again. If the queue cannot be set, nothing is changed; any other
setting that fails is reported and does not stop the rest.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out, err := options.store().Up(goal)
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
			for _, c := range out.Done {
				printChange(w, c)
			}
			switch {
			case len(out.Done) > 0:
				fmt.Fprintf(w, "%s made and verified. To undo:  weir down\n", counted(len(out.Done), "change"))
			case len(out.Failed) == 0:
				fmt.Fprintln(w, "Nothing to change: the goal is in force.")
			}
			return failed(out, "weir plan, for the reasons of each")
		},
	}
	options.add(cmd)
	addGoal(cmd, &goal)
	return cmd
}
