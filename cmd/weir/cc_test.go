// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"time"

	"weir/internal/bbr"
	"weir/internal/change"
	"weir/internal/units"
)

func TestPrintConnections(t *testing.T) {
	ms := func(n float64) units.Duration { return units.Duration(n * float64(time.Millisecond)) }
	peer := func(text string) bbr.Connection { return bbr.Connection{Remote: netip.MustParseAddrPort(text)} }
	fast, held, older := peer("198.51.100.7:50000"), peer("[2001:db8::7]:50001"), peer("192.0.2.9:50002")
	fast.Model = &bbr.Model{State: "CRUISE", Rate: 12e6, MaxRate: 12.8e6, MinRTT: ms(48.3), SRTT: ms(53.1), Cwnd: 70,
		InFlight: 61, QueueAim: 4.5}
	held.Model = &bbr.Model{State: "PROBE_RTT", Rate: 120e6, MaxRate: 128e6, MinRTT: ms(1.5), SRTT: ms(201), Cwnd: 700,
		InFlight: 610, LongBound: 1200, ShortBound: 900, QueueAim: 12, Loss: 0.01, OthersQueue: true}
	older.Version = "0123abcd"
	for what, c := range map[string]struct {
		connections []bbr.Connection
		want        string
	}{
		"none": {nil, "No connection here has bpf_bbr. New ones have it after:  sudo weir up --cc bpf_bbr\n"},
		"three": {[]bbr.Connection{fast, held, older}, `
peer                 state        rate     max min RTT     RTT   cwnd flight     hi     lo  queue    loss
198.51.100.7:50000   CRUISE       12.0    12.8    48.3    53.1     70     61      -      -   4.50   0.0 %
[2001:db8::7]:50001  PROBE_RTT     120     128    1.50     201    700    610   1200    900   12.0   1.0 %  NOTE
rate, max: Mbit/s; RTTs: ms; cwnd to queue: packets.  weir cc show --help explains them
Besides: 1 connection with another version, which this weir cannot read.
`[1:]},
		"older alone": {[]bbr.Connection{older},
			"Only 1 connection with another version of bpf_bbr, which this weir cannot read.\n"},
	} {
		var b bytes.Buffer
		printConnections(&b, c.connections)
		if want := strings.ReplaceAll(c.want, "NOTE", "others fill the queue"); b.String() != want {
			t.Errorf("%s:\n%s", what, b.String())
		}
	}
}

func TestPrintControlUse(t *testing.T) {
	for what, c := range map[string]struct {
		use  *change.ControlUse
		want string
	}{
		"not asked": {},
		"nobody":    {&change.ControlUse{}, "0 connections with bpf_bbr. See:  weir cc show\n"},
		"older ones": {&change.ControlUse{Connections: map[string]int{bbr.Version(): 3, "0123abcd": 2},
			Namespaces: []string{"web"}},
			"5 connections with bpf_bbr, 2 of them with another version until they end. See:\nweir cc show\n" +
				"New connections have it in 1 other network namespace, too: web.\n"},
	} {
		var b bytes.Buffer
		printControlUse(&b, c.use)
		if b.String() != c.want {
			t.Errorf("%s:\n%s", what, b.String())
		}
	}
}
