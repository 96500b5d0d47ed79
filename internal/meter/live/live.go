// SPDX-License-Identifier: Apache-2.0

// Package live sums up a host's own TCP connections over a time, by the network that their other ends are in.
//
// It is pure: it opens no socket and has no clock. It is handed what the kernel said and when.
package live

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"weir/internal/host"
	"weir/internal/stats"
	"weir/internal/tcp"
)

// Version is that of a Result's JSON.
const Version = 1

// Result is what was seen. Times are in milliseconds, speeds in Mbit/s, shares 0 to 1.
type Result struct {
	Version  int       `json:"version"`
	Seconds  float64   `json:"seconds"`
	Looks    int       `json:"looks"`
	Says     string    `json:"says"`
	All      Network   `json:"all"`
	Networks []Network `json:"networks"` // the busiest first
}

// Network is the connections to one network.
type Network struct {
	Network     string `json:"network,omitempty"` // /24 of IPv4, /48 of IPv6
	Connections int    `json:"connections"`       // seen in the time, for however long
	Accepted    int    `json:"accepted"`          // of those, opened by the other end
	// the kernel's smoothed RTT, whenever an answer had changed it since the last look
	RTT    stats.Dist `json:"rtt"`
	Floor  float64    `json:"floor"`  // the least minimum RTT of the connections that RTT is of
	Added  stats.Dist `json:"added"`  // each RTT above its own connection's minimum
	Jitter float64    `json:"jitter"` // the kernel's mean deviation of the RTT (rttvar), averaged
	Out    float64    `json:"out"`    // acknowledged
	In     float64    `json:"in"`     // received
	// of the bytes sent, those sent again
	Retransmitted float64           `json:"retransmitted"`
	CC            map[string]int    `json:"cc,omitempty"`
	Limits        map[tcp.Limit]int `json:"limits,omitempty"` // connections that sent, by who limited them
	sent, again   float64
	rtt, added    []float64
	jitter        float64
}

// Limit is who limits most of the connections that send; "" where none does.
func (n Network) Limit() tcp.Limit {
	who, most := tcp.NoLimit, 0
	for _, l := range slices.Sorted(maps.Keys(n.Limits)) {
		if n.Limits[l] > most {
			who, most = l, n.Limits[l]
		}
	}
	return who
}

// Watch is handed looks, and remembers what it takes to sum them up. The zero Watch is ready.
type Watch struct {
	first, last time.Time
	looks       int
	samples     int
	conns       map[uint64]*track
}

// track is a connection: as it was when first seen, as it is, and its samples.
type track struct {
	host.Connection
	from               host.Connection // what it counts from
	since              time.Time
	rtt, added, jitter []float64
}

// maxSamples bounds the memory: 24 bytes each.
const maxSamples = 2_000_000

// Add is one look.
func (w *Watch) Add(at time.Time, seen []host.Connection) {
	if w.looks == 0 {
		w.first, w.conns = at, map[uint64]*track{}
	}
	before := w.last
	w.last = at
	w.looks++
	for _, c := range seen {
		t := w.conns[c.Cookie]
		if t == nil {
			t = &track{Connection: c, from: c, since: w.first}
			if w.looks > 1 { // it was opened since, so all that it counts belongs to this time
				t.from, t.since = host.Connection{}, before
				t.Info.Bytes_acked = 0
			}
			w.conns[c.Cookie] = t
		}
		if c.Info.Bytes_acked > t.Info.Bytes_acked && c.Info.Rtt > 0 && w.samples < maxSamples {
			w.samples++
			t.rtt = append(t.rtt, ms(c.Info.Rtt))
			t.jitter = append(t.jitter, ms(c.Info.Rttvar))
			t.added = append(t.added, ms(c.Info.Rtt-min(floor(c), c.Info.Rtt)))
		}
		t.Connection = c
	}
}

func ms(us uint32) float64 { return float64(us) / 1000 }

// floor is a connection's minimum RTT in µs; its RTT where there is none yet.
func floor(c host.Connection) uint32 {
	if least := c.Info.Min_rtt; least != 0 && least < c.Info.Rtt {
		return least
	}
	return c.Info.Rtt
}

