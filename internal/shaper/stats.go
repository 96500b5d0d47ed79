// SPDX-License-Identifier: Apache-2.0

package shaper

import (
	"net/netip"

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
		ahead = max(ahead, int64(e.Client.CapClock-now))
	}
	if ahead > 0 {
		c.Wait = units.Duration(ahead)
	}
	return c
}
