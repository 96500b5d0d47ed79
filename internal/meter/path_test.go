// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// simulated is a path that takes packets of a length each way, and changes marks.
type simulated struct {
	there, back int
	mark        func(tos byte, back bool) (byte, bool) // false: dropped
	loss        float64
}

func (s simulated) send(random *rand.Rand, p PathPacket) PathPacket {
	lost := func() bool { return random.Float64() < s.loss }
	mark := s.mark
	if mark == nil {
		mark = func(tos byte, _ bool) (byte, bool) { return tos, true }
	}
	seen, passes := mark(p.TOS, false)
	if p.Size > s.there || !passes || lost() {
		return p
	}
	p.Arrived = true
	back, passes := mark(p.TOS, true)
	if p.Size > s.back || !passes || lost() {
		return p
	}
	p.Answered, p.Seen, p.Back, p.RTT = true, seen, back, 10
	return p
}

// explored is what is found out, and how many packets that takes.
func (s simulated) explored(t *testing.T, random *rand.Rand, device int) (Path, int) {
	t.Helper()
	var seen []PathPacket
	for round := 0; ; round++ {
		next := nextPath(seen, device)
		if len(next) == 0 {
			break
		}
		if round == 20 {
			t.Fatalf("%+v: it does not end", s)
		}
		for _, p := range next {
			seen = append(seen, s.send(random, p))
		}
	}
	return PathSeen{Address: "192.0.2.1", Used: true, Device: device, Packets: seen}.judge(), len(seen)
}

// What passes is found to a byte, in both directions, on any path.
func TestPathSizes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for _, c := range []struct{ there, back, device int }{
		{1500, 1500, 1500}, {9000, 9000, 9000}, {1492, 1492, 1500}, {1280, 1280, 1500}, {1281, 1500, 1500},
		{1500, 1400, 1500}, {1423, 1372, 1500}, {1500, 1500, 9000}, {4321, 1500, 9000}, {9000, 8999, 9000},
		{1400, 9000, 1400},
	} {
		p, n := simulated{there: c.there, back: c.back}.explored(t, random, c.device)
		above := func(mtu, tried int) int {
			if mtu >= tried {
				return 0
			}
			return mtu + 1
		}
		there := Way{ECN: Kept, DSCP: Kept, MTU: c.there, Above: above(c.there, c.device)}
		back := Way{ECN: Kept, DSCP: Kept, MTU: min(c.back, c.there), Above: above(c.back, c.there)}
		if p.There != there || p.Back != back || n > 200 {
			t.Errorf("%+v: %+v there, %+v back, by %d packets", c, p.There, p.Back, n)
		}
	}
}

// What docs/measuring.md says that it costs on an Ethernet.
func TestPathCost(t *testing.T) {
	const device = 1500
	least, most, bytes := 1000, 0, 0
	random := rand.New(rand.NewPCG(1, 1))
	for there := minPath; there <= device; there += 7 {
		for back := minPath; back <= there; back += 5 {
			path := simulated{there: there, back: back}
			var seen []PathPacket
			all := 0
			for next := nextPath(seen, device); len(next) > 0; next = nextPath(seen, device) {
				for _, p := range next {
					all += p.Size
					seen = append(seen, path.send(random, p))
				}
			}
			least, most, bytes = min(least, len(seen)), max(most, len(seen)), max(bytes, all)
		}
	}
	if least < 70 || most > 120 || bytes > 120_000 {
		t.Errorf("%d to %d packets, up to %d bytes", least, most, bytes)
	}
}

// Where one packet in 20 is lost each way, a length is seldom taken for one that does not pass, and never the reverse.
func TestPathLoss(t *testing.T) {
	wrong := 0
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 7))
		p, _ := simulated{there: 1492, back: 1460, loss: 0.05}.explored(t, random, 1500)
		if p.There.MTU > 1492 || p.Back.MTU > 1460 {
			t.Fatalf("seed %d: %+v", seed, p)
		}
		if p.There.MTU != 1492 || p.Back.MTU != 1460 || p.There.ECN != Kept || p.Back.DSCP != Kept {
			wrong++
		}
	}
	if wrong > 10 {
		t.Errorf("%d of 200 are wrong", wrong)
	}
}

