// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"weir/internal/hint"
	"weir/internal/text"
	"weir/internal/units"
)

// Seldom has the help of a command list these options behind the others, under a heading of their own.
func Seldom(cmd *cobra.Command, names ...string) {
	cmd.SetUsageFunc(func(cmd *cobra.Command) error {
		const columns = 80
		var usual, seldom pflag.FlagSet
		usual.SortFlags, seldom.SortFlags = false, false
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if slices.Contains(names, f.Name) {
				seldom.AddFlag(f)
			} else {
				usual.AddFlag(f)
			}
		})
		examples := ""
		if cmd.HasExample() {
			examples = "Examples:\n" + cmd.Example + "\n\n"
		}
		_, err := fmt.Fprintf(cmd.OutOrStderr(), "Usage:\n  %s\n\n%sFlags:\n%s\nSeldom needed:\n%s", cmd.UseLine(),
			examples, usual.FlagUsagesWrapped(columns), seldom.FlagUsagesWrapped(columns))
		return err
	})
}

// wrongOption says what is wrong with an option, in this program's words, and what was likely meant.
func wrongOption(cmd *cobra.Command, err error) error {
	help := cmd.CommandPath() + " --help"
	var value *pflag.InvalidValueError
	var missing *pflag.ValueRequiredError
	var unknown *pflag.NotExistError
	var syntax *pflag.InvalidSyntaxError
	switch {
	case errors.As(err, &value):
		return wrongValue(help, value)
	case errors.As(err, &missing):
		kind, _ := pflag.UnquoteUsage(missing.GetFlag())
		return Usage(help, "%s needs a value: a %s", dashed(missing.GetSpecifiedName(),
			missing.GetSpecifiedShortnames()), kind)
	case errors.As(err, &unknown):
		if meant := optionMeantBy(cmd, unknown); meant != "" {
			help = cmd.CommandPath() + " --" + meant
		}
		return Usage(help, "%s has no option %s", cmd.CommandPath(), dashed(unknown.GetSpecifiedName(),
			unknown.GetSpecifiedShortnames()))
	case errors.As(err, &syntax):
		return Usage(help, "%q is no option", syntax.GetSpecifiedFlag())
	}
	return Usage(help, "%s", strings.TrimPrefix(err.Error(), "pflag: "))
}

// optionMeantBy is the option that was probably meant, which may have been typed with one dash; "" if none is near.
func optionMeantBy(cmd *cobra.Command, unknown *pflag.NotExistError) string {
	word := cmp.Or(unknown.GetSpecifiedShortnames(), unknown.GetSpecifiedName())
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && len(word) > 1 {
			known = append(known, f.Name)
		}
	})
	for _, meant := range optionWords[word] {
		if slices.Contains(known, meant) {
			return meant
		}
	}
	if guess := text.Nearest(word, known); guess != opposites[word] {
		return guess
	}
	return ""
}

// optionWords are words for options that other programs and people have, and the options that these may mean.
var optionWords = map[string][]string{
	"bind": {"listen"}, "port": {"listen"}, "address": {"listen"}, "addr": {"listen"},
	"egress": {"rate"}, "bandwidth": {"rate"}, "speed": {"rate"}, "upload": {"rate"}, "up": {"rate"},
	"download": {"ingress"}, "down": {"ingress"},
	"duration": {"time"}, "seconds": {"time"}, "interface": {"dev"}, "iface": {"dev"}, "device": {"dev"},
	"parallel": {"conns"}, "connections": {"conns"}, "latency": {"rtt"}, "ping": {"rtt"},
}

// opposites are words that are few slips from one that means something else.
var opposites = map[string]string{"egress": "ingress", "download": "upload", "upload": "download"}

// dashed is an option as it is typed.
func dashed(name, short string) string {
	if short != "" {
		return "-" + name[:1]
	}
	return "--" + name
}

