// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/internal/bbr"
	"weir/internal/hint"
	"weir/internal/host"
	"weir/internal/kernel"
	"weir/internal/qdisc"
	"weir/internal/units"
	"weir/internal/wire"
)

// rules are all that Weir knows, in the order in which it is applied: the queue first, since what else helps depends on
// where it is.
var rules = []rule{
	ownTheQueue,
	shapeWhatArrives,
	chooseCongestionControl,
	limitUnsent,
	sizeBuffers,
	askForECN,
}

const (
	congestionControl = "net.ipv4.tcp_congestion_control"
	notsentLowat      = "net.ipv4.tcp_notsent_lowat"
	tcpRmem           = "net.ipv4.tcp_rmem"
	tcpWmem           = "net.ipv4.tcp_wmem"
	tcpECN            = "net.ipv4.tcp_ecn"
)

// ownTheQueue finds the bottleneck and puts a queue that Weir controls in front of it.
func ownTheQueue(d *draft) error {
	switch g := d.Goal; {
	case g.Qdisc != "":
		reason := "as asked: --qdisc"
		if g.Only {
			reason = "as asked"
		}
		asked, err := qdisc.ParseStack(g.Qdisc)
		if err != nil {
			return &hint.Error{What: err.Error(), Usage: true}
		}
		if err := d.checkTokenBucket(asked); err != nil {
			return err
		}
		err = d.root(asked, reason, "none: the choice is yours")
		d.warnIfIdle()
		return err
	case g.Unknown():
		d.note("rate", "unknown: no limit yet; weir follow adds one to %s after %d s of a full link", d.link.Name,
			findTakes)
		d.needCAKE()
		return d.unshaped()
	case g.Rate != 0 && g.Rate == d.link.Speed && g.Follow == "":
		d.warn(d.link.Name, "%s is the speed of the link: the device is the limit, and shaping would only cost", g.Rate)
		return d.unshaped()
	case g.Rate != 0 && g.Carries.oneCard():
		return d.relayed()
	case g.Rate != 0:
		return d.shaper()
	}
	return d.unshaped()
}

// checkTokenBucket refuses a token bucket that holds no full packet: it drops each of them, and the kernel takes it all
// the same.
func (d *draft) checkTokenBucket(asked qdisc.Stack) error {
	packet := units.Size(d.link.MTU)
	if d.link.MAC != "" {
		packet += wire.EthernetHeader
	}
	for _, spec := range asked {
		tbf, is := spec.(qdisc.TBF)
		option, holds := "burst", tbf.Burst
		if tbf.PeakRate != 0 && tbf.MTU < holds {
			option, holds = "mtu", tbf.MTU
		}
		if is && holds < packet {
			return &hint.Error{What: fmt.Sprintf("%s: tbf with %s %s drops what is longer, and a packet has up to %s",
				d.link.Name, option, holds, packet), Try: fmt.Sprintf("%s %s or more, in --qdisc", option, packet)}
		}
	}
	return nil
}

// shapedRate is the rate to enforce so that the queue is here and not at the provider: little enough less that nobody
// misses it.
func shapedRate(rate units.Rate) units.Rate { return rate * usualShare / 10000 }

// hereReason is why a rate is enforced that is a little less than the provider's.
func hereReason(rate units.Rate) string {
	return "packets wait here and not at the provider: 99.75 % of " + rate.String()
}

// intervalFor is how long CAKE's and fq_codel's control law lets a queue stand before it acts; its target, what may
// stand for good, is a twentieth of it (sch_cake.c, cake_set_rate; CoDel's own ratio, RFC 8289 section 4.3).
//
// The usual 100ms, with a target of 5, suits a queue that many connections share. Here each connection has a queue of
// its own, which nobody else waits in. Cubic cuts its window by three tenths (RFC 9438 section 4.6), and runs dry
// unless 0.43 × RTT stood in it. A dry queue is lost goodput, and its next packet counts as the first of a sparse flow,
// ahead of those that really are. Ten RTTs make the target half an RTT.
func intervalFor(rtt units.Duration) units.Duration {
	const (
		rtts       = 10
		least      = units.Duration(100 * time.Millisecond)
		most       = units.Duration(2 * time.Second)
		assumedRTT = units.Duration(50 * time.Millisecond) // of clients on the server's continent
	)
	if rtt == 0 {
		rtt = assumedRTT
	}
	return min(max(rtts*rtt, least), most).Round(units.Duration(time.Millisecond))
}

