// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"weir/internal/hint"
)

// Options that few need come last in a command's help, and none is lost.
func TestSeldom(t *testing.T) {
	cmd := &cobra.Command{Use: "x [flags]", Example: "  x --rate 1mbit", Run: func(*cobra.Command, []string) {}}
	cmd.Flags().SortFlags = false
	for _, name := range []string{"rate", "nat", "dev"} {
		cmd.Flags().String(name, "", "of "+name)
	}
	Seldom(cmd, "nat", "other")
	const want = "Usage:\n  x [flags]\n\nExamples:\n  x --rate 1mbit\n\nFlags:\n" +
		"      --rate string   of rate\n      --dev string    of dev\n  -h, --help          help for x\n\n" +
		"Seldom needed:\n      --nat string   of nat\n"
	var b strings.Builder
	cmd.SetOut(&b)
	cmd.SetArgs([]string{"--help"})
	if err := cmd.Execute(); err != nil || strings.TrimSpace(b.String()) != strings.TrimSpace(want) {
		t.Errorf("%v:\n%s", err, b.String())
	}
}

// What an unknown option leads to, and what a number without a unit does.
func TestWrongOptions(t *testing.T) {
	known := []string{"rate", "rtt", "ingress", "dev", "listen", "cert", "time", "carries"}
	for word, want := range map[string]string{"egress": "x --rate", "port": "x --listen", "bind": "x --listen",
		"duration": "x --time", "iface": "x --dev", "mtu": "x --help", "yes": "x --help", "ingres": "x --ingress",
		"raet": "x --rate", "carrys": "x --carries"} {
		cmd := &cobra.Command{Use: "x", Run: func(*cobra.Command, []string) {}, SilenceErrors: true, SilenceUsage: true}
		for _, name := range known {
			cmd.Flags().String(name, "", "")
		}
		cmd.SetFlagErrorFunc(wrongOption)
		cmd.SetArgs([]string{"--" + word, "1"})
		var wrong *hint.Error
		if err := cmd.Execute(); !errors.As(err, &wrong) || wrong.Try != want {
			t.Errorf("%s: %+v, want %s", word, wrong, want)
		}
	}
}
