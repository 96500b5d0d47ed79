// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"weir/internal/hint"
	"weir/internal/host"
	"weir/internal/qdisc"
	"weir/internal/units"
)

const (
	// Below this a shaped host cannot be reached to mend it.
	minRate = 64_000
	// Shorter than a switch takes with the cables to it.
	minRTT = time.Microsecond
	// Longer than any path on Earth, satellites included, with its queues.
	maxRTT = 10 * time.Second
	// A path that loses more carries no TCP, whatever its congestion control.
	maxLoss = 0.5
)

// Check finds what no host could make right. Empty fields are fine. The error is a *hint.Error about usage.
func (g Goal) Check() error {
	for _, f := range Fields() {
		if value := f.Get(g); value != "" && len(f.Values) > 0 && !f.Several && !slices.Contains(f.Values, value) {
			return misuse("--"+f.Name+" "+strings.Join(f.Values, "|"), "--%s %q is not known", f.Name, value)
		}
	}
	if err := g.Carries.check(); err != nil {
		return err
	}
	if g.Qdisc != "" {
		if _, err := qdisc.ParseStack(g.Qdisc); err != nil {
			return misuse(`as tc writes it, children after a bar: --qdisc "htb rate 49.875mbit | fq_codel"`,
				"--qdisc: %v", err)
		}
	}
	if g.Overhead != (qdisc.Framing{}) {
		if err := g.Overhead.Check(); err != nil {
			return misuse("--overhead 38", "--overhead: %v", err)
		}
	}
	if err := g.checkRanges(); err != nil {
		return err
	}
	said := g.said()
	for _, x := range exclusions() {
		if x.applies(said) {
			return misuse(said.expand(x.try), "%s", said.expand(x.what))
		}
	}
	return g.checkSpan()
}

func misuse(try, what string, args ...any) error {
	return &hint.Error{What: fmt.Sprintf(what, args...), Try: try, Usage: true}
}

// checkRanges finds figures that no host or path has.
func (g Goal) checkRanges() error {
	const rtt = "--rtt 48.3ms, as ping to a client says on an idle link"
	switch {
	case g.Rate != 0 && g.Rate < minRate:
		return misuse("--rate 50mbit, what the provider sold", "rate %s would leave too little to reach this host",
			g.Rate)
	case g.Ingress != 0 && g.Ingress < minRate:
		return misuse("--ingress 50mbit, what the provider sold",
			"ingress rate %s would leave too little to reach this host", g.Ingress)
	case g.RTT != 0 && time.Duration(g.RTT) < minRTT:
		return misuse(rtt, "RTT %s is shorter than any path", g.RTT)
	case g.RTT < 0 || time.Duration(g.RTT) > maxRTT:
		return misuse(rtt, "RTT %s is longer than any path", g.RTT)
	case !(g.Loss >= 0 && g.Loss <= maxLoss):
		return misuse("--loss 10%, what ping to a client loses on an idle link",
			"with %s of its packets lost a path carries no TCP", g.Loss)
	case g.ClientDefault != 0 && g.ClientDefault < minRate:
		return misuse("--client-default 10mbit", "%s for a client is too little to use", g.ClientDefault)
	case g.OneCAKE != 0 && g.OneCAKE < minRate:
		return misuse("--one-cake 4gbit, as weir doctor --bench says", "a CAKE that carries %s serves nobody",
			g.OneCAKE)
	}
	return nil
}

// checkSpan finds spans of rates in which no follower can move.
func (g Goal) checkSpan() error {
	low, high := g.bounds()
	switch {
	case g.Follow == "", g.Unknown():
		return nil
	case low < minRate:
		return misuse("--rate 20mbit..100mbit", "%s would leave too little to reach this host", low)
	case high < low:
		return misuse("--rate "+string(spanOf(high, low))+", the lower rate first", "%s leaves no choice", g.Follow)
	case high == low:
		return misuse("--rate 20mbit..100mbit, the lower rate first", "%s leaves no choice", g.Follow)
	case g.Rate < low || g.Rate > high:
		return misuse(fmt.Sprintf("--rate %s --follow %s", low, g.Follow),
			"the rate %s is not between those of --follow %s", g.Rate, g.Follow)
	}
	return nil
}

