// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/mdlayher/netlink"
)

// Arriving is what packets pass first that arrive at a device.
//
// What comes by a tunnel arrives there packed: all connections of a peer are one flow to a queue. So what comes out
// of the tunnels' devices passes the stack, too, where each connection is a flow of its own; and what they came in
// goes past it, so that nothing waits twice.
type Arriving struct {
	Stack   Stack
	Tunnels []string // devices, sorted
	Outer   []Outer  // what goes past, sorted
}

// Outer is what a tunnel's packets are on the wire, by where they go to.
type Outer struct {
	Protocol string // "udp" or "tcp"
	Port     uint16
}

func (o Outer) String() string { return fmt.Sprintf("%s/%d", o.Protocol, o.Port) }

// ParseOuters reads those of some texts that are one.
func ParseOuters(texts []string) (all []Outer) {
	for _, text := range texts {
		if o, err := parseOuter(text); err == nil {
			all = append(all, o)
		}
	}
	return all
}

// parseOuter reads "udp/51820".
func parseOuter(text string) (Outer, error) {
	protocol, number, _ := strings.Cut(text, "/")
	port, err := strconv.ParseUint(number, 10, 16)
	if err != nil || port == 0 || protocol != "udp" && protocol != "tcp" {
		return Outer{}, fmt.Errorf("%q is no protocol and port, as in udp/51820", text)
	}
	return Outer{protocol, uint16(port)}, nil
}

// What tells the parts of an Arriving's text from each other. No stack has the first, and no device that PlainName
// lets pass the second.
const (
	unpacked = ", unpacked "
	from     = "from"
)

var plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.@-]*$`)

// PlainName reports whether a device's name can be written among others.
func PlainName(device string) bool { return plainName.MatchString(device) && device != from }

// NewArriving puts the parts in order.
func NewArriving(s Stack, tunnels []string, outer []Outer) Arriving {
	a := Arriving{Stack: s, Tunnels: slices.Clone(tunnels), Outer: slices.Clone(outer)}
	slices.Sort(a.Tunnels)
	slices.SortFunc(a.Outer, func(x, y Outer) int { return strings.Compare(x.String(), y.String()) })
	a.Outer = slices.Compact(a.Outer)
	return a
}

// String writes the stack as tc would, then the tunnels: "cake bandwidth 45mbit, unpacked wg0 from udp/51820".
func (a Arriving) String() string {
	text := a.Stack.String()
	if len(a.Tunnels)+len(a.Outer) == 0 {
		return text
	}
	words := slices.Concat(a.Tunnels, []string{from})
	for _, o := range a.Outer {
		words = append(words, o.String())
	}
	return text + unpacked + strings.Join(words, " ")
}

// ParseArriving reads what String wrote.
func ParseArriving(text string) (Arriving, error) {
	stack, rest, has := strings.Cut(text, unpacked)
	s, err := ParseStack(stack)
	if err != nil || !has {
		return Arriving{Stack: s}, err
	}
	words := strings.Fields(rest)
	at := slices.Index(words, from)
	if at < 0 {
		return Arriving{}, fmt.Errorf("%q does not say what the tunnels' packets come in: … from udp/51820", rest)
	}
	for _, name := range words[:at] {
		if !PlainName(name) {
			return Arriving{}, fmt.Errorf("%q is no device's name", name)
		}
	}
	var outer []Outer
	for _, word := range words[at+1:] {
		o, err := parseOuter(word)
		if err != nil {
			return Arriving{}, err
		}
		outer = append(outer, o)
	}
	return NewArriving(s, words[:at], outer), nil
}

// Meets reports whether a is what is wanted. Who is not root does not know in what tunnels come: where nothing is
// wanted to go past, anything may.
func (a Arriving) Meets(want Arriving) bool {
	unknown := len(want.Tunnels) > 0 && len(want.Outer) == 0
	return a.Stack.Equal(want.Stack) && slices.Equal(a.Tunnels, want.Tunnels) &&
		(unknown || slices.Equal(a.Outer, want.Outer))
}

// passPriority is where the filters are that let tunnels' packets past: right before the one that redirects all else.
// Each version of IP has its own.
func passPriority(protocol uint16) uint16 {
	if protocol == ethIPv6 {
		return redirectPriority - 1
	}
	return redirectPriority - 2
}

// u32Key is one 32-bit word of a packet: which of its bits have to be zero, and where it is.
type u32Key struct {
	mask uint32
	off  int32
}

// smallKeys match what has less than 256 bytes: the upper half of IPv4's total length, and of IPv6's payload length,
// is zero (RFC 791, RFC 8200).
var smallKeys = map[uint16]u32Key{
	ethIP:   {mask: 0x0000ff00, off: 0},
	ethIPv6: {mask: 0xff000000, off: 4},
}

const (
	selLen    = 16 // struct tc_u32_sel without its keys (include/uapi/linux/pkt_cls.h)
	selNkeys  = 2  // offsets in it
	keyMask   = selLen
	keyValue  = selLen + 4
	keyOffset = selLen + 8
	keyLen    = 16
)

// small reports whether a filter is one of those, by all that it says: tc gives others the same priority, to the third
// that is added with none.
func (f Filter) small() bool {
	key, known := smallKeys[f.Protocol]
	if !known || f.Kind != "u32" || f.Chain != 0 || f.Priority != passPriority(f.Protocol) {
		return false
	}
	sel := inner(f.Options, u32Sel)
	if len(sel) != selLen+keyLen || sel[0] != u32Terminal || sel[selNkeys] != 1 {
		return false
	}
	return binary.BigEndian.Uint32(sel[keyMask:]) == key.mask && binary.BigEndian.Uint32(sel[keyValue:]) == 0 &&
		int32(binary.NativeEndian.Uint32(sel[keyOffset:])) == key.off &&
		len(inner(f.Options, u32Act))+len(inner(f.Options, u32Police))+len(
			inner(f.Options, u32ClassID)) == 0
}

// table reports whether this is none, but one of u32's tables, which the kernel lists among its filters and takes away
// with the last.
func (f Filter) table() bool { return f.Kind == "u32" && inner(f.Options, u32Sel) == nil }

// passes reads such a filter, which says nothing else: tc gives others the same priority, to the second and third
// that are added with none.
func (f Filter) passes() (o Outer, ok bool) {
	if f.Kind != "flower" || f.Chain != 0 || f.Priority != passPriority(f.Protocol) {
		return o, false
	}
	list, err := unpack(f.Options)
	if err != nil || slices.ContainsFunc(list, func(a netlink.Attribute) bool {
		switch a.Type {
		case flowerUDPDstMask, flowerTCPDstMask:
			return string(a.Data) != "\xff\xff"
		case flowerEthType, flowerIPProto, flowerUDPDst,
			flowerTCPDst, flowerFlags, flowerInHardware:
			return false
		}
		return true
	}) {
		return o, false
	}
	number := inner(f.Options, flowerIPProto)
	if len(number) != 1 {
		return o, false
	}
	port := []byte(nil)
	switch number[0] {
	case protoUDP:
		o.Protocol, port = "udp", inner(f.Options, flowerUDPDst)
	case protoTCP:
		o.Protocol, port = "tcp", inner(f.Options, flowerTCPDst)
	}
	if len(port) != 2 {
		return o, false
	}
	o.Port = uint16(port[0])<<8 | uint16(port[1])
	return o, o.Port != 0
}

// Passes are the packets that go past what redirects at an interface. Half of a pair, for one version of IP alone,
// counts as none.
func (c *Conn) Passes(ifindex int) ([]Outer, error) {
	pairs, _, err := c.passing(ifindex)
	return pairs, err
}

// passing also counts the filters.
func (c *Conn) passing(ifindex int) (pairs []Outer, filters int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	list, err := c.filters(ifindex, atIngress)
	if err != nil {
		return nil, 0, err
	}
	seen := map[Outer]int{}
	for _, f := range list {
		if o, ok := f.passes(); ok {
			filters++
			if seen[o]++; seen[o] == 2 {
				pairs = append(pairs, o)
			}
		}
	}
	return NewArriving(nil, nil, pairs).Outer, filters, nil
}

// dropFilters takes away filters at an interface's ingress.
func (c *Conn) dropFilters(ifindex int, which func(Filter) bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	filters, err := c.filters(ifindex, atIngress)
	if err != nil {
		return err
	}
	for _, f := range filters {
		if which(f) {
			if err := c.dropFilter(ifindex, f); err != nil && !errors.Is(err, syscall.ENOENT) {
				return err
			}
		}
	}
	return nil
}