func TestPathMarks(t *testing.T) {
	and := func(mask byte) func(byte, bool) (byte, bool) {
		return func(tos byte, _ bool) (byte, bool) { return tos & mask, true }
	}
	for name, c := range map[string]struct {
		mark                         func(byte, bool) (byte, bool)
		ecn, dscp, ecnBack, dscpBack Fate
		says                         string
	}{
		"whole": {nil, Kept, Kept, Kept, Kept, "ECN and DSCP marks arrive both ways."},
		"no DSCP": {and(ecnMask), Kept, Cleared, Kept, Cleared,
			"ECN marks arrive both ways. DSCP marks are cleared both ways."},
		"nothing": {and(0), Cleared, Cleared, Cleared, Cleared, "ECN and DSCP marks are cleared both ways."},
		"no DSCP there": {func(tos byte, back bool) (byte, bool) {
			if back {
				return tos, true
			}
			return tos & ecnMask, true
		}, Kept, Cleared, Kept, Kept,
			"ECN marks arrive both ways. DSCP marks are cleared on the way there, and arrive on the way back."},
		"the old TOS: three bits are cleared": {and(0x1f), Kept, Changed, Kept, Changed,
			"ECN marks arrive both ways. DSCP marks are changed both ways."},
		"ECT(1) becomes ECT(0)": {func(tos byte, _ bool) (byte, bool) {
			if tos&ecnMask == 1 {
				return tos ^ 3, true
			}
			return tos, true
		}, Changed, Kept, Changed, Kept, "ECN marks are changed both ways. DSCP marks arrive both ways."},
		"ECT(1) is dropped": {func(tos byte, _ bool) (byte, bool) { return tos, tos&ecnMask != 1 },
			Dropped, Kept, Kept, Kept, "ECN marks get their packets dropped on the way there, and arrive on the " +
				"way back. DSCP marks arrive both ways."},
		"all is marked CE": {func(tos byte, _ bool) (byte, bool) {
			if tos&ecnMask != 0 {
				return tos | 3, true
			}
			return tos, true
		}, Changed, Kept, Changed, Kept, "ECN marks are changed both ways. DSCP marks arrive both ways."},
	} {
		p, _ := simulated{there: 1500, back: 1500, mark: c.mark}.explored(t, rand.New(rand.NewPCG(1, 1)), 1500)
		if p.There.ECN != c.ecn || p.There.DSCP != c.dscp || p.Back.ECN != c.ecnBack || p.Back.DSCP != c.dscpBack {
			t.Errorf("%s: %+v there, %+v back", name, p.There, p.Back)
		}
		want := c.says + " Packets of 1500 bytes pass."
		if says := (Result{Paths: []Path{p}}).PathSays(); says != want {
			t.Errorf("%s: %q, want %q", name, says, want)
		}
	}
	// A queue on the way that marks one packet in three has kept them.
	n := 0
	p, _ := simulated{there: 1500, back: 1500, mark: func(tos byte, _ bool) (byte, bool) {
		if n++; tos&ecnMask != 0 && n%3 == 0 {
			return tos | 3, true
		}
		return tos, true
	}}.explored(t, rand.New(rand.NewPCG(1, 1)), 1500)
	if p.There.ECN != Kept || p.Back.ECN != Kept {
		t.Errorf("%+v", p)
	}
}

func TestPathSays(t *testing.T) {
	path := func(there, above, back int) Path {
		return Path{Family: "IPv4", Used: true, RTT: 12, There: Way{MTU: there, Above: above}, Back: Way{MTU: back}}
	}
	six := Path{Family: "IPv6", RTT: 14.2}
	silent := Path{Family: "IPv6"}
	for want, paths := range map[string][]Path{
		"":                            nil,
		"Packets of 1500 bytes pass.": {path(1500, 0, 1500)},
		"Packets of 1492 bytes pass, and longer ones do not.":                        {path(1492, 1493, 1492)},
		"Packets of 1500 bytes pass, and of 2571 do not.":                            {path(1500, 2571, 1500)},
		"Packets of 1500 bytes pass on the way there, and of 1400 on the way back.":  {path(1500, 0, 1400)},
		"The idle round trip: IPv4 (used here) takes 12.0 ms, IPv6 takes 14.2 ms.":   {path(0, 0, 0), six},
		"The idle round trip: IPv4 (used here) takes 12.0 ms, IPv6 does not answer.": {path(0, 0, 0), silent},
	} {
		if says := (Result{Paths: paths}).PathSays(); says != want {
			t.Errorf("%q, want %q", says, want)
		}
	}
	// Nothing has come back: nothing is said of marks and lengths.
	if p := (PathSeen{Address: "2001:db8::1", Packets: []PathPacket{{Size: 128}}}).judge(); p.Family != "IPv6" ||
		p.There != (Way{}) || p.Back != (Way{}) || p.RTT != 0 {
		t.Errorf("%+v", p)
	}
	if _, err := ReadRecording([]byte(`{"interval":50,"paths":[{"address":"192.0.2.1"}]}`)); err == nil ||
		!strings.Contains(err.Error(), "paths") {
		t.Errorf("%v", err)
	}
}
