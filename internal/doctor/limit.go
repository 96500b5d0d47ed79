// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"strings"
	"time"

	"weir/internal/host"
	"weir/internal/plan"
	"weir/internal/qdisc"
	"weir/internal/text"
	"weir/internal/units"
)

// Limit is what keeps a host from sending faster, of which there is one at a time.
type Limit string

const (
	LimitRate      Limit = "rate"      // enforced beyond this host, below what its device could send
	LimitShaper    Limit = "shaper"    // this host's own
	limitAllowance Limit = "allowance" // of the provider's, by its own counter
	limitDevice    Limit = "device"    // the uplink's line rate
	LimitPath      Limit = "path"      // it loses packets with no queue to blame; a policer looks the same
	LimitBuffer    Limit = "buffer"    // this host's send buffers
	limitReceiver  Limit = "receiver"  // the windows of the other ends
	limitWindow    Limit = "window"    // of what comes in: the window that this host announces
	limitCPU       Limit = "cpu"
	limitRule      Limit = "rule"      // one of netfilter, that drops
	limitRefusal   Limit = "refusal"   // this host drops, and nothing says where
	LimitPolicer   Limit = "policer"   // a filter of this host's own, that drops
	LimitEmulator  Limit = "emulator"  // netem on this host
	LimitQueue     Limit = "queue"     // this host's own, which is too short, or drops too soon
	LimitFlow      Limit = "flow"      // what this host's queue lets each connection have
	limitFragments Limit = "fragments" // packets are too large for a device of this host, or for the path
	limitSetting   Limit = "setting"   // of this host's TCP
	limitRoute     Limit = "route"     // of this host's, that bounds its connections
	limitUDP       Limit = "udp"       // the buffers of UDP sockets, a tunnel's among them
	limitPace      Limit = "pace"      // that programs have set for their connections
	LimitProgram   Limit = "program"   // the senders: they do not always have something to send
	limitNone      Limit = "none"      // no connection is busy; or data comes in, and this host does not bound it
	limitUnknown   Limit = "unknown"
)

// Bottleneck is what limits the host's traffic, as one look at the host shows it.
type Bottleneck struct {
	Limit Limit  `json:"limit"`
	Says  string `json:"says"` // the same to a person

	// What was not seen, without which nothing can be said, and the command to see it with a remark on it.
	Lacks  string `json:"lacks,omitempty"`
	Try    string `json:"try,omitempty"`
	Remark string `json:"remark,omitempty"`
}

// codes are of the findings that say what a limit does.
func (l Limit) codes() []Code {
	switch l {
	case LimitRate:
		return []Code{"queue-at-provider", "queue-below-shaper", "queue-on-the-way-in"}
	case LimitShaper:
		return []Code{"queue-in-fifo", "queue-here", "queue-owned"}
	case limitDevice:
		return []Code{"device-drops", "device-misses", "queue-in-fifo", "queue-here", "device-full",
			"device-rate-set"}
	case limitAllowance:
		return []Code{"allowance-exceeded"}
	case LimitPath:
		return []Code{"path-loses-packets", "path-loses-packets-bbr"}
	case LimitBuffer:
		return []Code{"send-buffers-bind"}
	case limitReceiver:
		return []Code{"receivers-bind"}
	case limitWindow:
		return []Code{"receive-buffers-bind"}
	case limitCPU:
		return []Code{"backlog-drops", "cpu-stolen", "cpu-short"}
	case limitSetting:
		return []Code{"tcp-switched-off", "tcp-memory-short", "pace-lowered"}
	case limitRoute:
		return []Code{"route-bounds"}
	case limitFragments:
		return []Code{"packets-in-fragments", "fragments-lost"}
	case limitUDP:
		return []Code{"udp-buffers-full", "udp-buffers-full-out"}
	case limitRule:
		return []Code{"rule-drops"}
	case limitRefusal:
		return []Code{"packets-refused"}
	case LimitPolicer:
		return []Code{"filter-drops"}
	case limitPace:
		return []Code{"pace-set"}
	case LimitEmulator:
		return []Code{"netem-here"}
	case LimitQueue:
		return []Code{"queue-drops", "aqm-interval-short"}
	case LimitFlow:
		return []Code{"flow-rate-here"}
	}
	return nil
}

