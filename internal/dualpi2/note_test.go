// SPDX-License-Identifier: Apache-2.0

package dualpi2_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// TestInNote: another program at the hook may write any word of the note, before the marker or after it, and every
// packet arrives all the same.
func TestInNote(t *testing.T) {
	n := newNetwork(t)
	s := n.sink()
	n.quiet()
	n.put("bpf_dualpi2 rate 50mbit")
	n.must(pinged(n, far4))
	conn := n.dial(source{ecn: 1})
	const packets = 200
	send := func(what string, unmarked, overwritten uint64) {
		t.Helper()
		before, counted := s.all(), n.read().Stats
		for range packets {
			_, err := conn.Write(make([]byte, 1000))
			n.must(err)
			time.Sleep(time.Millisecond) // 8 Mbit/s
		}
		time.Sleep(time.Second)
		now := n.read().Stats
		if arrived := s.all() - before; arrived != packets {
			t.Errorf("%s: %d of %d packets arrived", what, arrived, packets)
		}
		u, o, l := now.Unmarked-counted.Unmarked, now.Overwritten-counted.Overwritten, now.PacketsL-counted.PacketsL
		if u != unmarked || o != overwritten || l != packets-u-o {
			t.Errorf("%s: %d unmarked, %d overwritten and %d in L are counted, and not %d, %d and the rest", what, u, o,
				l, unmarked, overwritten)
		}
	}
	for _, place := range []struct {
		name   string
		anchor link.Anchor
	}{{"before", link.Head()}, {"after", link.Tail()}} {
		for word := range 5 {
			for _, value := range []int32{-1, 1} {
				what := fmt.Sprintf("cb[%d] = %d %s the marker", word, value, place.name)
				foreign := n.writer(word, value)
				attached, err := link.AttachTCX(link.TCXOptions{Interface: n.ifindex, Program: foreign,
					Attach: ebpf.AttachTCXEgress, Anchor: place.anchor})
				n.must(err)
				switch {
				case place.name == "before", word == 4: // or where there is no note
					send(what, 0, 0)
				case word == 3: // where the note's tag is
					send(what, packets, 0)
				default:
					send(what, 0, packets)
				}
				n.must(attached.Close())
				n.must(foreign.Close())
			}
		}
	}
	send("by itself again", 0, 0)
}

// TestInSegmented: a packet of several segments takes the time on the wire that all of them do, whoever says how long
// they are.
func TestInSegmented(t *testing.T) {
	n := newNetwork(t)
	// What the kernel is told of a packet, and the marker tells: struct __sk_buff of include/uapi/linux/bpf.h.
	type packet struct {
		Before  [12]uint32
		CB      [5]uint32
		_       [21]uint32
		Tstamp  uint64
		WireLen uint32
		GSOSegs uint32
		_       uint64
		GSOSize uint32
		_       [3]uint32
	}
	const ether, ip, tcp, sctp = 14, 20, 20, 12 // bytes of headers
	const byFrags = 0xffff                      // GSO_BY_FRAGS of include/linux/skbuff.h
	for _, c := range []struct {
		name, framing           string
		len, wire               uint32 // of the packet, and with the headers that the kernel counts for all segments
		segments, size, counted uint32
	}{
		{"one packet", "overhead 18", ether + 1000, ether + 1000, 0, 0, 1018},
		{"TCP, three segments", "overhead 18", ether + ip + tcp + 2500, 3*(ether+ip+tcp) + 2500, 3, 1000,
			3*(18+ip+tcp) + 2500},
		// The kernel takes the transport's header for data.
		{"SCTP, three segments", "overhead 18", ether + ip + sctp + 2900, 3*(ether+ip) + sctp + 2900, 3, byFrags,
			3*(18+ip) + sctp + 2900},
		// 1030 or 1031 bytes each
		{"SCTP in cells", "overhead 40 atm", ether + ip + sctp + 2900, 3*(ether+ip) + sctp + 2900, 3, byFrags,
			3 * 22 * 53},
	} {
		n.put("bpf_dualpi2 rate 50mbit " + c.framing)
		hook, err := atHook(n.ifindex)
		n.must(err)
		in := packet{WireLen: c.wire, GSOSegs: c.segments, GSOSize: c.size}
		var out packet
		data := make([]byte, c.len)
		data[12], data[14] = 8, 0x45 // IPv4
		_, err = hook.Run(&ebpf.RunOptions{Data: data, Context: &in, ContextOut: &out})
		n.must(err)
		n.must(hook.Close())
		if wire := out.CB[0] >> 7; wire != c.counted { // WIRE of bpf/dualpi2.h
			t.Errorf("%s, %s: it counts for %d bytes on the wire, and not for %d", c.name, c.framing, wire, c.counted)
		}
	}
}

// atHook is the first program at a device's hook.
func atHook(ifindex int) (*ebpf.Program, error) {
	all, err := link.QueryPrograms(link.QueryOptions{Target: ifindex, Attach: ebpf.AttachTCXEgress})
	if err != nil || len(all.Programs) == 0 {
		return nil, fmt.Errorf("%d programs, %w", len(all.Programs), err)
	}
	return ebpf.NewProgramFromID(all.Programs[0].ID)
}

// writer is a program at the hook that writes one word of the packet's skb->cb.
func (n *network) writer(word int, value int32) *ebpf.Program {
	n.Helper()
	const cb, next = 48, -1 // struct __sk_buff and enum tcx_action_base of include/uapi/linux/bpf.h
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "writer", Type: ebpf.SchedCLS, AttachType: ebpf.AttachTCXEgress, License: "GPL",
		Instructions: asm.Instructions{
			asm.Mov.Imm(asm.R2, value), asm.StoreMem(asm.R1, int16(cb+4*word), asm.R2, asm.Word),
			asm.Mov.Imm(asm.R0, next), asm.Return(),
		},
	})
	n.must(err)
	return program
}
