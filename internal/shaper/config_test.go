// SPDX-License-Identifier: Apache-2.0

package shaper

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"weir/internal/units"
)

func valid(change func(*Config)) Config {
	c := Defaults()
	c.Rate = 100_000_000
	if change != nil {
		change(&c)
	}
	return c
}

// TestConfig: what a program has been told is read back from it.
func TestConfig(t *testing.T) {
	for _, c := range []Config{
		valid(nil),
		valid(func(c *Config) { c.Rate, c.Share, c.BySource, c.Prefix6 = 10_000_000_000, 0.95, true, 56 }),
		valid(func(c *Config) { c.ATM, c.Overhead, c.MPU = "atm", -4, 64 }),
		valid(func(c *Config) { c.Prefix6 = 128 }),
	} {
		if err := c.Check(); err != nil {
			t.Error(err)
		}
		if got := c.encode(14, 1).decode(); !reflect.DeepEqual(got, c) {
			t.Errorf("%+v became %+v", c, got)
		}
	}
	for _, client := range []Client{
		{netip.MustParsePrefix("10.8.0.7/32"), 20_000_000, 1},
		{netip.MustParsePrefix("10.8.0.0/24"), 0, 2},
		{netip.MustParsePrefix("0.0.0.0/0"), 50_000_000, 1},
		{netip.MustParsePrefix("2001:db8:1:2::/64"), 5_000_000, 64},
		{netip.MustParsePrefix("::/0"), 50_000_000, 1},
	} {
		if got := decodeClient(client.encode()); got != client {
			t.Errorf("%v became %v", client, got)
		}
	}
}

// TestCheck: what is out of range is refused by name.
func TestCheck(t *testing.T) {
	for word, c := range map[string]Config{
		"rate 100kbit":   valid(func(c *Config) { c.Rate = 100_000 }),
		"rate 1tbit":     valid(func(c *Config) { c.Rate = 1_000_000_000_000 }),
		"share 40%":      valid(func(c *Config) { c.Share = 0.4 }),
		"prefix6 129":    valid(func(c *Config) { c.Prefix6 = 129 }),
		"overhead":       valid(func(c *Config) { c.Overhead = 300 }),
		"mpu":            valid(func(c *Config) { c.MPU = 300 }),
		`framing "aal5"`: valid(func(c *Config) { c.ATM = "aal5" }),
		"no address":     valid(func(c *Config) { c.Clients = []Client{{Weight: 1}} }),
		"10.8.0.7/32: weight 0": valid(func(c *Config) {
			c.Clients = []Client{{Prefix: netip.MustParsePrefix("10.8.0.7/32")}}
		}),
		"fd00::7/128: of IPv6 a client is 64 bits": valid(func(c *Config) {
			c.Clients = []Client{{Prefix: netip.MustParsePrefix("fd00::7/128"), Weight: 1}}
		}),
		"10.8.0.7/32: rate 1kbit": valid(func(c *Config) {
			c.Clients = []Client{{Prefix: netip.MustParsePrefix("10.8.0.7/32"), Rate: 1000, Weight: 1}}
		}),
	} {
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v", word, err)
		}
	}
}

// TestParams: whatever the rate, a slot has some packets, no number is zero, and no product of the program overflows.
func TestParams(t *testing.T) {
	for rate := minRate; rate <= maxRate; rate += rate / 7 {
		p := valid(func(c *Config) { c.Rate = rate }).encode(0, 0).Params
		slot := uint64(1) << p.SlotShift
		if rate > 25_000_000 && p.SlotBytes < 1000 || p.NsPerByte == 0 || p.SettleSlots == 0 {
			t.Errorf("%v: %+v", rate, p)
		}
		if p.Limit <= 2*p.Target || p.Limit >= horizon*slot {
			t.Errorf("%v: a limit of %d ns in slots of %d", rate, p.Limit, slot)
		}
		const superpacket = 512 << 10 // bytes: of BIG TCP, that nobody has
		if most := float64(superpacket) * float64(p.NsPerByte); most >= 1<<63 {
			t.Errorf("%v: %d bytes take %g", rate, superpacket, most)
		}
		sent := units.Rate(p.SlotBytes * 1_000_000_000 / slot * 8)
		if float64(sent) < 0.95*float64(rate) || sent > rate {
			t.Errorf("%v: slots send %v", rate, sent)
		}
	}
}
