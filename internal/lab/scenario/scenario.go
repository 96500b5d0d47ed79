// SPDX-License-Identifier: Apache-2.0

// Package scenario is the lab's language: a server, the path to its clients, what they do, the configurations to
// compare, and what is claimed of them. It reads scenario files and expands them into what is to be run.
//
// It may not run anything, nor look at a result. What is wrong in a file it says with the line.
package scenario

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"weir/internal/lab/measure"
	"weir/internal/plan"
	"weir/internal/units"
	"weir/internal/wire"
)

// Scenario is one scenario file, its inherited parts included.
type Scenario struct {
	Title    string         `toml:"title" json:"title"`
	About    string         `toml:"about" json:"about,omitempty"` // a line or two for the report: what is asked
	Inherit  string         `toml:"inherit" json:"-"`             // another scenario file, relative to this one
	Warmup   units.Duration `toml:"warmup" json:"warmup"`         // not measured
	Duration units.Duration `toml:"duration" json:"duration"`     // measured, after the warm-up
	// "fetched": end as soon as every flow with bytes has them
	Until  string `toml:"until" json:"until,omitempty"`
	Engine string `toml:"engine" json:"engine"` // what boots the guest: uml or qemu
	Seeds  int    `toml:"seeds" json:"seeds"`   // repeats, each another sample of all randomness
	// metrics to show; default: those that the traffic gives
	Columns   []string    `toml:"columns" json:"columns,omitempty"`
	Server    server      `toml:"server" json:"server"`
	Relay     relay       `toml:"relay" json:"relay,omitzero"`
	Path      Path        `toml:"path" json:"path"`
	Provider  Provider    `toml:"provider" json:"provider"`
	Client    []Client    `toml:"client" json:"client"`
	Flow      []Flow      `toml:"flow" json:"flow,omitempty"`
	Probe     []Probe     `toml:"probe" json:"probe,omitempty"`
	Program   []Program   `toml:"program" json:"program,omitempty"`
	Candidate []candidate `toml:"candidate" json:"candidate"`
	Sweep     []Axis      `toml:"sweep" json:"-"`
	Claim     []Claim     `toml:"claim" json:"-"`
}

// RTT is the base RTT of a client.
func (s *Scenario) RTT(client string) units.Duration {
	for _, c := range s.Client {
		if c.Name == client && c.RTT != 0 {
			return c.RTT
		}
	}
	return s.Path.RTT
}

// server is the machine that Weir is for. Its uplink is called eth0.
type server struct {
	Addresses int `toml:"addresses" json:"addresses"` // how many it answers from
	Queues    int `toml:"queues" json:"queues"`       // transmit queues of the uplink
	// the wire carries superpackets: as a virtual NIC that leaves segmentation to its host
	TSO bool `toml:"tso" json:"tso"`
	// it forwards for an origin: by a card of its own for that, unless [relay] says otherwise
	Relay bool `toml:"relay" json:"relay"`
	// what it forwards comes as superpackets: as a NIC that joins packets hands them on
	GRO bool `toml:"gro" json:"gro"`
	// at the uplink's root before a candidate changes it
	Qdisc  string            `toml:"qdisc" json:"qdisc"`
	Sysctl map[string]string `toml:"sysctl" json:"sysctl,omitempty"`
}

// Path is what lies between the provider and the clients.
type Path struct {
	// version of the Internet Protocol that all addresses are of: 4 or 6
	IP int `toml:"ip" json:"ip"`
	// base RTT; all of it on the way back, so that it delays nothing of what is measured
	RTT  units.Duration `toml:"rtt" json:"rtt"`
	Loss units.Share    `toml:"loss" json:"loss"` // of the packets towards the clients
	// mean length of a loss, in packets: 0 or 1 is independent loss, above it a Gilbert model
	Burst  float64        `toml:"burst" json:"burst"`
	Jitter units.Duration `toml:"jitter" json:"jitter"` // ± towards the clients, in order
	// of the packets towards the clients, which overtake those that were sent in the ReorderLead before
	Reorder units.Share `toml:"reorder" json:"reorder,omitempty"`

	Change []newRTT `toml:"change" json:"change,omitempty"` // in their order
}