// Crowded says what CAKE's fairness costs a client that has many connections, where one is seen to.
//
// CAKE gives clients equal shares, and each client's connections take turns within it. An echo of such a client waits
// for its turn, too. In the lab that begins with a turn between 18 and 33 ms (results/rules.md, "Many connections").
func (g Goal) Crowded(s host.Sockets) []Note {
	const packet, short = wire.Frame * 8, 20 * time.Millisecond
	switch {
	case g.Rate == 0 || g.Recipe+g.Qdisc != "" || g.Carries.oneCard():
		return nil
	case g.Prefer == "l4s":
		return g.overloads(s)
	}
	turn := time.Duration(float64(s.Most) * packet / float64(g.Rate) * float64(time.Second))
	if turn <= short {
		return nil
	}
	return []Note{warning("path", "one client has %d busy connections. At %s a turn of theirs takes %s, and what "+
		"else that client does waits for its turn. No other client waits. Fewer connections end that; so does CAKE's "+
		"flows, with which clients do not share evenly any more (%s)",
		s.Most, g.Rate, turn.Round(time.Millisecond), manyEvidence.quoted())}
}

// overloads says what DualPI2 drops where many connections are seen.
//
// Its classic queue holds one target. Where a connection has few packets in flight, it takes many losses to slow it
// down, and an echo's packets are dropped as often. In the lab that number alone tells how many: of 6.5 packets 2 %,
// of 3.3 5 to 6 %, and of 1.7 15 to 18 %, from 6 to 23 Mbit/s (results/rules.md, "L4S on narrow links").
func (g Goal) overloads(s host.Sockets) []Note {
	const packet, few, target, usual = wire.Frame * 8, 4, 15 * time.Millisecond, 40 * time.Millisecond
	rtt := time.Duration(cmp.Or(g.RTT, s.RTT, units.Duration(usual))) + target
	each := float64(g.Rate) * rtt.Seconds() / packet / float64(max(1, s.Busy))
	if each >= few {
		return nil
	}
	return []Note{warning("L4S", "%d connections are busy. At %s each has less than four packets in flight. "+
		"DualPI2 then drops many, also of what is no download (%s)", s.Busy, g.Rate, overloadEvidence.quoted())}
}

// ownInterval is the interval for what this host sends itself.
//
// Its own TCP needs nobody to bound its queue: TCP Small Queues lets each connection have two packets of its own here,
// and no more than the pacing rate needs (net/ipv4/tcp_output.c, tcp_small_queue_check). The rest waits in the socket,
// where it is in nobody's way. That is some 6.6 KB a connection (results/rules.md). A target below the sum of them
// drops packets that are in no queue to speak of. Connections that start and stop then leave the link idle. What is
// forwarded, and what programs send by UDP, has no such bound.
func (d *draft) ownInterval() units.Duration {
	const (
		connections = 128
		each        = 6650 // bytes that wait here of one connection
		perTarget   = 20   // CAKE's interval over its target
		least       = 500 * time.Millisecond
		most        = 2 * time.Second
	)
	g := d.Goal
	switch {
	case d.sendsOwnTCP():
	case g.Serves == servesUDP:
		return intervalFor(g.RTT)
	default:
		return d.forwardedInterval()
	}
	all := time.Duration(float64(connections*each*8*perTarget) / float64(g.Rate) * float64(time.Second))
	own := min(max(all, least), most)
	return max(units.Duration(own).Round(units.Duration(time.Millisecond)), intervalFor(g.RTT))
}

// forwardedInterval is the interval for what others send through this host.
//
// Nothing but CAKE bounds what waits here of it, so ten RTTs are right on a wide link. On a narrow one a target of half
// an RTT is less than a packet of each connection. Then their queues run dry all the time, and each next packet goes
// ahead of what is really sparse. So the target has room for three packets of each of 16 connections. One connection
// that is alone has as long a queue then. It is its own: nobody else waits in it (results/rules.md).
func (d *draft) forwardedInterval() units.Duration {
	const (
		bytes     = 16 * 3 * wire.Frame
		perTarget = 20
		most      = 2 * time.Second
	)
	room := time.Duration(float64(bytes*8*perTarget) / float64(d.Goal.Rate) * float64(time.Second))
	return max(intervalFor(d.Goal.RTT), units.Duration(min(room, most)).Round(units.Duration(time.Millisecond)))
}

// sendsOwnTCP reports whether what leaves is this host's own TCP, as far as is known.
func (d *draft) sendsOwnTCP() bool {
	return d.Goal.Role != "relay" && d.Goal.Serves != servesUDP && !d.facts.Forwards()
}

