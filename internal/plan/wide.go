// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"

	"weir/internal/host"
	"weir/internal/qdisc"
	"weir/internal/units"
)

const (
	// What one CAKE carries where nobody has measured it: 2.5 to 3 Gbit/s were seen (LibreQoS#127).
	assumedCAKE = units.Rate(2.5e9)
	// A packet of TCP takes more than three times the instructions where CAKE takes superpackets apart: TestCost of
	// internal/dualpi2 counts them and holds this to it, and weir doctor --bench measures both (results/rules.md).
	wholeCarries = 3
)

// cakeCapacity is which rate one CAKE is taken to carry, with a fifth left for what a card's driver does.
func (d *draft) cakeCapacity() units.Rate { return cmp.Or(d.Goal.OneCAKE, assumedCAKE) * 4 / 5 }

// exceedsCAKE reports whether a rate is above what one CAKE carries.
func (d *draft) exceedsCAKE() bool {
	// Of one CAKE, or of a bpf_shaper, the rate can be followed.
	return d.Goal.Rate > d.cakeCapacity() && (d.Goal.Follow == "" || d.takesShaper())
}

// takesShaper reports whether a bpf_shaper can have CAKE's place. It does not look behind a translation of addresses.
func (d *draft) takesShaper() bool {
	return d.facts.Qdiscs[qdisc.BPFShaping] == host.Yes && d.takes("fq") && !d.Goal.NAT
}

// mayTakeShaper says where only root can tell that.
func (d *draft) mayTakeShaper() {
	if !d.facts.Admin && d.facts.Qdiscs[qdisc.BPFShaping] == host.Unknown && !d.Goal.NAT {
		d.warn(d.link.Name, "weir up would use weir's own %s if kernel %s takes it, which only root can tell: sudo "+
			"weir plan", qdisc.BPFShaping, d.facts.Kernel)
	}
}

// takesCAKEMQ reports whether the kernel has cake_mq for sure, and nothing speaks against it.
func (d *draft) takesCAKEMQ() bool {
	return d.facts.Qdiscs["cake_mq"] == host.Yes && d.takes("cake_mq")
}

// unmeasured plans for a wide link where it is not known what one CAKE carries on this host.
func (d *draft) unmeasured(q *qdisc.Cake) (queues string) {
	d.mayTakeShaper()
	if d.link.TxQueues == 1 {
		return ""
	}
	if d.takesCAKEMQ() {
		queues = d.multiQueue(q)
	} else {
		d.warn(d.link.Name, "kernel %s has no cake_mq to use: all %d queues go through one lock", d.facts.Kernel,
			d.link.TxQueues)
	}
	d.warn(d.link.Name, "one CAKE is taken to carry %s (LibreQoS#127). weir doctor --bench measures it here, and "+
		"--one-cake tells it", assumedCAKE)
	return queues
}

// multiQueue makes a CAKE one for each queue.
func (d *draft) multiQueue(q *qdisc.Cake) (queues string) {
	q.MultiQueue = true
	d.note("fairness", "each of the %d queues is fair by itself: clients share evenly where their connections "+
		"fall on the same. (%s)", d.link.TxQueues, separateEvidence.quoted())
	return fmt.Sprintf(", on %d queues", d.link.TxQueues)
}

// spreadOverQueues plans for a rate that one CAKE does not carry, as was measured. What is fair to clients comes first.
// It returns false where no CAKE carries it.
func (d *draft) spreadOverQueues(q *qdisc.Cake) (queues string, ok bool) {
	d.mayTakeShaper()
	queue := units.Rate(d.link.TxQueues)
	switch {
	case d.sendsOwnTCP() && d.Goal.Rate <= wholeCarries*d.cakeCapacity():
		q.SplitGSO = false
		d.warn(d.link.Name, "one CAKE carries %s here if it takes superpackets apart, and at least %d times that if "+
			"it leaves them whole. An echo may wait for one: up to 64 KiB", d.Goal.OneCAKE, wholeCarries)
		return ", superpackets left whole", true
	case queue > 1 && d.Goal.Rate <= queue*d.cakeCapacity() && d.takesCAKEMQ():
		return d.multiQueue(q), true
	}
	return "", false
}

// perQueue shapes each queue to its part of the rate, or leaves the rate to others.
func (d *draft) perQueue() error {
	g, queue := d.Goal, units.Rate(d.link.TxQueues)
	leaf := "fq"
	if !d.takes(leaf) {
		leaf = "fq_codel"
	}
	if queue > 1 && d.takes("mq", "htb", leaf) {
		each := shapedRate(g.Rate) / queue
		d.note("fairness", "no connection gets more than %s, the part of its queue, and clients do not share evenly",
			each)
		return d.root(append(append(plainStack("mq"), d.htb(each)...), plainStack(leaf)...), fmt.Sprintf(
			"%s; one CAKE carries %s here, so each of the %d queues has its part", hereReason(g.Rate), g.OneCAKE,
			d.link.TxQueues), perQueueEvidence.String())
	}
	d.warn(d.link.Name, "no shaper: one CAKE carries %s here, and %s needs more. The queue stays at the provider. A "+
		"shaper that the CPU holds back would be slower, and have a queue of its own", g.OneCAKE, g.Rate)
	return d.unshaped()
}
