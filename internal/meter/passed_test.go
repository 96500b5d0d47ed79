// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"reflect"
	"strings"
	"testing"
)

func TestParsePassed(t *testing.T) {
	const text = `Inter-|   Receive                                                |  Transmit
 face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier compressed
    lo: 1110 12 0 0 0 0 0 0 1110 12 0 0 0 0 0 0
  eth0:2876123456789 5 0 0 0 0 0 0 17 7 0 0 0 0 0 0
   bad: 1 2
`
	for device, want := range map[string]*Passed{"eth0": {"eth0", 2876123456789, 17}, "lo": {"lo", 1110, 1110},
		"bad": nil, "eth": nil} {
		if got := parsePassed([]byte(text), device); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v", device, got)
		}
	}
	if got := (&Passed{"a", 5, 9}).since(&Passed{"a", 3, 8}); *got != (Passed{"a", 2, 1}) {
		t.Errorf("%+v", got)
	}
	var none *Passed
	if none.since(&Passed{}) != nil || (&Passed{}).since(nil) != nil || (&Passed{}).since(&Passed{In: 1}) != nil {
		t.Error("something has passed that nobody saw")
	}
}

// What others send meanwhile is said; what the measurement itself sends, with headers, answers and what it sends again,
// is none.
func TestOthers(t *testing.T) {
	const mb = 1_000_000
	for name, c := range map[string]struct {
		phase   int
		in, out uint64
		again   int64 // that the sender sent in all
		want    string
	}{
		"idle, probes":   {0, mb / 20, mb / 20, 0, ""},
		"idle, a backup": {0, mb / 20, 5 * mb, 0, "idle: at least 8.00 Mbit/s of other traffic went out by eth0."},
		"download":       {1, 50 * mb, 2 * mb, 0, ""},
		"download, and more": {1, 87 * mb, 2 * mb, 0,
			"download: at least 27.4 Mbit/s of other traffic came in by eth0."},
		"upload":             {2, mb, 34 * mb, 0, ""},
		"upload, much again": {2, mb, 58 * mb, 55 * mb, ""},
		"upload, a download": {2, 20 * mb, 34 * mb, 0,
			"upload: at least 14.7 Mbit/s of other traffic came in by eth0."},
		"upload, and another": {2, mb, 48 * mb, 0, "upload: at least 10.2 Mbit/s of other traffic went out by eth0."},
	} {
		rec := recorded()
		rec.Spans[c.phase].Passed = &Passed{"eth0", c.in, c.out}
		if c.again > 0 {
			rec.Spans[2].Local[0].Sent = c.again
		}
		notes := strings.Join(Summarize(rec).Notes, " ")
		if c.want == "" && strings.Contains(notes, "other traffic") || !strings.Contains(notes, c.want) {
			t.Errorf("%s: %s", name, notes)
		}
	}
}