// memoryLimit bounds what thousands of connections may have here in all, which the interval no longer does: 0.4 s of
// the rate, in packets' memory, and no less than CAKE's own least (sch_cake.c, cake_reconfigure). On a wide link CAKE's
// own bound is short enough. In the lab 2000 connections at 50mbit carry 48.8 Mbit/s with it and 32.6 without.
func memoryLimit(rate units.Rate) units.Size {
	const (
		least = 4 << 20
		wide  = units.Rate(200e6)
		held  = 640 * time.Millisecond // packets take 1.6 times their bytes
		step  = 1 << 20
	)
	if rate > wide {
		return 0
	}
	bytes := uint64(float64(rate) / 8 * held.Seconds())
	return units.Size(max((bytes+step-1)/step*step, least))
}

// shaper plans for a rate that somebody else enforces.
func (d *draft) shaper() error {
	g, reason := d.Goal, hereReason(d.Goal.Rate)
	if g.perClient() {
		return d.clients()
	}
	htb := d.htb(shapedRate(g.Rate))
	root, ok := d.link.Tree.Root()
	if ok && root.Handle != 0 && len(d.stack) > 0 && !d.stack.Shapes() && d.link.Tree.Rate() == 0 {
		d.warn(d.link.Name, "%s, as it is now, has no rate: it acts on a queue at this device. Where %s is "+
			"enforced beyond it, the queue is there. (%s)", d.stack.Leaf(), g.Rate,
			idleHostEvidence.quoted())
	}

	if g.Prefer == "l4s" {
		if planned, err := d.dualpi2(htb, reason); planned {
			return err
		}
	}
	switch {
	case d.takes("cake"):
		return d.cake(reason)
	case d.takesShaper():
		return d.share("kernel "+d.facts.Kernel+" has no CAKE to use, so", sharesEvidence.String())
	}
	d.needCAKE()
	d.mayTakeShaper()
	if d.takes("htb", "fq_codel") {
		return d.root(append(htb, fqCodel(intervalFor(g.RTT))), d.withoutCAKE(reason),
			withoutCAKEEvidence.String())
	}
	return d.noShaper("choose with --qdisc (this kernel has: " + d.kinds() + ")")
}

// withoutCAKE says what is done instead, beside the reason for it and, for programs that read the plan, as a note.
func (d *draft) withoutCAKE(reason string) string {
	d.note("CAKE", "kernel %s has no cake, so it is htb with fq_codel: fair between connections, not clients",
		d.facts.Kernel)
	return reason + "; without CAKE it is fair between connections, not between clients"
}

// needCAKE says that a goal which is to be followed cannot be.
func (d *draft) needCAKE() {
	if d.Goal.Follow != "" && !d.takes("cake") && !d.takesShaper() {
		without := "leave --follow out"
		if d.Goal.Unknown() { // --rate auto follows, too
			without = "give --rate a rate"
		}
		d.Unavailable = &hint.Error{What: fmt.Sprintf("%s: kernel %s has no CAKE, whose rate could be followed",
			d.link.Name, d.facts.Kernel), Try: host.AllModules(d.facts.Kernel) + ", or " + without}
	}
}

// dualpi2 plans the kernel's own, or else Weir's in BPF; false if there is neither.
func (d *draft) dualpi2(htb qdisc.Stack, reason string) (planned bool, err error) {
	const narrow = units.Rate(10e6) // below, the least windows of a dozen connections are more than it carries
	g := d.Goal
	if g.Rate < narrow {
		d.warn("L4S", "on a link as narrow as %s many connections at once overload DualPI2, and it drops in both "+
			"queues (%s)", g.Rate, narrowL4SEvidence.quoted())
	}
	if d.facts.Qdiscs["dualpi2"] == host.Yes && d.takes("dualpi2", "htb") {
		return true, d.root(append(htb, plainStack("dualpi2")...), reason+
			"; two queues, L4S marking, by the kernel's own DualPI2",
			kernelDualPI2Evidence.String())
	}
	if d.facts.Qdiscs[qdisc.BPF] == host.Yes {
		d.warn("L4S", "kernel %s has no dualpi2 to use, so it is weir's own, in BPF. It marks when packets come, by "+
			"the delay that it predicts, and not when they go; what that changes is in results/dualpi2.md",
			d.facts.Kernel)
		if d.link.TxQueues > 1 {
			d.warn(d.link.Name, "all %d queues go through the one lock of bpf_dualpi2", d.link.TxQueues)
		}
		if d.facts.Forwards() {
			d.note("forwarding", "what this host forwards reaches bpf_dualpi2 as the receiving device or a "+
				"container has joined it. It goes as a whole, where the kernel's dualpi2 takes it apart; "+
				"ethtool -K DEV gro off, for a device that joins (%s)", superpacketEvidence.quoted())
		}
		if g.Serves == servesUDP {
			d.note("UDP GSO", "a QUIC server hands over several packets in one piece. Those go through "+
				"bpf_dualpi2 as a whole, where CAKE takes them apart. (%s)", udpGSOEvidence.quoted())
		}
		return true, d.root(qdisc.Stack{d.bpfDualPI2(shapedRate(g.Rate))}, reason+
			"; two queues, L4S marking, by weir's DualPI2 in BPF",
			bpfDualPI2Evidence.String())
	}
	if !d.facts.Admin && d.facts.Qdiscs[qdisc.BPF] == host.Unknown {
		d.warn("L4S", "kernel %s has no dualpi2 to use. Whether it takes weir's own, which weir up would use, only "+
			"root can tell: sudo weir plan", d.facts.Kernel)
		return false, nil
	}
	d.warn("L4S", "kernel %s has no dualpi2 to use, nor takes weir's own%s. Without it nothing marks for L4S, and "+
		"latency is as with --prefer latency",
		d.facts.Kernel, strings.TrimSuffix(": "+d.facts.Lacks[qdisc.BPF], ": "))
	return false, nil
}

