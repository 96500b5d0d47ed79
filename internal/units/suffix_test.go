// SPDX-License-Identifier: Apache-2.0

package units

import (
	"strings"
	"testing"
	"time"
)

// Every suffix that tc knows is worth what it is worth there (iproute2 lib/utils.c, tc(8)).
func TestSuffixes(t *testing.T) {
	for text, want := range map[string]Rate{
		"3bit": 3, "3kbit": 3e3, "3mbit": 3e6, "3gbit": 3e9, "3tbit": 3e12, "3kibit": 3072, "3mibit": 3145728,
		"3gibit": 3221225472, "3tibit": 3298534883328, "3bps": 24, "3kbps": 24e3, "3mbps": 24e6, "3gbps": 24e9,
		"1tbps": 8e12, "3kibps": 24576, "3mibps": 25165824, "3gibps": 25769803776, "1tibps": 8796093022208,
	} {
		if got, err := ParseTCRate(text); err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
	for text, want := range map[string]Size{
		"3b": 3, "3k": 3072, "3kb": 3072, "3m": 3145728, "3mb": 3145728, "1g": 1073741824, "1gb": 1073741824,
		"8kbit": 1024, "8mbit": 1048576, "1gbit": 134217728,
	} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
	for text, want := range map[string]time.Duration{
		"3s": 3 * time.Second, "3ms": 3 * time.Millisecond, "3us": 3 * time.Microsecond, "3ns": 3,
		"3sec": 3 * time.Second, "3msec": 3 * time.Millisecond, "3usec": 3 * time.Microsecond, "3nsec": 3,
		"3secs": 3 * time.Second, "3msecs": 3 * time.Millisecond, "3usecs": 3 * time.Microsecond, "3nsecs": 3,
	} {
		if got, err := ParseDuration(text); err != nil || got != want {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
}

// Bytes a second are named as such, with the bits that were meant.
func TestBytesASecond(t *testing.T) {
	for text, want := range map[string]string{
		"50MB/s": "MB are bytes: 400mbit?", "2GB": "GB are bytes: 16gbit?", "1.5kB/s": "KB are bytes: 12kbit?",
	} {
		if _, err := ParseRate(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	for text, want := range map[string]string{
		"50mbps":  `"50mbps" can be bits or bytes a second: write 50mbit or 400mbit`,
		"1.5Gbps": "write 1.5gbit or 12gbit", "8bps": "write 8bit or 64bit", "2mibps": "write 2mibit or 16mibit",
		"50qbps": `unknown unit "qbps" (known: tbit, gbit, mbit, kbit, bit, tibit, gibit, mibit, kibit)`,
		"50mb":   "can be bits or bytes a second: write 50mbit or 400mbit", "50mb/s": "write 50mbit or 400mbit",
		"50M": `rate "50M" has half a unit: 50mbit?`, "1g": "1gbit?", "50m": "50mbit?",
		"1 Gbit/s (burst 10 Gbit/s)": `"1 Gbit/s (burst 10 Gbit/s)" is a rate and one for a while, 1gbit and 10gbit: ` +
			`the lower is the one to tell`,
		"150 Mbit/s guaranteed, 1 Gbit/s burst": `"150 Mbit/s guaranteed, 1 Gbit/s burst" is a rate and one for a ` +
			`while, 150mbit and 1gbit: the lower is the one to tell`,
		"1 Gbps port":       `"1 Gbps port" is not a rate: 1gbit?`,
		"Uplink: 100 Mbps":  `"Uplink: 100 Mbps" is not a rate: 100mbit?`,
		"10 Gbps @ 20TB":    `"10 Gbps @ 20TB" is not a rate: 10gbit?`,
		"1 GigE":            `"1 GigE" is not a rate: 1gbit?`,
		"-1mbit":            `rate "-1mbit" is negative`,
		"100 mb per second": `rate "100 mb/s" can be bits or bytes a second: write 100mbit or 800mbit`,
		"１00mbit":           `"１00mbit" has a digit that is none of 0 to 9: write it like 50mbit`,
		"1 Gbit/s / 50": `"1 Gbit/s / 50" is two rates: what arrives is usually the first, 1gbit, and what ` +
			`leaves the second, 50mbit`,
		"1G down, 50 up": `"1G down, 50 up" is two rates: what leaves is 50mbit, and what arrives 1gbit`,
		"2.5 Gbit/s / 1": `"2.5 Gbit/s / 1" is two rates: what arrives is usually the first, 2.5gbit, and what ` +
			`leaves the second, 1gbit`,
		"100/50": `"100/50" is two rates: what arrives is usually the first, 100mbit, and what leaves the ` +
			`second, 50mbit`,
		"1000/50mbit":    "the first, 1000mbit, and what leaves the second, 50mbit",
		"100Mbit/20Mbit": "the second, 20mbit", "99tbit": "out of range",
		"100 Mbps/40 Mbps":                       "the first, 100mbit, and what leaves the second, 40mbit",
		"1 Gbit/s down, 50 Mbit/s up":            "what leaves is 50mbit, and what arrives 1gbit",
		"100 Mbit/s download / 40 Mbit/s upload": "what leaves is 40mbit, and what arrives 100mbit",
		"upload 40 Mbit/s, download 100 Mbit/s":  "what leaves is 40mbit, and what arrives 100mbit",
		"down 1 Gbit/s up 50 Mbps":               "what leaves is 50mbit, and what arrives 1gbit",
		"40Mbit upload 100Mbit download":         "what leaves is 40mbit, and what arrives 100mbit",
		"1 Gbit/s (down) and 50 Mbit/s":          "what leaves is 50mbit, and what arrives 1gbit",
		"250 Mbit/s down, 40 up":                 "what leaves is 40mbit, and what arrives 250mbit",
		"1 Gbit/s down":                          "is what arrives, 1gbit; what leaves has a rate of its own",
		"between 50 Mbit/s and 100 Mbit/s":       "first, 50mbit, and what leaves the second, 100mbit",
		"50'000kbit":                             ": 50mbit?",
		"300 Mbps (up)":                          "bits or bytes a second: write 300mbit or 2400mbit",
		"300Mbps.":                               "write 300mbit or 2400mbit", "300mbit (up)": ": 300mbit?",
		"300 mbit up": ": 300mbit?",
		"250 MByte/s": "MByte are bytes: 2000mbit?", "250MBytes": "are bytes: 2000mbit?",
		"100 Mbit/s / 40 Mbit/s": "the second, 40mbit",
		// Each is read, or asked about, as it is alone.
		"1,000/50":                     "the first, 1000mbit or 1mbit, and what leaves the second, 50mbit",
		"1.000/50":                     "the first, 1000mbit or 1mbit, and what leaves the second, 50mbit",
		"1.000/0.500":                  "second, 0.5mbit",
		"1.000 Mbit/s / 50.000 kbit/s": "first, 1000mbit or 1mbit, and what leaves the second, 50000kbit or 50kbit",
		"1.000mbit/50mbit":             "first, 1mbit, and", "1.000/50mbit": "first, 1000mbit or 1mbit, and",
		"1,000": `rate "1,000" has no unit: write it like 1000mbit or 1mbit`, "1.000": "like 1000mbit or 1mbit",
		"1.000,5/50":       "first, 1000.5mbit, and",
		"100MB/s / 10MB/s": "first, 800mbit, and what leaves the second, 80mbit",
		"1,2,3/4":          "write it like 50mbit", "100/0": "write it like 50mbit",
		"1 000 Mbit/s": `"1 000 Mbit/s" is not a rate: 1gbit?`, "1'000/50": "the first, 1000mbit, and what leaves the",
		"1\u00a0000\u202f000 kbit/s": ": 1gbit?", "1 000": "has no unit",
		// A comma may be a decimal one, and what has three digits behind it thousands.
		"1,5mbit": `"1,5mbit" is not a rate: 1.5mbit?`, "16,7 Mbit/s": "16.7mbit?", "0,500 Mbit/s": ": 0.5mbit?",
		"1,5 Mbps": "write 1.5mbit or 12mbit", "up to 16,7 Mbit/s": ": 16.7mbit?", "1,000Mbit": ": 1000mbit or 1mbit?",
		"1.000 Mbit/s": `"1.000 Mbit/s" is not a rate: 1000mbit or 1mbit?`, "6.000 kbit/s": "6000kbit or 6kbit?",
		"1.250Mb/s": "1250mbit or 1.25mbit?", "about 1.000 Mbit/s": "1000mbit or 1mbit?", "1.500 Tbit/s": ": 1.5tbit?",
		"1.000,5 Mbit/s": ": 1000.5mbit?", "1,000.5 Mbit/s": ": 1000.5mbit?", "1.000.000 kbit/s": ": 1000000kbit?",
		"1,2,3mbit": "write it like 50mbit",
		// What has no suggestion, or one that is refused itself.
		"50Mo/s": `rate "50Mo/s": Mo are bytes: 400mbit?`, "20 TB": "TB are bytes, and so it is out of range",
		"2.5GbE": `"2.5GbE" is not a rate: 2.5gbit?`, "10GE": "10gbit?", "1gig": "1gbit?", "500 megabit": "500mbit?",
		"500 Megabits per second": "500mbit?", "up to 1gbit": "1gbit?", "max. 2.5 Gbit/s": "2.5gbit?",
		"50 megs": "50mbit?", "1 gigabit/s": "1gbit?", "about 3": "write it like 50mbit",
		"100/": `unknown unit "/"`, "50mbit/x": `unknown unit "mbit/x"`,
	} {
		if _, err := ParseRate(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	// As providers write them.
	for text, want := range map[string]Rate{"50Mbit/s": 50e6, "1gbit/s": 1e9, "50 mbit": 50e6, "2.5 Gbit/s": 25e8,
		"50Mbit/sec": 50e6, "50Mb/sec": 50e6, "50 Mbits/sec": 50e6, "1.000mbit": 1e6, "1.000Mbit": 1e6,
		"0.500 Mbit/s": 5e5,
		"100Mb/s":      100e6, "1000Mb": 1e9, "1Gb": 1e9, "100 Mbits/s": 100e6, "512 kBit/s": 512e3, "512Kb": 512e3} {
		if got, err := ParseRate(text); err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"xMB/s", "b", "B/s"} {
		if _, err := ParseRate(text); err == nil || strings.Contains(err.Error(), "are bytes") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
