// SPDX-License-Identifier: Apache-2.0

// Package exporter tells Prometheus of a host's queues, connections, findings and goal.
//
// It changes nothing and judges nothing: findings are doctor's, and who limits a sender is measure's. How many series
// there are depends on the host's devices, queues and rules, never on its connections. A scrape does not cost more
// where there are more of those: they are summed up when they are read. The whole is pure but reader.go, which reads
// the host.
package exporter

import (
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"weir/internal/change"
	"weir/internal/doctor"
	"weir/internal/kernel"
	"weir/internal/qdisc"
	"weir/internal/shaper"
	"weir/internal/tcp"
)

// Bounds of what is told, whatever a host has.
const (
	maxQueues   = 512 // queueing disciplines; further ones are counted
	maxClients  = 512 // that have a rate or a weight of their own; further ones are counted
	maxControls = 16  // congestion controls; further ones are "other"
)

// Look is what was read of a host at a moment. What could not be read is nil, and its name is false in Read.
type Look struct {
	Trees       map[string]qdisc.Tree           // by device
	Clients     map[string][]shaper.ClientStats // by device, of a bpf_shaper: those that its rules name
	Connections *Connections
	Findings    []doctor.Finding
	Goal        *change.Status
	Read        map[string]bool // queues, clients, connections, findings, goal
}

// Collector is what Prometheus scrapes. Each scrape takes a look.
type Collector struct {
	look    func() Look
	version string
}

// New makes a Collector that takes its looks by a function.
func New(look func() Look, version string) *Collector { return &Collector{look, version} }

// Describe names nothing: which series there are is the host's affair.
func (c *Collector) Describe(chan<- *prometheus.Desc) {}

// Collect takes a look and tells it.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	look := c.look()
	s := sink{to}
	s.gauge("weir_build_info", "The version that runs.", 1, "version", c.version)
	for _, part := range slices.Sorted(maps.Keys(look.Read)) {
		s.gauge("weir_read_success", "Whether a part of the host could be read.", number(look.Read[part]), "part", part)
	}
	s.queues(look.Trees)
	s.clients(look.Clients)
	s.connections(look.Connections)
	s.findings(look.Findings)
	s.goal(look.Goal)
}

// sink is where metrics go.
type sink struct{ to chan<- prometheus.Metric }

func (s sink) put(kind prometheus.ValueType, name, help string, v float64, labels ...string) {
	var names, values []string
	for i := 0; i < len(labels); i += 2 {
		value := labels[i+1]
		if !utf8.ValidString(value) { // a device's name may be any bytes
			value = strconv.QuoteToASCII(value)
		}
		names, values = append(names, labels[i]), append(values, value)
	}
	s.to <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, names, nil), kind, v, values...)
}

func (s sink) gauge(name, help string, v float64, labels ...string) {
	s.put(prometheus.GaugeValue, name, help, v, labels...)
}

