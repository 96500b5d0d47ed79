// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"

	"weir/internal/host"
	"weir/internal/text"
)

// FindBottleneck returns what limits traffic now. It rests on what the findings rest on, in the order in which those
// weigh: what stands in a queue says more than what a connection waits for besides. Counters since the boot, a
// device's requeues among them, say nothing about now and are left out.
func FindBottleneck(facts host.Facts) Bottleneck { return examine(facts).bottleneck() }

// bottleneck goes by the order in which a packet meets what may limit it: what this host itself does comes before what
// is beyond.
func (p *patient) bottleneck() Bottleneck {
	for _, find := range []func() (Bottleneck, bool){
		p.imposedLimit, p.queueLimit, p.hostLimit, p.sendingLimit, p.receivingLimit, p.otherLimit,
	} {
		if b, found := find(); found {
			return b
		}
	}
	return Bottleneck{Limit: limitUnknown, Says: fmt.Sprintf("cannot be told: %s.", p.symptoms())}
}

func limitedBy(l Limit, says string, args ...any) (b Bottleneck, found bool) {
	return Bottleneck{Limit: l, Says: fmt.Sprintf(says, args...)}, true
}

// busyText counts the busy connections in words.
func (p *patient) busyText() string { return text.Counted(p.deep.Sockets.Busy, "busy connection") }

// ofBusyText says how many of the busy connections there are.
func (p *patient) ofBusyText(n int) string { return fmt.Sprintf("%d of %s", n, p.busyText()) }

// imposedLimit is what somebody has told this host to keep to.
func (p *patient) imposedLimit() (b Bottleneck, found bool) {
	s := p.deep.Sockets
	rule, ruled := p.rule()
	policer, policed := p.policer()
	emulator, emulated, emulating := p.emulator()
	flow, flowBound := p.flowRate()
	card, queuesBound := p.boundQueue()
	switch {
	case p.paced():
		return limitedBy(limitPace, "the programs: of %s, %d may have no more than %s each.", p.busyText(),
			s.Paced, s.Pace)
	case ruled:
		return limitedBy(limitRule, "this host: the firewall rule %s drops %s.", nftRule(rule), exceeding(rule))
	case policed:
		return limitedBy(LimitPolicer, "this host: %s drops %s.", filterText(policer), exceededBy(policer))
	case emulating && s.Busy > 0:
		return limitedBy(LimitEmulator, "this host: %s on %s, which is there to make things worse.",
			emulates(emulator), emulated.Name)
	case flowBound:
		return limitedBy(LimitFlow, "this host: fq on %s lets each connection have %s.", flow.dev, flow.rate)
	case queuesBound:
		return limitedBy(limitDevice, "%s itself: a queue of it may send %s, which somebody has set (tx_maxrate).",
			card.dev, card.each)
	}
	return b, false
}

// queueLimit is where packets wait, or find no room to.
func (p *patient) queueLimit() (b Bottleneck, found bool) {
	s, rate := p.deep.Sockets, p.enforced()
	_, drops := p.dropsHere()
	switch {
	case p.connectionsWait() && p.waitsElsewhere() && rate != 0:
		return limitedBy(LimitRate,
			"a rate enforced beyond this host, below the %s that it shapes to: %s wait, and not here.",
			rate, p.ofBusyText(s.Queueing))
	case p.connectionsWait() && p.waitsElsewhere():
		return limitedBy(LimitRate,
			"a rate enforced beyond this host, below what %s could send: %s wait, and not here.",
			p.link.Name, p.ofBusyText(s.Queueing))
	case rate != 0 && (p.connectionsWait() && p.knowsQueue() || p.sendsNear(rate) || p.overflowsNear(rate) ||
		p.mayMissConnections() && p.hasBacklog()):
		return limitedBy(LimitShaper, "the rate that %s enforces, %s.", p.shaperName(), rate)
	case p.connectionsWait() && p.knowsQueue():
		return limitedBy(limitDevice, "%s itself: %s wait, and the queue is here.", p.holder.Name,
			p.ofBusyText(s.Queueing))
	case drops:
		return limitedBy(LimitQueue, "this host: %s on %s drops what it has no room for.", p.queueName(), p.holder.Name)
	}
	return b, false
}

// hostLimit is what this host lacks or loses behind its queue and before it.
func (p *patient) hostLimit() (b Bottleneck, found bool) {
	s := p.deep.Sockets
	held := p.slowingTallies()
	clamp, clamped := p.routeWith(locksCwnd)
	codel, early := p.dropsTooSoon()
	switch {
	case p.memoryShort():
		return limitedBy(limitSetting, "this host: TCP holds %s in all, and may have %s (tcp_mem).",
			text.Bytes(float64(p.deep.TCPMemory.Held)), text.Bytes(float64(p.deep.TCPMemory.Mark)))
	case s.Busy > 0 && len(held) > 0 && held[0].limit == limitAllowance:
		return limitedBy(limitAllowance, "%s", lowerFirst(held[0].Title))
	case s.Busy > 0 && len(held) > 0:
		return limitedBy(held[0].limit, "this host: %s", lowerFirst(held[0].Title))
	case p.dropsUncounted():
		return limitedBy(limitRefusal, "this host: it drops what %s send, and nothing counts it.",
			p.ofBusyText(s.Refused))
	case clamped && p.manyOfBusy(s.Clamped):
		return limitedBy(limitRoute, "this host: %s have the %s on their way that the route %s allows.",
			p.ofBusyText(s.Clamped), text.Counted(clamp.Metrics["cwnd"], "segment"), routeName(clamp))
	case early:
		return limitedBy(LimitQueue, "this host: %s; %s have a minimum RTT of %s.", p.earlyDropText(codel),
			p.busyText(), millis(s.MinRTT))
	}
	return b, false
}