// symptoms says of the busy connections what is seen of some of them, and what of none.
func (p *patient) symptoms() string {
	s := p.deep.Sockets
	var some, none []string
	for _, c := range []struct {
		n        int
		one, all string
	}{
		{s.Queueing, "waits in a queue", "wait in a queue"},
		{s.Lossy, "loses packets", "lose packets"},
		{s.Receiver, "waits for a receiver's window", "wait for a receiver's window"},
		{s.Buffer, "waits for room in a send buffer", "wait for room in a send buffer"},
	} {
		switch c.n {
		case 0:
			none = append(none, c.one)
		case 1:
			some = append(some, "1 "+c.one)
		default:
			some = append(some, fmt.Sprintf("%d %s", c.n, c.all))
		}
	}
	if s.Receiver+s.Buffer == 0 {
		none = append(none[:len(none)-2], "is held back by an end")
	}
	says := text.Counted(s.Busy, "busy connection")
	if some != nil {
		says += ", of which " + joinWords(some, "and")
	}
	if none != nil {
		says += ", and none " + joinWords(none, "or")
	}
	return says
}

// joinWords joins words, the last two by a conjunction.
func joinWords(words []string, conjunction string) string {
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " " + conjunction + " " + words[last]
}

// lowerFirst begins a sentence with a small letter, to go on with after a colon.
func lowerFirst(s string) string {
	const article = "A "
	if start := s[:2]; start != article && strings.ToUpper(start) == start { // UDP
		return s
	}
	return strings.ToLower(s[:1]) + s[1:]
}

// unknownBottleneck is the verdict where something was not seen that it takes.
func (p *patient) unknownBottleneck() Bottleneck {
	b := Bottleneck{Limit: limitUnknown, Try: "weir doctor --listen 10s", Remark: "while a download runs"}
	switch {
	case !p.deep.Sockets.Read:
		b.Lacks = "the live connections are not known"
		b.Remark += "; it loads the module tcp_diag"
	case p.deep.Sockets.Busy == 0 && p.mayMissConnections():
		b.Lacks = "the connections that this host forwards end elsewhere"
		b.Remark = "on a server where those connections end, while a download runs"
	case p.deep.Sockets.Busy == 0 && p.deep.Sockets.Receiving > 0:
		return p.unknownInwardBottleneck()
	case p.deep.Sockets.Busy == 0:
		b.Limit, b.Lacks, b.Says = limitNone, "no connection is busy", "nothing now: no connection is busy."
		if p.deep.Listened > 0 {
			b.Remark = "again, " + b.Remark
		}
		return b
	default:
		b.Lacks, b.Try, b.Remark = "there is no default route, so the uplink is not known", "weir doctor --dev NAME", ""
	}
	b.Says = "cannot be told: " + b.Lacks + "."
	return b
}

// unknownInwardBottleneck is the verdict where data comes in alone, and this host is not seen to hold it back.
func (p *patient) unknownInwardBottleneck() Bottleneck {
	if p.deep.Listened == 0 {
		b := Bottleneck{Limit: limitNone, Try: "weir doctor --listen 10s", Remark: "while they run"}
		b.Lacks = fmt.Sprintf("what holds back %s is not known", p.incoming())
		b.Says = "cannot be told: " + b.Lacks + "."
		return b
	}
	says := fmt.Sprintf("not this host: it does not hold back the %s that there are.", p.incoming())
	if n := p.deep.Sockets.Window.Bound(); n > 0 {
		says = fmt.Sprintf("not this host: of %s, %d used up their window.", p.incoming(), n)
	}
	return Bottleneck{Limit: limitNone, Says: says}
}

// Elsewhere says that connections wait, and not in the queue that a goal has put at its device; "" if that is not to
// be seen. The facts have a deep part with the live connections.
func Elsewhere(g plan.Goal, f host.Facts) string {
	f.Uplink = g.Dev
	p := examine(f)
	if p.link.Name != g.Dev || p.enforced() == 0 || !p.connectionsWait() || !p.waitsElsewhere() {
		return ""
	}
	s := p.deep.Sockets
	root, _ := p.holder.Tree.Root()
	try, _ := p.shapeLessAdvice()
	why := "The provider passes less than this rate, or what is sent does not pass here"
	if p.unshapedIngress() {
		try, why = fmt.Sprintf("weir plan --rate %s --ingress RATE", p.goalRate()), "Incoming traffic is not shaped"
	}
	return fmt.Sprintf("%d of %s wait: RTT %s, minimum %s, and %s holds %s. %s: %s",
		s.Queueing, text.Counted(s.Busy, "busy connection"), millis(s.QueueRTT), millis(s.QueueMin), p.shaperName(),
		text.Counted(int(root.Stats.Qlen), "packet"), why, try)
}

