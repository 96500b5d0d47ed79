// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"weir/internal/cli"
	"weir/internal/plan"
	"weir/internal/text"
)

func newPlanCommand() *cobra.Command {
	var options common
	var goal plan.Goal
	var verbose bool
	patience := listen
	cmd := &cobra.Command{
		Use:   "plan [--dev NAME] [--rate RATE] …",
		Short: "Every change that up would make, and why",
		Long: `Prints every change that weir up would make with the same options: the old
value, the new value and the reason. Plan changes nothing. It needs no root,
except for a BPF queue.

With -v it also prints what was measured, who set the old value, and what was
considered and left. The files in the list are written by weir confirm.

With --rate auto it first listens to this host's traffic, for 8 s or more, or
as long as --listen says. Where the module tcp_diag is not loaded, it listens
only with --listen, and that loads it.

Only root can tell whether the kernel takes weir's own DualPI2, where tunnels
lead to, and what a router forwards.

Without options the goal is the one in /etc/weir.toml. Without that file it is
the one that was brought up last.`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			listens := cmd.Flags().Changed("listen")
			if listens && !goal.Unknown() {
				return cli.Usage("--rate auto", "--listen is for a rate that nobody knows")
			}
			goal, h, err := withMeasuredRate(cmd, options, goal, patience, options.json, listens)
			if err != nil {
				return err
			}
			p, err := options.store().Plan(goal)
			if err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			if options.json {
				return cli.PrintJSON(w, struct {
					plan.GoalsText
					plan.Plan
					Heard *hearing `json:"heard,omitempty"`
				}{plan.TextOf(p.Goals), p, h})
			}
			files := 0
			for _, c := range p.Changes {
				printChange(w, c)
				if c.IsFile() {
					files++
				}
				if verbose {
					printOwner(w, c)
					if c.Evidence != "" {
						printText(w, "", c.Evidence)
					}
				}
			}
			more := 0
			for _, n := range p.Considered {
				if verbose || n.Kind != plan.Aside {
					printNotes(w, []plan.Note{n})
				} else {
					more++
				}
			}
			up := "weir up " + p.Goals[0].Flags()
			if goal == (plan.Goal{}) && len(p.Goals) > 1 {
				up = "weir up"
			}
			up = options.sameJournal(up)
			changes := text.Counted(len(p.Changes)-files, "change")
			switch {
			case p.Empty():
				fmt.Fprintln(w, nothingToChange(p.Considered))
			case files == 0:
				fmt.Fprintf(w, "%s. To make %s:  %s\n", changes, pronoun(len(p.Changes)), up)
			case files == len(p.Changes):
				fmt.Fprintf(w, "%s, to keep the goal over a reboot. To write %s:  %s\n", text.Counted(files, "file"),
					pronoun(files), up)
			default:
				fmt.Fprintf(w, "%s, and %s once they are confirmed. To make them:  %s\n", changes,
					text.Counted(files, "file"), up)
			}
			if !verbose && (more > 0 || !p.Empty()) {
				fmt.Fprintln(w, "What was measured, and what was left as it is:  weir plan -v, with the same options")
			}
			return nil
		},
	}
	addGoal(cmd, &goal)
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "also print what was measured, and what was left as it is")
	cmd.Flags().Var((*timeOption)(&patience), "listen", "with --rate auto: wait this `time` for traffic")
	options.add(cmd)
	return cmd
}

// pronoun returns "it" or "them".
func pronoun(n int) string {
	if n == 1 {
		return "it"
	}
	return "them"
}
