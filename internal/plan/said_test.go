// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"weir/internal/host"
	"weir/internal/host/hosttest"
	"weir/internal/kernel"
)

var update = flag.Bool("update", false, "write what plans say into testdata/said.txt, and figures.go from results")

// All that plans say, to the word and the figure, each sentence once, under the first plan that says it: reasons,
// what was left as it is, and the files that would keep it. What they change is in ruled, and their evidence in
// evidence.go.
func TestAllThatIsSaid(t *testing.T) {
	var b strings.Builder
	said := map[string]bool{}
	for _, c := range ruled(t) {
		f := c.facts
		f.Init, f.Udev, f.Program = host.Systemd, true, host.Program{Path: "/usr/local/bin/weir", RootOnly: true}
		f.Files = map[string]host.File{}
		for _, name := range []string{host.GoalFile, host.SysctlFile, host.UnitFile, host.PackageUnit, host.UnitLink,
			host.UdevFile, host.FollowFile, host.FollowLink} {
			f.Files[name] = host.File{Kind: host.NoFile}
		}
		p, err := planFor(c.goal, f)
		title := fmt.Sprintf("# %s: %s\n", c.name, c.goal.Flags())
		say := func(format string, args ...any) {
			if line := fmt.Sprintf(format, args...); !said[line] {
				b.WriteString(title + line + "\n")
				title, said[line] = "", true
			}
		}
		if err != nil {
			say("%v", err)
		}
		for _, change := range p.Changes {
			if content, is := change.New.(kernel.Content); is {
				if text := settings(content.Text); change.Name != host.UnitFile && change.Name != host.FollowFile {
					say("%s %s: %s", change.Verb(), change.Name, text)
				}
				continue
			}
			say("%s", change.Reason)
		}
		for _, n := range p.Considered {
			say("%s: %s", n.Subject, n.Text)
		}
		if title == "" {
			b.WriteString("\n")
		}
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
