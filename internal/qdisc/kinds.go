// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"slices"

	"weir/internal/units"
)

// kind is a row of the table of disciplines: all that differs from one to the next, but its options.
type kind struct {
	name   string
	fresh  func() editor // holds the kernel's defaults; nil for a kind that has no words here, and only comes back
	traits Traits
	slots  slots // what can hang below it

	nested      bool // the kernel insists on NLA_F_NESTED for TCA_OPTIONS, as those since 5.2 do
	rootOnly    bool // it can hang below nothing
	classes     bool // somebody makes its classes
	ownQueues   bool // those below it are its own, with counters that belong to it, and are neither made nor restored
	unfiltered  bool // it takes no filters, which need not be asked about
	neverBack   bool // no live test has shown that it comes back as it was
	perDelivery bool // some counters are those of the queues below it

	stats      func(s *Stats, b []byte) error // reads TCA_STATS_APP; nil if there is nothing to tell
	classStats func(s *Stats, b []byte) error // the same of a class
	replay     func(options []byte) []byte    // see replayable; nil: as reported
}

// Traits are what rules ask of a kind.
type Traits struct {
	Plain bool // packets wait in their order, with nothing that keeps the queue short; or there is no queue
	AQM   bool // it keeps its queue short by itself
	Marks bool // it marks what takes marks (ECN), where it would drop
	L4S   bool // it has a queue of its own for L4S (RFC 9332)
	// it drops what it has no room for, and nothing else but what somebody has asked it to lose
	Overflows bool
	Default   bool // kernels or distributions put it there by themselves
}

// The kinds that no kernel has: Weir's own DualPI2, and its shaper for many CPUs.
const (
	BPF        = "bpf_dualpi2"
	BPFShaping = "bpf_shaper"
)

// BPFKinds are these.
func BPFKinds() []string { return []string{BPF, BPFShaping} }

// slots says where a discipline keeps others.
type slots int

const (
	noSlots   slots = iota
	onTop           // it is on top of the kernel's root, which keeps times of departure
	oneSlot         // in the class :1, which exists as long as the discipline does
	classSlot       // in a class that we create
	perQueue        // in :1 … :n, one for each transmit queue
)

// kinds is the table of disciplines, sorted.
func kinds() []kind {
	plainly, aqm, marking := Traits{Plain: true, Overflows: true}, Traits{AQM: true}, Traits{AQM: true, Marks: true}
	l4s := Traits{AQM: true, Marks: true, L4S: true}
	return []kind{
		{name: "bfifo", fresh: func() editor { return &fifoSpec{Bytes: true} }, traits: plainly, unfiltered: true},
		{name: BPF, fresh: func() editor { return newBPFDualPI2() }, traits: l4s, rootOnly: true, unfiltered: true},
		{name: BPFShaping, fresh: func() editor { return newBPFShaper() }, traits: marking, rootOnly: true,
			unfiltered: true, slots: onTop},
		{name: "cake", fresh: func() editor { return newCake() }, traits: marking, stats: readCakeStats},
		{name: "cake_mq", fresh: func() editor { return newCakeMQ() }, traits: marking, rootOnly: true,
			unfiltered: true,
			ownQueues:  true, perDelivery: true},
		{name: "cbq", classes: true, neverBack: true},
		{name: "codel", fresh: func() editor { return newCodel() }, traits: aqm, unfiltered: true,
			stats: readCodelStats, replay: replayRounded(codelReported, codelTarget, codelInterval, codelCEThreshold)},
		{name: "drr", classes: true},
		{name: "dualpi2", fresh: func() editor { return newDualPI2() }, traits: l4s, nested: true,
			stats: readDualPI2Stats, replay: replayRounded(dualpi2Reported, dualpi2Alpha, dualpi2Beta)},
		{name: "ets"},
		{name: "fq", fresh: func() editor { return newFQ() }, traits: Traits{Overflows: true}, unfiltered: true,
			stats: readFQStats},
		{name: "fq_codel", fresh: func() editor { return newFQCodel() },
			traits: Traits{AQM: true, Marks: true, Default: true}, stats: readFQCodelStats,
			replay: replayRounded(codelReported, fqCodelTarget, fqCodelInterval, fqCodelCEThreshold)},
		{name: "fq_pie", fresh: plain("fq_pie"), traits: aqm, nested: true, stats: readFQPIEStats},
		{name: "hfsc", classes: true},
		{name: "hhf"},
		{name: "htb", fresh: func() editor { return newHTB() }, slots: classSlot, classes: true,
			classStats: readHTBStats, replay: htbReplay},
		{name: "mq", fresh: plain("mq"), slots: perQueue, rootOnly: true, unfiltered: true, perDelivery: true},
		{name: "multiq"},
		{name: "netem", fresh: func() editor { return newNetem() }, traits: Traits{Overflows: true}, slots: oneSlot,
			unfiltered: true, stats: readNetemStats},
		{name: "noqueue", fresh: plain("noqueue"), traits: plainly, rootOnly: true, unfiltered: true},
		{name: "pfifo", fresh: func() editor { return &fifoSpec{} }, traits: plainly, unfiltered: true},
		{name: "pfifo_fast", fresh: plain("pfifo_fast"), traits: plainly, unfiltered: true},
		{name: "pie", fresh: plain("pie"), traits: aqm, unfiltered: true, stats: readPIEStats},
		{name: "prio", fresh: plain("prio")},
		{name: "qfq", classes: true},
		{name: "red", unfiltered: true, neverBack: true, stats: readREDStats},
		{name: "sfq", fresh: plain("sfq"), replay: sfqReplay},
		{name: "skbprio"},
		{name: "tbf", fresh: func() editor { return newTBF() }, slots: oneSlot, unfiltered: true},
	}
}

