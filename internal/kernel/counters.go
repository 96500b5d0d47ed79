// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"slices"
	"time"

	"weir/internal/dualpi2"
	"weir/internal/qdisc"
	"weir/internal/shaper"
	"weir/internal/units"
)

// Counter is what an object counts, beside what the kernel counts of any queueing discipline. Its names are
// Prometheus's.
type Counter struct {
	Name, Help string
	Value      float64
	Gauge      bool     // it falls as well
	Labels     []string // names and values, in turn
}

// rootCounters are those of one queueing discipline: of CAKE's tins, or of DualPI2.
func rootCounters(q qdisc.Qdisc) (all []Counter) {
	switch x := q.Stats.X.(type) {
	case qdisc.CakeStats:
		for i, t := range x.Tins {
			all = append(all, tinCounters(t, "tin", qdisc.TinName(i, len(x.Tins)))...)
		}
	case qdisc.DualPI2Stats:
		return dualpi2Counters(dualpi2.Stats{Probability: x.Probability, DelayC: x.DelayC, DelayL: x.DelayL,
			PacketsC: uint64(x.PacketsC), PacketsL: uint64(x.PacketsL), StepMarks: uint64(x.StepMarks)})
	case dualpi2.Stats:
		return dualpi2Counters(x)
	case shaper.Stats:
		return shaperCounters(x)
	}
	return all
}

func shaperCounters(x shaper.Stats) []Counter {
	return []Counter{
		{"weir_shaper_bytes_total", "Bytes that were given a time to leave at, on the wire.", float64(x.Bytes), false,
			nil},
		{"weir_shaper_ecn_marked_packets_total", "Packets marked CE.", float64(x.Marks), false, nil},
		{"weir_shaper_dropped_packets_total", "Packets dropped.", float64(x.Drops), false, nil},
		{"weir_shaper_active_clients", "Clients with packets to send, by their weights; who uses less than a share " +
			"counts for that part.", x.Active, true, nil},
		{"weir_shaper_wait_seconds", "The longest that a packet was given to wait of late.",
			time.Duration(x.Wait).Seconds(), true, nil},
	}
}

func tinCounters(t qdisc.CakeTin, tin ...string) []Counter {
	counter := func(name, help string, n uint64) Counter {
		return Counter{"weir_cake_tin_" + name, help, float64(n), false, tin}
	}
	gauge := func(name, help string, v float64) Counter {
		return Counter{"weir_cake_tin_" + name, help, v, true, tin}
	}
	flows := func(n uint32, kind string) Counter {
		return Counter{"weir_cake_tin_flows", "Flows by behaviour.", float64(n), true,
			append(slices.Clip(tin), "flows", kind)}
	}
	return []Counter{
		counter("sent_bytes_total", "Bytes sent.", t.SentBytes),
		counter("sent_packets_total", "Packets sent, drops included.", uint64(t.SentPackets)),
		counter("dropped_packets_total", "Packets dropped.", uint64(t.Drops)),
		counter("ecn_marked_packets_total", "Packets marked CE.", uint64(t.Marks)),
		counter("ack_dropped_packets_total", "Packets dropped by the ACK filter.", uint64(t.ACKDrops)),
		gauge("backlog_bytes", "Bytes waiting.", float64(t.Backlog)),
		gauge("peak_delay_seconds", "Delay, a moving maximum.", micros(t.PeakDelay).Seconds()),
		gauge("average_delay_seconds", "Delay, a moving average.", micros(t.AvgDelay).Seconds()),
		gauge("base_delay_seconds", "Delay of sparse flows.", micros(t.BaseDelay).Seconds()),
		flows(t.SparseFlows, "sparse"), flows(t.BulkFlows, "bulk"), flows(t.UnresponsiveFlows, "unresponsive"),
	}
}

func dualpi2Counters(x dualpi2.Stats) (all []Counter) {
	for _, p := range dualpi2Parts(x) {
		queue := []string{"queue", p.Name}
		all = append(all,
			Counter{"weir_dualpi2_enqueued_packets_total", "Packets that came.", float64(p.Packets), false, queue},
			Counter{"weir_dualpi2_delay_seconds", "How long the packet that is next has waited.",
				time.Duration(p.Delay).Seconds(), true, queue})
	}
	return append(all,
		Counter{"weir_dualpi2_step_marked_packets_total", "Packets marked by the step of the L queue.",
			float64(x.StepMarks), false, nil},
		Counter{"weir_dualpi2_probability_ratio", "Base probability of a mark or a drop, 0 to 1.", x.Probability, true,
			nil})
}

// Part is a queue within a queue: a tin of CAKE's, or DualPI2's L or C. Counters are since the queue was made.
type Part struct {
	Name    string         `json:"name"`
	Packets uint64         `json:"packets"`
	Bytes   uint64         `json:"bytes,omitempty"`
	Drops   uint64         `json:"drops,omitempty"`
	Marks   uint64         `json:"marks,omitempty"`
	Delay   units.Duration `json:"delay"` // CAKE's moving average; with DualPI2 that of the packet that is next
	Counts  bool           `json:"-"`     // bytes, drops and marks too: DualPI2 does not by queue
}

// Parts are the tins of each cake of a tree, added up by their place, or DualPI2's two queues.
func Parts(t qdisc.Tree) []Part {
	var parts []Part
	for _, q := range t.Qdiscs {
		if q.Parent == qdisc.Ingress {
			continue
		}
		switch x := q.Stats.X.(type) {
		case qdisc.CakeStats:
			parts = addTins(parts, x.Tins)
		case qdisc.DualPI2Stats:
			return dualpi2Parts(dualpi2.Stats{DelayC: x.DelayC, DelayL: x.DelayL, PacketsC: uint64(x.PacketsC),
				PacketsL: uint64(x.PacketsL)})
		case dualpi2.Stats:
			return dualpi2Parts(x)
		}
	}
	return parts
}

func dualpi2Parts(x dualpi2.Stats) []Part {
	return []Part{{Name: "L", Packets: x.PacketsL, Delay: units.Duration(micros(x.DelayL))},
		{Name: "C", Packets: x.PacketsC, Delay: units.Duration(micros(x.DelayC))}}
}

func micros(us uint32) time.Duration { return time.Duration(us) * time.Microsecond }

// addTins adds tins up: of cake_mq each queue has its own.
func addTins(parts []Part, tins []qdisc.CakeTin) []Part {
	for i, t := range tins {
		if i == len(parts) {
			parts = append(parts, Part{Name: qdisc.TinName(i, len(tins)), Counts: true})
		}
		p := &parts[i]
		p.Packets, p.Bytes = p.Packets+uint64(t.SentPackets), p.Bytes+t.SentBytes
		p.Drops, p.Marks = p.Drops+uint64(t.Drops), p.Marks+uint64(t.Marks)
		p.Delay = max(p.Delay, units.Duration(micros(t.AvgDelay)))
	}
	return parts
}
