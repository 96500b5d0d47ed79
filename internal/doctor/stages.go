// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"strings"

	"weir/internal/host"
	"weir/internal/qdisc"
	"weir/internal/text"
)

// Stage is one of the places through which a packet goes, from the program that sends it to its receiver.
type Stage struct {
	Name  string `json:"stage"`
	Saw   string `json:"saw,omitempty"`   // what was read of it
	Lacks string `json:"lacks,omitempty"` // why it was not looked at, or not as a whole
	Holds bool   `json:"holds"`           // it is the bottleneck
}

// What a stage lacks that was not looked at, in words that may be repeated.
const (
	notListened = "its counters tell nothing without --listen"
	unlistened  = "what it drops now is not known without --listen"
	notBusy     = "no connection is busy"
	notSending  = "no connection sends much"
	notRead     = "the live connections are not known"
)

// FindStages looks at each stage in the order in which a packet meets them. At most one of them holds: it is where
// FindBottleneck says that the bottleneck is.
func FindStages(facts host.Facts) []Stage {
	p := examine(facts)
	return p.stages(p.bottleneck())
}

// stages are all, of which the one holds where a bottleneck is.
func (p *patient) stages(b Bottleneck) []Stage {
	s := p.deep.Sockets
	ofBusy := func(n int, what string) (saw, lacks string) {
		switch {
		case !s.Read:
			return "", notRead
		case s.Busy == 0 && s.Receiving > 0:
			return "", notSending
		case s.Busy == 0:
			return "", notBusy
		}
		return fmt.Sprintf("%d of %s %s", n, text.Counted(s.Busy, "busy connection"), what), ""
	}
	var all []Stage
	add := func(name, saw, lacks string, limits ...Limit) {
		holds := slices.Contains(limits, b.Limit)
		if holds { // it was seen by other signs than those that the stage is looked at for
			saw, lacks = "the bottleneck is "+strings.TrimSuffix(b.Says, "."), ""
		}
		all = append(all, Stage{name, saw, lacks, holds})
	}
	saw, lacks := ofBusy(s.App, "did not always have something to send")
	add("programs", saw, lacks, LimitProgram, limitPace)
	saw, lacks = ofBusy(s.Buffer, "wait for room in a send buffer")
	add("send buffers", saw, lacks, LimitBuffer)
	saw, lacks = p.receiveBuffers()
	add("receive buffers", saw, lacks, limitWindow)
	saw, lacks = p.tcpSettings()
	add("TCP's settings", saw, lacks, limitSetting, limitRoute)
	saw, lacks = p.netfilter()
	add("netfilter", saw, lacks, limitRule, limitRefusal) // or a BPF program of a control group, beside it
	saw, lacks = p.tallyText(limitFragments)
	add("fragmentation", saw, lacks, limitFragments)
	saw, lacks = p.tallyText(limitUDP)
	add("UDP buffers", saw, lacks, limitUDP)
	saw, lacks = p.filters()
	add("filters", saw, lacks, LimitPolicer)
	saw, lacks = p.queueStage()
	add("the queue here", saw, lacks, LimitShaper, LimitQueue, LimitFlow, LimitEmulator)
	saw, lacks = p.tallyText(limitCPU)
	add("CPU", saw, lacks, limitCPU)
	saw, lacks = p.tallyText(limitDevice)
	for _, b := range p.boundDevices() {
		if b.queues > 0 {
			saw += fmt.Sprintf("; %s of %s may send %s", text.Counted(b.queues, "queue"), b.dev, b.each)
		}
		if b.full != nil {
			saw += fmt.Sprintf("; %s of %s may not hold what they would", text.Counted(len(b.full), "queue"), b.dev)
		}
	}
	saw = strings.TrimPrefix(saw, "; ")
	add("the device", saw, lacks, limitDevice)
	saw, lacks = ofBusy(s.Queueing, "wait in a queue, here or beyond")
	if exceeding := p.risenText(limitAllowance); exceeding != "" {
		saw, lacks = strings.TrimPrefix(saw+"; its allowance was exceeded by "+exceeding, "; "), ""
	}
	add("the provider", saw, lacks, LimitRate, limitAllowance)
	lose := "lose packets without a queue"
	if p.connectionsLose() && !p.pathLoses() {
		lose = "lose packets, here or beyond"
	}
	saw, lacks = ofBusy(s.Lossy, lose)
	add("the path", saw, lacks, LimitPath)
	saw, lacks = ofBusy(s.Receiver, "wait for a receiver's window")
	add("receivers", saw, lacks, limitReceiver)
	return all
}

