// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/mdlayher/netlink"
	"github.com/mdlayher/netlink/nltest"
	"golang.org/x/sys/unix"
)

// The request is what ip stats show dev … group link sends; an answer that is cut off is an error, and no counter of 0.
func TestReceived(t *testing.T) {
	counters := slices.Concat(u64bytes(1000), u64bytes(7), u64bytes(1<<40), u64bytes(9), make([]byte, 21*8))
	answer := func(data []byte) []byte {
		return append(make([]byte, 12), pack(netlink.Attribute{Type: unix.IFLA_STATS_LINK_64, Data: data})...)
	}
	for name, c := range map[string]struct {
		typ  netlink.HeaderType
		data []byte
		ok   bool
	}{
		"whole":                     {unix.RTM_NEWSTATS, answer(counters), true},
		"of an older kernel":        {unix.RTM_NEWSTATS, answer(counters[:24]), true},
		"cut off in the counters":   {unix.RTM_NEWSTATS, answer(counters[:23]), false},
		"cut off in the attribute":  {unix.RTM_NEWSTATS, answer(counters)[:40], false},
		"without counters":          {unix.RTM_NEWSTATS, make([]byte, 12), false},
		"cut off in its own header": {unix.RTM_NEWSTATS, make([]byte, 11), false},
		"to something else":         {unix.RTM_NEWLINK, answer(counters), false},
	} {
		var asked []netlink.Message
		conn := &Conn{nl: nltest.Dial(func(requests []netlink.Message) ([]netlink.Message, error) {
			asked = append(asked, requests...)
			return []netlink.Message{{Header: netlink.Header{Type: c.typ, Sequence: requests[0].Header.Sequence,
				PID: requests[0].Header.PID}, Data: c.data}}, nil
		}), bpf: noBPF{}, shaper: noShaper{}}
		got, err := conn.Received(0x0102)
		if want := (Received{Packets: 1000, Bytes: 1 << 40}); (err == nil) != c.ok || c.ok && got != want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		want := []byte{0, 0, 0, 0, 2, 1, 0, 0, 1, 0, 0, 0}
		if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
			want = []byte{0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 1}
		}
		if len(asked) != 1 || asked[0].Header.Type != unix.RTM_GETSTATS || !bytes.Equal(asked[0].Data, want) ||
			asked[0].Header.Flags&netlink.Dump != 0 {
			t.Errorf("%s: it asks %+v", name, asked)
		}
		_ = conn.Close()
	}
}
