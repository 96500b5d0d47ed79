// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"weir/internal/measure"
	"weir/internal/qdisc"
)

// Job is what a guest is asked to do: one scenario without its sweep, one candidate, one seed.
type Job struct {
	Scenario  Scenario  `json:"scenario"`
	Candidate Candidate `json:"candidate"`
	Seed      uint64    `json:"seed"`
}

// Reply is the one document that a guest hands back.
type Reply struct {
	Result *Run   `json:"result,omitempty"`
	Error  string `json:"error,omitempty"`
}

// Run is what one boot measured. Times are in milliseconds, speeds in Mbit/s of payload, unless a field says otherwise.
// What a run measures lies between the end of the warm-up and its end.
type Run struct {
	Seed     uint64        `json:"seed"`
	Kernel   string        `json:"kernel"`
	Seconds  float64       `json:"seconds"` // measured
	Goodput  float64       `json:"goodput"` // of all flows
	Flows    []FlowResult  `json:"flows"`
	Clients  []Share       `json:"clients"`
	Probes   []ProbeResult `json:"probes"`
	Uplink   Queue         `json:"uplink"`   // the server's
	Provider Queue         `json:"provider"` // where the provider enforces its rate
	// of a relay with one card: where the provider enforces its rate towards the server
	Inward  *Queue `json:"inward,omitempty"`
	Ingress *Queue `json:"ingress,omitempty"` // where the server lets incoming traffic wait
	Tunnel  *Queue `json:"tunnel,omitempty"`  // the device of a relay's tunnel
	// most pages that TCP held at a sample (/proc/net/sockstat): near the limit, the lab itself is slow
	TCPPages int      `json:"tcp_pages"`
	Weir     []string `json:"weir,omitempty"` // what weir up and weir status said
	Series   Series   `json:"series"`
}

// FlowResult is one TCP connection.
type FlowResult struct {
	Flow    string  `json:"flow"`
	Client  string  `json:"client"`
	CC      string  `json:"cc"`
	Goodput float64 `json:"goodput"`
	Bytes   int64   `json:"bytes"` // received since the start, the warm-up included
	// seconds from connecting to the last byte, for flows with bytes; 0 when it was not reached
	Fetch       float64      `json:"fetch,omitempty"`
	SRTT        measure.Dist `json:"srtt"`
	Cwnd        measure.Dist `json:"cwnd"`         // packets
	Unsent      measure.Dist `json:"unsent"`       // KiB in the socket and not yet sent
	Retransmits uint64       `json:"retransmits"`  // packets
	Delivered   uint64       `json:"delivered"`    // packets
	CE          uint64       `json:"ce"`           // delivered with congestion experienced, as the receiver told
	RwndLimited float64      `json:"rwnd_limited"` // share of the busy time, 0 to 1
	// likewise: above a few percent a socket buffer is the bottleneck
	SndbufLimited float64 `json:"sndbuf_limited"`
	Wakeups       uint64  `json:"wakeups"`         // of the sender
	Error         string  `json:"error,omitempty"` // what ended it early
}

// Share is what one client got.
type Share struct {
	Client  string  `json:"client"`
	Goodput float64 `json:"goodput"`
}

// ProbeResult is a probe, a session or a stream. Delay is a round trip; of a stream, one way.
type ProbeResult struct {
	Probe  string       `json:"probe"`
	Kind   string       `json:"kind"`
	Client string       `json:"client"`
	Base   float64      `json:"base"` // base RTT: what Delay is without any queue; of a stream, 0
	Sent   int          `json:"sent"`
	Lost   int          `json:"lost"` // without an answer, although there was time for one
	Delay  measure.Dist `json:"delay"`
	Error  string       `json:"error,omitempty"`
	At     []float64    `json:"at"`     // seconds since the measurement began, one a sample
	Series []float64    `json:"series"` // the delays, one a sample; -1 when lost
}

// Queue is a place where packets wait.
type Queue struct {
	Device      string        `json:"device"`
	Stack       string        `json:"stack"`        // its qdiscs in tc's words, "policer" or "none"
	Qdiscs      []QdiscResult `json:"qdiscs"`       // as the kernel listed them at the end
	Backlog     measure.Dist  `json:"backlog"`      // KiB waiting, at each sample
	Drops       uint64        `json:"drops"`        // packets
	Marks       uint64        `json:"marks"`        // packets
	DropsBefore uint64        `json:"drops_before"` // packets, in the warm-up

	DualPI2 *qdisc.BPFDualPI2Stats `json:"dualpi2,omitempty"` // of a bpf_dualpi2: what it counted since the warm-up
}

// QdiscResult is one queueing discipline with its counters.
type QdiscResult struct {
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
	Uplink   []float64    `json:"uplink"`           // KiB waiting
	Provider []float64    `json:"provider"`         // KiB waiting
	Inward   []float64    `json:"inward,omitempty"` // KiB waiting, of a relay with one card
}

// FlowSeries is a group's goodput over time.
type FlowSeries struct {
	Flow   string    `json:"flow"`
	Values []float64 `json:"values"`
}

// Cell is one candidate at one point of the sweep: as many runs as the scenario has seeds.
type Cell struct {
	Candidate string `json:"candidate"`
	Runs      []Run  `json:"runs"`
	Words     string `json:"words"` // what happened and why, in a sentence
}

// PointResult is all candidates at one point of the sweep.
type PointResult struct {
	Labels   []string `json:"labels,omitempty"`
	Values   []string `json:"values,omitempty"`
	Scenario Scenario `json:"scenario"`
	Cells    []Cell   `json:"cells"`
}

// Report is a scenario file, run.
type Report struct {
	File   string        `json:"file"`
	Title  string        `json:"title"`
	About  string        `json:"about,omitempty"`
	Kernel string        `json:"kernel"`
	Points []PointResult `json:"points"`
	Claims []Verdict     `json:"claims,omitempty"`
}
