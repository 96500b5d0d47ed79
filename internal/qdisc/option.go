// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/internal/units"

	"github.com/mdlayher/netlink"
)

// option is one thing that tc lets a person say about a discipline, bound to the field that holds it. Parsing,
// printing, encoding and decoding all follow from the discipline's table of these.
type option struct {
	words  []string                         // what selects it; for a switch or a choice each word is a value
	repeat bool                             // may be given several times: the values add up
	read   func(word string, a *args) error // takes what follows the word
	write  func() string                    // tc's words for the value; "" where tc has none
	unsent func() bool                      // reports whether the value is one that only a new discipline can have
	key    func() string                    // what tells two values apart, where the payload alone does not
	skip   func() bool                      // reports that the value is said by sending no attribute
	attr   uint16                           // the netlink attribute; 0 if it has none of its own
	encode func() []byte                    // the attribute's payload
	decode func(payload []byte) (err error) // the reverse
}

func (o option) identity() string {
	if o.key != nil {
		return o.key()
	}
	return string(o.encode())
}

// args are the words that follow.
type args struct{ words []string }

func (a *args) next() (string, error) {
	if len(a.words) == 0 {
		return "", fmt.Errorf("needs a value")
	}
	word := a.words[0]
	a.words = a.words[1:]
	return word, nil
}

// number reports whether the next word starts like one: tc's way of telling an optional value from the next option.
func (a *args) number() bool {
	return len(a.words) > 0 && a.words[0][0] >= '0' && a.words[0][0] <= '9'
}

func parse(options []option, words []string) error {
	given := make([]string, len(options))
	a := &args{words}
	for len(a.words) > 0 {
		word, _ := a.next()
		i := slices.IndexFunc(options, func(o option) bool { return slices.Contains(o.words, word) })
		switch {
		case i < 0:
			var known []string
			for _, o := range options {
				known = append(known, o.words...)
			}
			return unknown("option", word, known)
		case given[i] == word && !options[i].repeat:
			return fmt.Errorf("%q is given twice", word)
		case given[i] != "" && !options[i].repeat:
			return fmt.Errorf("%q contradicts %q", word, given[i])
		}
		given[i] = word
		if err := options[i].read(word, a); err != nil {
			return fmt.Errorf("%s: %w", word, err)
		}
	}
	return nil
}

// format writes what differs from the kernel's defaults.
func format(s Spec) string {
	k, _ := find(s.Kind())
	text := []string{s.Kind()}
	defaults := k.fresh().options()
	for i, o := range s.edit().options() {
		if w := o.write(); w != "" && w != defaults[i].write() {
			text = append(text, w)
		}
	}
	return strings.Join(text, " ")
}

// encodeAttributes writes each option that differs from base as its attribute, in tc's order.
func encodeAttributes(s, base Spec) ([]byte, error) {
	var attributes []netlink.Attribute
	before := base.edit().options()
	for i, o := range s.edit().options() {
		if o.attr != 0 && o.identity() != before[i].identity() && (o.skip == nil || !o.skip()) {
			if o.unsent != nil && o.unsent() {
				return nil, fmt.Errorf(
					"%s cannot be put back to the kernel's own choice in place: replace the discipline", o.words[0])
			}
			attributes = append(attributes, netlink.Attribute{Type: o.attr, Data: o.encode()})
		}
	}
	if len(attributes) == 0 {
		return nil, nil
	}
	return netlink.MarshalAttributes(attributes)
}

// decodeAttributes takes over what is reported; what is not, an older kernel's, say, keeps its default.
func decodeAttributes(options []option, b []byte) error {
	attributes, err := unpack(b)
	if err != nil {
		return err
	}
	for _, a := range attributes {
		for _, o := range options {
			if o.attr != 0 && o.attr == a.Type {
				if err := o.decode(a.Data); err != nil {
					return fmt.Errorf("attribute %d: %w", a.Type, err)
				}
			}
		}
	}
	return nil
}

