// SPDX-License-Identifier: Apache-2.0

package shaper

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"time"

	"weir/internal/units"
)

// Instance is a shaper that runs on a device.
type Instance struct {
	Known  bool // it is of this version, and the rest is known
	Config Config
	Stats  Stats
}

// Stats are what a shaper has counted since it was installed.
type Stats struct {
	Bytes uint64 // on the wire, of what was given a time of departure
	Marks uint64 // packets marked CE; superpackets count once
	Drops uint64 // packets

	// Active is how many clients have packets that are not out, by their weights; who uses less than his share counts
	// for that part.
	Active float64
	// Wait is the longest that a packet was given of late: it wears off in some tens of milliseconds of packets.
	Wait units.Duration
	// After names the programs of others that come after the shaper, and could give packets other times. With commas
	// between; "" is none.
	After string
}

// ClientStats are those of one client.
type ClientStats struct {
	// Client is an address, or a prefix of an IPv6 one; ::/128 is all that is no IP.
	Client netip.Prefix
	Bytes  uint64 // sent, on the wire
	Marks  uint64 // packets; superpackets count once
	Drops  uint64
	Wait   units.Duration // of a packet that would come now
	Weight uint32
	Limit  units.Rate // bit/s that it may not exceed; 0: none
}

// ClientRate is what a client did between two looks.
type ClientRate struct {
	Client string         `json:"client"` // an address, a prefix of an IPv6 one, or NoIP
	Rate   units.Rate     `json:"rate"`   // bit/s, sent
	Share  units.Share    `json:"share"`  // of what all clients have sent
	Limit  units.Rate     `json:"limit"`  // bit/s that it may not exceed; 0: none
	Weight uint32         `json:"weight"`
	Wait   units.Duration `json:"wait"`  // of a packet that would come at the second look
	Drops  uint64         `json:"drops"` // packets
	Marks  uint64         `json:"marks"` // packets; superpackets count once
}

// NoIP is the client that all packets are of that are no IP.
const NoIP = "no IP"

// Rates are what clients did between two looks that were so long apart, the fastest first. Who did nothing is left out.
func Rates(before, after []ClientStats, apart time.Duration) []ClientRate {
	was, all := map[netip.Prefix]ClientStats{}, uint64(0)
	for _, c := range before {
		was[c.Client] = c
	}
	rates := []ClientRate{}
	var sent []uint64
	for _, c := range after {
		then := was[c.Client]
		if c.Bytes < then.Bytes || c.Drops < then.Drops || c.Marks < then.Marks { // it was forgotten, and began anew
			then = ClientStats{}
		}
		bytes, drops := c.Bytes-then.Bytes, c.Drops-then.Drops
		if bytes+drops == 0 || apart <= 0 {
			continue
		}
		all += bytes
		sent = append(sent, bytes)
		rates = append(rates, ClientRate{Client: c.Name(), Limit: c.Limit, Weight: c.Weight, Wait: c.Wait, Drops: drops,
			Marks: c.Marks - then.Marks})
	}
	for i, bytes := range sent {
		rates[i].Rate = units.Rate(float64(8*bytes) / apart.Seconds())
		rates[i].Share = units.Share(float64(bytes) / float64(max(all, 1)))
	}
	slices.SortStableFunc(rates, func(a, b ClientRate) int { return cmp.Compare(b.Rate, a.Rate) })
	return rates
}

// NamedClients are those that a rule is about alone, in the order of their addresses.
func NamedClients(all []ClientStats, rules []Client) (clients []ClientStats) {
	prefixes := map[netip.Prefix]bool{}
	for _, r := range rules {
		prefixes[r.Prefix.Masked()] = true
	}
	for _, c := range all {
		if prefixes[c.Client] {
			clients = append(clients, c)
		}
	}
	slices.SortFunc(clients, func(a, b ClientStats) int { return a.Client.Addr().Compare(b.Client.Addr()) })
	return clients
}

// Name is the client for a person: an address, a prefix of an IPv6 one, or NoIP.
func (c ClientStats) Name() string {
	switch {
	case c.Client.Addr().IsUnspecified():
		return NoIP
	case c.Client.IsSingleIP():
		return c.Client.Addr().String()
	}
	return c.Client.String()
}

// What bpf/shaper.h has agreed on with this file.
const (
	parts      = 63 // PARTS
	clockShift = 12 // CLOCK_SHIFT
)

// client is the client of an address, where so many bits of an IPv6 address are one.
func (a objectAddress) client(length int) netip.Prefix {
	whole := a.prefix(128)
	if whole.Addr().Is6() && !whole.Addr().IsUnspecified() {
		return netip.PrefixFrom(whole.Addr(), length)
	}
	return whole
}

// decode is an entry as of now, ns.
func (e objectEntry) decode(client netip.Prefix, now uint64) ClientStats {
	c := ClientStats{Client: client, Bytes: e.Bytes, Marks: e.Marks, Drops: e.Drops,
		Weight: e.Client.Weight}
	ahead := int64((e.Client.Word>>clockShift-now)<<clockShift) >> clockShift
	if e.Client.Cap != 0 {
		c.Limit = units.Rate(math.Round(8 * 1e9 * (1 << nsShift) / float64(e.Client.Cap)))
		ahead = max(ahead, int64(e.Client.CapClock-now))
	}
	if ahead > 0 {
		c.Wait = units.Duration(ahead)
	}
	return c
}
