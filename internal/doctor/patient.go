// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"weir/internal/host"
	"weir/internal/kernel"
	"weir/internal/plan"
	"weir/internal/qdisc"
	"weir/internal/units"
)

const (
	congestionControl = "net.ipv4.tcp_congestion_control"
	notsentLowat      = "net.ipv4.tcp_notsent_lowat"
	tcpRmem           = "net.ipv4.tcp_rmem"
	tcpWmem           = "net.ipv4.tcp_wmem"
	tcpECN            = "net.ipv4.tcp_ecn"
	windowScaling     = "net.ipv4.tcp_window_scaling"
	growingBuffers    = "net.ipv4.tcp_moderate_rcvbuf"
)

// patient is a host that is looked at, with what more than one check asks of it.
type patient struct {
	host.Facts
	deep    *host.Deep  // empty where the facts have none
	link    host.Link   // the uplink
	links   []host.Link // that one, and the devices below it that what leaves passes
	holder  host.Link   // of those the one that holds it back, as far as that can be told; else the uplink
	stack   qdisc.Stack // at its root; nil when it is one that has no Stack
	cc      string      // the congestion control of new connections
	carried plan.Carried
}

func examine(facts host.Facts) *patient {
	p := &patient{Facts: facts, deep: facts.Deep, cc: facts.Sysctls[congestionControl].Value,
		carried: plan.Carries(facts)}
	if p.deep == nil {
		p.deep = &host.Deep{}
	}
	dev := plan.WayOut(facts)
	p.link, _ = facts.Link(dev)
	p.stack, _ = p.link.Tree.Stack()
	p.links = plan.Leaving(facts, dev)
	p.holder = p.findHolder()
	return p
}

// findHolder is the device whose queue explains why connections wait, be it that of what comes in, where
// acknowledgements wait; else the one that drops most; else the one that enforces the lowest rate.
func (p *patient) findHolder() host.Link {
	to, _ := p.Link(p.link.Redirect)
	if p.connectionsWait() && p.explainsDelay(to) && !slices.ContainsFunc(p.links, p.explainsDelay) {
		return to
	}
	if len(p.links) < 2 {
		return p.link
	}
	explains := func(l host.Link) units.Duration {
		if !p.connectionsWait() || !p.explainsDelay(l) {
			return 0
		}
		return p.waitAt(l)
	}
	drops := func(l host.Link) uint64 {
		n := p.deep.Rose[host.QueueDrops(l.Name)]
		if n < minEvents {
			return 0
		}
		return n
	}
	return slices.MaxFunc(p.links, func(a, b host.Link) int {
		// a rate of 0 is none, and the highest there is when one is taken from it
		return cmp.Or(cmp.Compare(explains(a), explains(b)), cmp.Compare(drops(a), drops(b)),
			cmp.Compare(b.Tree.Rate()-1, a.Tree.Rate()-1))
	})
}

// leadsIn reports whether a device has the queue of what arrives at the uplink.
func (p *patient) leadsIn(l host.Link) bool { return l.Name != "" && l.Name == p.link.Redirect }

// inFirstNamespace reports whether this is the first network namespace: only there is net.core.default_qdisc. Boot
// files are for no other.
func (p *patient) inFirstNamespace() bool { _, ok := p.Sysctls["net.core.default_qdisc"]; return ok }

// source says where a value comes from, as far as files tell.
func (p *patient) source(sysctl string) string {
	return cmp.Or(kernel.SysctlOwner(p.Facts, sysctl), "read from "+host.SysctlPath(sysctl))
}

// surelySet reports whether no kernel has this value by itself.
func (p *patient) surelySet(sysctl, now string) bool {
	switch sysctl {
	case notsentLowat:
		n, ok := p.lowat()
		return ok && n < 1<<31-1
	case congestionControl:
		return slices.Contains(p.deep.Loaded, "tcp_"+now)
	}
	return false
}

// enforced is the rate that this host itself enforces on what leaves, in bit/s; 0: none.
func (p *patient) enforced() units.Rate { return p.holder.Tree.Rate() }

// enforcedStats is what passed where the rate is enforced; at the root where there is none.
func (p *patient) enforcedStats() qdisc.Stats {
	if s, ok := p.holder.Tree.Narrowest(); ok {
		return s.Stats
	}
	root, _ := p.holder.Tree.Root()
	return root.Stats
}

// queueName is the discipline that holds the packets.
func (p *patient) queueName() string { return queueOf(p.holder) }

func queueOf(l host.Link) string {
	if stack, _ := l.Tree.Stack(); len(stack) > 0 {
		return stack.Leaf()
	}
	return kernel.QueueOf(l.Tree).String()
}

// traits are what that discipline can do.
func (p *patient) traits() qdisc.Traits { return qdisc.TraitsOf(p.queueName()) }

// shaperName is the discipline that enforces the rate.
func (p *patient) shaperName() string {
	s, ok := p.holder.Tree.Narrowest()
	switch {
	case !ok:
		return p.queueName() + " on " + p.holder.Name
	case s.Class && s.Several:
		return fmt.Sprintf("the class %s of %s on %s", s.Handle, s.Kind, p.holder.Name)
	case !s.Class && s.Parent != qdisc.Root && s.Handle != 0: // there may be several
		return fmt.Sprintf("%s %s on %s", s.Kind, s.Handle, p.holder.Name)
	}
	return s.Kind + " on " + p.holder.Name
}

// millis writes a time as precisely as it is known.
func millis(d units.Duration) string {
	unit := units.Duration(time.Millisecond)
	for d < 10*unit && unit > units.Duration(time.Microsecond) {
		unit /= 10
	}
	return d.Round(unit).String()
}

// threeDigits cuts a rate off after its first three digits.
func threeDigits(r units.Rate) units.Rate {
	unit := units.Rate(1)
	for r/unit >= 1000 {
		unit *= 10
	}
	return r / unit * unit
}
