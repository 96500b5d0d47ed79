// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"

	"weir/internal/host"
	"weir/internal/kernel"
	"weir/internal/qdisc"
	"weir/internal/units"
)

// Span is between which rates a follower may choose: "20mbit..100mbit", or Auto. A string, so that goals can be
// compared; "" is no follower.
type Span string

// Auto is from a quarter of the goal's rate to four times that.
const Auto Span = "auto"

const (
	spanSeparator  = ".."
	autoSpanFactor = 4 // either way
)

// parseSpan reads a span as a person writes it, and writes it as weir does.
func parseSpan(s string) (Span, error) {
	if Span(s) == Auto {
		return Auto, nil
	}
	low, high, ok := strings.Cut(s, spanSeparator)
	if !ok || low == "" || high == "" || high[0] == '.' { // a third point is a slip, and no tenth of a rate
		return "", fmt.Errorf("%q is not a span: write it like 20mbit..100mbit, or auto", s)
	}
	from, err := units.ParseRate(low)
	if err != nil {
		return "", err
	}
	until, err := units.ParseRate(high)
	if err != nil {
		return "", err
	}
	return spanOf(from, until), nil
}

func spanOf(low, high units.Rate) Span { return Span(low.String() + spanSeparator + high.String()) }

// UnmarshalText reads a span in a file.
func (s *Span) UnmarshalText(text []byte) (err error) {
	*s, err = parseSpan(string(text))
	return err
}

// setRate reads a rate, a span, or Auto. Of a span the rate is the lower end, where nothing waits whatever the link
// carries, until a follower has found more.
func setRate(g *Goal, text string) (err error) {
	if Span(text) != Auto && !strings.Contains(text, spanSeparator) {
		g.Rate, err = units.ParseRate(text)
		return err
	}
	if err = setFollow(g, text); err != nil {
		return err
	}
	g.Rate = 0
	if g.Follow != Auto {
		g.Rate, _ = g.bounds()
	}
	return nil
}

// setFollow reads a span. Both --rate and --follow can say one, and neither is dropped in silence for the other.
func setFollow(g *Goal, text string) error {
	span, err := parseSpan(text)
	switch {
	case err != nil:
		return err
	case g.Follow != "" && g.Follow != span:
		return fmt.Errorf("%s and %s contradict each other", g.Follow, span)
	}
	g.Follow = span
	return nil
}

// findTakes is for how many seconds a link has to be full until its rate is known (follow.Finder).
const findTakes = 10

// Unknown reports whether the rate is to be found first: until then the plan is that of a rate which nobody knows.
func (g Goal) Unknown() bool { return g.Follow == Auto && g.Rate == 0 }

// AsFound is a goal with the rate that was found for another, of the same device, where it leaves that open.
func (g Goal) AsFound(before Goal) Goal {
	if g.Unknown() && before.Follow == Auto {
		g.Rate = before.Rate
	}
	return g
}

// bounds are between which rates, in bit/s, a follower may choose what the provider is taken to sell; 0 and 0 where the
// goal has none.
func (g Goal) bounds() (low, high units.Rate) {
	switch g.Follow {
	case "":
		return 0, 0
	case Auto:
		return max(minRate, g.Rate/autoSpanFactor), g.Rate * autoSpanFactor
	}
	from, until, _ := strings.Cut(string(g.Follow), spanSeparator)
	low, _ = units.ParseRate(from)
	high, _ = units.ParseRate(until)
	return low, high
}

// highest is the most that the rate may come to, in bit/s: what buffers have to be large enough for.
func (g Goal) highest() units.Rate {
	_, high := g.bounds()
	return max(g.Rate, high)
}