// like is a quantity of a kind that an option's help or its default has, or another one: what is a second there is
// hardly meant in ms.
func like(f *pflag.Flag, kind, otherwise string) string {
	if unit := map[string]string{"time": "(ms|s|m|h)", "rate": "[kmg]bit"}[kind]; unit != "" {
		own := regexp.MustCompile(`\b[0-9.]+` + unit + `\b`).FindString(f.Usage + " " + f.DefValue)
		return cmp.Or(own, otherwise)
	}
	return otherwise
}

// withUnit is a value, or a span of two, with the unit of an example where it has none. Nothing is like the example.
func withUnit(text, example string) string {
	words := strings.Split(text, "..")
	for i, word := range words {
		switch v, err := strconv.ParseFloat(word, 64); {
		case err == nil && v == 0:
			words[i] = example
		case err == nil:
			words[i] += strings.TrimLeft(example, "0123456789.")
		}
	}
	return strings.Join(words, "..")
}

// fewSeconds are too few for any option that is a time: so small a number means minutes.
const fewSeconds = 10

// A rate alone of so many is one in bit/s, up to what no link has.
const fewestBits, mostBits = 1e6, 1e13

// wrongValue is about an option's value. What is a number alone most likely wants a unit.
func wrongValue(help string, err *pflag.InvalidValueError) error {
	name, text := "--"+err.GetFlag().Name, err.GetValue()
	number := text != "" && strings.Trim(text, "0123456789.") == ""
	var noUnit *units.NoUnit
	switch kind := err.GetFlag().Value.Type(); {
	case kind == "duration" && number:
		unit := "s"
		if seconds, _ := strconv.ParseFloat(text, 64); seconds < fewSeconds {
			unit = "m"
		}
		return Usage(name+" "+text+unit, "%s: time %q has no unit: write it like 30s or 3m", name, text)
	case kind == "duration":
		return Usage(name+" 3m", "%s: %q is no time: write it like 30s or 3m", name, text)
	case kind == "int":
		return Usage(help, "%s: %q is no whole number", name, text)
	case kind == "bool":
		return Usage(name+", or leave it out", "%s: %q is neither true nor false", name, text)
	case errors.As(err, &noUnit):
		if kind == "rate" && !strings.Contains(text, "..") { // which is a span
			text = noUnit.Text                   // without the words around it
			if strings.ContainsAny(text, ".,") { // a thousand, or one: the example has both
				return Usage(name+" "+noUnit.Example, "%s: %v", name, noUnit)
			}
		}
		noUnit.Example = like(err.GetFlag(), noUnit.What, noUnit.Example)
		v, _ := strconv.ParseFloat(text, 64)
		switch {
		case kind == "share" && v > 0 && v < 1: // a percentage, or a part of one
			return Usage(fmt.Sprintf("%s %s%% or %s", name, text, units.Share(v)), "%s: %v", name, noUnit)
		case kind == "rate" && v >= fewestBits && v <= mostBits:
			return Usage(name+" "+units.Rate(v).String(), "%s: %v", name, noUnit)
		}
		try := name + " " + withUnit(text, noUnit.Example)
		if kind == "time" && v > 0 && v < 1 && strings.HasSuffix(try, "ms") { // seconds, as ping's own -i has them
			try = fmt.Sprintf("%s %s or %s", name, units.Duration(v*float64(time.Second)), try)
		}
		return Usage(try, "%s: %v", name, noUnit)
	}
	if wrong := (*hint.Error)(nil); errors.As(err, &wrong) {
		return Usage(help, "%s", wrong.What) // it names the option
	}
	return Usage(help, "%s: %v", name, err.Unwrap())
}

// NoArguments refuses what is no option. A rate that somebody typed alone most likely wants --rate.
func NoArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	try := cmd.CommandPath() + " --help"
	if _, err := units.ParseRate(args[0]); err == nil && cmd.Flags().Lookup("rate") != nil {
		try = cmd.CommandPath() + " --rate " + args[0]
	}
	return Usage(try, "%s takes options only, and no %q", cmd.CommandPath(), args[0])
}

// TakesFile has a shell offer files of any name for these options.
func TakesFile(cmd *cobra.Command, names ...string) {
	for _, name := range names {
		cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault))
	}
}