// cake plans CAKE, which is fair between clients.
func (d *draft) cake(reason string) error {
	g := d.Goal
	q, queues := d.newCake(shapedRate(g.Rate), d.ownInterval()), ""
	switch {
	case d.exceedsCAKE() && d.takesShaper():
		d.warn(d.link.Name, "%s was tried at up to 2.5gbit on emulated CPUs, and simulated at 25gbit. What it does on "+
			"this card, weir measure tells; --qdisc has others", qdisc.BPFShaping)
		return d.share(fmt.Sprintf("one CAKE carries %s and has one lock: here",
			cmp.Or(g.OneCAKE, assumedCAKE)), sharesEvidence.String())
	case d.exceedsCAKE() && g.OneCAKE == 0:
		queues = d.unmeasured(&q)
	case d.exceedsCAKE():
		var carried bool
		if queues, carried = d.spreadOverQueues(&q); !carried {
			return d.perQueue()
		}
	}
	side, why := "dst", intervalEvidence
	switch {
	case d.sendsOwnTCP():
		why, q.MemLimit = ownTCPEvidence, memoryLimit(g.highest())
		d.warn("rtt", "%s is not added latency: it is how long a connection's own queue must persist before CAKE "+
			"drops from it, and no other connection is affected. The kernel keeps the queues of this host's TCP "+
			"short by itself; memlimit is the room for all of them. --serves udp for a host that sends QUIC", q.RTT)
	case g.RTT == 0:
		d.warn("rtt", "%s, ten times 50ms, as --rtt is not said. It is not added latency: it is how long a "+
			"connection's own queue must persist before CAKE drops from it, and no other connection is affected",
			q.RTT)
	}
	d.note("besteffort", "one class for all packets, whatever their DSCP says; hosts and connections share it evenly")
	if g.FairTo == "src" {
		q.FlowMode, side = dualSrc, "src"
	}
	if g.NAT {
		q.NAT = true
		other := map[string]string{
			"dst": "the hosts that it is sent to, so download of clients beyond; --fair-to src shares between " +
				"those that send through this relay",
			"src": "the hosts that send it through this relay; --fair-to dst shares between those that it is " +
				"sent to",
		}
		d.note("fairness", "what leaves %s is shared evenly between %s", d.link.Name, other[side])
	}
	fair := fairEvidence
	if !q.SplitGSO {
		fair = wholeEvidence
	}
	return d.root(qdisc.Stack{q}, reason+queues, fmt.Sprintf("%v; %v; %v", shapedEvidence, why, fair))
}

func (d *draft) noShaper(or string) error {
	for _, kind := range []string{"cake", "htb", "fq_codel"} {
		if f, _ := FaultOf(kind, d.facts); d.has(kind) && f.Known() {
			return &hint.Error{What: fmt.Sprintf("%s: nothing to shape with: %s", d.link.Name, f),
				Try: "boot a kernel that has it mended, or " + or}
		}
	}
	return &hint.Error{
		What: fmt.Sprintf("%s: kernel %s has neither cake nor htb with fq_codel to shape with", d.link.Name,
			d.facts.Kernel),
		Try: host.AllModules(d.facts.Kernel) + ", or " + or,
	}
}

