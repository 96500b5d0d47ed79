// SPDX-License-Identifier: Apache-2.0

// Package measure is what a run of the lab measured: its flows, probes and queues, and the metrics that are read from
// them.
//
// It is pure: no sockets, no clock, no rounding for show.
package measure

import (
	"weir/internal/dualpi2"
	"weir/internal/qdisc"
	"weir/internal/stats"
)

// Run is what one run measured, in the lab or on a real link. Times are in milliseconds, speeds in Mbit/s of payload,
// unless a field says otherwise. What a run measures lies between the end of the warm-up and its end.
type Run struct {
	Seed     uint64  `json:"seed"`
	Kernel   string  `json:"kernel"`
	Seconds  float64 `json:"seconds"` // measured
	Goodput  float64 `json:"goodput"` // of all flows
	Flows    []Flow  `json:"flows"`
	Clients  []Share `json:"clients"`
	Probes   []Probe `json:"probes"`
	Uplink   Queue   `json:"uplink"`   // the server's
	Provider Queue   `json:"provider"` // where the provider enforces its rate
	// where anybody sends both ways: where the provider enforces its rate towards the server,
	Inward   *Queue `json:"inward,omitempty"`
	Ingress  *Queue `json:"ingress,omitempty"` // where the server lets wait what arrives,
	Tunnel   *Queue `json:"tunnel,omitempty"`  // and the device of a relay's tunnel
	TCPPages int    `json:"tcp_pages"`         // most that TCP held at a sample (/proc/net/sockstat)
	// that was so much that the lab's kernel took memory from its connections
	TCPPressed bool     `json:"tcp_pressed,omitempty"`
	Weir       []string `json:"weir,omitempty"` // what weir up and weir status said
	// that ran beside the traffic
	Programs []Program `json:"programs,omitempty"`
	Series   Series    `json:"series"`
}

// Program is a program that ran in a run, with what it printed.
type Program struct {
	Program string   `json:"program"`
	Client  string   `json:"client,omitempty"` // where it ran; empty: at the server
	Command []string `json:"command"`
	Output  []string `json:"output"` // lines, of both its outputs
	// its exit status, or 128 and the number of the signal that ended it; -1 if it still ran at the end
	Exit  int      `json:"exit"`
	Found *float64 `json:"found,omitempty"` // the number that was to be found in its output
}

// Flow is one TCP connection.
type Flow struct {
	Flow    string  `json:"flow"`
	Client  string  `json:"client"`
	CC      string  `json:"cc"`
	Goodput float64 `json:"goodput"`
	// what came to the receiver, in Mbit/s; also what it cannot read yet, as a packet before it is missing
	Arrived float64 `json:"arrived"`
	Bytes   int64   `json:"bytes"` // received since the start, the warm-up included
	// seconds from connecting to the last byte, for flows with bytes; 0 when it was not reached
	Fetch         float64    `json:"fetch,omitempty"`
	SRTT          stats.Dist `json:"srtt"`
	Cwnd          stats.Dist `json:"cwnd"`            // packets
	Unsent        stats.Dist `json:"unsent"`          // KiB in the socket and not yet sent
	Retransmits   uint64     `json:"retransmits"`     // packets
	Delivered     uint64     `json:"delivered"`       // packets
	CE            uint64     `json:"ce"`              // delivered with congestion experienced, as the receiver told
	RwndLimited   float64    `json:"rwnd_limited"`    // share of the busy time, 0 to 1
	SndbufLimited float64    `json:"sndbuf_limited"`  // likewise: above a few percent a socket buffer is the bottleneck
	Wakeups       uint64     `json:"wakeups"`         // of the sender
	Error         string     `json:"error,omitempty"` // what ended it early
}

// Share is what one client got.
type Share struct {
	Client  string  `json:"client"`
	Goodput float64 `json:"goodput"`
}

// Probe is a probe, a session or a stream. Delay is a round trip; of a stream, one way.
type Probe struct {
	Probe  string     `json:"probe"`
	Kind   string     `json:"kind"`
	Client string     `json:"client"`
	Base   float64    `json:"base"` // base RTT: what Delay is without any queue; of a stream, 0
	Sent   int        `json:"sent"`
	Lost   int        `json:"lost"` // without an answer, although there was time for one
	Delay  stats.Dist `json:"delay"`
	Error  string     `json:"error,omitempty"`
	At     []float64  `json:"at"`     // seconds since the measurement began, one a sample
	Series []float64  `json:"series"` // the delays, one a sample; -1 when lost
}

// Queue is a place where packets wait.
type Queue struct {
	Device      string     `json:"device"`
	Stack       string     `json:"stack"`        // its qdiscs in tc's words, "policer" or "none"
	Qdiscs      []Qdisc    `json:"qdiscs"`       // as the kernel listed them at the end
	Backlog     stats.Dist `json:"backlog"`      // KiB waiting, at each sample
	Drops       uint64     `json:"drops"`        // packets
	Marks       uint64     `json:"marks"`        // packets
	DropsBefore uint64     `json:"drops_before"` // packets, in the warm-up

	DualPI2 *dualpi2.Stats `json:"dualpi2,omitempty"` // of a bpf_dualpi2: what it counted since the warm-up
}

// Qdisc is one queueing discipline with its counters.
type Qdisc struct {
	Kind   string      `json:"kind"`
	Handle string      `json:"handle"`
	Parent string      `json:"parent"`
	Config string      `json:"config,omitempty"` // in tc's words
	Stats  qdisc.Stats `json:"stats"`            // since the boot
}

// Series are sampled every Step seconds.
type Series struct {
	Step     float64      `json:"step"`
	Goodput  []FlowSeries `json:"goodput"`
	Uplink   []float64    `json:"uplink"`            // KiB waiting
	Provider []float64    `json:"provider"`          // KiB waiting
	Inward   []float64    `json:"inward,omitempty"`  // KiB waiting, where Run has such a queue
	Ingress  []float64    `json:"ingress,omitempty"` // likewise
}

// FlowSeries is a group's goodput over time.
type FlowSeries struct {
	Flow   string    `json:"flow"`
	Values []float64 `json:"values"`
}

// Mean is the mean backlog in KiB; 0 where there is no such queue.
func (q *Queue) Mean() float64 {
	if q == nil {
		return 0
	}
	return q.Backlog.Mean
}

// Dropped is how many packets a queue dropped; 0 where there is no such queue.
func (q *Queue) Dropped() uint64 {
	if q == nil {
		return 0
	}
	return q.Drops
}