// unpack splits attributes; the flags in their types are cleared, and their lengths, which follow the data where they
// are put together again.
func unpack(b []byte) ([]netlink.Attribute, error) {
	attributes, err := netlink.UnmarshalAttributes(b)
	for i := range attributes {
		attributes[i].Type &^= netlink.Nested | netlink.NetByteOrder
		attributes[i].Length = 0
	}
	return attributes, err
}

func u32bytes(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }

func u64bytes(v uint64) []byte { return binary.NativeEndian.AppendUint64(nil, v) }

// integer reads a native integer of exactly its own size: the kernel has never sent another.
func integer(b []byte) (uint64, error) {
	switch len(b) {
	case 1:
		return uint64(b[0]), nil
	case 4:
		return uint64(binary.NativeEndian.Uint32(b)), nil
	case 8:
		return binary.NativeEndian.Uint64(b), nil
	}
	return 0, fmt.Errorf("is %d bytes long", len(b))
}

// width encodes an integer in so many bytes.
func width(bytes int, v uint64) []byte {
	switch bytes {
	case 1:
		return []byte{byte(v)}
	case 4:
		return u32bytes(uint32(v))
	}
	return u64bytes(v)
}

// value is an option with one value after its word, kept as a whole number.
func value(word string, attr uint16, bytes int, read func(string) (uint64, error), write func(uint64) string,
	get func() uint64, set func(uint64)) option {
	return option{
		words: []string{word},
		attr:  attr,
		read: func(_ string, a *args) error {
			text, err := a.next()
			if err != nil {
				return err
			}
			v, err := read(text)
			if err == nil {
				set(v)
			}
			return err
		},
		write:  func() string { return word + " " + write(get()) },
		encode: func() []byte { return width(bytes, get()) },
		decode: func(b []byte) error {
			v, err := integer(b)
			if err == nil {
				set(v)
			}
			return err
		},
	}
}

type unsigned interface {
	~uint8 | ~uint16 | ~uint32 | ~uint64
}

// count is a plain number from low to high, which tc wants without a unit; tc prints some with one ("10240p"), so that
// is taken, too.
func count[T unsigned](word string, attr uint16, bytes int, p *T, low, high uint64) option {
	return number(word, "p", attr, bytes, p, low, high)
}

// number is a number that may have the unit.
func number[T unsigned](word, unit string, attr uint16, bytes int, p *T, low, high uint64) option {
	return value(word, attr, bytes,
		func(s string) (uint64, error) { return whole(s, unit, low, high) },
		func(v uint64) string { return strconv.FormatUint(v, 10) },
		func() uint64 { return uint64(*p) }, func(v uint64) { *p = T(v) })
}

// octets is a number of bytes where tc wants a bare number; "1514b" is understood.
func octets[T unsigned](word string, attr uint16, bytes int, p *T, low, high uint64) option {
	return number(word, "b", attr, bytes, p, low, high)
}

// whole reads a number that may have a unit.
func whole(s, unit string, low, high uint64) (uint64, error) {
	digits := strings.TrimSuffix(s, unit)
	v, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a whole number", s)
	}
	if err := noOctal(s, digits); err != nil {
		return 0, err
	}
	if v < low || v > high {
		return 0, fmt.Errorf("%d is out of range (%d to %d)", v, low, high)
	}
	return v, nil
}

// noOctal refuses what tc reads as octal for some options and not for others.
func noOctal(text, digits string) error {
	digits = strings.TrimPrefix(digits, "-")
	if len(digits) < 2 || digits[0] != '0' {
		return nil
	}
	decimal := strings.TrimLeft(digits[:len(digits)-1], "0") + digits[len(digits)-1:]
	if v, err := strconv.ParseUint(digits, 8, 64); err == nil {
		return fmt.Errorf("%q has a leading zero, and tc reads some such numbers as octal: write %s, or %d", text,
			decimal, v)
	}
	return fmt.Errorf("%q has a leading zero: write %s", text, decimal)
}