// newRTT is a base RTT that the path has from some time on, as after a change of route.
type newRTT struct {
	At  units.Duration `toml:"at" json:"at"` // since the beginning of the run, the warm-up included
	RTT units.Duration `toml:"rtt" json:"rtt"`
}

// ReorderLead is by how much a packet that overtakes others comes earlier than it would.
const ReorderLead = 2 * time.Millisecond

// ForwardDelay is the part of the base RTT that is on the way to the clients, in the mean.
func (p Path) ForwardDelay() units.Duration {
	if p.Reorder > 0 {
		return units.Duration(ReorderLead)
	}
	return p.Jitter
}

// mtu of every link, in bytes.
const mtu = wire.EthernetMTU

// room is what a packet has for TCP or UDP, headers included, in bytes.
func (p Path) room() int {
	if p.IP == 6 {
		return mtu - 40
	}
	return mtu - 20
}

// Provider is the box that enforces the rate the server is sold.
type Provider struct {
	Rate    units.Rate `toml:"rate" json:"rate,omitempty"`
	Ingress units.Rate `toml:"ingress" json:"ingress,omitempty"` // towards the server, when it is not the rate
	// fifo, policer, bucket, none, or a qdisc in tc's words
	Queue string `toml:"queue" json:"queue"`
	// of fifo and bucket: bytes, or the time they take at the rate
	Buffer Buffer     `toml:"buffer" json:"buffer"`
	Burst  units.Size `toml:"burst" json:"burst"`         // of policer and bucket: what may pass at line rate
	Peak   units.Rate `toml:"peak" json:"peak,omitempty"` // of bucket: how fast the burst passes; 0: at line rate
	// bytes counted of a packet beside its Ethernet frame without FCS, -14 to 256: 4 with it, 24 on a wire, -14 of IP
	Overhead int  `toml:"overhead" json:"overhead,omitempty"`
	ATM      bool `toml:"atm" json:"atm,omitempty"` // and carried in cells

	Change []newRate `toml:"change" json:"change,omitempty"` // in their order
}

// newRate is a rate that the provider enforces from some time on. It is both ways' unless the scenario has a rate of
// its own for the way in. The buffer stays as large, in bytes.
type newRate struct {
	At   units.Duration `toml:"at" json:"at"` // since the beginning of the run, the warm-up included
	Rate units.Rate     `toml:"rate" json:"rate,omitempty"`
}

// Inward is the rate towards the server.
func (p Provider) Inward() units.Rate {
	if p.Ingress != 0 {
		return p.Ingress
	}
	return p.Rate
}

// Client is a machine at the other end, with an address of its own.
type Client struct {
	Name string         `toml:"name" json:"name"`
	RTT  units.Duration `toml:"rtt" json:"rtt"` // when it is not the path's
	// how it reaches the origin, when it is not the relay's kind
	Via    string            `toml:"via" json:"via,omitempty"`
	Sysctl map[string]string `toml:"sysctl" json:"sysctl,omitempty"`

	Rate   units.Rate `toml:"rate" json:"rate,omitempty"`     // of its own access, towards it; 0: it has no limit
	Upload units.Rate `toml:"upload" json:"upload,omitempty"` // from it, when it is not the rate
	Buffer Buffer     `toml:"buffer" json:"buffer,omitzero"`  // of its modem, each way
}

// Neighbour is another host of the provider's, behind the same limiter.
const Neighbour = "neighbour"

// HasNeighbour reports whether anything comes from there.
func (s *Scenario) HasNeighbour() bool {
	return slices.ContainsFunc(s.Flow, func(f Flow) bool { return f.Host == Neighbour })
}