// receiveBuffers tells of the windows that this host announces.
func (p *patient) receiveBuffers() (saw, lacks string) {
	switch s := p.deep.Sockets; {
	case !s.Read:
		return "", notRead
	case s.Receiving == 0:
		return "no connection brings much in", ""
	case p.deep.Listened == 0:
		return "", notListened
	default:
		return fmt.Sprintf("%d of %s used up their window", s.Window.Bound(), p.incoming()), ""
	}
}

// tcpSettings says which parts of TCP are switched off.
func (p *patient) tcpSettings() (saw, lacks string) {
	if _, known := p.Sysctls["net.ipv4.tcp_sack"]; !known {
		return "", "net.ipv4.tcp_sack cannot be read"
	}
	var off []string
	for _, f := range checkTCPSwitchedOff(p) {
		off = append(off, strings.TrimSuffix(f.Title, " is off."))
	}
	saw = "window scaling, SACK, timestamps and growing windows are on"
	if off != nil {
		saw = strings.Join(off, ", ") + " off"
	}
	for _, r := range p.routes() {
		if p.boundBy(r) != nil {
			saw += "; the route " + routeName(r) + " has " + routeText(r)
		}
	}
	return saw, ""
}

// tallyText says what rose of the counters that show a limit.
func (p *patient) tallyText(limit Limit) (saw, lacks string) {
	if p.deep.Listened == 0 {
		return "", notListened
	}
	for _, t := range tallies() {
		read := func(dev string) bool {
			_, read := p.deep.Counts[strings.Replace(t.whole[0], "DEV.", dev+".", 1)]
			return read
		}
		ofAny := slices.ContainsFunc(p.links, func(l host.Link) bool { return read(l.Name) })
		if t.limit == limit && !ofAny && !read(p.link.Name) {
			return "", strings.Replace(t.whole[0], "DEV.", p.link.Name+".", 1) + " is not counted here"
		}
	}
	if rising := p.risenText(limit); rising != "" {
		return rising, ""
	}
	return fmt.Sprintf("no counter of trouble rose in %s", p.deep.Listened), ""
}

// risenText lists the counters that show a limit and rose; "" if none did.
func (p *patient) risenText(limit Limit) string {
	var parts []string
	for _, t := range tallies() {
		if n, _ := p.increase(t); t.limit == limit && n > 0 {
			parts = append(parts, text.Counted(int(n), t.unit)+" ("+
				strings.ReplaceAll(strings.Join(t.lost, ", "), "DEV", p.device(t))+")")
		}
	}
	if parts == nil {
		return ""
	}
	return strings.Join(parts, ", ") + " in " + p.deep.Listened.String()
}

// filters tells of actions that drop.
func (p *patient) filters() (saw, lacks string) {
	for _, u := range p.deep.Unknown {
		if u.What == host.DroppingFilters {
			return "", u.Why
		}
	}
	if p.link.Name == "" {
		return "", "the uplink is not known"
	}
	if n := len(p.deep.Droppers); n > 0 {
		return text.Counted(n, "filter") + " can drop packets", ""
	}
	saw = "no policer and no action that drops was seen"
	if slices.ContainsFunc(p.link.Tree.Qdiscs, func(q qdisc.Qdisc) bool { return q.Parent == qdisc.Ingress }) {
		return saw, "what BPF programs do there"
	}
	return saw, ""
}

// queueStage tells of the uplink's queue.
func (p *patient) queueStage() (saw, lacks string) {
	root, ok := p.holder.Tree.Root()
	if !ok {
		return "", "the uplink's queue is not known"
	}
	saw = fmt.Sprintf("%s on %s holds %s", p.queueName(), p.holder.Name, text.Counted(int(root.Stats.Qlen), "packet"))
	if rate := p.enforced(); rate != 0 {
		saw += fmt.Sprintf(", and lets %s pass", rate)
	}
	var unseen []string
	switch {
	case root.Kind == "taprio":
		unseen = append(unseen, "the schedule by which taprio sends")
	case p.holder.Kind == "openvswitch":
		unseen = append(unseen, "what Open vSwitch does behind it: ovs-vsctl list qos")
	}
	queues := slices.ContainsFunc(p.links, func(l host.Link) bool { return queueOf(l) != "noqueue" })
	if p.deep.Listened == 0 && queues {
		unseen = append(unseen, unlistened)
	}
	return saw, strings.Join(unseen, "; ")
}

// unseenStages names the stages that were not looked at, for a sentence.
func unseenStages(all []Stage) string {
	var names []string
	for _, s := range all {
		if s.Lacks != "" && s.Lacks != notBusy && s.Lacks != notSending {
			names = append(names, s.Name)
		}
	}
	return strings.Join(names, ", ")
}
