// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/mdlayher/netlink"
)

// A delay that varies is refused, wherever the kernel reports by how much; one that does not is put back.
func TestNetemRestorable(t *testing.T) {
	wide := func(typ uint16, length, at int, value uint64) netlink.Attribute {
		b := make([]byte, length)
		binary.NativeEndian.PutUint64(b[at:], value)
		return netlink.Attribute{Type: typ, Data: b}
	}
	jitter := func(value uint64) netlink.Attribute { return wide(netemJitter64, 8, 0, value) }
	slot := func(at int, value uint64) netlink.Attribute { return wide(netemSlot, 40, at, value) }
	const minDelay, slotJitter = 0, 32 // offsets in struct tc_netem_slot
	for what, c := range map[string]struct {
		short      uint32 // the jitter in struct tc_netem_qopt
		attributes []netlink.Attribute
		varies     bool
	}{
		"nothing":                       {},
		"a jitter":                      {5, nil, true},
		"a jitter, and 64 bits of none": {5, []netlink.Attribute{jitter(0)}, true},
		"64 bits of a jitter":           {0, []netlink.Attribute{jitter(5)}, true},
		"64 bits, and fixed slots":      {0, []netlink.Attribute{jitter(5), slot(minDelay, 7)}, true},
		"64 bits of none":               {0, []netlink.Attribute{jitter(0)}, false},
		"slots that vary":               {0, []netlink.Attribute{slot(slotJitter, 7)}, true},
		"slots that do not":             {0, []netlink.Attribute{slot(minDelay, 7)}, false},
	} {
		options := make([]byte, netemLen)
		binary.NativeEndian.PutUint32(options[20:], c.short)
		more, err := netlink.MarshalAttributes(c.attributes)
		if err != nil {
			t.Fatal(err)
		}
		if err := netemRestorable(append(options, more...)); (err != nil) != c.varies {
			t.Errorf("%s: %v", what, err)
		}
	}
	if netemRestorable(make([]byte, netemLen-1)) == nil {
		t.Error("options that are too short are put back")
	}
}

// The kernel reports codel's times rounded down: what is sent again is the least that it reports so. The rest is as it
// was.
func TestReplayedTimes(t *testing.T) {
	const reported, sent = 4999, 5000 // us
	for kind, times := range map[string][]uint16{
		"codel":    {codelTarget, codelInterval, codelCEThreshold},
		"fq_codel": {fqCodelTarget, fqCodelInterval, fqCodelCEThreshold},
	} {
		for typ := uint16(1); typ < 12; typ++ {
			number := func(us uint32) []byte {
				b, err := netlink.MarshalAttributes([]netlink.Attribute{{Type: typ,
					Data: binary.NativeEndian.AppendUint32(nil, us)}})
				if err != nil {
					t.Fatal(err)
				}
				return b
			}
			want := number(reported)
			if slices.Contains(times, typ) {
				want = number(sent)
			}
			if got := replayable(kind, number(reported)); !bytes.Equal(got, want) {
				t.Errorf("%s: attribute %d is sent as %x, want %x", kind, typ, got, want)
			}
		}
	}
}