// Room is between which rates, in bit/s, a follower may choose for a queue that was planned with one. Behind is a queue
// that comes after the provider's: of incoming traffic, and of what has just come in by the same card.
//
// There Auto goes up to what is told alone. A shaper behind a queue that is set too high does nothing, and what is told
// is what the user pays for.
func (g Goal) Room(incoming bool, planned units.Rate) (low, high units.Rate, behind bool) {
	low, high = g.bounds()
	if !incoming && !g.Carries.oneCard() {
		return shapedRate(low), max(planned, shapedRate(high)), false
	}
	in, outward := g.Inward(), g.highest()
	if g.Follow == Auto || in < low || in > high {
		low, high, outward = in/autoSpanFactor, in, g.Rate // the span is of another rate
	}
	if !incoming {
		high = min(high, outward)
	}
	return min(planned, part(float64(planned)/float64(in), low)), max(planned, shapedRate(high)), true
}

// Follows reports whether a queue is one that a follower of this goal has made of another: another rate, between the
// bounds, and nothing else.
func (g Goal) Follows(now, of kernel.Value) bool {
	is, of, incoming := now, of, false
	if in, ok := now.(kernel.Incoming); ok {
		was, also := of.(kernel.Incoming)
		incoming = true
		if !also || in.Other != was.Other || in.Stack == nil || was.Stack == nil {
			return false
		}
		same := in
		same.Stack = was.Stack
		if !same.Meets(was) {
			return false
		}
		is, of = kernel.Queue{Stack: in.Stack}, kernel.Queue{Stack: was.Stack}
	}
	queue, ok := is.(kernel.Queue)
	want, also := of.(kernel.Queue)
	if g.Follow == "" || !ok || !also {
		return false
	}
	rate, at := Followed(queue.Stack)
	planned, with := Followed(want.Stack)
	low, high, _ := g.Room(incoming, planned)
	return at && with && rate >= low && rate <= high && queue.Stack.Equal(AtRate(want.Stack, rate))
}

// Followed is the rate of a queue that a follower can change, in bit/s; false of any other.
func Followed(s qdisc.Stack) (units.Rate, bool) {
	if len(s) == 0 {
		return 0, false
	}
	switch q := s[0].(type) {
	case qdisc.Cake:
		return q.Bandwidth, len(s) == 1 && q.Bandwidth != 0 && !q.MultiQueue
	case qdisc.BPFShaper:
		return q.Rate, true
	}
	return 0, false
}

// AtRate is such a queue with another rate.
func AtRate(s qdisc.Stack, rate units.Rate) qdisc.Stack {
	s = slices.Clone(s)
	switch q := s[0].(type) {
	case qdisc.Cake:
		q.Bandwidth = rate
		s[0] = q
	case qdisc.BPFShaper:
		q.Rate = rate - rate%8 // bit/s, of whole bytes
		s[0] = q
	}
	return s
}

// CountsAs is how the queue counts packets that a goal gets on a host once its rate is known: so a rate for it has to
// be found. False if there is none that could be followed.
func CountsAs(g Goal, f host.Facts) (counts qdisc.Framing, ok bool) {
	const any = units.Rate(50e6)
	g.Rate, g.Follow = any, ""
	p, err := planFor(g, f)
	for _, c := range p.Changes {
		if q, is := c.New.(kernel.Queue); is && err == nil && c.Kind == kernel.Root && c.Name == p.Goals[0].Dev {
			counts = qdisc.FramingOf(q.Stack[0])
			_, ok = Followed(q.Stack)
		}
	}
	return counts, ok
}

// Forwarding are the devices, by their index, by which a host sends what it forwards so that it leaves by one of them:
// that one, and if it is the uplink the tunnels that end here. There are none on a host that is not set up to forward.
func Forwarding(f host.Facts, dev string) (devices []int) {
	if !f.Forwards() {
		return nil
	}
	uplink := WayOut(f)
	for _, l := range f.Links {
		if l.Up && (l.Name == dev || dev == uplink && possibleTunnelKind(l) != "") {
			devices = append(devices, l.Index)
		}
	}
	return devices
}
