// SPDX-License-Identifier: Apache-2.0

package bbr

import (
	"bytes"
	"encoding/binary"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"weir/internal/units"
)

// known is a record of this version's.
func known(change func(*showShown)) []byte {
	x := showShown{Family: unix.AF_INET, LocalPort: 443, RemotePort: 50000, Rate: 1.5e6, Most: 1.6e6, Pacing: 1.485e6,
		Srtt: 53100, MinRtt: 48300, Mss: 1448, Cwnd: 70, Flight: 61, Hi: 120, Lo: math.MaxUint32, Queue: 18,
		Aim: 255, Tolerate: 10, State: 3}
	copy(x.Local[:], []byte{192, 0, 2, 1})
	copy(x.Remote[:], []byte{198, 51, 100, 7})
	copy(x.Map[:], prefix+Version())
	if change != nil {
		change(&x)
	}
	var b bytes.Buffer
	_ = binary.Write(&b, binary.NativeEndian, x)
	return b.Bytes()
}

func TestParse(t *testing.T) {
	local, remote := netip.MustParseAddrPort("192.0.2.1:443"), netip.MustParseAddrPort("198.51.100.7:50000")
	ms := func(ms float64) units.Duration { return units.Duration(ms * 1e6) }
	model := Model{State: "CRUISE", Rate: 12e6, MaxRate: 12.8e6, Pacing: 11.88e6, SRTT: ms(53.1), MinRTT: ms(48.3),
		MSS: 1448, Cwnd: 70, InFlight: 61, LongBound: 120, QueueAim: 4.5, Loss: 10.0 / 1024}
	marked := model
	marked.State, marked.Marked, marked.OthersQueue = "UP", true, true
	mapped := netip.MustParseAddrPort("192.0.2.1:443")
	for what, c := range map[string]struct {
		text []byte
		want []Connection
	}{
		"none": {},
		"two": {slices.Concat(known(nil), known(func(x *showShown) {
			x.State, x.Held, x.Aim = 5, 1, 89
		})), []Connection{{local, remote, Version(), &model}, {local, remote, Version(), &marked}}},
		"another version": {known(func(x *showShown) { copy(x.Map[:], prefix+"0123abcd"); x.State = 99 }),
			[]Connection{{local, remote, "0123abcd", nil}}},
		"somebody else's": {known(func(x *showShown) { copy(x.Map[:], "bpf_bbr\x00") }),
			[]Connection{{local, remote, "", nil}}},
		"IPv4 in IPv6": {known(func(x *showShown) {
			x.Family, x.Local = unix.AF_INET6, [16]byte{10: 255, 255, 192, 0, 2, 1}
			x.Remote, x.RemotePort = x.Local, 443
			copy(x.Map[:], "other\x00")
		}), []Connection{{mapped, mapped, "", nil}}},
	} {
		got, err := parse(c.text)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v\n got %+v\nwant %+v", what, err, got, c.want)
		}
	}
	for what, text := range map[string][]byte{
		"cut short":        known(nil)[:100],
		"a second one cut": slices.Concat(known(nil), known(nil)[:1]),
		"no such state":    known(func(x *showShown) { x.State = 7 }),
	} {
		if got, err := parse(text); err == nil {
			t.Errorf("%s is taken for %+v", what, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(known(nil))
	f.Fuzz(func(t *testing.T, text []byte) {
		if all, err := parse(text); err == nil && len(all) != len(text)/binary.Size(showShown{}) {
			t.Errorf("%d of %d bytes", len(all), len(text))
		}
	})
}