// row finds a kind, with words or without.
func row(name string) (kind, bool) {
	all := kinds()
	i := slices.IndexFunc(all, func(k kind) bool { return k.name == name })
	if i < 0 {
		return kind{}, false
	}
	return all[i], true
}

// find finds a kind that has words.
func find(name string) (kind, bool) {
	k, ok := row(name)
	if !ok || k.fresh == nil {
		return kind{}, false
	}
	return k, true
}

// Kinds lists every kind that Parse accepts, sorted.
func Kinds() []string {
	var names []string
	for _, k := range kinds() {
		if k.fresh != nil {
			names = append(names, k.name)
		}
	}
	return names
}

// TraitsOf are those of a kind; none of one that is not known.
func TraitsOf(kind string) Traits {
	k, _ := row(kind)
	return k.traits
}

// Rate is what a discipline enforces, in bit/s; 0 if it is no shaper, or has no rate.
func Rate(s Spec) units.Rate {
	if s, ok := s.(interface{ rate() units.Rate }); ok {
		return s.rate()
	}
	return 0
}

func (q Cake) rate() units.Rate       { return q.Bandwidth }
func (q BPFDualPI2) rate() units.Rate { return q.Rate }
func (q BPFShaper) rate() units.Rate  { return q.Rate }
func (q HTB) rate() units.Rate        { return q.Rate }
func (q TBF) rate() units.Rate        { return q.Rate }

// FlowRate is the rate that a discipline lets each flow have, in bit/s; 0: any.
func FlowRate(s Spec) units.Rate {
	if q, is := s.(fqSpec); is {
		return q.MaxRate
	}
	return 0
}

// Interval is for how long a queue may stand before a CoDel drops (RFC 8289, section 4.3; CAKE's rtt); 0 of a
// discipline that has none.
func Interval(s Spec) units.Duration {
	switch q := s.(type) {
	case Cake:
		return q.RTT
	case FQCodel:
		return q.Interval
	case codelSpec:
		return q.Interval
	}
	return 0
}

// IntervalOption is what tc calls that of a kind.
func IntervalOption(kind string) string {
	if kind == "cake" || kind == "cake_mq" {
		return "rtt"
	}
	return "interval"
}

// Shapes reports whether a stack enforces a rate.
func (s Stack) Shapes() bool {
	return slices.ContainsFunc(s, func(s Spec) bool { return Rate(s) != 0 })
}

// Has reports whether a kind is one of its levels.
func (s Stack) Has(kind string) bool {
	return slices.ContainsFunc(s, func(s Spec) bool { return s.Kind() == kind })
}

// Any reports whether one of its levels has a trait.
func (s Stack) Any(is func(Traits) bool) bool {
	return slices.ContainsFunc(s, func(s Spec) bool { return is(TraitsOf(s.Kind())) })
}

// Leaf is the lowest level's kind, where packets wait; "" of an empty stack.
func (s Stack) Leaf() string {
	if len(s) == 0 {
		return ""
	}
	return s[len(s)-1].Kind()
}