// Filtered names the filters whose actions have dropped some of what leaves by a goal's device. The facts have a deep
// part with them.
func Filtered(g plan.Goal, f host.Facts) (named []string) {
	for _, d := range examine(f).deep.Droppers {
		if d.Dev != g.Dev || d.Parent == ingressFilters || d.Drops == 0 {
			continue
		}
		named = append(named, fmt.Sprintf("%s, drops %s: %s so far", filterText(d), exceededBy(d),
			text.Counted(int(d.Drops), "packet")))
	}
	return named
}

// manyOfBusy reports whether n are a quarter or more of the busy connections, which is no accident.
func (p *patient) manyOfBusy(n int) bool { return n > 0 && 4*n >= p.deep.Sockets.Busy }

// connectionsWait reports whether connections wait in a queue, wherever it is.
func (p *patient) connectionsWait() bool { return p.manyOfBusy(p.deep.Sockets.Queueing) }

// knowsQueue reports whether the queue in which packets wait to leave is known.
func (p *patient) knowsQueue() bool {
	_, ok := p.holder.Tree.Root()
	return ok && p.link.Name != ""
}

// mayMissConnections reports whether there can be connections that were not looked at.
func (p *patient) mayMissConnections() bool { return !p.deep.Sockets.Read || p.Forwards() }

// hasBacklog reports whether packets wait in that queue.
func (p *patient) hasBacklog() bool {
	root, _ := p.holder.Tree.Root()
	return root.Stats.Backlog > 0
}

// overflowsNear reports whether that queue has dropped packets while one listened, and what is sent is near a rate: a
// shaper with little room sends less.
func (p *patient) overflowsNear(rate units.Rate) bool {
	return p.deep.Rose[host.QueueDrops(p.holder.Name)] > 0 && p.deliversNear(rate/10*7, rate)
}

// deliversNear reports whether TCP says that its busy connections deliver so much or more, and not far more than a
// rate.
func (p *patient) deliversNear(least, rate units.Rate) bool {
	return p.deep.Sockets.Rate >= least && p.deep.Sockets.Rate <= rate/10*13
}

// sendsNear reports whether what leaves is near a rate that is enforced here, and passes where that is: by what has
// left there while one listened; else by what connections deliver, if there has left more than they could in a second.
func (p *patient) sendsNear(rate units.Rate) bool {
	sent := p.enforcedStats()
	if p.deep.Listened == 0 {
		return 8*sent.Bytes >= uint64(rate) && p.deliversNear(rate/10*9, rate)
	}
	left := units.Rate(8 * float64(sent.Recent.Bytes) / time.Duration(p.deep.Listened).Seconds())
	return left >= rate/10*9 && left <= rate/10*13 && (p.deep.Sockets.Busy > 0 || p.mayMissConnections()) ||
		left >= rate/2 && p.deliversNear(rate/10*9, rate)
}

// waitsElsewhere reports whether what waits here explains less than half of the delay.
func (p *patient) waitsElsewhere() bool { return p.knowsQueue() && !p.explainsDelay(p.holder) }

// explainsDelay reports whether what waits at a device is half of the delay or more.
func (p *patient) explainsDelay(l host.Link) bool {
	return p.waitAt(l) >= (p.deep.Sockets.QueueRTT-p.deep.Sockets.QueueMin)/2
}

// waitAt is how long what waits at a device takes to leave: at the rate that it enforces, or else at that at which the
// busy connections are served. Where a netem holds it, it never meets the shaper.
func (p *patient) waitAt(l host.Link) units.Duration {
	root, _ := l.Tree.Root()
	serves := l.Tree.Rate()
	if !p.leadsIn(l) { // what the connections deliver leaves
		if _, emulated := l.Tree.Passed(qdisc.Emulates); emulated {
			serves = 0
		}
		serves = max(serves, p.deep.Sockets.Rate)
	}
	if serves == 0 {
		return 0
	}
	return units.Duration(float64(root.Stats.Backlog*8) / float64(serves) * float64(time.Second))
}

// connectionsLose reports whether connections lose packets with an RTT near its minimum, wherever.
func (p *patient) connectionsLose() bool { return p.manyOfBusy(p.deep.Sockets.Lossy) }

