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
)

// patient is a host that is looked at, with what more than one check asks of it.
type patient struct {
	host.Facts
	deep    *host.Deep  // empty where the facts have none
	link    host.Link   // the uplink
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
	dev, _, err := plan.Uplink(facts)
	if err != nil {
		dev = facts.Uplink
	}
	p.link, _ = facts.Link(dev)
	p.stack, _ = p.link.Tree.Stack()
	return p
}

// initial reports whether this is the first network namespace: only there is net.core.default_qdisc. Boot files are for
// no other.
func (p *patient) initial() bool { _, ok := p.Sysctls["net.core.default_qdisc"]; return ok }

// source says where a value comes from, as far as files tell.
func (p *patient) source(sysctl string) string {
	return cmp.Or(kernel.SysctlOwner(p.Facts, sysctl), "read from "+host.SysctlPath(sysctl))
}

// foreign reports whether no kernel has this value by itself.
func (p *patient) foreign(sysctl, now string) bool {
	switch sysctl {
	case notsentLowat:
		n, ok := p.lowat()
		return ok && n < 1<<31-1
	case congestionControl:
		return slices.Contains(p.deep.Loaded, "tcp_"+now)
	}
	return false
}

// enforced is the rate that the uplink's own tree enforces on this traffic, in bit/s; 0: none. Of several classes it is
// that of the one which the traffic goes through.
func (p *patient) enforced() units.Rate {
	if _, rate, several := p.link.Tree.Serving(); several {
		return rate
	}
	return p.link.Tree.Rate()
}

// serving is what the traffic goes through there: a class, or the root as if it were one.
func (p *patient) serving() qdisc.Class {
	if c, _, several := p.link.Tree.Serving(); several {
		return c
	}
	root, _ := p.link.Tree.Root()
	return qdisc.Class{Kind: root.Kind, Handle: root.Handle, Stats: root.Stats}
}

// queueName is the discipline that holds the packets.
func (p *patient) queueName() string {
	if len(p.stack) > 0 {
		return p.stack.Leaf()
	}
	return kernel.QueueOf(p.link.Tree).String()
}

// traits are what that discipline can do.
func (p *patient) traits() qdisc.Traits { return qdisc.TraitsOf(p.queueName()) }

// shaperName is the discipline that enforces the rate.
func (p *patient) shaperName() string {
	c, _, several := p.link.Tree.Serving()
	if several && len(p.link.Tree.Classes) == 0 { // prio's bands, and mq's queues
		return fmt.Sprintf("%s %s on %s", c.Kind, c.Handle, p.link.Name)
	}
	if several {
		return fmt.Sprintf("the class %s of %s on %s", c.Handle, c.Kind, p.link.Name)
	}
	for _, q := range p.link.Tree.Qdiscs {
		if qdisc.Rate(q.Spec) != 0 {
			return q.Kind + " on " + p.link.Name
		}
	}
	return p.queueName() + " on " + p.link.Name
}

// millis writes a time as precisely as it is known.
func millis(d units.Duration) string {
	unit := units.Duration(time.Millisecond)
	for d < 10*unit && unit > units.Duration(time.Microsecond) {
		unit /= 10
	}
	return d.Round(unit).String()
}

// roughly leaves a rate its first three digits.
func roughly(r units.Rate) units.Rate {
	unit := units.Rate(1)
	for r/unit >= 1000 {
		unit *= 10
	}
	return r / unit * unit
}