// CAKE's names for fairness between hosts, and within each between flows (tc-cake(8)).
const (
	dualDst = "dual-dsthost"
	dualSrc = "dual-srchost"
)

// newCake is CAKE as all rules have it: one tin, fair to those it is sent to, and counting as the limiter does.
func (d *draft) newCake(rate units.Rate, interval units.Duration) qdisc.Cake {
	q, f := qdisc.New[qdisc.Cake](), d.framing()
	q.Overhead, q.ATM, q.MPU, q.Raw = f.Overhead, f.ATM, f.MPU, f.Raw
	q.Bandwidth, q.Diffserv, q.FlowMode, q.RTT = rate, "besteffort", dualDst, interval
	return q
}

// fqCodel is what comes nearest, below a shaper.
func fqCodel(interval units.Duration) qdisc.FQCodel {
	q := qdisc.New[qdisc.FQCodel]()
	q.Interval, q.Target = interval, interval/20
	return q
}

func (d *draft) bpfDualPI2(rate units.Rate) qdisc.BPFDualPI2 {
	q, f := qdisc.New[qdisc.BPFDualPI2](), d.framing()
	q.Overhead, q.ATM, q.MPU, q.Raw = f.Overhead, f.ATM, f.MPU, f.Raw
	q.Rate = rate
	return q
}

// plainStack is a kind as the kernel has it by default, below others.
func plainStack(kinds ...string) (s qdisc.Stack) {
	for _, kind := range kinds {
		spec, _ := qdisc.Default(kind)
		s = append(s, spec)
	}
	return s
}

// shapeWhatArrives makes what is sent here wait here, if that is asked for.
//
// The provider's queue is before this one: it is kept empty by letting less through than it does, so that those who
// send notice and slow down. Nobody slows down at once. How much less it takes is measured; BBR takes most, since for
// one RTT in eight it sends a quarter more than arrives (net/ipv4/tcp_bbr.c, bbr_pacing_gain). The interval is the same
// as for what leaves.
func shapeWhatArrives(d *draft) error {
	shape := d.shapeIngress
	switch g := d.Goal; {
	case g.Carries.oneCard() && g.Rate != 0 && g.Qdisc == "":
		if !d.arriving().wanted {
			return nil
		}
		shape = d.endsHere
	case g.Ingress == 0:
		if g.Carries == Kinds(routes) && g.Rate != 0 {
			d.note("incoming traffic", "queues at the provider as before; --ingress RATE lets it wait here, for 15 %% "+
				"of its rate. (%s)", routerEvidence.quoted())
		}
		return nil
	}
	err := shape()
	var refusal *hint.Error
	if d.Goal.Rate != 0 && errors.As(err, &refusal) {
		d.Unavailable = refusal
		return nil
	}
	return err
}

func (d *draft) shapeIngress() error {
	g := d.Goal
	rate := g.Ingress * 85 / 100
	reason := "let the provider's queue run empty: 85 % of " + g.Ingress.String()
	if g.perClient() {
		return d.incomingClients(rate, reason)
	}
	if d.takes("cake") {
		// Fair to the same hosts as what leaves, which are at the other end of what arrives.
		q, side := d.newCake(rate, intervalFor(g.RTT)), "the hosts beyond that send it"
		q.FlowMode, q.Ingress = dualSrc, true
		if g.FairTo == "src" {
			q.FlowMode, side = dualDst, "the hosts behind this relay that it is for"
		}
		if g.NAT {
			q.NAT = true
			d.note("fairness", "incoming traffic of %s is shared evenly between %s", d.link.Name, side)
		}
		return d.ingress(qdisc.Arriving{Stack: qdisc.Stack{q}}, reason, ingressEvidence.String())
	}
	if d.takes("htb", "fq_codel") {
		return d.ingress(qdisc.Arriving{Stack: append(d.htb(rate), fqCodel(intervalFor(g.RTT)))},
			d.withoutCAKE(reason), ingressEvidence.String())
	}
	return d.noShaper("leave --ingress out")
}

// unshaped plans for a device that is the limit itself, or for a limit that nobody told of. A qdisc that manages its
// queue stays.
func (d *draft) unshaped() error {
	// A virtual device hands packets on at once: it has no queue to manage, and noqueue is right for it.
	if d.link.Kind == "" && len(d.stack) > 0 && qdisc.TraitsOf(d.stack.Leaf()).Plain && !d.stack.Shapes() {
		kind, above := "fq_codel", plainStack()
		reason := "connections no longer wait behind each other when the device is the limit"
		if d.link.TxQueues > 1 {
			above = plainStack("mq")
			reason = "as before one queue for each of the device's, now fair between connections"
			if d.takes("fq") {
				kind = "fq"
			}
		}
		if !d.takes(kind) {
			d.warn(d.link.Name, "kernel %s has no %s to use: the plain FIFO stays", d.facts.Kernel, kind)
		} else if err := d.root(append(above, plainStack(kind)...), reason,
			fifoEvidence.String()); err != nil {
			return err
		}
	}
	d.warnIfIdle()
	return nil
}