// Result sums up.
func (w *Watch) Result() Result {
	r := Result{Version: Version, Looks: w.looks, Seconds: w.last.Sub(w.first).Seconds()}
	by := map[netip.Prefix]*Network{}
	for _, cookie := range slices.Sorted(maps.Keys(w.conns)) {
		t := w.conns[cookie]
		where := networkOf(t.Remote.Addr())
		if by[where] == nil {
			by[where] = &Network{Network: where.String()}
		}
		t.addTo(by[where], w)
		t.addTo(&r.All, w)
	}
	for _, n := range by {
		n.close(r.Seconds)
		r.Networks = append(r.Networks, *n)
	}
	r.All.close(r.Seconds)
	slices.SortFunc(r.Networks, func(a, b Network) int {
		return cmp.Or(cmp.Compare(b.Out+b.In, a.Out+a.In), cmp.Compare(a.Network, b.Network))
	})
	r.Says = r.sentence()
	return r
}

// networkOf is the network that a client is taken to be in: what a customer usually has, or shares with neighbours.
func networkOf(a netip.Addr) netip.Prefix {
	bits := 48
	if a.Is4() {
		bits = 24
	}
	p, _ := a.WithZone("").Prefix(bits)
	return p
}

func (t *track) addTo(n *Network, w *Watch) {
	n.Connections++
	if t.Accepted {
		n.Accepted++
	}
	if n.CC == nil {
		n.CC, n.Limits = map[string]int{}, map[tcp.Limit]int{}
	}
	n.CC[t.CC]++
	now, from := t.Info, t.from.Info
	if len(t.rtt) > 0 {
		if least := ms(floor(t.Connection)); n.Floor == 0 || least < n.Floor {
			n.Floor = least
		}
	}
	n.rtt, n.added = append(n.rtt, t.rtt...), append(n.added, t.added...)
	for _, j := range t.jitter {
		n.jitter += j
	}
	n.Out += since(now.Bytes_acked, from.Bytes_acked)
	n.In += since(now.Bytes_received, from.Bytes_received)
	n.sent += since(now.Bytes_sent, from.Bytes_sent)
	n.again += since(now.Bytes_retrans, from.Bytes_retrans)
	us := func(now, from uint64) time.Duration { return time.Duration(since(now, from)) * time.Microsecond }
	limit := tcp.LimitOf(w.last.Sub(t.since), us(now.Busy_time, from.Busy_time),
		us(now.Rwnd_limited, from.Rwnd_limited), us(now.Sndbuf_limited, from.Sndbuf_limited))
	if limit != tcp.NoLimit {
		n.Limits[limit]++
	}
}

// since is a counter's growth; a kernel that is wrong about it is not believed.
func since(now, from uint64) float64 {
	if now < from || now-from > 1<<56 {
		return 0
	}
	return float64(now - from)
}

func (n *Network) close(seconds float64) {
	n.RTT, n.Added = stats.NewDist(n.rtt), stats.NewDist(n.added)
	if n.RTT.N > 0 {
		n.Jitter = n.jitter / float64(n.RTT.N)
	}
	const mbit = 8 / 1e6
	if seconds > 0 {
		n.Out, n.In = n.Out*mbit/seconds, n.In*mbit/seconds
	} else {
		n.Out, n.In = 0, 0
	}
	if n.sent > 0 {
		n.Retransmitted = min(n.again/n.sent, 1)
	}
}

// Waits reports whether packets to a network wait: for half of its samples by half its floor, and by 10 ms, which no
// wireless hop's jitter explains.
func (n Network) Waits() bool { return n.RTT.N > 0 && n.Added.P50 >= max(n.Floor/2, 10) }

func (r Result) sentence() string {
	if r.All.Connections == 0 {
		return "No TCP connection left this host in that time."
	}
	if r.All.RTT.N == 0 {
		return "Connections are open, but none of them sent anything in that time."
	}
	waiting, most := 0, Network{}
	for _, n := range r.Networks {
		if n.Waits() {
			waiting++
			if n.Added.P50 > most.Added.P50 {
				most = n
			}
		}
	}
	if waiting == 0 {
		return fmt.Sprintf("Nothing waits: RTTs are %.1f ms above their minimum in the median.", r.All.Added.P50)
	}
	return fmt.Sprintf("Packets to %d of %d networks wait; to %s for %.0f ms (median), with a minimum RTT of %.0f ms.",
		waiting, len(r.Networks), most.Network, most.Added.P50, most.Floor)
}
