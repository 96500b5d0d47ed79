// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"weir/internal/hint"
	"weir/internal/host"
	"weir/internal/plan"
	"weir/internal/units"
)

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "weir",
		Short: "Low latency under load for a Linux server",
		Long: `Weir gives a Linux server low latency under load, on the kernel that it runs.

` + firstCommands + `

Rates, times and shares are written as tc writes them: 50mbit, 48.3ms, 10%.
Exit status: 0 success, 1 the answer is no or the command failed,
2 wrong usage.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			try := "weir --help"
			if args[0] == "version" {
				try = "weir --version"
			} else if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
				try = "weir " + strings.Join(near, ", weir ")
			}
			return usage(try, "unknown command %q", args[0])
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if w := cmd.OutOrStdout(); isTerminal(w) {
				return alone(w, cmd.Help)
			}
			return cmd.Help()
		},
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SuggestionsMinimumDistance = 2
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", ".FlagUsagesWrapped 80"))
	root.SetFlagErrorFunc(wrongOption)
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	root.AddCommand(commands()...)
	root.AddCommand(buildOnly()...)
	return root
}

// addCobras adds what cobra adds to every program, once it is known where output goes; and has it refuse a word that
// it does not know, in this program's words.
func addCobras(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd("")
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.Args = func(_ *cobra.Command, args []string) error {
				if named, rest, err := root.Find(args); err != nil || len(rest) > 0 {
					return usage(named.CommandPath()+" --help", "%s has no command %q", named.CommandPath(),
						strings.Join(rest, " "))
				}
				return nil
			}
		case "completion":
			sayCompletion(c)
		}
	}
}

// usage is an error that no machine could have helped.
func usage(try, format string, args ...any) error {
	return &hint.Error{What: fmt.Sprintf(format, args...), Try: try, Usage: true}
}

func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	try := cmd.CommandPath() + " --help"
	if _, err := units.ParseRate(args[0]); err == nil && cmd.Flags().Lookup("rate") != nil {
		try = cmd.CommandPath() + " --rate " + args[0]
	}
	return usage(try, "%s takes options only, and no %q", cmd.CommandPath(), args[0])
}

// addGoal adds the options that say what is wanted.
func addGoal(cmd *cobra.Command, g *plan.Goal) {
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
	}
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
	if o.said != "" && o.said != text {
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

// takesFile has a shell offer files of any name for these options.
func takesFile(cmd *cobra.Command, names ...string) {
	for _, name := range names {
		cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault))
	}
}

func complete(cmd *cobra.Command, name string, values func(host.Facts) []string) {
	cmd.RegisterFlagCompletionFunc(name, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		facts, err := readHost()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return values(facts), cobra.ShellCompDirectiveNoFileComp
	})
}
