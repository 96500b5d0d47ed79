// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"

	"weir/internal/host"
	"weir/internal/host/hosttest"
)

var update = flag.Bool("update", false, "write all that is said into testdata/said.txt")

// All that is said of each made-up host, to the word and the figure. What limits it, and what each stage shows, is
// there once, under the first host of which it is said.
func TestAllThatIsSaid(t *testing.T) {
	var b strings.Builder
	said := map[string]bool{}
	verdict := func(facts host.Facts) {
		say := func(line string) {
			if !said[line] {
				b.WriteString(line + "\n")
			}
			said[line] = true
		}
		trimmed := func(line string) string { return strings.TrimRight(line, " ;") }
		limit := FindBottleneck(facts)
		say(trimmed(fmt.Sprintf("= %s: %s %s %s", limit.Limit, limit.Says, limit.Try, limit.Remark)))
		for _, s := range FindStages(facts) {
			say(trimmed(fmt.Sprintf("  at %s: %s; %s", s.Name, s.Saw, s.Lacks)))
		}
		sum := Summarize(facts)
		say(trimmed(fmt.Sprintf("  in short: %s %s %s", sum.Says, sum.Try, sum.Remark)))
	}
	for _, c := range slices.Concat(servers(t), relays(t)) {
		fmt.Fprintf(&b, "# %s\n", c.name)
		for _, f := range Diagnose(c.facts) {
			fmt.Fprintf(&b, "%s %s %s\n", f.Severity.Mark(), f.Code, f.Title)
			for _, part := range [][2]string{{"plain", f.Plain}, {"seen", f.Seen}, {"why", f.Why}, {"try", f.Try},
				{"remark", f.Remark}, {"evidence", f.Evidence.Scenario + f.Evidence.Doc}} {
				if part[1] != "" {
					fmt.Fprintf(&b, "  %s: %s\n", part[0], part[1])
				}
			}
		}
		verdict(c.facts)
		b.WriteString("\n")
	}
	for _, c := range bounds(t) {
		fmt.Fprintf(&b, "# %s\n", c.name)
		verdict(c.facts)
		b.WriteString("\n")
	}
	hosttest.Golden(t, "testdata/said.txt", b.String(), *update)
}
