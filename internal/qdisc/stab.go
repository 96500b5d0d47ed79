// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/mdlayher/netlink"
)

// Attributes in TCA_STAB (include/uapi/linux/pkt_sched.h).
const (
	stabBase = 1
	stabData = 2
)

// sizespec is struct tc_sizespec: how a size table came about (tc-stab(8)).
type sizespec struct {
	cellLog   uint8  // an entry is for 1<<cellLog sizes of a packet
	sizeLog   uint8  // and counts in units of 1<<sizeLog bytes
	cellAlign int16  // bytes
	overhead  int32  // bytes
	linklayer uint32 // linkEthernet, linkATM
	mpu       uint32 // bytes
	mtu       uint32 // bytes
	entries   uint32 // how many there are
}

const sizespecLen = 24

func (s sizespec) bytes() []byte {
	b := append(make([]byte, 0, sizespecLen), s.cellLog, s.sizeLog)
	b = binary.NativeEndian.AppendUint16(b, uint16(s.cellAlign))
	for _, n := range []uint32{uint32(s.overhead), s.linklayer, s.mpu, s.mtu, s.entries} {
		b = binary.NativeEndian.AppendUint32(b, n)
	}
	return b
}

// parseSizespec reads sizespecLen bytes.
func parseSizespec(b []byte) sizespec {
	word := func(i int) uint32 { return binary.NativeEndian.Uint32(b[i:]) }
	return sizespec{cellLog: b[0], sizeLog: b[1], cellAlign: int16(binary.NativeEndian.Uint16(b[2:])),
		overhead: int32(word(4)), linklayer: word(8), mpu: word(12), mtu: word(16), entries: word(20)}
}

// SizeTable counts so many bytes more of each packet, or fewer: stab overhead N linklayer ethernet (tc-stab(8)).
func SizeTable(bytes int32) []byte {
	table, err := netlink.MarshalAttributes([]netlink.Attribute{
		{Type: stabBase, Data: sizespec{overhead: bytes, linklayer: linkEthernet}.bytes()}})
	if err != nil {
		panic(err) // an attribute of 24 bytes fits
	}
	return table
}

// table returns the entries as tc computes them, which the kernel does not report: how many bytes the link carries for
// the largest packet of each. It is false where tc would not have made a table of these parameters.
func (s sizespec) table() ([]byte, bool) {
	const (
		cell, payload = 53, 48               // of ATM, bytes
		most          = math.MaxUint16/2 - 2 // what fits an attribute
	)
	if s.entries == 0 || s.entries > most || s.cellLog > 31 || s.cellAlign != -1 ||
		s.linklayer <= linkEthernet && s.mpu == 0 {
		return nil, false
	}
	// tc takes the least cellLog of which the MTU has an entry
	if s.mtu == 0 || s.mtu>>s.cellLog >= s.entries || s.cellLog > 0 && s.mtu>>(s.cellLog-1) < s.entries {
		return nil, false
	}
	sizes, largest := make([]uint32, s.entries), uint32(0)
	for i := range sizes {
		sizes[i] = max(uint32(i+1)<<s.cellLog, s.mpu)
		if s.linklayer == linkATM {
			cells := sizes[i] / payload
			if sizes[i]%payload != 0 {
				cells++
			}
			sizes[i] = cells * cell
		}
		largest = max(largest, sizes[i])
	}
	unit := uint8(0)
	for largest>>unit > math.MaxUint16 {
		unit++
	}
	var table []byte
	for _, n := range sizes {
		table = binary.NativeEndian.AppendUint16(table, uint16(n>>unit))
	}
	return table, unit == s.sizeLog
}

// sizeTable is a size table as it can be sent: the kernel reports its parameters, from which its entries follow.
func sizeTable(q Qdisc) (netlink.Attribute, error) {
	list, err := unpack(q.SizeTable)
	if err != nil {
		return netlink.Attribute{}, err
	}
	for _, a := range list {
		if a.Type != stabBase || len(a.Data) != sizespecLen {
			continue
		}
		spec, whole := parseSizespec(a.Data), []netlink.Attribute{{Type: stabBase, Data: a.Data}}
		if spec.entries == 0 {
			return netlink.Attribute{Type: tcaStab, Data: q.SizeTable}, nil
		}
		if table, ok := spec.table(); ok {
			b, err := netlink.MarshalAttributes(append(whole, netlink.Attribute{Type: stabData, Data: table}))
			return netlink.Attribute{Type: tcaStab, Data: b}, err
		}
	}
	return netlink.Attribute{}, q.lost(errors.New("has a size table that tc did not make, and the kernel does not " +
		"report its entries"))
}
