// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
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
