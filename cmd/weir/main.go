// SPDX-License-Identifier: Apache-2.0

// Weir gives a Linux server low latency under load at full throughput, and shows that it did.
package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"weir/internal/hint"
	"weir/internal/text"
)

func main() {
	asGuest()
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// version is set by the linker.
var version = "unknown"

// Exit status: success; the answer is no, or something failed; no machine could have done it.
const (
	exitTrue  = 0
	exitNotSo = 1
	exitUsage = 2
)

// run is the program: its arguments in, its exit status out. What reaches a terminal from here is text alone,
// whatever things are called; and that stdout could not be written is an error, whichever command did not look.
func run(args []string, stdout, stderr io.Writer) int {
	readable()
	out, errs := &text.Writer{To: stdout}, &text.Writer{To: stderr}
	defer errs.Close()
	root := newRootCommand()
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errs)
	addCobras(root)
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		unquote(root)
	}
	ran, err := root.ExecuteC()
	if lost := out.Close(); lost != nil && (err == nil || errors.Is(err, errNotSo) || errors.Is(err, lost)) {
		if path := (*fs.PathError)(nil); errors.As(lost, &path) {
			lost = path.Err
		}
		err = hint.Wrap(fmt.Errorf("standard output cannot be written: %w", lost), "again, to where there is room")
	}
	if err == nil {
		return exitTrue
	}
	if errors.Is(err, errNotSo) {
		return exitNotSo
	}
	// One line says what is wrong and one what to try, whatever was wrong.
	fmt.Fprintf(errs, "weir: %s\n", strings.Join(strings.Fields(err.Error()), " "))
	try, usage := hint.Of(err)
	if try != "" {
		fmt.Fprintf(errs, "  try: %s\n", sameState(ran, try))
	}
	if usage {
		return exitUsage
	}
	return exitNotSo
}

// sameState gives the commands of a hint the --state that this one had, where theirs is of the same kind.
func sameState(ran *cobra.Command, hint string) string {
	state := func(c *cobra.Command) *pflag.Flag { return c.Flags().Lookup("state") }
	given := state(ran)
	if given == nil || !given.Changed || strings.Contains(hint, "--state") {
		return hint
	}
	command := regexp.MustCompile(`\bweir( [a-z0-9]+){1,2}`)
	return command.ReplaceAllStringFunc(hint, func(words string) string {
		other, rest, err := ran.Root().Find(strings.Fields(words)[1:])
		if err != nil || state(other) == nil || state(other).DefValue != given.DefValue {
			return words
		}
		same := []string{other.CommandPath(), "--state", text.Shell(given.Value.String())}
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

// errNotSo ends a command that has already said what is not so.
var errNotSo = errors.New("not so")
