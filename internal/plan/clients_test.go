// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"
	"testing"

	"weir/internal/host"
	"weir/internal/kernel"
)

const (
	keyA = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
	keyB = "//////////////////////////////////////////8="
)

// Rules are written in one way, however they are said.
func TestClients(t *testing.T) {
	for text, want := range map[string]string{
		"10.8.0.7=20mbit":                                  "10.8.0.7=20mbit",
		keyB + "=weight:2," + keyA + "=0.02gbit":           keyB + "=weight:2," + keyA + "=20mbit",
		keyA + "20mbit":                                    keyA + "=20mbit",
		keyB + "=5mbit/weight:2,10.8.0.7=20mbit":           "10.8.0.7=20mbit," + keyB + "=5mbit/weight:2",
		keyA + "=fast":                                     "error: peer " + keyA + ": \"fast\" is no",
		keyA + "=5mbit," + keyA + "=6mbit":                 "error: peer " + keyA + " is given twice",
		keyA:                                               "error: ",
		strings.ToLower(keyA[:43]) + "!=5mbit":             "error: ",
		keyA[:40] + "=5mbit":                               "error: ",
		"10.8.0.7=1mbit,10.8.0.7=2mbit," + keyA + "=1mbit": "error: client 10.8.0.7 is given twice",
	} {
		got, err := parseClients(text)
		if wrong, is := strings.CutPrefix(want, "error: "); is {
			if err == nil || !strings.Contains(err.Error(), wrong) {
				t.Errorf("%s: %q, %v", text, got, err)
			}
			continue
		}
		if err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", text, got, err)
		}
		if again, err := parseClients(string(got)); err != nil || again != got {
			t.Errorf("%s: %q, %v", got, again, err)
		}
	}
}

// A peer has the addresses that its tunnel lets it have, each of them; what is said of one that is not there waits.
func TestPeers(t *testing.T) {
	tunnel := func(f *host.Facts) {
		device("wireguard", "wg0", 0, 0, func(l *host.Link) {
			l.Up, l.MAC = true, ""
			l.Peers = []host.Peer{{Key: keyA, Allowed: []string{"10.8.0.7/32", "fd00::7/128"}}}
		})(f)
	}
	facts := with(t, kernelWith("cake", "fq"), bpfShaper, tunnel)
	goal := Goal{Dev: "wg0", Rate: 50e6, CC: "cubic", Client: keyA + "=5mbit,10.8.0.9=1mbit"}
	p, err := planFor(goal, facts)
	if err != nil || p.Unavailable != nil || len(p.Changes) == 0 {
		t.Fatalf("%+v, %v", p, err)
	}
	queue := p.Changes[0].New.(kernel.Queue)
	if want := "prefix6 128 overhead 74 clients 10.8.0.7=5mbit,10.8.0.9=1mbit,fd00::7=5mbit | fq"; !strings.Contains(
		queue.String(), want) {
		t.Errorf("%s, want %s", queue, want)
	}
	if !Settled(goal, facts) {
		t.Error("a tunnel that has the peer is not settled")
	}
	goal.Client = keyB + "=5mbit"
	if Settled(goal, facts) {
		t.Error("a tunnel that has not the peer yet is settled")
	}
	p, err = planFor(goal, facts)
	if err != nil || p.Unavailable == nil || !strings.Contains(p.Unavailable.What, "wg0 has no peer "+keyB) {
		t.Errorf("one that is not there: %v, %v", p.Unavailable, err)
	}
	goal.Client = keyA + "=5mbit,10.8.0.7=2mbit"
	if _, err = planFor(goal, facts); err == nil || !strings.Contains(err.Error(), "10.8.0.7 is given twice") {
		t.Errorf("one that is named twice: %v", err)
	}
	goal.Dev, goal.Client = "eth0", keyA+"=5mbit"
	if _, err = planFor(goal, facts); err == nil || !strings.Contains(err.Error(), "eth0 is no WireGuard tunnel") {
		t.Errorf("on no tunnel: %v", err)
	}
	facts.Admin = false
	facts.Links[len(facts.Links)-1].Peers = nil
	goal.Dev = "wg0"
	if _, err = planFor(goal, facts); err == nil || !strings.Contains(err.Error(), "only root is told") {
		t.Errorf("not as root: %v", err)
	}
}

func FuzzClients(f *testing.F) {
	f.Add("10.8.0.7=20mbit," + keyA + "=5mbit/weight:2")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parseClients(text)
		if err != nil {
			return
		}
		if again, err := parseClients(string(c)); err != nil || again != c {
			t.Errorf("%q is %q, and that %q, %v", text, c, again, err)
		}
	})
}
