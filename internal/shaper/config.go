// SPDX-License-Identifier: Apache-2.0

package shaper

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"net"
	"net/netip"
	"slices"
	"time"

	"weir/internal/bpf"
	"weir/internal/units"
)

// Config is what a shaper is told.
type Config struct {
	Rate  units.Rate  `json:"rate"`  // that the clients share, on the wire; 1mbit to 200gbit
	Share units.Share `json:"share"` // of the rate that is sent, 50% to 100%; default 99%

	// A client is the source of a packet, as of what comes in through an ifb, and not the destination.
	BySource bool `json:"by_source"`
	Prefix6  int  `json:"prefix6"` // bits of an IPv6 address that are a client, 1 to 128; default 64

	// What a packet takes on the wire, as tc-cake(8) has it.
	ATM      string `json:"atm"`      // noatm (the default), atm, ptm
	Overhead int32  `json:"overhead"` // bytes added to each packet, -64 to 256
	// counts the device's own header, whatever Overhead is; the default
	Raw bool   `json:"raw"`
	MPU uint32 `json:"mpu"` // bytes that a packet counts for at least, 0 to 256

	// Clients whose weight or rate is not the default: the longest prefix that a client is in counts, and each client
	// in it has that weight and that rate for itself.
	Clients []Client `json:"clients"`
}

// Client is a rule for clients in a prefix.
type Client struct {
	Prefix netip.Prefix `json:"prefix"`
	Rate   units.Rate   `json:"rate"`   // that each may not exceed; 0: none
	Weight uint32       `json:"weight"` // of its share, 1 to MaxWeight; default 1
}

// MaxWeight is the largest Weight (MAX_WEIGHT in bpf/shaper.h).
const MaxWeight = 64

// maxClients is the most rules (MAX_POLICIES in bpf/shaper.bpf.c).
const maxClients = 1 << 16

// Defaults are those of a Config, which has no rate.
func Defaults() Config { return Config{Share: 0.99, Prefix6: 64, ATM: bpf.Framings()[0], Raw: true} }

// Check reports what is out of range.
func (c Config) Check() error {
	switch {
	case c.Rate < minRate || c.Rate > maxRate:
		return fmt.Errorf("rate %v is out of range (%v to %v)", c.Rate, minRate, maxRate)
	case c.Share < 0.5 || c.Share > 1:
		return fmt.Errorf("share %v is out of range (50%% to 100%%)", c.Share)
	case c.Prefix6 < 1 || c.Prefix6 > 128:
		return fmt.Errorf("prefix6 %d is out of range (1 to 128 bits)", c.Prefix6)
	case c.Overhead < -64 || c.Overhead > 256:
		return errors.New("overhead is out of range (-64 to 256 bytes)")
	case c.MPU > 256:
		return errors.New("mpu is out of range (0 to 256 bytes)")
	case !slices.Contains(bpf.Framings(), c.ATM):
		return fmt.Errorf("framing %q is not known", c.ATM)
	case len(c.Clients) > maxClients:
		return fmt.Errorf("%d clients are too many (up to %d)", len(c.Clients), maxClients)
	}
	for _, client := range c.Clients {
		switch {
		case !client.Prefix.IsValid():
			return errors.New("a client has no address")
		case client.Prefix.Addr().Is6() && client.Prefix.Bits() > c.Prefix6:
			return fmt.Errorf("client %v: of IPv6 a client is %d bits of an address here: write it so, or prefix6 %d",
				client.Prefix, c.Prefix6, client.Prefix.Bits())
		case client.Weight < 1 || client.Weight > MaxWeight:
			return fmt.Errorf("client %v: weight %d is out of range (1 to %d)", client.Prefix, client.Weight, MaxWeight)
		case client.Rate != 0 && client.Rate < minClientRate:
			return fmt.Errorf("client %v: rate %v is below %v", client.Prefix, client.Rate, minClientRate)
		}
	}
	return nil
}

const (
	minRate       units.Rate = 1_000_000
	maxRate       units.Rate = 200_000_000_000
	minClientRate units.Rate = 100_000 // a full frame in 120 ms, which is the most that one may wait
)

// What bpf/shaper.h has agreed on with this file.
const (
	nsShift = 20   // NS_SHIFT
	horizon = 1023 // HORIZON
)

// The time constants of the two controllers, and the delays: target is CoDel's (RFC 8289, section 4.4).
const (
	// A slot that lacks all of its bytes adds slot/trimTime to the rate. That is more than what packets wait for, as
	// it takes that long until more is sent: with 30 ms the rate of a thousand clients swings.
	trimTime   = 120 * time.Millisecond
	settleTime = 64 * time.Millisecond
	target     = 5 * time.Millisecond
	limit      = 100 * time.Millisecond
)

