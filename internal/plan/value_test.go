// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"weir/internal/hint"
	"weir/internal/kernel"
	"weir/internal/qdisc"
	"weir/internal/units"
)

// The first goal stands by itself, and the others behind it.
func TestTextOf(t *testing.T) {
	all := []Goal{{Dev: "eth0"}, {Dev: "eth1"}, {Dev: "eth2"}}
	if got := TextOf(all); got.Goal != all[0] || !slices.Equal(got.Others, all[1:]) {
		t.Errorf("%+v", got)
	}
	if got := TextOf(nil); got.Goal != (Goal{}) || got.Others != nil {
		t.Errorf("%+v", got)
	}
}

// A change says of itself what a program that reads a plan needs, and nothing of what it has not.
func TestChangeText(t *testing.T) {
	change := Change{Target: kernel.Target{Kind: kernel.Sysctl, Name: "net.ipv4.tcp_ecn"}, New: kernel.Setting("1"),
		Owner: "tuned", Reason: "why", Evidence: "seen"}
	text, err := json.Marshal(change)
	want := `"old":"","new":"1","owner":"tuned","reason":"why","evidence":"seen"}`
	if err != nil || !strings.HasSuffix(string(text), want) {
		t.Errorf("%s, %v", text, err)
	}
	change.Old = kernel.Setting("2")
	if got := change.Text(); got.Old != "2" || got.New != "1" {
		t.Errorf("%+v", got)
	}
}

// Of several goals each device has its own.
func TestGoalOf(t *testing.T) {
	all := []Goal{{Dev: "eth0", Rate: 1e6}, {Dev: "eth1", Rate: 2e6}}
	for dev, want := range map[string]units.Rate{"eth0": 1e6, "eth1": 2e6, "eth2": 0} {
		if got, there := GoalOf(all, dev); got.Rate != want || there != (want != 0) {
			t.Errorf("%s: %+v, %v", dev, got, there)
		}
	}
}

// What was seen to be carried is replaced by what goals say, of each device by its own.
func TestCarrying(t *testing.T) {
	p := Plan{Goals: []Goal{{Dev: "eth0", Carries: "forward"}, {Dev: "eth1", Carries: "forward"}}}
	for name, c := range map[string]struct {
		goals []Goal
		want  [2]Kinds
	}{
		"one of them":          {[]Goal{{Dev: "eth1", Carries: "proxy"}}, [2]Kinds{"forward", "proxy"}},
		"that leaves it open":  {[]Goal{{Dev: "eth0"}}, [2]Kinds{"", "forward"}},
		"that names no device": {[]Goal{{Carries: "tunnel"}}, [2]Kinds{"tunnel", "tunnel"}},
		"neither":              {[]Goal{{Dev: "eth2", Carries: "proxy"}}, [2]Kinds{"forward", "forward"}},
	} {
		got := p.Carrying(c.goals)
		if [2]Kinds{got.Goals[0].Carries, got.Goals[1].Carries} != c.want || p.Goals[0].Carries != "forward" {
			t.Errorf("%s: %+v of %+v", name, got.Goals, p.Goals)
		}
	}
}

// A change takes a shaper away where a rate was enforced, whichever way, and none is.
func TestUnshapes(t *testing.T) {
	queue := func(text string) kernel.Value { return kernel.Queue{Stack: stacked(t, text)} }
	incoming := func(text string) kernel.Value {
		return kernel.Incoming{Arriving: qdisc.Arriving{Stack: stacked(t, text)}}
	}
	for _, c := range []struct {
		was, will kernel.Value
		want      bool
	}{
		{queue("cake bandwidth 1mbit"), queue("fq_codel"), true},
		{queue("cake bandwidth 1mbit"), queue("cake bandwidth 2mbit"), false},
		{queue("fq_codel"), queue("fq"), false}, {queue("fq_codel"), queue("cake bandwidth 1mbit"), false},
		{incoming("cake bandwidth 1mbit"), kernel.NoIncoming, true}, {kernel.Setting("1"), kernel.Setting("2"), false},
	} {
		if got := (Change{Old: c.was, New: c.will}).Unshapes(); got != c.want {
			t.Errorf("%v to %v: %v", c.was, c.will, got)
		}
	}
}

func stacked(t *testing.T, text string) qdisc.Stack {
	t.Helper()
	stack, err := qdisc.ParseStack(text)
	if err != nil {
		t.Fatal(err)
	}
	return stack
}

// One setting for two goals is the larger of two buffers, each of the three sizes by itself, and else has to agree.
func TestLargerValue(t *testing.T) {
	for _, c := range []struct {
		name, a, b, want string
		ok               bool
	}{
		{tcpRmem, "4096 131072 9", "8192 87380 7", "8192 131072 9", true},
		{tcpWmem, "1 2 3", "1 2 3", "1 2 3", true}, {tcpWmem, "1 2 3", "1 2 4", "1 2 4", true},
		{tcpRmem, "1 2 x", "1 2 3", "", false}, {tcpRmem, "1 2 3", "1 2 x", "", false},
		{tcpRmem, "1 2", "1 2 3", "", false},
		{congestionControl, "bbr", "bbr", "bbr", true}, {congestionControl, "bbr", "cubic", "", false},
	} {
		if got, ok := largerValue(c.name, c.a, c.b); ok != c.ok || ok && got != c.want {
			t.Errorf("%s, %s and %s: %s, %v", c.name, c.a, c.b, got, ok)
		}
	}
}

// A plan that cannot be kept names what ends with a reboot as one more thing to try.
func TestCheckPersistent(t *testing.T) {
	if err := (Plan{}).CheckPersistent(); err != nil {
		t.Error(err)
	}
	var refusal *hint.Error
	err := Plan{NotPersistent: &hint.Error{What: "masked", Try: "unmask"}}.CheckPersistent()
	if !errors.As(err, &refusal) || refusal.What != "masked" ||
		refusal.Try != "unmask; or --runtime: what is set ends with a reboot" {
		t.Errorf("%+v", refusal)
	}
}
