// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"weir/internal/host"
	"weir/internal/host/hosttest"
)

var update = flag.Bool("update", false, "write all that plans say into testdata/said.txt")

// All that each plan says, to the word and the figure: with its reasons, what was left as it is, and the files that
// would keep it.
func TestAllThatIsSaid(t *testing.T) {
	var b strings.Builder
	for _, c := range ruled(t) {
		f := c.facts
		f.Init, f.Udev, f.Program = host.Systemd, true, host.Program{Path: "/usr/local/bin/weir", RootOnly: true}
		f.Files = map[string]host.File{}
		for _, name := range []string{host.GoalFile, host.SysctlFile, host.UnitFile, host.PackageUnit, host.UnitLink,
			host.UdevFile, host.FollowFile, host.FollowLink} {
			f.Files[name] = host.File{Kind: host.NoFile}
		}
		p, err := Make(c.goal, f)
		fmt.Fprintf(&b, "# %s: %s\n", c.name, c.goal.Flags())
		if err != nil {
			fmt.Fprintf(&b, "%v\n\n", err)
			continue
		}
		for _, change := range p.Changes {
			if content, is := change.New.(Content); is {
				if text := settings(content.Text); change.Name != host.UnitFile && change.Name != host.FollowFile {
					fmt.Fprintf(&b, "%s %s: %s\n", change.Verb(), change.Name, text)
				}
				continue
			}
			fmt.Fprintf(&b, "%s: %s → %s\n  %s\n", change.Target, change.Old, change.New, change.Reason)
		}
		for _, n := range p.Considered {
			fmt.Fprintf(&b, "%s: %s\n", n.Subject, n.Text)
		}
		b.WriteString("\n")
	}
	hosttest.Golden(t, "testdata/said.txt", b.String(), *update)
}

// settings are the lines of a file that are no remarks, in one.
func settings(text string) string {
	var all []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			all = append(all, line)
		}
	}
	return strings.Join(all, "; ")
}
