// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"

	"weir/internal/host/hosttest"
)

var update = flag.Bool("update", false, "write all that is said into testdata/said.txt")

// All that is said of each made-up host, to the word and the figure.
func TestAllThatIsSaid(t *testing.T) {
	var b strings.Builder
	for _, host := range slices.Concat(servers(t), relays(t)) {
		fmt.Fprintf(&b, "# %s\n", host.name)
		for _, f := range Diagnose(host.facts) {
			fmt.Fprintf(&b, "%s %s %s\n", f.Severity.Mark(), f.Code, f.Title)
			for _, part := range [][2]string{{"plain", f.Plain}, {"seen", f.Seen}, {"why", f.Why}, {"try", f.Try},
				{"remark", f.Remark}, {"evidence", f.Evidence.Scenario + f.Evidence.Doc}} {
				if part[1] != "" {
					fmt.Fprintf(&b, "  %s: %s\n", part[0], part[1])
				}
			}
		}
		b.WriteString("\n")
	}
	hosttest.Golden(t, "testdata/said.txt", b.String(), *update)
}
