// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package clitest has the tests that hold for each command line of this project.
package clitest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"weir/internal/cli"
)

// everyCommand calls f with the arguments that lead to each command.
func everyCommand(root *cobra.Command, f func(path []string, cmd *cobra.Command)) {
	var walk func(path []string, cmd *cobra.Command)
	walk = func(path []string, cmd *cobra.Command) {
		f(path, cmd)
		for _, c := range cmd.Commands() {
			walk(append(path[:len(path):len(path)], c.Name()), c)
		}
	}
	cli.AddDefaults(root)
	walk(nil, root)
}

// HostileArguments tests that whatever is handed to any command comes back without what a terminal would obey.
func HostileArguments(t *testing.T, newRoot func() *cobra.Command) {
	const hostile = "\x1b]0;x\a\x1b[31m\u009b\u202e\x9b"
	check := func(args ...string) {
		t.Helper()
		var out, errs bytes.Buffer
		cli.Run(newRoot(), args, &out, &errs)
		if out.Len()+errs.Len() == 0 {
			t.Errorf("%q says nothing", args)
		}
		for _, said := range []string{out.String(), errs.String()} {
			for _, r := range said {
				if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) ||
					r == unicode.ReplacementChar) {
					t.Errorf("%q: %q", args, said)
					break
				}
			}
		}
	}
	everyCommand(newRoot(), func(path []string, cmd *cobra.Command) {
		if len(path) > 0 && (path[0] == "completion" || path[0] == "help") {
			return
		}
		check(append(path, "--"+hostile)...)
		// No command takes this argument, so none does anything; but weir-lab run takes it for a file.
		check(append(path, hostile, hostile, "--help="+hostile)...)
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !slices.Contains([]string{"string", "stringArray", "directory"}, f.Value.Type()) {
				check(append(path, "--"+f.Name+"="+hostile)...)
			}
		})
	})
	check("help", hostile)
	check("completion", hostile)
}

// FullOutput tests that a text that could not be written is an error, whoever wrote it.
func FullOutput(t *testing.T, newRoot func() *cobra.Command) {
	full := func(args ...string) {
		t.Helper()
		f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var errs bytes.Buffer
		if status := cli.Run(newRoot(), args, f, &errs); status != cli.ExitFailure ||
			!strings.HasPrefix(errs.String(),
				newRoot().Name()+": standard output cannot be written: no space left on device\n  "+
					"try: ") {
			t.Errorf("%q: exit status %d, %q", args, status, errs.String())
		}
	}
	everyCommand(newRoot(), func(path []string, cmd *cobra.Command) {
		if cmd.Hidden {
			return
		}
		full(append(path, "--help")...)
		if len(path) > 0 {
			full(append([]string{"help"}, path...)...)
		}
		if len(path) == 2 && path[0] == "completion" {
			full(path...)
		}
	})
	full("--version")
}

// Refused returns the script command refused STATUS REGEXP ARGS: the program run with ARGS must end with STATUS, print
// nothing, and say on stderr one line that matches and one with what to try.
func Refused(program string) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, _ bool, args []string) { refused(ts, program, args) }
}

func refused(ts *testscript.TestScript, program string, args []string) {
	err := ts.Exec(program, args[2:]...)
	stdout, stderr := ts.ReadFile("stdout"), ts.ReadFile("stderr")
	status := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		status = exit.ExitCode()
	}
	if fmt.Sprint(status) != args[0] {
		ts.Fatalf("exit status %d, want %s", status, args[0])
	}
	if stdout != "" {
		ts.Fatalf("a refusal prints nothing to stdout")
	}
	lines := strings.Split(stderr, "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[0], program+": ") || !strings.HasPrefix(lines[1], "  try: ") ||
		lines[2] != "" {
		ts.Fatalf("not one line that says what is wrong and one that says what to try")
	}
	if !regexp.MustCompile(args[1]).MatchString(lines[0]) {
		ts.Fatalf("the error does not match %q", args[1])
	}
}
