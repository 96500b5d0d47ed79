// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"fmt"
	"strconv"
	"strings"

	"weir/internal/wire"
)

// Framing is what the limiter of a link counts of a packet besides its IP part, in the words of tc-cake(8). The zero
// value is none: nobody has said it.
type Framing struct {
	Overhead int32  // bytes added to each IP packet, -64 to 256; an Ethernet header is 14 of them
	ATM      string // noatm, atm or ptm: the cells or the coding that carry it
	MPU      uint32 // bytes that a packet counts for at least, 0 to 256
	Raw      bool   // instead of Overhead: what the device is handed, on Ethernet the IP packet and 14 bytes
}

// AsHanded counts a packet as the device is handed it.
func AsHanded() Framing { return Framing{ATM: framings()[0], Raw: true} }

// ParseFraming reads tc's words for it: ethernet, docsis, pppoe-ptm ether-vlan, overhead 38 mpu 84. A number is an
// overhead.
func ParseFraming(text string) (Framing, error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return Framing{}, fmt.Errorf("no framing is named")
	}
	if strings.Trim(words[0], "-0123456789") == "" {
		words = append([]string{"overhead"}, words...)
	}
	f := Framing{ATM: framings()[0]}
	if err := parse(f.options(), words); err != nil {
		return Framing{}, err
	}
	return f, nil
}

// Framings are the names of links that a framing can be made of, and raw.
func Framings() (names []string) {
	for _, l := range knownLinks() {
		names = append(names, l.name)
	}
	return append(names, "raw")
}

func (f *Framing) options() []option {
	framing, overhead, raw, mpu := f.overheads().options(0, 0, 0, 0)
	return []option{framing, overhead, raw, mpu}
}

func (f *Framing) overheads() overheads { return overheads{&f.ATM, &f.Overhead, &f.Raw, &f.MPU} }

// String returns words that ParseFraming reads as the same.
func (f Framing) String() string {
	if f == (Framing{}) {
		return ""
	}
	text := strconv.Itoa(int(f.Overhead))
	switch {
	case f.Raw && f.Overhead != 0:
		text = "raw overhead " + text
	case f.Raw:
		text = "raw"
	}
	if f.ATM != framings()[0] {
		text += " " + f.ATM
	}
	if f.MPU != 0 {
		text += fmt.Sprint(" mpu ", f.MPU)
	}
	return text
}

// MarshalText returns String.
func (f Framing) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText is ParseFraming.
func (f *Framing) UnmarshalText(text []byte) (err error) {
	*f, err = ParseFraming(string(text))
	return err
}

// FramingOf is how a shaper counts packets; the zero value of one that does not say.
func FramingOf(s Spec) Framing {
	switch q := s.(type) {
	case Cake:
		return Framing{q.Overhead, q.ATM, q.MPU, q.Raw}
	case BPFShaper:
		return Framing{q.Overhead, q.ATM, q.MPU, q.Raw}
	}
	return Framing{}
}

// Check finds what no link adds.
func (f Framing) Check() error { return f.overheads().check() }

// More is what it counts of each packet beyond what an Ethernet device is handed, in bytes: negative where it counts
// less.
func (f Framing) More() int {
	if f.Raw || f == (Framing{}) {
		return int(f.Overhead)
	}
	return int(f.Overhead) - wire.EthernetHeader
}

// Wire is what a limiter counts for an IP packet of so many bytes (net/sched/sch_cake.c, cake_calc_overhead).
func (f Framing) Wire(packet int) float64 {
	n := max(packet+wire.EthernetHeader+f.More(), int(f.MPU))
	switch f.ATM {
	case "atm":
		return float64(wire.Cells(n))
	case "ptm":
		return float64(wire.Words(n))
	}
	return float64(n)
}
