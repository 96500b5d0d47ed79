// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"slices"
	"strings"
	"testing"
)

func TestPrograms(t *testing.T) {
	s, err := Load(write(t, "s.toml", minimal+`
[[candidate.program]]
name = "follower"
run = ["weir", "watch"]
[[program]]
name = "server"
run = ["/bin/iperf3", "-s", "-B", "{server}"]
files = ["/etc/services"]
[[program]]
name = "client"
client = "client"
run = ["/bin/iperf3", "-c", "{server}", "-B", "{client}"]
find = "([0-9.]+) Mbits"
`))
	if err != nil {
		t.Fatal(err)
	}
	j := Job{Scenario: s, Candidate: s.Candidate[0]}
	if got := j.HostFiles(); !slices.Equal(got, []string{"/bin/iperf3", "/etc/services", "weir"}) {
		t.Errorf("files of the host: %q", got)
	}
	var names []string
	for _, p := range s.Programs(s.Candidate[0]) {
		names = append(names, p.Name+": "+strings.Join(p.Command("S", "C"), " "))
	}
	if want := []string{"server: /bin/iperf3 -s -B S", "client: /bin/iperf3 -c S -B C",
		"follower: weir watch"}; !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
	for _, bad := range []string{
		`run = ["./iperf3"]`, `run = [""]`, `run = []`, "run = [\"/bin/a\"]\nclient = \"nobody\"", "run = [\"/bin/a\"]\nfind = \"(\"",
		"run = [\"/bin/a\"]\nfind = \"[0-9]+\"", "run = [\"/bin/a\"]\nfiles = [\"relative\"]",
		"run = [\"/bin/a\"]\nstart = \"1h\"",
	} {
		if _, err := Load(write(t, "s.toml", minimal+"[[program]]\nname = \"p\"\n"+bad+"\n")); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
	if _, err := Load(write(t, "s.toml", minimal+"[[candidate.program]]\nname = \"p\"\nrun = [\"/bin/a\"]\n"+
		"[[program]]\nname = \"p\"\nrun = [\"/bin/a\"]\n")); err == nil {
		t.Error("two programs of one name were accepted")
	}
}
