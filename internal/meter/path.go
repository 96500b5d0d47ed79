// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"weir/internal/stats"
)

// PathPacket is a packet that was sent to see what becomes of it, and its answer. That is as long, and has the same
// byte of DSCP and ECN.
type PathPacket struct {
	Size     int     `json:"size"` // bytes of IP
	TOS      byte    `json:"tos"`  // DSCP and ECN that it was sent with
	Arrived  bool    `json:"arrived"`
	Answered bool    `json:"answered"`
	Seen     byte    `json:"seen"` // what it arrived with, if it was answered
	Back     byte    `json:"back"` // what its answer arrived with
	RTT      float64 `json:"rtt"`  // ms
}

// PathSeen is what was seen of the way to one address of a server.
type PathSeen struct {
	Address string       `json:"address"`
	Used    bool         `json:"used"`   // by the test; the other is of the other family
	Device  int          `json:"device"` // longest packet that this host's device takes, or that is tried
	Packets []PathPacket `json:"packets,omitempty"`
}

// Path is what the way to an address does to packets.
type Path struct {
	Address string  `json:"address"`
	Family  string  `json:"family"` // "IPv4" or "IPv6"
	Used    bool    `json:"used"`   // by the test
	RTT     float64 `json:"rtt"`    // median of the idle link, in ms; 0: nothing is answered
	There   Way     `json:"there"`
	Back    Way     `json:"back"`
}

// Way is what one direction does to packets.
type Way struct {
	ECN  Fate `json:"ecn,omitempty"`
	DSCP Fate `json:"dscp,omitempty"`
	// longest packet of IP that passed; the way back is tried with those that came there
	MTU   int `json:"mtu"`
	Above int `json:"mtu_above,omitempty"` // shortest one that did not pass; 0: there was none
}

// Fate is what becomes of a mark; "" where too little has arrived to tell.
type Fate string

// What may become of marks.
const (
	Kept    Fate = "kept"
	Cleared Fate = "cleared" // to 0
	Changed Fate = "changed" // to something else, or some of them cleared
	Dropped Fate = "dropped" // packets that have the mark do not arrive
)

const (
	// smallPath is the length of packets whose marks are looked at: what drops them is not their length.
	smallPath = 128
	// minPath is what IPv6 wants of each link.
	minPath = 1280
	// maxPath is the longest that is tried.
	maxPath = 9000
)

// pathMarks are the bytes of DSCP and ECN that are tried: none, ECT(0), ECT(1), CE, and of DSCP what is for calls (EF),
// for video (AF41) and for what can wait (CS1).
func pathMarks() []byte { return []byte{0, 2, 1, 3, 0xb8, 0x88, 0x20} }

// nextPath is what to send after what has been seen: the marks three times, then lengths, until it is known to a byte
// what passes. Nothing: all that can be known is. Last come small ones without a mark, whose answers tell what has
// arrived of those before. It is pure.
func nextPath(seen []PathPacket, device int) (next []PathPacket) {
	var sizes []int
	if len(seen) == 0 {
		for range 3 {
			for _, tos := range pathMarks() {
				next = append(next, PathPacket{Size: smallPath, TOS: tos})
			}
		}
		// Those of Ethernet, PPPoE, tunnels, and what mobile networks have. Then the device's own.
		usual := []int{minPath, 1358, 1380, 1400, 1412, 1420, 1440, 1460, 1480, 1492, 1500, 1501, device}
		for _, size := range usual {
			if size <= device {
				sizes = append(sizes, size)
			}
		}
	}
	for _, back := range []bool{false, true} {
		most, above, tries := longestPassed(seen, back)
		if most == 0 || above == 0 {
			continue
		}
		const parts, sure = 8, 4
		for i := 1; i < parts; i++ {
			if size := most + (above-most)*i/parts; size > most {
				sizes = append(sizes, size)
			}
		}
		if tries < sure || above-most > 1 {
			sizes = append(sizes, above)
		}
	}
	slices.Sort(sizes)
	sizes = slices.Compact(sizes)
	if len(sizes) == 0 {
		return nil
	}
	for range 2 {
		for _, size := range slices.Backward(sizes) {
			next = append(next, PathPacket{Size: size})
		}
	}
	for range 3 {
		next = append(next, PathPacket{Size: smallPath})
	}
	return next
}

// longestPassed is the longest packet that passed in a direction. Above is the shortest longer one that was tried twice
// and did not, and tries is how often.
func longestPassed(seen []PathPacket, back bool) (most, above, tries int) {
	failed := map[int]int{}
	for _, p := range seen {
		tried, there := true, p.Arrived
		if back {
			tried, there = p.Arrived, p.Answered
		}
		switch {
		case there:
			most = max(most, p.Size)
		case tried:
			failed[p.Size]++
		}
	}
	for size, n := range failed {
		if size > most && n >= 2 && (above == 0 || size < above) {
			above, tries = size, n
		}
	}
	if most < minPath { // small ones alone, so the length is not why
		return 0, 0, 0
	}
	return most, above, tries
}

