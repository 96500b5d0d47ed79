// SPDX-License-Identifier: Apache-2.0

package change

import (
	"slices"
	"strings"
	"testing"

	"weir/internal/host"
	"weir/internal/journal"
	"weir/internal/plan"
)

// Nobody says a goal: then those of the file count, as they were brought up, and those that no file keeps.
func TestWanted(t *testing.T) {
	eth0 := plan.Goal{Dev: "eth0", Rate: 50e6, RTT: 50e6} // whose RTT was measured
	eth1 := plan.Goal{Dev: "eth1", Rate: 20e6, RTT: 50e6}
	runtime := plan.Goal{Dev: "eth2", Rate: 10e6, Runtime: true}
	journalOf := func(goals ...plan.Goal) *journal.Journal {
		j := &journal.Journal{}
		for _, g := range goals {
			j.Uplinks = append(j.Uplinks, journal.Uplink{Goal: g})
		}
		return j
	}
	renamed := journalOf(eth0)
	renamed.Uplinks[0].FileDev = "ens3"
	faster := plan.Goal{Dev: "eth0", Rate: 90e6}
	for name, c := range map[string]struct {
		journal *journal.Journal
		file    string // "" for none
		want    []plan.Goal
		refused string
	}{
		"no file":                     {journalOf(eth0, eth1), "", []plan.Goal{eth0, eth1}, ""},
		"nothing at all":              {nil, "", nil, ""},
		"the file's, as it was found": {journalOf(eth0), "dev = 'eth0'\nrate = '50mbit'\n", []plan.Goal{eth0}, ""},
		"without a device":            {journalOf(eth0), "rate = '50mbit'\n", []plan.Goal{eth0}, ""},
		"another":                     {journalOf(eth0), "dev = 'eth0'\nrate = '90mbit'\n", []plan.Goal{faster}, ""},
		"another, without a device":   {journalOf(eth0), "rate = '90mbit'\n", []plan.Goal{faster}, ""},
		"under the name of the file":  {renamed, "dev = 'ens3'\nrate = '50mbit'\n", []plan.Goal{eth0}, ""},
		"one of two is another": {journalOf(eth0, eth1), "[eth0]\nrate = '90mbit'\n[eth1]\nrate = '20mbit'\n",
			[]plan.Goal{faster, eth1}, ""},
		"one in the file, one in none": {journalOf(eth0, runtime), "dev = 'eth0'\nrate = '90mbit'\n",
			[]plan.Goal{faster, runtime}, ""},
		"the file has none":             {journalOf(eth0), "# empty\n", nil, "has no goal"},
		"an empty file, and nothing up": {nil, "# empty\n", nil, ""},
		"a file that cannot be read":    {journalOf(eth0), "rate = 50\n", nil, "has no unit"},
	} {
		facts := host.Facts{Files: map[string]host.File{host.GoalFile: {Kind: host.NoFile}}}
		if c.file != "" {
			facts.Files[host.GoalFile] = host.File{Kind: host.Regular, Text: c.file}
		}
		got, err := Store{}.wanted(situation{written: c.journal, journal: c.journal, facts: facts})
		if c.refused != "" {
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for kind, want := range map[host.FileKind]string{
		host.Symlink: "links are not followed", host.Other: "is over 64 KiB",
	} {
		facts := host.Facts{Files: map[string]host.File{host.GoalFile: {Kind: kind}}}
		if _, err := (Store{}).wanted(situation{facts: facts}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}