// bare says of a number without a unit which one tc takes it to have.
func bare(err error, unit string) error {
	var none *units.NoUnit
	if errors.As(err, &none) {
		return fmt.Errorf("%s %q has no unit: tc reads it as %s%s: write that, or like %s", none.What, none.Text,
			none.Text, unit, none.Example)
	}
	return err
}

func parseRate(s string) (units.Rate, error) {
	r, err := units.ParseTCRate(s)
	return r, bare(err, "bit")
}

func parseSize(s string) (units.Size, error) {
	size, err := units.ParseSize(s)
	return size, bare(err, "b")
}

func parseDuration(s string) (time.Duration, error) {
	d, err := units.ParseDuration(s)
	return d, bare(err, "us")
}

func parseShare(s string) (units.Share, error) {
	v, err := units.ParseShare(s)
	return v, bare(err, "%")
}

// mask is a number in hexadecimal.
func mask(word string, attr uint16, p *uint32) option {
	return value(word, attr, 4,
		func(s string) (uint64, error) {
			v, err := strconv.ParseUint(s, 0, 32)
			if err != nil {
				return 0, fmt.Errorf("%q is not a 32-bit mask: write it like 0xff", s)
			}
			return v, nil
		},
		func(v uint64) string { return fmt.Sprintf("0x%x", v) },
		func() uint64 { return uint64(*p) }, func(v uint64) { *p = uint32(v) })
}

// size is a number of bytes with a unit, 32 bits on the wire.
func size(word string, attr uint16, p *units.Size, low uint64) option {
	return value(word, attr, 4, readSize(low), func(v uint64) string { return units.Size(v).String() },
		func() uint64 { return uint64(*p) }, func(v uint64) { *p = units.Size(v) })
}

func readSize(low uint64) func(string) (uint64, error) {
	return func(s string) (uint64, error) {
		v, err := parseSize(s)
		if err == nil && (uint64(v) < low || v > math.MaxUint32) {
			err = fmt.Errorf("size %q is out of range (%s to 4gb less 1b)", s, units.Size(low))
		}
		return uint64(v), err
	}
}

// microseconds is a time that travels as 32 bits of microseconds; anything finer is cut off, as tc does.
func microseconds(word string, attr uint16, p *units.Duration, low uint64) option {
	return period(word, attr, p, low, units.Duration(time.Microsecond), "us")
}

// period is the same of a unit, which tc takes a bare number to have.
func period(word string, attr uint16, p *units.Duration, low uint64, unit units.Duration, name string) option {
	return value(word, attr, 4, readPeriod(low, unit, name),
		func(v uint64) string { return (units.Duration(v) * unit).String() },
		func() uint64 { return uint64(*p / unit) }, func(v uint64) { *p = units.Duration(v) * unit })
}

func readPeriod(low uint64, unit units.Duration, name string) func(string) (uint64, error) {
	return func(s string) (uint64, error) {
		d, err := units.ParseDuration(s)
		if err != nil {
			return 0, bare(err, name)
		}
		v := uint64(d) / uint64(unit)
		if v < low || v > math.MaxUint32 {
			return 0, fmt.Errorf("time %q is out of range (%s to %s)", s, units.Duration(low)*unit, math.MaxUint32*unit)
		}
		return v, nil
	}
}

func toMicroseconds(d units.Duration) uint64   { return uint64(d) / 1000 }
func fromMicroseconds(v uint64) units.Duration { return units.Duration(v * 1000) }

// auto makes zero stand for the kernel's choice, which follows the device: it is neither written nor sent, and the
// kernel never reports it.
func auto[T unsigned](o option, p *T) option {
	write, decode := o.write, o.decode
	o.unsent = func() bool { return *p == 0 }
	o.write = func() string {
		if *p == 0 {
			return ""
		}
		return write()
	}
	o.decode = func(b []byte) error {
		if err := decode(b); err != nil || *p != 0 {
			return err
		}
		return fmt.Errorf("is zero")
	}
	return o
}