// fate is what became of marks, of which a mask is looked at. Packets with another mark are left out.
func fate(seen []PathPacket, back bool, mask byte) Fate {
	sent, arrived, plain := map[byte]int{}, 0, 0
	delivered, kept, cleared, marked := map[byte]int{}, 0, 0, 0
	for _, p := range seen {
		tried, there, is := true, p.Arrived, p.Seen
		if back {
			tried, there, is = p.Arrived, p.Answered, p.Back
		}
		if p.Size != smallPath || !tried || p.TOS&^mask != 0 {
			continue
		}
		if p.TOS == 0 {
			if there {
				plain++
			}
			continue
		}
		sent[p.TOS]++
		if !there {
			continue
		}
		delivered[p.TOS]++
		if !p.Answered { // it has arrived, and nobody said how
			continue
		}
		arrived++
		switch got := is & mask; {
		case got == p.TOS:
			kept++
		case got == 0:
			cleared++
		case mask == ecnMask && got == ecnMask: // a queue may have marked it
			marked++
		}
	}
	const enough = 3
	for tos, n := range sent {
		if n >= enough && delivered[tos] == 0 && plain >= enough {
			return Dropped
		}
	}
	switch {
	case arrived < enough:
		return ""
	case kept > arrived/2 && kept+marked == arrived:
		return Kept
	case cleared == arrived:
		return Cleared
	}
	return Changed
}

const (
	ecnMask  = 0x03
	dscpMask = 0xfc
)

// judge returns what a path does. It is pure.
func (s PathSeen) judge() Path {
	p := Path{Address: s.Address, Family: "IPv4", Used: s.Used}
	if strings.Contains(s.Address, ":") {
		p.Family = "IPv6"
	}
	var rtts []float64
	for _, k := range s.Packets {
		if k.Answered && k.Size == smallPath {
			rtts = append(rtts, k.RTT)
		}
	}
	if len(rtts) > 0 {
		p.RTT = stats.Quantile(rtts, 0.5)
	}
	for back, way := range map[bool]*Way{false: &p.There, true: &p.Back} {
		way.ECN, way.DSCP = fate(s.Packets, back, ecnMask), fate(s.Packets, back, dscpMask)
		way.MTU, way.Above, _ = longestPassed(s.Packets, back)
	}
	return p
}

// PathSays tells in words what the path does to packets; "" where nobody looked.
func (r Result) PathSays() string {
	var words []string
	for _, p := range r.Paths {
		if p.Used {
			words = append(words, p.marksSay(), p.sizesSay())
		}
	}
	if len(r.Paths) > 1 {
		words = append(words, familiesSay(r.Paths))
	}
	words = slices.DeleteFunc(words, func(s string) bool { return s == "" })
	return strings.Join(words, " ")
}

// marksSay returns what becomes of ECN and DSCP, in one sentence where it is the same.
func (p Path) marksSay() string {
	ecn, dscp := fates(p.There.ECN, p.Back.ECN), fates(p.There.DSCP, p.Back.DSCP)
	switch {
	case ecn == dscp && ecn != "":
		return "ECN and DSCP marks " + ecn
	case ecn != "" && dscp != "":
		return "ECN marks " + ecn + " DSCP marks " + dscp
	case ecn != "":
		return "ECN marks " + ecn
	case dscp != "":
		return "DSCP marks " + dscp
	}
	return ""
}

// fates is what becomes of a mark each way, as the rest of a sentence.
func fates(there, back Fate) string {
	say := func(f Fate) string {
		return map[Fate]string{Kept: "arrive", Cleared: "are cleared", Changed: "are changed",
			Dropped: "get their packets dropped"}[f]
	}
	switch {
	case there == "":
		return ""
	case there == back:
		return say(there) + " both ways."
	case back == "":
		return say(there) + " on the way there."
	}
	return fmt.Sprintf("%s on the way there, and %s on the way back.", say(there), say(back))
}

func (p Path) sizesSay() string {
	there, back := p.There, p.Back
	switch {
	case there.MTU == 0:
		return ""
	case back.MTU > 0 && back.MTU < there.MTU:
		return fmt.Sprintf("Packets of %d bytes pass on the way there, and of %d on the way back.", there.MTU, back.MTU)
	case there.Above == 0:
		return fmt.Sprintf("Packets of %d bytes pass.", there.MTU)
	case there.Above == there.MTU+1:
		return fmt.Sprintf("Packets of %d bytes pass, and longer ones do not.", there.MTU)
	}
	return fmt.Sprintf("Packets of %d bytes pass, and of %d do not.", there.MTU, there.Above)
}

// familiesSay sets IPv4 and IPv6 side by side.
func familiesSay(paths []Path) string {
	paths = slices.SortedFunc(slices.Values(paths), func(a, b Path) int { return cmp.Compare(a.Family, b.Family) })
	var words []string
	for _, p := range paths {
		used := ""
		if p.Used {
			used = " (used here)"
		}
		if p.RTT == 0 {
			words = append(words, fmt.Sprintf("%s%s does not answer", p.Family, used))
			continue
		}
		words = append(words, fmt.Sprintf("%s%s takes %s ms", p.Family, used, Figure(p.RTT)))
	}
	return "The idle round trip: " + strings.Join(words, ", ") + "."
}
