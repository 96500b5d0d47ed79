// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"

	"weir/internal/units"
)

// overheads is what a link makes of a packet, in the words of tc-cake(8): the fields of a discipline that shapes by it.
type overheads struct {
	atm      *string
	overhead *int32
	raw      *bool
	mpu      *uint32
}

// The kernel's numbering (CAKE_ATM_*), and internal/dualpi2's.
func framings() []string { return []string{"noatm", "atm", "ptm"} }

func (w overheads) options(framingAttr, overheadAttr, rawAttr, mpuAttr uint16) (framing, overhead, raw, mpu option) {
	framing = choice(framingAttr, 4, 0, w.atm, framings()...)
	writeFraming := framing.write
	framing.write = func() string {
		if *w.raw && *w.overhead != 0 {
			return "" // said after the overhead
		}
		return writeFraming()
	}
	overhead, raw = w.sizes(overheadAttr, rawAttr)
	return framing, overhead, raw, count("mpu", mpuAttr, 4, w.mpu, 0, 256)
}

func (w overheads) check() error {
	switch {
	case *w.overhead < -64 || *w.overhead > 256:
		return fmt.Errorf("overhead %d is out of range (-64 to 256)", *w.overhead)
	case *w.mpu > 256:
		return fmt.Errorf("mpu %d is out of range (0 to 256)", *w.mpu)
	}
	return oneOf("framing", *w.atm, framings()...)
}

// knownLink is a kind of link that tc-cake(8) has a name for.
type knownLink struct {
	name  string
	bytes int32
	atm   string
	mpu   uint32
}

func knownLinks() []knownLink {
	return []knownLink{
		{"ipoa-vcmux", 8, "atm", 0}, {"ipoa-llcsnap", 16, "atm", 0}, {"bridged-vcmux", 24, "atm", 0},
		{"bridged-llcsnap", 32, "atm", 0},
		{"pppoa-vcmux", 10, "atm", 0}, {"pppoa-llc", 14, "atm", 0}, {"pppoe-vcmux", 32, "atm", 0},
		{"pppoe-llcsnap", 40, "atm", 0},
		{"pppoe-ptm", 30, "ptm", 0}, {"bridged-ptm", 22, "ptm", 0},
		{"ethernet", 38, "", 84}, {"ether-vlan", 4, "", 0}, {"docsis", 18, "noatm", 64},
	}
}

// overheads reads tc's many names for what a link adds to a packet. Each adds its bytes; some also set the framing and
// the smallest packet. On the wire the number switches the correction for the device's header on, and a second
// attribute switches it off again.
func (w overheads) sizes(overheadAttr, rawAttr uint16) (overhead, raw option) {
	links := knownLinks()
	words := []string{"overhead", "raw", "conservative", "via-ethernet"}
	for _, l := range links {
		words = append(words, l.name)
	}
	begun, givenRaw := false, false
	overhead = option{words: words, repeat: true, attr: overheadAttr}
	overhead.read = func(word string, a *args) error {
		if word == "via-ethernet" { // tc takes and ignores it
			return nil
		}
		if !begun { // what is there already is not added to
			*w.overhead, begun = 0, true
		}
		switch word {
		case "overhead":
			text, err := a.next()
			if err != nil {
				return err
			}
			v, err := strconv.ParseInt(text, 10, 32)
			if err != nil {
				return fmt.Errorf("%q is not a whole number", text)
			}
			if err := noOctal(text, text); err != nil {
				return err
			}
			*w.overhead = int32(v)
		case "raw":
			*w.atm, *w.overhead, givenRaw = "noatm", 0, true
		case "conservative": // one whole ATM cell and ATM's framing
			*w.atm, *w.overhead = "atm", 48
		default:
			l := links[slices.IndexFunc(links, func(l knownLink) bool { return l.name == word })]
			*w.overhead += l.bytes
			if l.atm != "" {
				*w.atm = l.atm
			}
			if l.mpu != 0 {
				*w.mpu = l.mpu
			}
		}
		*w.raw = givenRaw
		if *w.overhead < -64 || *w.overhead > 256 { // tc's range; also keeps the sum from running away
			return fmt.Errorf("%d bytes are out of range (-64 to 256)", *w.overhead)
		}
		return nil
	}
	overhead.write = func() string {
		number := "overhead " + strconv.Itoa(int(*w.overhead))
		switch {
		case *w.raw && *w.overhead == 0:
			return "raw"
		case *w.raw && *w.atm != "noatm": // raw sets the framing, which has to come after it
			return "raw " + number + " " + *w.atm
		case *w.raw:
			return "raw " + number
		}
		return number
	}
	overhead.encode = func() []byte { return u32bytes(uint32(*w.overhead)) }
	overhead.decode = func(b []byte) error {
		if len(b) != 4 {
			return fmt.Errorf("is %d bytes long", len(b))
		}
		*w.overhead, *w.raw = int32(binary.NativeEndian.Uint32(b)), false
		return nil
	}
	overhead.key = overhead.write

	raw = option{
		attr: rawAttr, key: overhead.write, write: func() string { return "" },
		skip:   func() bool { return !*w.raw },
		encode: func() []byte { return u32bytes(0) },
		decode: func([]byte) error { *w.raw = true; return nil },
	}
	return overhead, raw
}

// orUnlimited gives a rate that need not be one a word for that.
func orUnlimited(o option, p *units.Rate) option {
	read, write := o.read, o.write
	o.words = append(o.words, "unlimited")
	o.read = func(word string, a *args) error {
		if word == "unlimited" {
			*p = 0
			return nil
		}
		return read(word, a)
	}
	o.write = func() string {
		if *p == 0 {
			return "unlimited"
		}
		return write()
	}
	return o
}
