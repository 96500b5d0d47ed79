// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"net/netip"
	"testing"
	"time"
)

// Only the router's own answer to a request that is under way counts, and only once.
func TestPingAnswers(t *testing.T) {
	router := netip.MustParseAddr("192.0.2.254")
	for name, c := range map[string]struct {
		change func(b []byte) []byte
		from   string
		want   bool
	}{
		"the answer":              {nil, "192.0.2.254", true},
		"as IPv6 writes it":       {nil, "::ffff:192.0.2.254", true},
		"from another host":       {nil, "192.0.2.253", false},
		"a request":               {func(b []byte) []byte { b[0] = echo; return b }, "192.0.2.254", false},
		"a code":                  {func(b []byte) []byte { b[1] = 1; return b }, "192.0.2.254", false},
		"another secret":          {func(b []byte) []byte { b[15]++; return b }, "192.0.2.254", false},
		"a request never sent":    {func(b []byte) []byte { b[7] = 2; return b }, "192.0.2.254", false},
		"nothing":                 {func([]byte) []byte { return nil }, "192.0.2.254", false},
		"a header alone":          {func(b []byte) []byte { return b[:8] }, "192.0.2.254", false},
		"more than was asked for": {func(b []byte) []byte { return append(b, 0) }, "192.0.2.254", false},
	} {
		now := time.Unix(1_800_000_000, 0)
		p := &pinger{Probes: &Probes{sent: []time.Time{now, now}, samples: []Sample{{RTT: -1}, {RTT: -1}}},
			gateway: router, secret: [8]byte{1, 2, 3}}
		b := p.request(1)
		b[0] = echoReply
		if c.change != nil {
			b = c.change(b)
		}
		p.note(b, netip.MustParseAddr(c.from), now.Add(3*time.Millisecond))
		p.note(b, netip.MustParseAddr(c.from), now.Add(9*time.Millisecond))
		if p.samples[0].RTT != -1 || (p.samples[1].RTT == 3) != c.want || !c.want && p.samples[1].RTT != -1 {
			t.Errorf("%s: %+v", name, p.samples)
		}
	}
}
