// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"weir/internal/cli"
	"weir/internal/host"
	"weir/internal/plan"
)

func newRootCommand() *cobra.Command {
	root := cli.Root(&cobra.Command{
		Use:   "weir",
		Short: "Low latency under load for a Linux server",
		Long: `Weir gives a Linux server low latency under load, on the kernel that it runs.

` + firstCommands + `

Rates, times and shares are written as tc writes them: 50mbit, 48.3ms, 10%.
Of an installed package docs/ is in /usr/share/doc/weir.
Exit status: 0 success, 1 the answer is no or the command failed,
2 wrong usage.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if w := cmd.OutOrStdout(); cli.IsTerminal(w) {
				return printBare(w, cmd.Help)
			}
			return cmd.Help()
		},
	}, version)
	root.AddCommand(commands()...)
	return root
}

// addGoal adds the options that say what is wanted.
func addGoal(cmd *cobra.Command, g *plan.Goal) {
	cmd.Flags().SortFlags = false // those that are used most come first
	var rareOptions []string
	for _, field := range plan.Fields() {
		value := &goalOption{goal: g, field: field}
		flag := cmd.Flags().VarPF(value, field.Name, "", field.Help)
		switch {
		case field.Type == "bool":
			flag.NoOptDefVal = "true"
		case field.Suggests != nil:
			complete(cmd, field.Name, field.Suggests)
		case field.Several:
			cmd.RegisterFlagCompletionFunc(field.Name, completeSeveral(field.Values))
		default: // of an open value there are none
			cmd.RegisterFlagCompletionFunc(field.Name, cobra.FixedCompletions(field.Values,
				cobra.ShellCompDirectiveNoFileComp))
		}
		if field.Seldom {
			rareOptions = append(rareOptions, field.Name)
		}
	}
	cli.Seldom(cmd, append(rareOptions, "boot", "state")...)
}

// completeSeveral offers, behind each comma, what is not said yet.
func completeSeveral(values []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, typed string) (offers []string, _ cobra.ShellCompDirective) {
		said := typed[:strings.LastIndex(typed, ",")+1]
		for _, value := range values {
			if !slices.Contains(strings.Split(said, ","), value) {
				offers = append(offers, said+value)
			}
		}
		return offers, cobra.ShellCompDirectiveNoFileComp
	}
}

// goalOption is an option that says a field of a goal; its own error says what is wrong with it.
type goalOption struct {
	goal  *plan.Goal
	field plan.Field
	said  string
}

// Set does not drop in silence what was said before: --rate auto --rate 50mbit would be some of both.
func (o *goalOption) Set(text string) error {
	if o.said != "" && o.said != text && !o.field.Repeats {
		return fmt.Errorf("%s and %s contradict each other", o.said, text)
	}
	o.said = text
	return o.field.Set(o.goal, text)
}
func (o *goalOption) String() string {
	if o.goal == nil { // the zero value, which pflag compares with
		return ""
	}
	return o.field.Get(*o.goal)
}
func (o *goalOption) Type() string     { return o.field.Type }
func (o *goalOption) IsBoolFlag() bool { return o.field.Type == "bool" }

// device adds an option that names one.
func device(cmd *cobra.Command, to *string, help string) {
	cmd.Flags().Var(&nameOption{to, "device"}, "dev", help)
	complete(cmd, "dev", plan.DeviceNames)
}

// stateDir adds the option that names where a command keeps what it has to know again.
func stateDir(cmd *cobra.Command, to *string, usually, help string) {
	*to = usually
	cmd.Flags().Var(&nameOption{to, "directory"}, "state", help)
	cmd.MarkFlagDirname("state")
}

// nameOption is an option that names something. An empty name is a variable that nobody has set.
type nameOption struct {
	name *string
	kind string
}

func (o *nameOption) Set(name string) error {
	if name == "" {
		return fmt.Errorf("no %s is named", o.kind)
	}
	*o.name = name
	return nil
}
func (o *nameOption) String() string {
	if o.name == nil { // the zero value, which pflag compares with
		return ""
	}
	return *o.name
}
func (o *nameOption) Type() string { return o.kind }

func complete(cmd *cobra.Command, name string, values func(host.Facts) []string) {
	cmd.RegisterFlagCompletionFunc(name, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		facts, err := readHost()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return values(facts), cobra.ShellCompDirectiveNoFileComp
	})
}
