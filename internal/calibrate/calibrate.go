// SPDX-License-Identifier: Apache-2.0

// Package calibrate finds what a provider enforces on a link: the rate, what it counts of each packet, and the queue in
// front of it.
//
// Package follow finds the rate, too, and in another way, because it knows less. All that it has is what others send,
// when they send it: smoothed RTTs, and what has left this host. So it finds a rate only while a queue stands in
// front of the link, and has to be told what a packet counts for. A calibration makes its own load. It knows what of
// that has arrived (TCP's own count of delivered packets, or the peer's of datagrams), so it needs no queue. It
// chooses how large packets are, which shows what the provider counts beside them. Of what others send meanwhile it
// takes what follow does: what had left this host when a packet did that is acknowledged now (series.passed).
//
// It is pure: it decides what to send and what the answer means. It opens no socket, reads no clock and no file. A Link
// does what it asks, so the same code runs over TCP and over the simulator of its tests.
package calibrate

import (
	"context"
	"math"
	"time"

	"weir/internal/wire"
)

// Sample is what is known of a link at one instant. All counters only grow.
type Sample struct {
	At time.Duration // since the link was opened

	// Of the device: what has left by it, with that of others. Zero packets: its queue has no counters.
	DeviceBytes   float64 // with the Ethernet header, and those of each packet that a superpacket becomes
	DevicePackets float64
	DeviceDrops   float64 // packets that this host's own queue has dropped

	// Of TCP on this host beside the calibration: segments that were sent, and those of them that were sent again.
	// Zero: not known.
	OtherSegments, OtherRetransmitted float64

	// Of the calibration's own connections, those that were closed too.
	Payload       float64 // bytes of TCP payload sent, with those sent again
	Headers       float64 // bytes of IP and TCP headers before it
	Segments      float64 // packets with payload sent, with those sent again
	Retransmitted float64 // packets of those that were sent again
	Delivered     float64 // packets acknowledged, once each

	RTT time.Duration // median of the connections' smoothed RTTs; 0: none is known
}

// others is what left by the device beside the calibration's own: packets, and bytes of IP.
func (s Sample) others() flow {
	return flow{s.DevicePackets - s.Segments,
		s.DeviceBytes - wire.EthernetHeader*s.DevicePackets - s.Payload - s.Headers}
}

// Probe is a packet that waited for an answer. It is sparse: where the provider has one queue it shows how long that
// is.
type Probe struct {
	At  time.Duration // when it was sent
	RTT time.Duration // below 0: no answer

	There   time.Duration // by the peer's clock, when it came there: its differences count
	Arrived float64       // datagrams of a load that had arrived there by then
}

// Load is what a link is to send.
type Load struct {
	Connections int     // 0: nothing
	Segment     int     // bytes of an IP packet at most; 0: what fits
	Rate        float64 // bit/s of IP packets, of all connections together; 0: as congestion control likes
	Datagrams   bool    // one sender of UDP instead, at Rate, whatever becomes of its packets
}

// Link is the way to a peer, as the calibration uses it.
type Link interface {
	// Send brings a load into force. Connections stay where only their rate changes. What is new begins before what
	// is old ends.
	Send(ctx context.Context, l Load) error
	// Datagrams reports whether the peer counts those that arrive, in answers to probes. Samples have what is sent of
	// them as they have TCP's packets.
	Datagrams() bool
	// Watch lets a time pass, and adds what was seen meanwhile.
	Watch(ctx context.Context, d time.Duration) error
	// Seen is all samples and all answered or lost probes since the link was opened.
	Seen() ([]Sample, []Probe)
}

// Sort says what kind of knowledge a value is.
type Sort string

// A value is so; is at least so, as the test could not reach its end; or is what was left for this host at that time,
// as a neighbour's share cannot be told from a lower rate.
const (
	Within  Sort = "is"
	AtLeast Sort = "at least"
	Left    Sort = "left for us now"
	Unknown Sort = "not known"
)

// Value is a figure and how far off it may be.
type Value struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high,omitempty"` // 0: there is no bound
	Sort  Sort    `json:"sort"`
}

func plusMinus(v, off float64, sort Sort) Value { return Value{v, v - off, v + off, sort} }

// Kind is how a rate is enforced.
type Kind string

// The provider's queue is one for all; there is none, and what comes too fast is dropped; it keeps flows apart; or the
// load has not filled the link.
const (
	FIFO        Kind = "fifo"
	Policer     Kind = "policer"
	FairQueue   Kind = "fair queue"
	Unsaturated Kind = "not filled"
)

// Result is what a calibration has found.
type Result struct {
	Kind     Kind     `json:"kind"`
	Rate     Value    `json:"rate"`     // bit/s, as CAKE counts it with Overhead and ATM
	Overhead Value    `json:"overhead"` // bytes that the provider counts beside each IP packet: tc-cake's overhead
	ATM      bool     `json:"atm"`      // it counts cells of 53 bytes that carry 48
	Credit   Value    `json:"credit"`   // bytes that were let through above the rate at first
	Depth    Value    `json:"depth"`    // seconds that a packet can wait in the provider's queue
	Base     Value    `json:"base"`     // seconds of an RTT with no queue
	Loss     Value    `json:"loss"`     // share of packets that is lost below the rate
	Others   Value    `json:"others"`   // bit/s that this host sent beside the test
	Verified Check    `json:"verified"`
	Took     float64  `json:"took"` // seconds
	Notes    []string `json:"notes,omitempty"`
}

// Check is what was seen while this host sent 99.75 % of the result.
type Check struct {
	Calm  bool    `json:"calm"`
	Sent  float64 `json:"sent"`  // share of what it was to send
	Added float64 `json:"added"` // seconds that the median probe waited
	Loss  float64 `json:"loss"`  // share of packets
}

func clamp(x, low, high float64) float64 { return math.Max(low, math.Min(high, x)) }

func duration(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