// never is the largest time that 32 bits of microseconds can say (4294.967295s): the kernel's way to switch a threshold
// off.
const never = units.Duration(math.MaxUint32 * 1000)

// rate is a speed, in bytes per second on the wire, in so many bytes.
func rate(word string, attr uint16, bytes int, p *units.Rate) option {
	return value(word, attr, bytes, readRate(bytes),
		func(v uint64) string { return units.Rate(v * 8).String() },
		func() uint64 { return uint64(*p) / 8 }, func(v uint64) { *p = units.Rate(v * 8) })
}

func readRate(bytes int) func(string) (uint64, error) {
	return func(s string) (uint64, error) {
		r, err := parseRate(s)
		switch {
		case err != nil:
			return 0, err
		case r < 8:
			return 0, fmt.Errorf("rate %q is below one byte per second", s)
		case bytes == 4 && r/8 >= math.MaxUint32:
			return 0, fmt.Errorf("rate %q is above what this option can carry (%s)", s, units.Rate(math.MaxUint32-1)*8)
		}
		return uint64(r / 8), nil
	}
}

// toggle is a switch: one word for on, one for off. The kernel sends some as 32 bits and some as 8.
func toggle(on, off string, attr uint16, bytes int, p *bool) option {
	set := func(v bool) error { *p = v; return nil }
	return option{
		words: []string{on, off},
		attr:  attr,
		read:  func(word string, _ *args) error { return set(word == on) },
		write: func() string {
			if *p {
				return on
			}
			return off
		},
		encode: func() []byte {
			if *p {
				return width(bytes, 1)
			}
			return width(bytes, 0)
		},
		decode: func(b []byte) error {
			v, err := integer(b)
			if err != nil {
				return err
			}
			return set(v != 0)
		},
	}
}

// choice is one word of several; the kernel counts them from first.
func choice(attr uint16, bytes int, first uint64, p *string, words ...string) option {
	return option{
		words:  words,
		attr:   attr,
		read:   func(word string, _ *args) error { *p = word; return nil },
		write:  func() string { return *p },
		encode: func() []byte { return width(bytes, uint64(slices.Index(words, *p))+first) },
		decode: func(b []byte) error {
			v, err := integer(b)
			if err != nil {
				return err
			}
			if v -= first; v >= uint64(len(words)) {
				return fmt.Errorf("has the unknown value %d", v+first)
			}
			*p = words[v]
			return nil
		},
	}
}

// oneOf checks a field that a caller may have set by hand.
func oneOf(field, word string, words ...string) error {
	if !slices.Contains(words, word) {
		return unknown(field, word, words)
	}
	return nil
}

// unround undoes the rounding that the kernel applies between taking a value and reporting it: of the few values that
// it would report as v, it is the one that a person would have written. That is a multiple of 1000, 100 or 10, or else
// the largest.
func unround(v uint32, reported func(uint32) uint32) uint32 {
	best, bestScore := v, -1
	for c := v; c >= v && c <= v+2; c++ {
		score := 0
		for _, step := range []uint32{10, 100, 1000} {
			if c%step == 0 {
				score++
			}
		}
		if reported(c) == v && score >= bestScore {
			best, bestScore = c, score
		}
	}
	return best
}

// device is what the kernel's defaults follow. The zero device is unknown: its defaults read back as plain numbers.
type device struct {
	mtu     uint32 // bytes, IFLA_MTU
	queue   uint32 // packets, IFLA_TXQLEN
	header  uint32 // bytes of the link's own header, if known
	known   bool   // header is exact
	present bool
}

// frame reports whether v is the largest packet on the device, as psched_mtu() counts it (include/net/pkt_sched.h): the
// MTU and the link's header, whose length rtnetlink does not report for every link.
func (d device) frame(v uint32) bool {
	if !d.present || v < d.mtu {
		return false
	}
	if d.known {
		return v == d.mtu+d.header
	}
	return v-d.mtu <= 64
}