// warnIfIdle says what a queue without a rate can do.
func (d *draft) warnIfIdle() {
	if len(d.stack) == 0 || d.stack.Shapes() {
		return
	}
	if d.Goal.Rate != 0 && d.Goal.Rate == d.link.Speed {
		return
	}
	what := d.stack.Leaf() + " has no rate: it acts on a queue at this device only"
	if d.stack.Has("noqueue") {
		what = "there is no queue at this device"
	}
	d.warn(d.link.Name, "%s. If the provider enforces a lower rate the queue is there; tell it with --rate (%s)", what,
		idleEvidence.quoted())
}

func isL4S(t qdisc.Traits) bool        { return t.L4S }
func marksPackets(t qdisc.Traits) bool { return t.Marks }

// chooseCongestionControl takes a BBR where packets are lost without a queue, Weir's own also where the queue is
// elsewhere, and keeps the kernel's from a DualPI2 that is the bottleneck.
func chooseCongestionControl(d *draft) error {
	want, reason, evidence := "", "", ""
	l4sBottleneck := d.stack.Any(isL4S) && d.stack.Shapes()
	switch cc := d.Goal.CC; {
	case cc != "" && cc != "auto" && cc != "keep":
		if err := d.kernelHas(cc); err != nil {
			return err
		}
		want, reason, evidence = cc, "as asked: --cc "+cc, "none: the choice is yours"
		if cc == bbr.Name {
			evidence = bpfBBREvidence.String()
		}
	case cc == "keep":
		d.wants[congestionControl] = d.cc
		d.note("congestion control", "%s, kept as asked", d.cc)
	case l4sBottleneck && d.cc == "bbr":
		if err := d.kernelHas("cubic"); err != nil {
			return err
		}
		want, reason = "cubic", "BBR takes no notice of DualPI2's marks and drops"
		evidence = bbrDualPI2Evidence.String()
	case l4sBottleneck:
		d.wants[congestionControl] = d.cc // and not what another goal would rather have
		d.note("congestion control", "%s stays: BBR would do harm under DualPI2, also where packets are lost", d.cc)
	case d.outrunByLoss() && TakesBPFBBR(d.facts):
		want, evidence = bbr.Name, lossEvidence.String()+"; "+bpfBBREvidence.String()
		reason = fmt.Sprintf("%s lost with no queue to blame: a BBR does not slow down for it", d.Goal.Loss)
	case d.outrunByLoss() && d.facts.Congestion.Has("bbr"):
		want, reason, evidence = "bbr", fmt.Sprintf("%s lost with no queue to blame: BBR does not slow down for it",
			d.Goal.Loss), lossEvidence.String()
	case d.outrunByLoss():
		d.note("congestion control", "kernel %s has no bbr, which would help against %s loss", d.facts.Kernel,
			d.Goal.Loss)
	case d.stack.Shapes():
		d.note("congestion control", "%s stays: behind the shaper cubic and BBR are as calm, and %v", d.cc,
			calmEvidence)
	case d.queueIsElsewhere() && TakesBPFBBR(d.facts):
		want, evidence = bbr.Name, bpfBBREvidence.String()
		reason = "no rate is given, so the queue is at the provider: bpf_bbr keeps it short, and losses without a " +
			"queue do not slow it down"
	default:
		d.note("congestion control",
			"%s stays: BBR helps where packets are lost without a queue; tell of it with --loss", d.cc)
	}
	if d.queueIsElsewhere() && !d.facts.Admin && d.facts.Objects[bbr.Name] == host.Unknown && want == "" {
		d.note("congestion control", "weir up would choose %s if this kernel takes it, which only root can tell: "+
			"sudo weir plan", bbr.Name)
	}
	if asked := d.Goal.CC; want == bbr.Name && asked != want {
		if err := d.register(); err != nil {
			return err
		}
	}
	if want != "" {
		d.sysctl(congestionControl, want, reason+"; connections already open keep theirs", evidence)
		d.cc = want
	}
	return nil
}