// Flow is a group of bulk TCP connections.
type Flow struct {
	Name      string `toml:"name" json:"name"`
	Client    string `toml:"client" json:"client"` // default: the first
	Count     int    `toml:"count" json:"count"`
	Direction string `toml:"direction" json:"direction"` // down (to the client) or up
	// of a relay: through it, or between it and its client or origin alone
	Leg     string `toml:"leg" json:"leg,omitempty"`
	Dial    string `toml:"dial" json:"dial"`       // who connects: client or server
	Address int    `toml:"address" json:"address"` // which of the server's, from 1
	// who sends to the client: server, or neighbour
	Host string `toml:"host" json:"host,omitempty"`
	// congestion control of the sender; default: the sysctl's
	CC    string         `toml:"cc" json:"cc,omitempty"`
	Lowat units.Size     `toml:"notsent_lowat" json:"notsent_lowat"`
	Bytes units.Size     `toml:"bytes" json:"bytes"`         // per connection; 0b: as long as the run
	MSS   units.Size     `toml:"mss" json:"mss,omitempty"`   // of each segment's payload, at most; 0b: what fits
	Pace  units.Rate     `toml:"pace" json:"pace,omitempty"` // each connection sends no faster than this
	Start units.Duration `toml:"start" json:"start"`
	Stop  units.Duration `toml:"stop" json:"stop"`

	// mean time between two arrivals of a Poisson source, each of which is count connections;
	Every units.Duration `toml:"every" json:"every,omitempty"`
	Sizes string         `toml:"sizes" json:"sizes,omitempty"` // how theirs are distributed, with bytes as mean
	// what the application hands over at a time: it has no more to send until the interval is over
	Chunk    units.Size     `toml:"chunk" json:"chunk,omitempty"`
	Interval units.Duration `toml:"interval" json:"interval,omitempty"`
}

// Probe times small exchanges while the flows run.
type Probe struct {
	Name string `toml:"name" json:"name"`
	// udp (echo), ssh (keystrokes), request (one after another), stream (UDP, one way, down)
	Kind     string         `toml:"kind" json:"kind"`
	Client   string         `toml:"client" json:"client"`
	Leg      string         `toml:"leg" json:"leg,omitempty"` // as a flow's
	Interval units.Duration `toml:"interval" json:"interval"`
	Size     units.Size     `toml:"size" json:"size"`   // of a datagram or a request
	Reply    units.Size     `toml:"reply" json:"reply"` // of ssh and request
	// of ssh and request: congestion control of who answers; default: the sysctl's
	CC   string     `toml:"cc" json:"cc,omitempty"`
	Rate units.Rate `toml:"rate" json:"rate,omitempty"` // of stream: instead of the interval
	// of udp and stream: what the datagrams say in their ECN field
	ECN ecnField `toml:"ecn" json:"ecn,omitempty"`
}

// ecnField is a codepoint of RFC 3168 by name: "" (not ECT), ect0, ect1 or ce.
type ecnField string

// Bits is the ECN field: 0 for a name that is none.
func (e ecnField) Bits() int { return max(0, slices.Index([]ecnField{"", "ect1", "ect0", "ce"}, e)) }

// candidate is a configuration of the server to try.
type candidate struct {
	Name  string `toml:"name" json:"name"`
	About string `toml:"about" json:"about,omitempty"`
	// tc's words; {99.75%} is that share of the provider's rate
	Qdisc string `toml:"qdisc" json:"qdisc,omitempty"`
	// likewise, of the provider's ingress rate: what arrives at the uplink passes it first, on an ifb; and ", unpacked
	// DEVICE… from udp/PORT…" for tunnels
	Ingress string `toml:"ingress" json:"ingress,omitempty"`
	// likewise: at the root of the device of the relay's tunnel
	Tunnel string            `toml:"tunnel" json:"tunnel,omitempty"`
	Sysctl map[string]string `toml:"sysctl" json:"sysctl,omitempty"`
	Weir   *weirGoal         `toml:"weir" json:"weir,omitempty"`     // run `weir up` in the guest with this goal
	Change []Change          `toml:"change" json:"change,omitempty"` // in their order

	Program []Program `toml:"program" json:"program,omitempty"` // at the server, for this candidate alone
}

