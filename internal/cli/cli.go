// SPDX-License-Identifier: Apache-2.0

// Package cli is what the command lines of weir and weir-lab have in common: exit statuses, errors in two lines,
// options and their mistakes, files that a person names, terminals and progress, completion, and manual pages.
//
// It knows no command of either, and touches nothing but the files that it is asked to write.
package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"weir/internal/hint"
	"weir/internal/text"
)

// Exit statuses.
const (
	ExitSuccess = 0
	ExitFailure = 1 // the answer is no, or the command failed
	ExitUsage   = 2 // no machine could have done it
)

// ErrNo ends a command that has already said that the answer is no. Run says nothing more of it.
var ErrNo = errors.New("no")

// Usage returns an error in what was typed, with what to type instead.
func Usage(try, format string, args ...any) error {
	return &hint.Error{What: fmt.Sprintf(format, args...), Try: try, Usage: true}
}

// Root makes cmd the root of a command line: it refuses unknown commands and options in this project's words.
func Root(cmd *cobra.Command, version string) *cobra.Command {
	cmd.Version, cmd.SilenceErrors, cmd.SilenceUsage = version, true, true
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		try := cmd.Name() + " --help"
		if args[0] == "version" {
			try = cmd.Name() + " --version"
		} else if meant := meantBy(args[0], cmd.Commands()); meant != "" {
			try = cmd.Name() + " " + meant
		}
		return Usage(try, "unknown command %q", args[0])
	}
	cmd.SetUsageTemplate(strings.ReplaceAll(cmd.UsageTemplate(), ".FlagUsages", ".FlagUsagesWrapped 80"))
	cmd.SetFlagErrorFunc(wrongOption)
	cmd.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	cmd.AddCommand(buildOnly()...)
	return cmd
}

// meantBy is what to type for a word that stands for a command elsewhere, or is one slip away from one: its help, as
// some commands change a host. It is "" where there is none.
func meantBy(word string, all []*cobra.Command) string {
	for _, c := range all {
		if c.IsAvailableCommand() && (slices.Contains(c.SuggestFor, word) || text.Mistyped(word, c.Name())) {
			return c.Name() + " --help"
		}
	}
	return ""
}

// Run runs the command line of root and returns its exit status. Only plain text reaches a terminal from here, whatever
// things are called. If stdout could not be written, that is an error, whichever command did not look.
func Run(root *cobra.Command, args []string, stdout, stderr io.Writer) int {
	out, errs := &text.Writer{To: stdout}, &text.Writer{To: stderr}
	defer errs.Close()
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errs)
	AddDefaults(root)
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		unquote(root)
	}
	ran, err := root.ExecuteC()
	if lost := out.Close(); lost != nil && (err == nil || errors.Is(err, ErrNo) || errors.Is(err, lost)) {
		if path := (*fs.PathError)(nil); errors.As(lost, &path) {
			lost = path.Err
		}
		err = hint.Wrap(fmt.Errorf("standard output cannot be written: %w", lost), "again, to where there is room")
	}
	if err == nil {
		return ExitSuccess
	}
	if errors.Is(err, ErrNo) {
		return ExitFailure
	}
	// One line says what is wrong and one what to try, whatever was wrong.
	fmt.Fprintf(errs, "%s: %s\n", root.Name(), strings.Join(strings.Fields(err.Error()), " "))
	try, usage := hint.Of(err)
	if try != "" {
		fmt.Fprintf(errs, "  try: %s\n", WithState(ran, try))
	}
	if usage {
		return ExitUsage
	}
	return ExitFailure
}

// AddDefaults adds cobra's own commands, help and completion, and has them refuse an unknown word in this project's
// words. Where output goes must be known by then.
func AddDefaults(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd("")
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.Args = func(_ *cobra.Command, args []string) error {
				if named, rest, err := root.Find(args); err != nil || len(rest) > 0 {
					return Usage(named.CommandPath()+" --help", "%s has no command %q", named.CommandPath(),
						strings.Join(rest, " "))
				}
				return nil
			}
		case "completion":
			sayCompletion(c)
		}
	}
}

// WithState gives the commands of a hint the --state that this one had, where theirs is of the same kind.
func WithState(ran *cobra.Command, hint string) string {
	state := func(c *cobra.Command) *pflag.Flag { return c.Flags().Lookup("state") }
	flag := state(ran)
	if flag == nil || !flag.Changed || strings.Contains(hint, "--state") {
		return hint
	}
	command := regexp.MustCompile(`\bweir( [a-z0-9]+){1,2}`)
	return command.ReplaceAllStringFunc(hint, func(words string) string {
		other, rest, err := ran.Root().Find(strings.Fields(words)[1:])
		if err != nil || state(other) == nil || state(other).DefValue != flag.DefValue {
			return words
		}
		same := []string{other.CommandPath(), "--state", text.Shell(flag.Value.String())}
		return strings.Join(append(same, rest...), " ")
	})
}

// unquote takes from each option's text the quotes that only --help understands, for shells that show it beside the
// option.
func unquote(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) { f.Usage = strings.ReplaceAll(f.Usage, "`", "") })
	for _, c := range cmd.Commands() {
		unquote(c)
	}
}