// queueIsElsewhere reports whether this host ends connections whose bottleneck, as far as is known, is no queue of its
// own. The congestion controls are those that bpf_bbr was measured beside: another was chosen for a reason.
func (d *draft) queueIsElsewhere() bool {
	g := d.Goal
	endsTCP := g.Serves != servesUDP && (g.Role != "relay" || g.Carries.has(Proxy))
	return g.Rate == 0 && !g.Unknown() && g.CC != "keep" && endsTCP && !d.stack.Shapes() &&
		slices.Contains([]string{"cubic", "reno", "bbr", bbr.Name}, d.cc)
}

// TakesBPFBBR reports whether a kernel has this program's bpf_bbr, or takes it.
func TakesBPFBBR(f host.Facts) bool {
	now := kernel.VersionOf(f)
	return now == kernel.NotOurs || now == kernel.Unseen || now == kernel.Version(f.Congestion.Brings) ||
		f.Objects[bbr.Name] == host.Yes
}

// register has the kernel take bpf_bbr as this program brings it along, unless it has one that is nobody's to change,
// or nothing here could choose it.
func (d *draft) register() error {
	if d.facts.Sysctls[congestionControl].ReadOnly {
		return nil
	}
	now, want := kernel.VersionOf(d.facts), kernel.Version(d.facts.Congestion.Brings)
	switch support := d.facts.Objects[bbr.Name]; {
	case now == kernel.NotOurs || now == kernel.Unseen || now == want:
	case support == host.No:
		return &hint.Error{What: fmt.Sprintf("kernel %s does not take %s: %s", d.facts.Kernel, bbr.Name,
			d.facts.Lacks[bbr.Name]), Try: "--cc keep, or --cc bbr"}
	case support != host.Yes && d.facts.Admin:
		return &hint.Error{What: fmt.Sprintf("whether kernel %s takes %s cannot be told: %s", d.facts.Kernel, bbr.Name,
			d.facts.Lacks[bbr.Name]), Try: "--cc keep, or --cc bbr"}
	default:
		d.Changes = append(d.Changes, Change{
			Target: kernel.Target{Kind: kernel.Control, Name: bbr.Name}, Old: now, New: want,
			Reason:   "weir's own congestion control, in BPF: the kernel keeps it without a process",
			Evidence: bpfBBREvidence.String(),
		})
	}
	return nil
}

// outrunByLoss reports whether one connection of cubic would not fill the path, for what it loses.
//
// Cubic's window comes to what RFC 9438 gives for random loss p: 1.054 × (RTT/p)^¾ packets (section 5.1), or the window
// of Reno where that is larger, √(1.5/p) (section 4.3). Below 1.25 BDPs it does not fill the link: the lab agrees on
// the paths of results/rules.md. Several connections that share one may fill it. There BBR costs up to 5 % of goodput.
func (d *draft) outrunByLoss() bool {
	const (
		surely   = 0.01 // of packets: with a rate unknown, from here on
		enough   = 1.25 // of the BDP
		usualRTT = units.Duration(50 * time.Millisecond)
	)
	p := float64(d.Goal.Loss)
	if p == 0 || p >= surely {
		return p >= surely
	}
	rtt := time.Duration(cmp.Or(d.Goal.RTT, usualRTT)).Seconds()
	bdp := float64(d.Goal.Rate) * rtt / 8 / float64(d.link.MTU+wire.EthernetHeader)
	window := max(1.054*math.Pow(rtt/p, 0.75), math.Sqrt(1.5/p))
	return window < enough*bdp
}

// limitUnsent keeps what waits in a socket short enough to be fresh, and long enough to be no work.
func limitUnsent(d *draft) error {
	const best = 131072 // bytes
	now, ok := d.facts.Sysctls[notsentLowat]
	value, err := strconv.ParseInt(now.Value, 10, 64)
	if !ok || err != nil {
		return nil
	}
	unlimited := value < 0 || value >= 1<<31-1 // written as -1, INT_MAX or UINT_MAX
	reason := ""
	switch {
	case unlimited:
		reason = "no more than this waits in a socket, so what is sent is fresh"
	case value < best:
		reason = "no gain below; costs wake-ups, and under BBR latency"
	default:
		return nil
	}
	d.sysctl(notsentLowat, strconv.Itoa(best), reason, lowatEvidence.String())
	return nil
}