// Measured fills in how far away the clients are, where the goal does not say it and enough connections are live to
// tell. It is rounded up in steps of 1, 2, 5, so that another look a moment later comes to the same. The rules are
// the same for 30ms and 50; for 30 and 200 they are not.
func (g Goal) Measured(s host.Sockets) (Goal, []Note) {
	const (
		enough = 8
		least  = units.Duration(10 * time.Millisecond)
		// what is farther is for a person to say: each packet of theirs is in this figure
		most = units.Duration(200 * time.Millisecond)
	)
	if g.RTT != 0 || g.Recipe != "" || g.Only || s.Total < enough || s.RTT <= 0 {
		return g, nil
	}
	for step := 0; g.RTT < min(s.RTT, most); step++ {
		g.RTT = least * units.Duration([]int{1, 2, 5, 10, 20}[step])
	}
	return g, []Note{warning("path",
		"nine in ten of %d live connections have an RTT below %s at its least: taken for --rtt %s",
		s.Total, s.RTT.Round(units.Duration(100*time.Microsecond)), g.RTT)}
}

// Serving fills in by what a server sends, where the goal does not say it and its counters show much UDP.
func (g Goal) Serving(f host.Facts) (Goal, []Note) {
	const (
		enough = 10_000 // datagrams: below, it may be what a boot asks of name servers and clocks
		// Of what is sent; a datagram counts once however many segments it has (UDP GSO), one of TCP each.
		part = 16
	)
	sent := f.Passing
	if g.Serves != "" || g.Role == "relay" || g.Rate == 0 || g.Recipe != "" || g.Qdisc != "" || sent.UDPOut < enough ||
		sent.UDPOut < (sent.UDPOut+sent.TCPOut)/part {
		return g, nil
	}
	g.Serves = servesUDP
	return g, []Note{warning("path", "programs here have sent %d datagrams, beside %d segments of TCP: taken for "+
		"--serves udp", sent.UDPOut, sent.TCPOut)}
}

// device finds the link that a goal is about.
func (g Goal) device(f host.Facts) (host.Link, error) {
	name := g.Dev
	if name == "" {
		var err error
		if name, _, err = Uplink(f); err != nil {
			return host.Link{}, err
		}
	}
	link, ok := f.Link(name)
	switch at, _, err := deviceBelow(f, name); {
	case ok && link.Kind == "bridge" && g.Rate != 0 && err == nil && at != name:
		return link, &hint.Error{What: name + " is a bridge: what goes from port to port does not pass its queue",
			Try: "--dev " + at + ", by which all of it leaves"}
	case ok && link.Kind == "bridge" && g.Rate != 0 && err != nil:
		return link, err
	case name == "" && len(f.Defaults) > 0: // none of them in the main table
		r := f.Defaults[0]
		return link, &hint.Error{What: fmt.Sprintf("the only default route is by %s in table %d, for what policy "+
			"routing or a VRF leads there", r.Dev, r.Table), Try: "--dev " + r.Dev}
	case name == "":
		return link, &hint.Error{What: "there is no default route to tell the uplink by", Try: "--dev NAME" +
			listDevices(f)}
	case !ok:
		return link, NoDevice(name, f)
	case link.Loopback:
		return link, &hint.Error{What: name + ": a loopback device has no queue to own", Try: "--dev NAME" +
			listDevices(f)}
	case link.Speed != 0 && g.Rate > link.Speed:
		return link, tooFast(link, "rate", g.Rate)
	case link.Speed != 0 && g.Ingress > link.Speed:
		return link, tooFast(link, "ingress", g.Ingress)
	}
	return link, nil
}

func tooFast(l host.Link, flag string, r units.Rate) error {
	return &hint.Error{
		What: fmt.Sprintf("%s %s is above the speed of %s, %s", flag, r, l.Name, l.Speed),
		Try:  fmt.Sprintf("--%s %s or less, or no --%s where the device itself is the limit", flag, l.Speed, flag),
	}
}

// NoDevice returns the error that there is no device of this name.
func NoDevice(name string, f host.Facts) error {
	return &hint.Error{What: name + ": no such device", Try: "--dev NAME" + listDevices(f)}
}

func listDevices(f host.Facts) string {
	names := DeviceNames(f)
	if len(names) == 0 {
		return " (this network namespace has none)"
	}
	if len(names) > 8 {
		names = append(names[:8], "…")
	}
	return " (there are: " + strings.Join(names, ", ") + ")"
}