// pathLoses reports whether the path loses packets with no queue to blame, and nothing of this host's. Behind an own
// shaper, filter or firewall rule what is lost may have been dropped here.
func (p *patient) pathLoses() bool {
	_, _, emulating := p.emulator() // no counter tells what it spoils
	_, policed := p.policer()
	_, ruled := p.rule()
	_, soon := p.dropsTooSoon()
	if emulating || policed || ruled || soon || p.dropsUncounted() || p.memoryShort() {
		return false
	}
	return p.connectionsLose() && (p.mayDrop() == "" || p.lostBeyond())
}

// mayDrop names what of this host may have dropped what connections lose: its shaper, or else the filter or the
// firewall rule that has dropped most of what leaves, while one listened or else ever. It is "" if nothing can have.
func (p *patient) mayDrop() (name string) {
	if p.enforced() != 0 {
		return p.shaperName()
	}
	least, most := uint64(minEvents), uint64(0)
	if p.deep.Listened > 0 {
		least = 1
	}
	for _, d := range p.outgoingDroppers() {
		if n := p.sinceListening(d.Now, d.Drops); n >= least && n > most {
			name, most = filterText(d), n
		}
	}
	for _, r := range p.outgoingRules() {
		if n := p.sinceListening(r.Now, r.Dropped); n >= least && n > most {
			name, most = "the firewall rule "+nftRule(r), n
		}
	}
	return name
}

// sinceListening is what was counted while one listened; ever, if nobody did.
func (p *patient) sinceListening(now, ever uint64) uint64 {
	if p.deep.Listened == 0 {
		return ever
	}
	return now
}

// lostBeyond reports whether connections have lost more while one listened than this host can have dropped, and send so
// much less than its shaper lets pass, if there is one, that this is not what limits them.
func (p *patient) lostBeyond() bool {
	const (
		largest = 44   // packets that a queue may drop as one (64 KB)
		packet  = 1500 // bytes
	)
	s, seconds := p.deep.Sockets, time.Duration(p.deep.Listened).Seconds()
	if seconds == 0 || !p.belowRate() {
		return false
	}
	lossy := float64(s.Rate) * float64(s.Lossy) / float64(s.Busy) // as if each had the same rate
	lost := float64(s.LossyShare) * lossy / 8 * seconds / packet
	dropped := p.queueDrops(p.links)
	for _, d := range p.outgoingDroppers() {
		dropped += d.Now
	}
	for _, r := range p.outgoingRules() {
		dropped += r.Now
	}
	return lost >= float64(largest*dropped+minEvents)
}

// belowRate reports whether much less left while one listened than the rate that is enforced here, or none is.
func (p *patient) belowRate() bool {
	rate, seconds := p.enforced(), time.Duration(p.deep.Listened).Seconds()
	threshold := rate / 10 * 7
	return rate == 0 || p.deep.Sockets.Rate < threshold &&
		units.Rate(8*float64(p.enforcedStats().Recent.Bytes)/seconds) < threshold
}

func (p *patient) bufferBound() bool { return p.manyOfBusy(p.deep.Sockets.Buffer) }

func (p *patient) receiverBound() bool { return p.manyOfBusy(p.deep.Sockets.Receiver) }

// windowBound reports whether the windows that this host announces hold back what comes in.
func (p *patient) windowBound() bool { return p.manyOfReceiving(p.deep.Sockets.Window.Bound()) }

// programsReadSlowly reports whether programs take what comes in too slowly.
func (p *patient) programsReadSlowly() bool {
	return p.manyOfReceiving(p.deep.Sockets.Window.Unread)
}

// manyOfReceiving reports whether n are a quarter or more of the connections that bring data in.
func (p *patient) manyOfReceiving(n int) bool { return n > 0 && 4*n >= p.deep.Sockets.Receiving }

func (p *patient) incoming() string {
	return text.Counted(p.deep.Sockets.Receiving, "incoming transfer")
}

func (p *patient) cpuShort() bool {
	const much = 0.5
	return p.deep.CPU >= much
}

// paced reports whether connections are as fast as their programs want them to be at most.
func (p *patient) paced() bool { return p.manyOfBusy(p.deep.Sockets.Paced) && !p.connectionsWait() }

// deviceFull reports whether the busy connections alone fill the uplink.
func (p *patient) deviceFull() bool {
	speed := p.link.Speed
	return speed != 0 && p.deliversNear(speed/10*9, speed) && p.enforced() == 0
}