// sizeBuffers raises what a connection's buffers may grow to, so that one alone can fill the path; never lowers (rule
// 4). net.core.rmem_max and wmem_max bound only what a program asks for with SO_RCVBUF or SO_SNDBUF, not the kernel's
// own growth, so they stay.
//
// Sending, tcp_sndbuf_expand (net/ipv4/tcp_input.c) wants the congestion control's factor (2; bbr_sndbuf_expand says 3)
// × cwnd × the memory of a segment. At the bottleneck cubic's cwnd comes to the BDP and a queue, BBR's to 2 × the BDP;
// the memory of a segment is counted there as 3 × its payload. But GSO fills buffers nearly to the brim, so twice the
// payload covers what is really held. That is 4 × BDP for cubic. For BBR it is 6 ×, as its second BDP of cwnd is in
// flight only while it probes. Receiving, tcp_rcv_space_adjust wants room for twice what arrived in the last RTT, so
// that the sender can double. It counts a byte of payload as up to two of memory: 4 × BDP.
func sizeBuffers(d *draft) error {
	const (
		mib         = 1 << 20
		defaultRTT  = units.Duration(200 * time.Millisecond) // covers most of the Internet
		rmemDefault = 131072                                 // the kernel's, since Linux 4.20
		wmemDefault = 16384                                  // the kernel's, since 2.4
		// tcp_mem's pressure mark is a sixteenth of memory (tcp_init_mem)
		pressureShare = 16
	)
	rtt, said := d.Goal.RTT, "--rtt"
	if rtt == 0 {
		rtt, said = defaultRTT, "assumed, see --rtt"
	}
	rate := d.Goal.highest()
	bdp := float64(rate) / 8 * time.Duration(rtt).Seconds()
	if d.Goal.Rate == 0 {
		d.note("TCP buffers", "maxima stay as they are: without --rate it is not known what a path holds")
	}
	limit := uint64(1 << 30)
	if d.facts.Memory != 0 {
		limit = min(limit, uint64(d.facts.Memory)/pressureShare/mib*mib)
	}
	sending := 4.0
	if d.cc == "bbr" || d.cc == bbr.Name { // of that the factor is 3, too (sndbuf_expand in internal/bbr/bpf)
		sending = 6
	}
	for _, b := range []struct {
		name   string
		lowest uint64 // of the default
		factor float64
	}{{tcpWmem, wmemDefault, sending}, {tcpRmem, rmemDefault, 4}} {
		now := d.facts.Sysctls[b.name]
		sizes, ok := triple(now.Value)
		if !ok {
			continue
		}
		var reasons, evidence []string
		if sizes[1] < b.lowest {
			sizes[1] = b.lowest
			reasons = append(reasons, fmt.Sprintf("default back to the kernel's %d", b.lowest))
			evidence = append(evidence, "each new connection starts with this much of a window")
		}
		need := (uint64(b.factor*bdp) + mib - 1) / mib * mib
		if need > limit {
			d.note(b.name, "%g × %s × %s would be %s; held to a sixteenth of memory, at most 1 GiB: %s", b.factor,
				rate,
				rtt, units.Size(need), units.Size(limit))
			need = limit
		}
		if need > sizes[2] {
			sizes[2] = need
			reasons = append(reasons, fmt.Sprintf("maximum for %g × %s × %s (%s)", b.factor, rate, rtt, said))
			evidence = append(evidence, buffersEvidence.String())
		}
		sizes[2] = max(sizes[2], sizes[1])
		if len(reasons) > 0 {
			d.sysctl(b.name, fmt.Sprintf("%d %d %d", sizes[0], sizes[1], sizes[2]), strings.Join(reasons, "; "),
				strings.Join(evidence, "; "))
		}
	}
	return nil
}

// triple reads the "least default most" of tcp_rmem and tcp_wmem, in bytes.
func triple(text string) (sizes [3]uint64, ok bool) {
	fields := strings.Fields(text)
	if len(fields) != len(sizes) {
		return sizes, false
	}
	for i, field := range fields {
		v, err := strconv.ParseUint(field, 10, 31) // the kernel keeps them in an int
		if err != nil {
			return sizes, false
		}
		sizes[i] = v
	}
	return sizes, true
}

// askForECN lets connections that a relay opens be marked where they would be dropped. A server only accepts,
// and does so with ECN by default; BBR does not listen to marks.
func askForECN(d *draft) error {
	marks := d.stack.Shapes() && d.stack.Any(marksPackets)
	now := d.facts.Sysctls[tcpECN].Value
	if d.Goal.Role != "relay" || !marks || d.cc == "bbr" || (now != "0" && now != "2") {
		return nil
	}
	d.sysctl(tcpECN, "1", "connections that this relay opens are marked, not dropped, by its own queue",
		ecnEvidence.String())
	return nil
}
