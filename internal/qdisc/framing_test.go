// SPDX-License-Identifier: Apache-2.0

package qdisc

import "testing"

func TestFraming(t *testing.T) {
	for text, want := range map[string]struct {
		f     Framing
		text  string
		more  int
		bytes map[int]float64 // of an IP packet → on the wire
	}{
		"38":                  {Framing{38, "noatm", 0, false}, "38", 24, map[int]float64{1500: 1538, 20: 58}},
		"-4":                  {Framing{-4, "noatm", 0, false}, "-4", -18, map[int]float64{1500: 1496}},
		"overhead 18":         {Framing{18, "noatm", 0, false}, "18", 4, map[int]float64{1500: 1518}},
		"ethernet":            {Framing{38, "noatm", 84, false}, "38 mpu 84", 24, map[int]float64{1500: 1538, 20: 84}},
		"ethernet ether-vlan": {Framing{42, "noatm", 84, false}, "42 mpu 84", 28, map[int]float64{1500: 1542}},
		"raw":                 {AsHanded(), "raw", 0, map[int]float64{1500: 1514}},
		"raw overhead 4":      {Framing{4, "noatm", 0, true}, "raw overhead 4", 4, map[int]float64{1500: 1518}},
		// 1532 bytes are 32 cells
		"pppoe-vcmux": {Framing{32, "atm", 0, false}, "32 atm", 18, map[int]float64{1500: 32 * 53, 16: 53, 17: 2 * 53}},
		// and 24 words of 64
		"pppoe-ptm": {Framing{30, "ptm", 0, false}, "30 ptm", 16, map[int]float64{1500: 1530 + 24}},
		"docsis":    {Framing{18, "noatm", 64, false}, "18 mpu 64", 4, map[int]float64{40: 64}},
	} {
		f, err := ParseFraming(text)
		if err != nil || f != want.f || f.String() != want.text || f.More() != want.more {
			t.Errorf("%s: %+v, %q, %d more, %v", text, f, f, f.More(), err)
		}
		if back, err := ParseFraming(f.String()); back != f || err != nil {
			t.Errorf("%s: %q reads as %+v, %v", text, f, back, err)
		}
		for packet, bytes := range want.bytes {
			if got := f.Wire(packet); got != bytes {
				t.Errorf("%s: an IP packet of %d bytes counts for %v, want %v", text, packet, got, bytes)
			}
		}
	}
	for _, bad := range []string{"", " ", "38mbit", "ethernot", "300", "38 mpu", "38 mpu 900", "mpu 84 84", "1e3",
		"010",
		"raw raw overhead", "38 bandwidth 5mbit"} {
		if f, err := ParseFraming(bad); err == nil {
			t.Errorf("%q reads as %+v", bad, f)
		}
	}
}

// What is read is written as the same, and CAKE takes the same words.
func FuzzFraming(f *testing.F) {
	for _, seed := range []string{"38", "ethernet mpu 64", "raw overhead 4 atm", "pppoe-vcmux ether-vlan", "-64"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		framing, err := ParseFraming(text)
		if err != nil {
			return
		}
		if err := framing.Check(); err != nil {
			t.Fatalf("%q reads as %+v, which is none: %v", text, framing, err)
		}
		if back, err := ParseFraming(framing.String()); back != framing || err != nil {
			t.Fatalf("%q reads as %+v, and %q as %+v, %v", text, framing, framing, back, err)
		}
	})
}