func (s sink) counter(name, help string, v uint64, labels ...string) {
	s.put(prometheus.CounterValue, name, help, float64(v), labels...)
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// queues tells each queueing discipline. One that is none (noqueue) counts nothing, and is left out.
func (s sink) queues(trees map[string]qdisc.Tree) {
	told, left := 0, uint64(0)
	for _, dev := range slices.Sorted(maps.Keys(trees)) {
		seen := map[[2]string]bool{}
		for _, q := range trees[dev].Qdiscs {
			// Disciplines that the kernel made by itself share the handle 0:, and differ by parent.
			place := [2]string{q.Handle.String(), q.Parent.String()}
			if q.Kind == "noqueue" || seen[place] {
				continue
			}
			seen[place] = true
			if told++; told > maxQueues {
				left++
				continue
			}
			at := []string{"device", dev, "kind", q.Kind, "parent", q.Parent.String(), "handle", q.Handle.String()}
			s.queue(q, at)
			if rate := float64(qdisc.Rate(q.Spec)); rate > 0 {
				s.gauge("weir_shaper_rate_bytes_per_second", "The rate that a queueing discipline enforces.",
					rate/8, at...)
				s.gauge("weir_qdisc_backlog_seconds", "How long what waits takes to leave, at the enforced rate.",
					float64(q.Stats.Backlog)*8/rate, at...)
			}
		}
	}
	s.gauge("weir_qdiscs_left_out", "Queueing disciplines above the number that is told.", float64(left))
}

func (s sink) queue(q qdisc.Qdisc, at []string) {
	x := q.Stats
	s.counter("weir_qdisc_sent_bytes_total", "Bytes sent.", x.Bytes, at...)
	s.counter("weir_qdisc_sent_packets_total", "Packets sent.", x.Packets, at...)
	s.counter("weir_qdisc_dropped_packets_total", "Packets dropped, for whatever reason.", x.Drops, at...)
	s.counter("weir_qdisc_ecn_marked_packets_total", "Packets marked CE.", x.Marks, at...)
	s.counter("weir_qdisc_overlimits_total", "Times that a packet had to wait for a shaper.", x.Overlimits, at...)
	s.counter("weir_qdisc_requeues_total", "Packets that the device did not take at once.", x.Requeues, at...)
	s.gauge("weir_qdisc_backlog_bytes", "Bytes waiting.", float64(x.Backlog), at...)
	s.gauge("weir_qdisc_backlog_packets", "Packets waiting.", float64(x.Qlen), at...)
	for _, o := range kernel.Objects() {
		if o.Counters == nil {
			continue
		}
		for _, c := range o.Counters(q) {
			kind := prometheus.CounterValue
			if c.Gauge {
				kind = prometheus.GaugeValue
			}
			s.put(kind, c.Name, c.Help, c.Value, append(slices.Clip(at), c.Labels...)...)
		}
	}
}

// clients tells those that a bpf_shaper's rules name. Others have no series: they come and go.
func (s sink) clients(all map[string][]shaper.ClientStats) {
	if all == nil {
		return
	}
	told, left := 0, 0
	for _, dev := range slices.Sorted(maps.Keys(all)) {
		for _, c := range all[dev] {
			if told++; told > maxClients {
				left++
				continue
			}
			at := []string{"device", dev, "client", c.Name()}
			s.counter("weir_shaper_client_bytes_total", "Bytes of a client that has a rule of its own, on the wire.",
				c.Bytes, at...)
			s.counter("weir_shaper_client_dropped_packets_total", "Packets of it that were dropped.", c.Drops, at...)
			s.counter("weir_shaper_client_ecn_marked_packets_total", "Packets of it that were marked CE.", c.Marks,
				at...)
		}
	}
	s.gauge("weir_shaper_clients_left_out", "Clients above the number that is told.", float64(left))
}

// Connections is what is told of them.
type Connections struct {
	count  map[key]int
	limits map[tcp.Limit]int
	rtt    prometheus.Collector
}

// key are the labels of connections.
type key struct{ dev, cc string }

func (s sink) connections(c *Connections) {
	if c == nil {
		return
	}
	for k, n := range c.count {
		s.gauge("weir_tcp_connections", "Established TCP connections that leave this host.", float64(n),
			"device", k.dev, "congestion_control", k.cc)
	}
	for limit, name := range map[tcp.Limit]string{tcp.Application: "application",
		tcp.Receiver: "receiver", tcp.SendBuffer: "send_buffer", tcp.Network: "network"} {
		s.gauge("weir_tcp_limited_connections", "Connections that sent since the look before, by who limited them.",
			float64(c.limits[limit]), "by", name)
	}
	c.rtt.Collect(s.to)
}

// findings tells those that a person should know.
func (s sink) findings(all []doctor.Finding) {
	told := map[doctor.Code]bool{}
	for _, f := range all {
		if f.Severity != doctor.Fine && !told[f.Code] {
			told[f.Code] = true
			s.gauge("weir_finding", "1 for each finding of weir doctor that is there and not fine.", 1,
				"code", string(f.Code), "severity", string(f.Severity))
		}
	}
}

// goal tells how the host stands to its goal.
func (s sink) goal(g *change.Status) {
	if g == nil {
		return
	}
	s.gauge("weir_goal_up", "Whether there is a goal.", number(g.Up))
	s.gauge("weir_goal_in_force", "Whether the goal is in force.", number(g.InForce))
	s.gauge("weir_goal_drifted_changes", "Changes that would bring the goal back into force.", float64(len(g.Drift)))
	s.gauge("weir_goal_unconfirmed", "Whether the goal waits for weir confirm.", number(g.Unconfirmed))
	s.gauge("weir_goal_overdue", "Whether nobody has confirmed the goal, nor put it back in time.",
		number(g.Unconfirmed && g.RevertsIn <= 0 && !g.PutBack))
	s.gauge("weir_goal_reverted", "Whether the last goal was put back, since nobody confirmed it.",
		number(g.Reverted != nil))
	s.gauge("weir_goal_kept", "Whether the goal outlasts a reboot.", number(g.Kept))
	for _, f := range g.Followed {
		if f.Hidden != "" {
			continue
		}
		s.gauge("weir_goal_followed", "Whether weir follow is at work, for a goal whose rate moves.",
			number(f.Running && f.Idle() == ""), "device", f.Dev)
	}
}