// Change is a reconfiguration of a candidate's qdisc while the run goes on: in place, so that no packet is lost that
// waits in it.
type Change struct {
	At    units.Duration `toml:"at" json:"at"`       // since the beginning of the run, the warm-up included
	Qdisc string         `toml:"qdisc" json:"qdisc"` // as the candidate's, with the same kinds
}

// weirGoal is the goal given to `weir up --dev eth0`. Its rates are the provider's, where it says none.
type weirGoal struct {
	plan.Goal
	// give no rate: what Weir does for a user who does not know it
	NoRate bool `toml:"no_rate" json:"no_rate,omitempty"`
}

// goal is w as the product will understand it.
func (w weirGoal) goal(p Provider) plan.Goal {
	g := w.Goal
	g.Qdisc = Rated(g.Qdisc, p.Rate)
	if g.Rate == 0 && !w.NoRate {
		g.Rate = p.Rate
	}
	if g.Ingress == 0 && g.Role == "relay" && !w.NoRate {
		g.Ingress = p.Ingress
	}
	return g
}

// Args is the goal as arguments of `weir up`.
func (w weirGoal) Args(p Provider) []string { return w.goal(p).Args() }

// Axis is one dimension of a sweep: a key of the scenario, and the values it takes.
type Axis struct {
	Key    string   `toml:"key"` // provider.queue, path.loss, flow.NAME.count, …
	Values []any    `toml:"values"`
	Labels []string `toml:"labels"` // instead of the values, in tables
}

// Buffer is an amount of data, or the time that it takes to send.
type Buffer struct {
	Size units.Size
	Time units.Duration
}

// Bytes of the buffer at the given rate.
func (b Buffer) Bytes(r units.Rate) units.Size {
	if b.Time != 0 {
		return units.Size(float64(b.Time) / 1e9 * float64(r) / 8)
	}
	return b.Size
}

func (b Buffer) String() string {
	if b.Time != 0 {
		return b.Time.String()
	}
	return b.Size.String()
}

func (b Buffer) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

func (b *Buffer) UnmarshalText(text []byte) error {
	if err := b.Time.UnmarshalText(text); err == nil {
		b.Size = 0
		return nil
	}
	b.Time = 0
	if err := b.Size.UnmarshalText(text); err != nil {
		return fmt.Errorf("buffer %q is neither a size (64kb) nor a time (200ms)", text)
	}
	return nil
}

// clone copies s with everything that it refers to.
func (s Scenario) clone() Scenario {
	c := Scenario{Inherit: s.Inherit, Sweep: s.Sweep, Claim: s.Claim}
	data, err := json.Marshal(s)
	if err == nil {
		err = json.Unmarshal(data, &c)
	}
	if err != nil { // every field is a plain value that reads back what it writes: see TestScenarioJSON
		panic(err)
	}
	return c
}

// payloadShare is TCP's part of an Ethernet frame of 1514 bytes: with timestamps 1448 over IPv4, 1428 over IPv6. It
// is what a shaper that counts whole frames, as every one here does, can carry.
func (p Path) payloadShare() float64 {
	const tcp = 32 // header
	return float64(p.room()-tcp) / (mtu + wire.EthernetHeader)
}

// Setup is what metrics of its runs take.
func (s *Scenario) Setup() measure.Setup {
	capacity := func(r units.Rate) float64 { return float64(r) / 1e6 * s.Path.payloadShare() }
	since := func(at units.Duration) float64 { return time.Duration(at - s.Warmup).Seconds() }
	setup := measure.Setup{Capacity: capacity(s.Provider.Rate), Provider: s.Provider.Queue != "none",
		Warmup: time.Duration(s.Warmup).Seconds(), Starts: map[string]float64{}}
	for _, c := range s.Provider.Change {
		setup.Changes = append(setup.Changes, measure.Change{At: since(c.At), Capacity: capacity(c.Rate)})
	}
	for _, f := range s.Flow {
		setup.Starts[f.Name] = since(f.Start)
		if f.Bytes > 0 {
			setup.Fetching = append(setup.Fetching, f.Name)
		}
		if f.Direction == "up" {
			setup.Up = append(setup.Up, f.Name)
		}
	}
	return setup
}
