// SPDX-License-Identifier: Apache-2.0

package units

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func TestParseAndFormat(t *testing.T) {
	for in, want := range map[string]string{"50mbit": "50mbit", "49875kbit": "49.875mbit", "1Gbit": "1gbit",
		"0.5mbit": "500kbit", "7bit": "7bit",
		// As tc(8) has them: decimal and binary bits, and bytes per second.
		"1tbit": "1tbit", "1kibit": "1.024kbit", "1mibit": "1.048576mbit", "1gibit": "1.073741824gbit",
		"1tibit": "1.099511627776tbit",
		"8bps":   "64bit", "1kbps": "8kbit", "50mbps": "400mbit", "1GBps": "8gbit", "1tbps": "8tbit",
		"1kibps": "8.192kbit", "1mibps": "8.388608mbit", "1gibps": "8.589934592gbit"} {
		if r, err := ParseTCRate(in); err != nil || r.String() != want {
			t.Errorf("ParseTCRate(%q) = %v, %v; want %s", in, r, err, want)
		}
	}
	for in, want := range map[string]string{"64kb": "64kb", "64k": "64kb", "3000b": "3000b", "1mb": "1mb", "0b": "0b",
		"8kbit": "1kb", "1mbit": "128kb", "1gbit": "128mb"} {
		if s, err := ParseSize(in); err != nil || s.String() != want {
			t.Errorf("ParseSize(%q) = %v, %v; want %s", in, s, err, want)
		}
	}
	for in, want := range map[string]string{"48.3ms": "48.3ms", "0.2s": "200ms", "15us": "15us", "0s": "0s",
		"90s":  "90s",
		"1sec": "1s", "2secs": "2s", "3msec": "3ms", "48.3msecs": "48.3ms", "5usec": "5us", "6usecs": "6us",
		"7nsec": "7ns", "8nsecs": "8ns"} {
		if d, err := ParseDuration(in); err != nil || Duration(d).String() != want {
			t.Errorf("ParseDuration(%q) = %v, %v; want %s", in, d, err, want)
		}
	}
	for in, want := range map[string]string{"10%": "10%", "0.1%": "0.1%", "100%": "100%", "99.75%": "99.75%",
		"0%": "0%", "0.5%": "0.5%", "12.345679%": "12.345679%", "0.000001%": "0.000001%",
		"1e-6%": "0.000001%", "12.50000000%": "12.5%"} {
		if s, err := ParseShare(in); err != nil || s.String() != want {
			t.Errorf("ParseShare(%q) = %v, %v; want %s", in, s, err, want)
		}
	}
}

func TestRefused(t *testing.T) {
	for _, in := range []string{"", "50", "mbit", "0mbit", "-1mbit", "NaNmbit", "Infmbit", "50 0mbit", "50mb", "50mbps",
		"6KBps", "1e99gbit", "0x10mbit", "50ms", "20tbit"} {
		if r, err := ParseRate(in); err == nil {
			t.Errorf("ParseRate(%q) = %v, want an error", in, r)
		}
	}
	for _, in := range []string{"", "48.3", "-1ms", "NaNs", "48.3min", "10mbit", "1e9s", "ms"} {
		if d, err := ParseDuration(in); err == nil {
			t.Errorf("ParseDuration(%q) = %v, want an error", in, d)
		}
	}
	for _, in := range []string{"10", "101%", "-1%", "NaN%", "%", "100.000001%", "12.3456789%", "0.0000001%"} {
		if s, err := ParseShare(in); err == nil {
			t.Errorf("ParseShare(%q) = %v, want an error", in, s)
		}
	}
}

// Every share that can be written down reads back as itself, and a refusal says how to write one that can.
func TestShares(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for range 100000 {
		millionths := random.Uint64N(100e6 + 1) // of a percent
		text := fmt.Sprintf("%d.%06d%%", millionths/1e6, millionths%1e6)
		s, err := ParseShare(text)
		want := strings.TrimRight(strings.TrimRight(strings.TrimSuffix(text, "%"), "0"), ".") + "%"
		if err != nil || s.String() != want {
			t.Fatalf("ParseShare(%q) = %s, %v; want %s", text, s, err, want)
		}
		if back, err := ParseShare(s.String()); err != nil || back != s {
			t.Fatalf("%s reads back as %v, %v; want %v", s, float64(back), err, float64(s))
		}
	}
	_, err := ParseShare("12.3456789%")
	if want := `share "12.3456789%" is finer than 0.000001%: write it like 12.345679%`; err == nil ||
		err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if s := Share(1. / 3).String(); s != "33.333333%" {
		t.Errorf("a third is %s", s)
	}
}

// Whatever is accepted is finite, and reads back as itself: what a plan prints can be typed in again.
func FuzzUnits(f *testing.F) {
	for _, s := range []string{"50mbit", "48.3ms", "64kb", "10%", "1e3kbit", "NaN%", "-0s", "12.3456789%", "33.333333%",
		"0.0000001%", "29%", "1e-6%"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if r, err := ParseRate(s); err == nil {
			if back, err := ParseRate(r.String()); err != nil || back != r {
				t.Errorf("rate %q → %s → %v %v", s, r, back, err)
			}
		}
		if d, err := ParseDuration(s); err == nil {
			if back, err := ParseDuration(Duration(d).String()); err != nil || back != d || d > 24*time.Hour {
				t.Errorf("time %q → %s → %v %v", s, Duration(d), back, err)
			}
		}
		if z, err := ParseSize(s); err == nil {
			if back, err := ParseSize(z.String()); err != nil || back != z {
				t.Errorf("size %q → %s → %v %v", s, z, back, err)
			}
		}
		if p, err := ParseShare(s); err == nil {
			if back, err := ParseShare(p.String()); err != nil || back != p || p < 0 || p > 1 {
				t.Errorf("share %q → %s → %v %v", s, p, back, err)
			}
		}
	})
}