// sendingLimit is what holds back connections that send: the path, and the two ends.
func (p *patient) sendingLimit() (b Bottleneck, found bool) {
	s := p.deep.Sockets
	slow := p.slowPace()
	switch {
	case p.pathLoses():
		return limitedBy(LimitPath, "the path: %s lose packets without a queue.", p.ofBusyText(s.Lossy))
	case p.bufferBound() && p.sendBuffersSet():
		return limitedBy(LimitBuffer, "this host's send buffers: %s wait for room, in buffers that do not grow.",
			p.ofBusyText(s.Buffer))
	case p.bufferBound():
		return limitedBy(LimitBuffer, "this host's send buffers: %s wait for room.", p.ofBusyText(s.Buffer))
	case p.receiverBound() && !p.scalesWindows():
		return limitedBy(limitSetting,
			"this host: with tcp_window_scaling off no window is above 64 KiB, and %s wait for one.",
			p.ofBusyText(s.Receiver))
	case p.receiverBound():
		return limitedBy(limitReceiver, "the receivers: %s wait for a window.", p.ofBusyText(s.Receiver))
	case slow.percent != 0 && s.Busy > 0:
		return limitedBy(limitSetting, "this host: %s is %d, so fq sends %d %% of what TCP may have on its way in "+
			"each round trip.", text.Short(slow.sysctl), slow.percent, slow.percent)
	}
	return b, false
}

// receivingLimit is what holds back what comes in.
func (p *patient) receivingLimit() (b Bottleneck, found bool) {
	s := p.deep.Sockets
	inward, policed := p.inwardPolicer()
	route, routed := p.windowRoute()
	switch {
	case policed:
		return limitedBy(LimitPolicer, "this host: %s drops %s.", filterText(inward), exceededBy(inward))
	case p.programsReadSlowly():
		return limitedBy(LimitProgram, "the programs: they let %d of %s wait unread.", s.Window.Unread, p.incoming())
	case p.windowBound() && p.Sysctls[growingBuffers].Value == "0":
		return limitedBy(limitSetting, "this host: with tcp_moderate_rcvbuf off no receive buffer grows, and %d of %s "+
			"used up their window.", s.Window.Bound(), p.incoming())
	case p.windowBound() && !p.scalesWindows():
		return limitedBy(limitSetting, "this host: with tcp_window_scaling off no window is above 64 KiB, and %d of "+
			"%s used it up.", s.Window.Bound(), p.incoming())
	case p.windowBound() && routed:
		return limitedBy(limitWindow, "this host: the route %s has window %d, and %d of %s used it up.",
			routeName(route), route.Metrics["window"], s.Window.Bound(), p.incoming())
	case p.windowBound():
		return limitedBy(limitWindow, "this host's receive buffers: %d of %s used up their window.", s.Window.Bound(),
			p.incoming())
	}
	return b, false
}

// otherLimit is what is left: the CPU, the device, and programs; or why nothing can be told.
func (p *patient) otherLimit() (b Bottleneck, found bool) {
	s := p.deep.Sockets
	group, capped := p.cappedGroup()
	switch {
	case p.cpuShort() && s.Busy > 0:
		return limitedBy(limitCPU, "the CPU: in %.0f %% of the last 10 s something waited for it.",
			100*float64(p.deep.CPU))
	case p.deviceFull():
		return limitedBy(limitDevice, "%s itself: %s of its %s are in use.", p.link.Name, threeDigits(s.Rate),
			p.link.Speed)
	case !s.Read || s.Busy == 0 || p.link.Name == "":
		return p.unknownBottleneck(), true
	case p.connectionsLose() && p.mayDrop() != "" && p.deep.Listened == 0:
		return Bottleneck{
			Limit: limitUnknown,
			Says: fmt.Sprintf("cannot be told: %s lose packets, of which %s may have dropped some.",
				p.ofBusyText(s.Lossy), p.mayDrop()),
			Lacks:  "whether this server itself drops what connections lose is not known",
			Try:    "weir doctor --listen 10s",
			Remark: "while a download runs",
		}, true
	case 2*s.App >= s.Busy && capped >= costlyWork:
		return limitedBy(LimitProgram, "the programs: of %s, %d did not always have something to send. %s used up its "+
			"CPU time, if it is the one that sends.", p.busyText(), s.App, upperFirst(group))
	case 2*s.App >= s.Busy:
		return limitedBy(LimitProgram, "the programs: of %s, %d did not always have something to send.", p.busyText(),
			s.App)
	}
	return b, false
}
