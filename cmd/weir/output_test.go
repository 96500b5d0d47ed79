// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"weir/internal/cli"
	"weir/internal/cli/clitest"
	"weir/internal/meter/server"
	"weir/internal/text"
	"weir/internal/units"
)

// Whatever a person or a program hands to any command comes back without what a terminal would obey.
func TestHostileArguments(t *testing.T) { clitest.HostileArguments(t, newRootCommand) }

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
		if got := cli.WithState(ran, c.hint); err != nil || got != c.want {
			t.Errorf("weir %s --state %s: %q, %v, want %q", c.command, c.state, got, err, c.want)
		}
	}
}

// A text that could not be written is an error, whoever wrote it.
func TestFullOutput(t *testing.T) { clitest.FullOutput(t, newRootCommand) }

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
func TestRoundDown(t *testing.T) {
	for rate, want := range map[units.Rate]units.Rate{49_894_999: 49_800_000, 9_999_999: 9_990_000,
		1_000_000: 1_000_000, 999_999: 999_000, 7: 7} {
		if got := roundDown(rate); got != want {
			t.Errorf("%d: %d, and not %d", rate, got, want)
		}
	}
}

// A command's examples are part of its help.
func TestExamples(t *testing.T) {
	shown := 0
	check := func(cmd *cobra.Command) {
		var b strings.Builder
		cmd.SetOut(&b)
		cmd.SetErr(&b)
		if err := cmd.Usage(); err != nil || !strings.Contains(b.String(), cmd.Example) {
			t.Errorf("%s: %v\n%s", cmd.CommandPath(), err, b.String())
		}
		if cmd.Example != "" {
			shown++
		}
	}
	for _, cmd := range newRootCommand().Commands() {
		check(cmd)
		for _, sub := range cmd.Commands() {
			check(sub)
		}
	}
	if shown == 0 {
		t.Error("none has examples")
	}
}
