// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"weir/internal/meter/server"
	"weir/internal/text"
	"weir/internal/units"
)

// everyCommand calls f with the arguments that lead to each command.
func everyCommand(f func(path []string, cmd *cobra.Command)) {
	var walk func(path []string, cmd *cobra.Command)
	walk = func(path []string, cmd *cobra.Command) {
		f(path, cmd)
		for _, c := range cmd.Commands() {
			walk(append(path[:len(path):len(path)], c.Name()), c)
		}
	}
	root := newRootCommand()
	addCobras(root)
	walk(nil, root)
}

// Whatever a person or a program hands to any command comes back without what a terminal would obey.
func TestHostileArguments(t *testing.T) {
	const hostile = "\x1b]0;x\a\x1b[31m\u009b\u202e\x9b"
	check := func(args ...string) {
		t.Helper()
		var out, errs bytes.Buffer
		run(args, &out, &errs)
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
	everyCommand(func(path []string, cmd *cobra.Command) {
		if len(path) > 0 && (path[0] == "completion" || path[0] == "help") {
			return
		}
		check(append(path, "--"+hostile)...)
		// No command takes this argument, so none does anything; but lab run takes it for a file.
		check(append(path, hostile, hostile, "--help="+hostile)...)
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !slices.Contains([]string{"string", "stringArray", "directory"}, f.Value.Type()) {
				check(append(path, "--"+f.Name+"="+hostile)...)
			}
		})
	})
	check("help", hostile)
	check("completion", hostile)
	check("lab", "run", hostile)
}

// A hint can be typed as it is, for the journal that the command had.
func TestSameState(t *testing.T) {
	const usual = "/var/lib/weir"
	for _, c := range []struct{ command, state, hint, want string }{
		{"up", "", "weir confirm", "weir confirm"},
		{"up", "/a", "weir confirm, or weir recover, and then again",
			"weir confirm --state /a, or weir recover --state /a, and then again"},
		{"up", "/a b's", "weir up with a goal", `weir up --state '/a b'\''s' with a goal`},
		{"down", "/a", "weir down --all, which takes none", "weir down --state /a --all, which takes none"},
		{"up", "/a", "weir doctor, for what this kernel can do", "weir doctor, for what this kernel can do"},
		{"up", "/a", "weir dualpi2 del --dev up0, or weir status",
			"weir dualpi2 del --dev up0, or weir status --state /a"},
		{"dualpi2 del", "/a", "weir dualpi2 show, or weir down --dev up0",
			"weir dualpi2 show --state /a, or weir down --dev up0"},
		{"dualpi2 del", "/a", "weir dualpi2 del --force", "weir dualpi2 del --state /a --force"},
		{"up", usual, "weir down --dev up0 --state /b, and then again",
			"weir down --dev up0 --state /b, and then again"},
		{"serve", "/a", "weir up", "weir up"},
		{"plan", "/a", "the last weir up is not confirmed", "the last weir up --state /a is not confirmed"},
	} {
		ran, _, err := newRootCommand().Find(strings.Fields(c.command))
		if err == nil && c.state != "" {
			err = ran.Flags().Set("state", c.state)
		}
		if got := sameState(ran, c.hint); err != nil || got != c.want {
			t.Errorf("weir %s --state %s: %q, %v, want %q", c.command, c.state, got, err, c.want)
		}
	}
}

// A text that could not be written is an error, whoever wrote it.
func TestFullOutput(t *testing.T) {
	full := func(args ...string) {
		t.Helper()
		f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var errs bytes.Buffer
		if status := run(args, f, &errs); status != exitNotSo ||
			!strings.HasPrefix(errs.String(), "weir: standard output cannot be written: no space left on device\n  "+
				"try: ") {
			t.Errorf("%q: exit status %d, %q", args, status, errs.String())
		}
	}
	everyCommand(func(path []string, cmd *cobra.Command) {
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

// A file that a person names is written where it is, whatever it is, and what cannot be written leaves nothing.
func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	put := func(name string) {
		t.Helper()
		if err := writable(at(name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := writeFile(at(name), []byte("new")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	holds := func(name, want string) {
		t.Helper()
		if b, err := os.ReadFile(at(name)); err != nil || string(b) != want {
			t.Errorf("%s holds %q: %v", name, b, err)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(at("old"), []byte("longer than before"), 0o600))
	must(os.Link(at("old"), at("other")))
	must(os.Symlink("old", at("link")))
	must(os.Symlink("made", at("dangling")))
	must(os.Symlink("/dev/full", at("full")))
	put("fresh")
	holds("fresh", "new")
	put("link")
	put("dangling")
	for _, name := range []string{"old", "other", "made"} {
		holds(name, "new")
	}
	if info, err := os.Stat(at("old")); err != nil || info.Mode() != 0o600 {
		t.Errorf("its mode is %v now", info.Mode())
	}
	for _, name := range []string{"link", "dangling", "full"} {
		if name == "full" {
			if err := writeFile(at(name), []byte("new")); !errors.Is(err, unix.ENOSPC) ||
				!strings.HasPrefix(err.Error(), at(name)+" cannot be written: ") {
				t.Errorf("/dev/full: %v", err)
			}
		}
		if info, err := os.Lstat(at(name)); err != nil || info.Mode()&os.ModeSymlink == 0 {
			t.Errorf("%s is no link any more", name)
		}
	}
	for _, name := range []string{"", "none/report.html", "old/report.html"} {
		if writable(at(name)) == nil {
			t.Errorf("%q is said to be writable", name)
		}
	}
	left, err := os.ReadDir(dir)
	must(err)
	if len(left) != 7 {
		t.Errorf("there are %v", left)
	}
}

// A test that runs has a line of its own on a terminal, which goes when it ends; nothing that a client is called moves
// the cursor.
func TestServeLog(t *testing.T) {
	var out strings.Builder
	l := newServeLog(&text.Writer{To: &out}) // as run makes it
	l.terminal = true
	l.show(nil, 1)
	if out.Len() > 0 {
		t.Errorf("no test, and yet %q", out.String())
	}
	l.show([]server.Test{{Client: "192.0.2.1", Seconds: 1, Bytes: 1_000_000}}, 1)
	l.show([]server.Test{{Client: "192.0.2.1", Seconds: 2, Bytes: 3_500_000}, {Client: "a\x1b[2J"}}, 1)
	l.event("192.0.2.1: done\x1b[2J")
	l.show(nil, 1)
	const clear = "\r\x1b[K"
	want := clear + "192.0.2.1  1 s · 8.00 Mbit/s" +
		clear + "192.0.2.1  2 s · 20.0 Mbit/s   a?[2J  0 s · 0.00 Mbit/s" + clear
	said := out.String()
	if !strings.HasPrefix(said, want) || !strings.HasSuffix(said, "192.0.2.1: done?[2J\n"+clear) {
		t.Errorf("%q, and not %q", said, want)
	}
}

// A rate that only one client tells is rounded down.
func TestBelow(t *testing.T) {
	for rate, want := range map[units.Rate]units.Rate{49_894_999: 49_800_000, 9_999_999: 9_990_000, 1_000_000: 1_000_000,
		999_999: 999_000, 7: 7} {
		if got := below(rate); got != want {
			t.Errorf("%d: %d, and not %d", rate, got, want)
		}
	}
}
