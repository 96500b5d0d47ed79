// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"weir/internal/change"
	"weir/internal/host"
	"weir/internal/plan"
	"weir/internal/units"
)

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "weir",
		Short: "Low latency under load for a Linux server",
		Long: `Weir gives a Linux server low latency under load, on the kernel that it runs.

  weir doctor                    what holds this server back
  weir plan --rate 50mbit        what would change, and why
  sudo weir up --rate 50mbit     change it; undone after 60 s unless confirmed
  sudo weir confirm              keep it, also over a reboot
  sudo weir down                 put back exactly what was there

Rates, times and shares are written as tc writes them: 50mbit, 48.3ms, 10%.
Exit status: 0 success, 1 no or failed, 2 wrong usage.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			try := "weir --help"
			if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
				try = "weir " + strings.Join(near, ", weir ")
			}
			return usage(try, "unknown command %q", args[0])
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if w := cmd.OutOrStdout(); isTerminal(w) {
				printHome(w, change.Open(change.Dir))
				return nil
			}
			return cmd.Help()
		},
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SuggestionsMinimumDistance = 2
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", ".FlagUsagesWrapped 80"))
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage(cmd.CommandPath()+" --help", "%s", strings.TrimPrefix(err.Error(), "pflag: "))
	})
	root.AddCommand(
		newDoctorCommand(),
		newPlanCommand(),
		newUpCommand(),
		newConfirmCommand(),
		newDownCommand(),
		newRecoverCommand(),
		newStatusCommand(),
		newDualPI2Command(),
		newLabCommand(),
	)
	root.AddCommand(buildOnly()...)
	return root
}

// addCobras adds what cobra adds to every program, once it is known where output goes; and has it refuse a word that
// it does not know.
func addCobras(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd("")
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.Args = func(_ *cobra.Command, args []string) error {
				if named, rest, err := root.Find(args); err != nil || len(rest) > 0 {
					return usage("weir --help", "%s has no command %q", named.CommandPath(), strings.Join(rest, " "))
				}
				return nil
			}
		case "completion":
			c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
			c.Args = func(c *cobra.Command, args []string) error {
				if len(args) == 0 {
					return nil
				}
				return usage("weir completion bash, fish, powershell or zsh", "completion for %q is not there", args[0])
			}
		}
	}
}

// usage is an error that no machine could have helped.
func usage(try, format string, args ...any) error {
	return &plan.Refusal{What: fmt.Sprintf(format, args...), Try: try, Usage: true}
}

func isUsage(err error) bool {
	var refusal *plan.Refusal
	return errors.As(err, &refusal) && refusal.Usage
}

func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usage(cmd.CommandPath()+" --help", "%s takes options only, and no %q", cmd.CommandPath(), args[0])
}

// common are the options of every command here.
type common struct {
	state string
	json  bool
}

func (c *common) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.state, "state", change.Dir, "`directory` of the journal")
	cmd.Flags().BoolVar(&c.json, "json", false, "print JSON")
	cmd.MarkFlagDirname("state")
}

func (c *common) store() change.Store { return change.Open(c.state) }

// addGoal adds the options that say what is wanted.
func addGoal(cmd *cobra.Command, g *plan.Goal) {
	f := cmd.Flags()
	device(cmd, &g.Dev, "`device` of the uplink (default: the default route's)")
	f.Var(option(&g.Rate, "rate", units.ParseRate), "rate",
		"what the provider sold, for what leaves the device: 50mbit")
	f.Var(option(&g.Ingress, "rate", units.ParseRate), "ingress",
		"what the provider sold for what arrives: that is then shaped, too (default: it is left alone; for a "+
			"relay, the rate)")
	f.Var(option(&g.RTT, "time", func(s string) (units.Duration, error) {
		d, err := units.ParseDuration(s)
		if err == nil && d == 0 {
			err = errors.New("no path takes no time")
		}
		return units.Duration(d), err
	}), "rtt", "to the farthest clients when idle: 48.3ms (default: as live connections say)")
	f.Var(option(&g.Loss, "share", units.ParseShare), "loss", "what the path loses with no queue to blame: 10%")
	choice(cmd, &g.Role, "role", "`what` the host is: server, or relay: it carries for others (default: as its "+
		"traffic shows)", plan.Roles)
	f.StringVar((*string)(&g.Carries), "carries", "", "`how` a relay does that: "+
		strings.Join(plan.KnownKinds(), ", ")+"; several with commas between (default: as it is seen to)")
	f.BoolVar(&g.NAT, "nat", false, "the relay translates addresses on the device")
	choice(cmd, &g.FairTo, "fair-to", "hosts on this `side` share evenly: dst (default), the receivers, or src",
		plan.Sides)
	choice(cmd, &g.Prefer, "prefer", "`what` to prefer: latency (default), or l4s", plan.Preferences)
	f.StringVar(&g.CC, "cc", "", "congestion control: auto (default), keep, or a `name`")
	f.Var(option(&g.Qdisc, "queue", func(s string) (string, error) {
		if strings.TrimSpace(s) == "" {
			return "", errors.New("no queue is named")
		}
		return s, nil
	}), "qdisc", "another `queue`, as tc writes it: \"htb rate 49mbit | fq_codel\"")
	choice(cmd, &g.Recipe, "recipe", "a published recipe by `name`: "+strings.Join(plan.RecipeNames(), ", "),
		plan.RecipeNames())

	f.BoolVar(&g.Runtime, "runtime", false, "keep nothing over a reboot, and write no file")

	cmd.RegisterFlagCompletionFunc("carries",
		cobra.FixedCompletions(plan.KnownKinds(), cobra.ShellCompDirectiveNoFileComp))
	complete(cmd, "cc", func(f host.Facts) []string {
		return append(append([]string{"auto", "keep"}, f.Congestion.Available...), f.Congestion.Loadable...)
	})
	for _, name := range []string{"rate", "ingress", "rtt", "loss", "qdisc"} {
		cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions)
	}
}

// device adds an option that names one. An empty name is a variable that nobody has set.
func device(cmd *cobra.Command, to *string, help string) {
	cmd.Flags().Var(option(to, "device", func(name string) (string, error) {
		if name == "" {
			return "", errors.New("no device is named")
		}
		return name, nil
	}), "dev", help)
	complete(cmd, "dev", deviceNames)
}

func choice(cmd *cobra.Command, to *string, name, help string, values []string) {
	cmd.Flags().StringVar(to, name, "", help)
	cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

func complete(cmd *cobra.Command, name string, values func(host.Facts) []string) {
	cmd.RegisterFlagCompletionFunc(name, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		facts, err := host.Read()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return values(facts), cobra.ShellCompDirectiveNoFileComp
	})
}

// optionValue lets a quantity be an option; its own error says what is wrong with it.
type optionValue[T comparable] struct {
	to    *T
	name  string
	parse func(string) (T, error)
}

func option[T comparable](to *T, name string, parse func(string) (T, error)) *optionValue[T] {
	return &optionValue[T]{to, name, parse}
}

func (v *optionValue[T]) Set(s string) (err error) {
	*v.to, err = v.parse(s)
	return err
}

func (v *optionValue[T]) Type() string { return v.name }

func (v *optionValue[T]) String() string {
	var zero T
	if v.to == nil || *v.to == zero {
		return ""
	}
	return fmt.Sprint(*v.to)
}
