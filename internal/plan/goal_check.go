// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strconv"
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

// Check finds what no host could make right. Empty fields are fine.
func (g Goal) Check() error {
	bad := func(try, what string, args ...any) error {
		return &hint.Error{What: fmt.Sprintf(what, args...), Try: try, Usage: true}
	}
	oneOf := func(name, value string, known []string) error {
		if value == "" || slices.Contains(known, value) {
			return nil
		}
		return bad(name+" "+strings.Join(known, "|"), "%s %q is not known", name, value)
	}
	for _, err := range []error{
		oneOf("--role", g.Role, Roles),
		oneOf("--serves", g.Serves, Services),
		oneOf("--fair-to", g.FairTo, Sides),
		oneOf("--prefer", g.Prefer, Preferences),
		oneOf("--recipe", g.Recipe, RecipeNames()),
		g.Carries.check(),
	} {
		if err != nil {
			return err
		}
	}
	if g.Qdisc != "" {
		if _, err := qdisc.ParseStack(g.Qdisc); err != nil {
			return bad(`as tc writes it, children after a bar: --qdisc "htb rate 49.875mbit | fq_codel"`, "--qdisc: %v",
				err)
		}
	}
	if g.Overhead != (qdisc.Framing{}) {
		if err := g.Overhead.Check(); err != nil {
			return bad("--overhead 38", "--overhead: %v", err)
		}
	}
	chosen := g.Prefer == "l4s" || g.FairTo != "" || g.NAT || g.Role == "relay"
	switch {
	case g.Rate != 0 && g.Rate < minRate:
		return bad("--rate 50mbit, what the provider sold", "rate %s would leave too little to reach this host", g.Rate)
	case g.Ingress != 0 && g.Ingress < minRate:
		return bad("--ingress 50mbit, what the provider sold",
			"ingress rate %s would leave too little to reach this host", g.Ingress)
	case g.RTT != 0 && time.Duration(g.RTT) < minRTT:
		return bad("--rtt 48.3ms, as ping to a client says on an idle link", "RTT %s is shorter than any path", g.RTT)
	case g.RTT < 0 || time.Duration(g.RTT) > maxRTT:
		return bad("--rtt 48.3ms, as ping to a client says on an idle link", "RTT %s is longer than any path", g.RTT)
	case !(g.Loss >= 0 && g.Loss <= maxLoss):
		return bad("--loss 10%, what ping to a client loses on an idle link",
			"with %s of its packets lost a path carries no TCP", g.Loss)
	case g.Follow != "":
		if err := g.checkFollow(bad); err != nil {
			return err
		}
	}
	switch {
	case g.NAT && g.Role != "relay":
		return bad("--role relay --nat", "--nat is for a host that forwards for others")
	case g.Carries != "" && g.Role != "relay":
		return bad("--role relay --carries "+string(g.Carries), "--carries is for a host that carries for others")
	case g.Serves != "" && g.Role == "relay":
		return bad("--role relay without --serves", "--serves is for a host that serves; a relay has --carries")
	case g.Prefer == "l4s" && g.Carries.oneCard():
		return bad("--role relay without --prefer l4s",
			"DualPI2 keeps no flows apart, and on a relay everybody waits in its classic queue: ssh through it 33 "+
				"ms (measured)")
	case g.Recipe != "" && (chosen || g.Ingress != 0 || g.Qdisc != "" || g.CC != ""):
		return bad("either --recipe "+g.Recipe+", or the other choices without it",
			"a recipe is applied to the letter, so it goes with no other choice")
	case g.Recipe == "server-cake" && g.Rate == 0:
		return bad("--recipe server-cake --rate 50mbit",
			"recipe server-cake shapes at 99.75 %% of a rate, and none is given")
	case g.Only && (g.Qdisc == "" || g.Rate+g.Ingress != 0 || g.CC != ""):
		return bad("a queue, and no other choice", "a goal of a queue only names that, and nothing else")
	case g.Overhead != (qdisc.Framing{}) && (g.Qdisc != "" || g.Recipe != ""):
		return bad("write it into --qdisc: cake bandwidth 49.875mbit overhead 38",
			"--qdisc and --recipe are used as they are written, so --overhead goes with neither")
	case g.Overhead != (qdisc.Framing{}) && g.Rate+g.Ingress == 0:
		return bad("--rate 50mbit --overhead "+strconv.Quote(g.Overhead.String()),
			"--overhead is about how the provider counts its rate, and none is given")
	case g.OneCAKE != 0 && g.OneCAKE < minRate:
		return bad("--one-cake 4gbit, as weir doctor --bench says", "a CAKE that carries %s serves nobody", g.OneCAKE)
	case g.OneCAKE != 0 && (g.Rate == 0 && !g.Unknown() || g.Qdisc+g.Recipe != "" || g.Role == "relay"):
		return bad("--rate 10gbit --one-cake "+g.OneCAKE.String(),
			"--one-cake is for the rules' choice of a server's queue for a rate")
	case g.Qdisc != "" && chosen:
		return bad("write the choice into --qdisc, or leave --qdisc out",
			"--qdisc is used as it is written, so it goes with no other choice of a queue")
	case g.Prefer == "l4s" && g.Rate == 0:
		return bad("--prefer l4s --rate 50mbit",
			"L4S needs the bottleneck here, and without a rate it is somewhere else")
	case g.Prefer == "l4s" && g.CC == "bbr":
		return bad("--cc auto, or --prefer latency",
			"BBR under a DualPI2 bottleneck drops other people's packets (23 %% of a probe, measured)")
	}
	return nil
}

// checkFollow finds what no follower can do.
func (g Goal) checkFollow(bad func(try, what string, args ...any) error) error {
	low, high := g.Bounds()
	switch {
	case g.Recipe+g.Qdisc != "" || g.Prefer == "l4s":
		return bad("--rate 50mbit --follow auto", "--follow changes the rate of a CAKE, so it goes with no "+
			"--recipe, --qdisc or --prefer l4s")
	case g.Role == "relay" && g.Rate == 0:
		return bad("--role relay --rate 50mbit --follow auto", "on a relay --follow begins with a rate, and none is "+
			"given")
	case g.Unknown():
		return nil
	case g.Rate == 0:
		return bad("--rate "+string(g.Follow), "--follow begins with a rate, and none is given")
	case low < minRate:
		return bad("--rate 20mbit..100mbit", "%s would leave too little to reach this host", low)
	case high < low:
		return bad("--rate "+string(spanOf(high, low))+", the lower rate first", "%s leaves no choice", g.Follow)
	case high == low:
		return bad("--rate 20mbit..100mbit, the lower rate first", "%s leaves no choice", g.Follow)
	case g.Rate < low || g.Rate > high:
		return bad(fmt.Sprintf("--rate %s --follow %s", low, g.Follow),
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
	switch at, _, err := below(f, name); {
	case ok && link.Kind == "bridge" && g.Rate != 0 && err == nil && at != name:
		return link, &hint.Error{What: name + " is a bridge: what goes from port to port does not pass its queue",
			Try: "--dev " + at + ", by which all of it leaves"}
	case ok && link.Kind == "bridge" && g.Rate != 0 && err != nil:
		return link, err
	case name == "":
		return link, &hint.Error{What: "there is no default route to tell the uplink by", Try: "--dev NAME" +
			listDevices(f)}
	case !ok:
		return link, &hint.Error{What: fmt.Sprintf("%s: no such device", name), Try: "--dev NAME" + listDevices(f)}
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
