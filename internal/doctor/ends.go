// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"

	"weir/internal/host"
	"weir/internal/text"
)

// checkEnds is about ends that hold a connection back: then the link is not the problem.
func checkEnds(p *patient) (found []Finding) {
	s := p.deep.Sockets
	busy := text.Counted(s.Busy, "busy connection")
	if p.paced() {
		found = append(found, Finding{
			Code: "pace-set", Severity: Notable,
			Plain: fmt.Sprintf("Downloads are as fast as a program on this server lets them be: %s each.", s.Pace),
			Title: "Programs bound how fast their connections may be.",
			Seen: fmt.Sprintf("%d of %s deliver about the most that they may have, up to %s (SO_MAX_PACING_RATE).",
				s.Paced, busy, s.Pace),
			Why:    "The kernel paces what such a connection sends, whatever the link carries (socket(7)).",
			Remark: "a setting of that program; ss -ti shows pacing_rate, and the most that is allowed behind a slash",
		})
	}
	if p.bufferBound() {
		f := Finding{
			Code: "send-buffers-bind", Severity: Notable,
			Plain: "Downloads are slower than they could be: this server does not let them keep enough on the way.",
			Title: "Send buffers hold connections back.",
			Seen: fmt.Sprintf("%d of %s wait for room in the send buffer, or have all that fits into it on its way; "+
				"%s = %s, %s.", s.Buffer, busy, tcpWmem, p.Sysctls[tcpWmem].Value, p.source(tcpWmem)),
			Why:      "They could send more than they may keep in flight.",
			Evidence: evidence{Scenario: "scenarios/long-fast-link.toml"},
		}
		if p.sendBuffersSet() {
			f.Seen = fmt.Sprintf("%d of %s have all that fits into their send buffers on its way. None of those has "+
				"more than %d bytes, and they may grow to %d.", s.Buffer, busy, s.SendBuffer, p.sizes(tcpWmem).most)
			f.Why = "The kernel would let them grow."
			f.Remark = "a setting of the program (SO_SNDBUF), or a lack of memory; ss -tm shows the buffer as tb"
			f.Evidence = evidence{}
		} else {
			f.Try, f.Remark = p.plannedBuffer("weir plan --rate RATE --rtt TIME", tcpWmem)
		}
		found = append(found, f)
	}
	if p.receiverBound() && p.scalesWindows() {
		found = append(found, Finding{
			Code: "receivers-bind", Severity: Notable,
			Plain: "Downloads are as fast as those who receive them allow; this server is not the reason.",
			Title: "Receivers hold connections back.",
			Seen: fmt.Sprintf("%d of %s spent a fifth of their time or more waiting for the receiver's window %s.",
				s.Receiver, busy, p.accountPeriodText()),
			Why:    "The limit is at the other end, and nothing that is set here changes it.",
			Remark: "nothing here; those who receive would need larger windows",
		})
	}
	if p.windowBound() && !p.programsReadSlowly() && p.scalesWindows() && p.Sysctls[growingBuffers].Value != "0" {
		found = append(found, p.receiveBuffersBind())
	}
	return found
}

// sendBuffersSet reports whether the send buffers that hold connections back are far smaller than they may be: the
// kernel makes one larger, up to tcp_wmem, unless the program has set its size.
func (p *patient) sendBuffersSet() bool {
	const ratio = 2
	limit, size := p.sizes(tcpWmem).most, uint64(p.deep.Sockets.SendBuffer)
	return size > 0 && ratio*size < limit
}

// receiveBuffersBind is about windows of this host that are smaller than the path, by what most of them are.
func (p *patient) receiveBuffersBind() Finding {
	w := p.deep.Sockets.Window
	f := Finding{
		Code: "receive-buffers-bind", Severity: Notable,
		Plain: "What comes in to this server is slower than it could be: this server lets too little be on its way.",
		Title: "Receive buffers hold back what comes in.",
		Seen: fmt.Sprintf("%d of %s used up a window of %s or less in each round trip", w.Bound(), p.incoming(),
			text.Bytes(float64(w.Largest))),
		Why: "Other ends may have no more on its way than this host has room for.",
	}
	route, routed := p.windowRoute()
	switch {
	case 2*w.Maximum >= w.Bound():
		f.Seen += fmt.Sprintf("; %s = %s, %s.", tcpRmem, p.Sysctls[tcpRmem].Value, p.source(tcpRmem))
		f.Try, f.Remark = p.plannedBuffer("weir plan --rate RATE --rtt TIME", tcpRmem)
		f.Evidence.Scenario = "scenarios/long-fast-link.toml"
	case routed:
		f.Seen += fmt.Sprintf("; the route %s has window %d.", routeName(route), route.Metrics["window"])
		f.Remark = "change the route where it is set up; " + routeCommand(route) + " shows it"
	case 2*w.Scale >= w.Bound():
		f.Seen += ", the most by the scale that was agreed on when they were opened."
		f.Remark = "connect anew, if " + tcpRmem + " was smaller then"
	default:
		f.Seen += ", and their buffers do not grow."
		f.Remark = "a setting of the program (SO_RCVBUF), or a lack of memory; ss -tm shows the buffer as rb"
	}
	return f
}

// windowRoute is a route whose window most of those have that hold back what comes in.
func (p *patient) windowRoute() (r host.RouteMetrics, is bool) {
	w := p.deep.Sockets.Window
	r, is = p.routeWith(hasWindow)
	return r, is && 2*w.Maximum < w.Bound() && 2*w.Scale >= w.Bound()
}

// accountPeriodText is the time that the connections' own accounts are of.
func (p *patient) accountPeriodText() string {
	if p.deep.Listened > 0 {
		return "in " + p.deep.Listened.String()
	}
	return "since they were opened"
}

// scalesWindows reports whether TCP may have windows above 64 KiB here.
func (p *patient) scalesWindows() bool { return p.Sysctls[windowScaling].Value != "0" }