// encode is c for a device whose packets have a link header of so many bytes; each generation has rules of its own.
func (c Config) encode(header, generation uint32) objectConfig {
	o := objectConfig{LinkHeader: header, Generation: generation, Rate: uint64(c.Rate),
		Share: uint32(math.Round(float64(c.Share) * shareUnits))}
	p, rate := &o.Params, float64(c.Rate)*float64(c.Share)
	p.SlotShift = slotShift(c.Rate)
	slot := uint64(1) << p.SlotShift // ns
	p.NsPerByte = nsPerByte(rate)
	p.SlotBytes = max(uint64(rate/8*float64(slot)/1e9), 1)
	p.TrimGain = slot << 40 / (uint64(trimTime) * p.SlotBytes)
	p.SettleSlots = uint64(settleTime)/slot + 1
	p.Target = uint64(target)
	p.Limit = min(uint64(limit), horizon*slot*3/4) // no clock gets to the horizon but by one packet
	o.Framing.Overhead, o.Framing.Mpu = c.Overhead, c.MPU
	if c.Raw {
		o.Raw = 1
	} else {
		o.Framing.Overhead -= int32(header)
	}
	o.Framing.Cells = uint32(slices.Index(bpf.Framings(), c.ATM))
	if c.BySource {
		o.BySource = 1
	}
	mask := net.CIDRMask(c.Prefix6, 128)
	for i := range o.Mask6 {
		o.Mask6[i] = binary.NativeEndian.Uint32(mask[4*i:])
	}
	return o
}

// current is the one in force.
func (c objectConfigs) current() objectConfig { return c.Slot[c.Active&1] }

// decode is what encode was given, but for the clients.
func (o objectConfig) decode() Config {
	c := Config{Rate: units.Rate(o.Rate), Share: units.Share(float64(o.Share) / shareUnits), BySource: o.BySource != 0,
		Overhead: o.Framing.Overhead, MPU: o.Framing.Mpu, Raw: o.Raw != 0}
	if !c.Raw {
		c.Overhead += int32(o.LinkHeader)
	}
	for _, word := range o.Mask6 {
		c.Prefix6 += bits.OnesCount32(word)
	}
	if int(o.Framing.Cells) < len(bpf.Framings()) {
		c.ATM = bpf.Framings()[o.Framing.Cells]
	}
	return c
}

const shareUnits = 1e6

// nsPerByte is the time for each byte at a rate, as the program has it.
func nsPerByte(rate float64) uint64 { return uint64(8 * 1e9 * (1 << nsShift) / rate) }

// slotShift is the length of a slot as a power of 2, in ns: some ten full frames or more, and not more often than a CPU
// has time for.
func slotShift(rate units.Rate) uint32 {
	const megabit = 1_000_000
	switch {
	case rate < 400*megabit:
		return 19
	case rate < 5000*megabit:
		return 18
	case rate < 20000*megabit:
		return 16
	}
	return 15
}

// segments is the most of a superpacket where the device takes so many: times of departure are final, so one that takes
// the link for long makes all others wait in the provider's queue.
func (c Config) segments(most uint32) uint32 {
	return min(max(uint32(float64(c.Rate)/8*longestBurst.Seconds()/fullFrame), 2), most)
}

const (
	longestBurst = 250 * time.Microsecond
	fullFrame    = 1514 // bytes
)

// encode is the rule as the program finds it: its prefix, with IPv4 as ::ffff:0:0/96, and what it says.
func (c Client) encode() (key objectPrefix, rule objectPolicy) {
	length := c.Prefix.Bits()
	if c.Prefix.Addr().Is4() {
		length += 96
	}
	key.Length = uint32(length)
	address := c.Prefix.Masked().Addr().As16()
	for i := range key.Address.Word {
		key.Address.Word[i] = binary.NativeEndian.Uint32(address[4*i:])
	}
	rule.Weight, rule.Rate = c.Weight, uint64(c.Rate)
	if c.Rate != 0 {
		rule.Cap = nsPerByte(float64(c.Rate))
	}
	return key, rule
}

// decodeClient is what encode was given.
func decodeClient(key objectPrefix, rule objectPolicy) Client {
	return Client{Prefix: key.Address.prefix(int(key.Length)), Rate: units.Rate(rule.Rate), Weight: rule.Weight}
}

// prefix has so many bits of the address.
func (a objectAddress) prefix(length int) netip.Prefix {
	var bytes [16]byte
	for i, word := range a.Word {
		binary.NativeEndian.PutUint32(bytes[4*i:], word)
	}
	address := netip.AddrFrom16(bytes)
	if address.Is4In6() && length >= 96 {
		return netip.PrefixFrom(address.Unmap(), length-96)
	}
	return netip.PrefixFrom(address, length)
}
