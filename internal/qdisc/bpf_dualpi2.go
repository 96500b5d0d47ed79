// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"weir/internal/bpf"
	"weir/internal/dualpi2"
	"weir/internal/units"

	"github.com/mdlayher/netlink"
)

// The attributes by which a recorded bpf_dualpi2 says what dualpi2 has no attribute for. They are this package's own,
// and no kernel sees them.
const (
	bpfRate = iota + 0x1001
	bpfFraming
	bpfOverhead
	bpfRaw
	_ // 0x1005 and all from 0x1007 on are rows in internal/dualpi2
	bpfLLLL
)

// BPFDualPI2 is Weir's own DualPI2, for kernels that have BPF qdiscs and no sch_dualpi2, with a shaper besides
// (internal/dualpi2). It is a root, and nothing hangs below it. Its options are dualpi2's; overhead and framing are
// cake's.
type BPFDualPI2 dualpi2.Config

func newBPFDualPI2() *BPFDualPI2 {
	q := BPFDualPI2(dualpi2.Defaults())
	return &q
}

func (q BPFDualPI2) Kind() string   { return BPF }
func (q BPFDualPI2) String() string { return format(q) }
func (q BPFDualPI2) edit() editor   { return &q }

// encode returns every option, whatever base has: no message carries them, and a recorded tree is to mean the same to a
// later version, whose defaults may be others.
func (q BPFDualPI2) encode(Spec) ([]byte, error) {
	var attributes []netlink.Attribute
	for _, o := range q.edit().options() {
		if o.attr != 0 && (o.skip == nil || !o.skip()) && (o.unsent == nil || !o.unsent()) {
			attributes = append(attributes, netlink.Attribute{Type: o.attr, Data: o.encode()})
		}
	}
	return netlink.MarshalAttributes(attributes)
}

func (q *BPFDualPI2) options() []option {
	list := (*dualPI2Spec)(&q.Options).options()
	for i, o := range list {
		switch o.attr {
		case dualpi2Limit:
			list[i] = count("limit", dualpi2Limit, 4, &q.Limit, 1, dualpi2.MaxLimit)
		case dualpi2Alpha: // it is not rounded, so nor is it unrounded
			list[i].decode = hertz("alpha", dualpi2Alpha, &q.Alpha).decode
		case dualpi2Beta:
			list[i].decode = hertz("beta", dualpi2Beta, &q.Beta).decode
		}
	}
	framing, overhead, raw, _ := overheads{&q.ATM, &q.Overhead, &q.Raw, &q.MPU}.options(bpfFraming, bpfOverhead,
		bpfRaw, 0)
	list = append(list, orUnlimited(rate("rate", bpfRate, 8, &q.Rate), &q.Rate), framing, overhead, raw)
	for _, n := range dualpi2.Numbers() {
		list = append(list, count(n.Word, n.Attr, 4, n.Value((*dualpi2.Config)(q)), uint64(n.Low), uint64(n.High)))
	}
	return append(list, q.llll())
}

// llll says mark and mask in one word.
func (q *BPFDualPI2) llll() option {
	return option{
		words: []string{"llll_mark"},
		attr:  bpfLLLL,
		read: func(_ string, a *args) error {
			text, err := a.next()
			if err != nil {
				return err
			}
			value, mask, masked := strings.Cut(text, "/")
			if !masked {
				mask = "0xffffffff"
			}
			v, err1 := strconv.ParseUint(value, 0, 32)
			m, err2 := strconv.ParseUint(mask, 0, 32)
			switch {
			case err1 != nil || err2 != nil:
				return fmt.Errorf("%q is not VALUE/MASK: write it like 0x1/0xff", text)
			case v == 0 && !masked:
				return errors.New("0 is what packets without a mark have: write 0/0 for none, or name the bits: 0/0x1")
			}
			q.LLLLMark, q.LLLLMask = uint32(v), uint32(m)
			return nil
		},
		write:  func() string { return fmt.Sprintf("llll_mark 0x%x/0x%x", q.LLLLMark, q.LLLLMask) },
		encode: func() []byte { return slices.Concat(u32bytes(q.LLLLMark), u32bytes(q.LLLLMask)) },
		decode: func(b []byte) error {
			if len(b) != 8 {
				return fmt.Errorf("is %d bytes long", len(b))
			}
			q.LLLLMark, q.LLLLMask = binary.NativeEndian.Uint32(b), binary.NativeEndian.Uint32(b[4:])
			return nil
		},
	}
}

func (q *BPFDualPI2) decode(b []byte, _ device) error { return decodeAttributes(q.options(), b) }

func (q *BPFDualPI2) finish() (Spec, error) {
	spec, err := (*dualPI2Spec)(&q.Options).finish()
	if err == nil {
		err = overheads{&q.ATM, &q.Overhead, &q.Raw, &q.MPU}.check()
	}
	if err == nil {
		err = dualpi2.Config(*q).CheckNumbers()
	}
	const least = 1000 // bit/s: a packet in 12 seconds
	switch {
	case err != nil:
		return nil, err
	case q.Limit > dualpi2.MaxLimit:
		return nil, fmt.Errorf("limit %d is out of range (1 to %d)", q.Limit, dualpi2.MaxLimit)
	case q.Rate != 0 && q.Rate < least:
		return nil, fmt.Errorf("rate %s is below %s", q.Rate, units.Rate(least))
	case q.LLLLMark&^q.LLLLMask != 0:
		return nil, fmt.Errorf("llll_mark 0x%x has bits that its mask 0x%x leaves out", q.LLLLMark, q.LLLLMask)
	}
	q.Options = dualpi2.Options(spec.(dualPI2Spec))
	q.Rate -= q.Rate % 8
	return *q, nil
}

// loader is what internal/dualpi2 offers. The tests have another.
type loader interface {
	Install(ifindex int, c dualpi2.Config, place func(kind string) error) error
	Change(ifindex int, c dualpi2.Config) error
	Read(ifindex int) (dualpi2.Instance, bool, error)
	Clean(ifindex int) error
}

// noBPF is for a socket in a network namespace that is not the thread's, where BPF programs could not be found; and
// for other systems than Linux.
type noBPF struct{}

func (noBPF) Install(int, dualpi2.Config, func(string) error) error { return bpf.ErrNotSupported }
func (noBPF) Change(int, dualpi2.Config) error                      { return bpf.ErrNotSupported }
func (noBPF) Read(int) (dualpi2.Instance, bool, error)              { return dualpi2.Instance{}, false, nil }
func (noBPF) Clean(int) error                                       { return nil }

// instance makes of a root of one of dualpi2's kinds what it is. One that cannot be read (that takes CAP_SYS_ADMIN), or
// is another version's, keeps the kernel's name for it and has no Spec.
func (c *Conn) instance(ifindex int, q *Qdisc) {
	if q.Parent != Root || !strings.HasPrefix(q.Kind, dualpi2.Prefix) {
		return
	}
	i, ok, err := c.bpf.Read(ifindex)
	if err != nil || !ok || !i.Placed || !i.Known || i.Kind != q.Kind {
		return
	}
	options := BPFDualPI2(i.Config)
	spec, err := sayable(&options)
	if err != nil {
		return
	}
	if q.Options, err = spec.encode(nil); err != nil {
		return
	}
	q.Kind, q.Spec = spec.Kind(), spec
	q.Stats.Marks, q.Stats.X = i.Stats.ECNMarks, i.Stats
}

// install is the request of a bpf_dualpi2: its kind is known only once its programs are loaded.
func (c *Conn) install(r request) error {
	err := c.bpf.Install(r.at.ifindex, dualpi2.Config(*r.instance), func(kind string) error {
		placed, err := newRequest(uint16(r.message.Header.Type), r.message.Header.Flags, r.at, "put "+kind+" in place",
			attributes(kind, nil)...)
		if err != nil {
			return err
		}
		return c.send([]request{placed})
	})
	if err != nil {
		return fmt.Errorf("%s: %w", r.what, err)
	}
	return nil
}

// changeInstance gives an instance other options in place.
func (c *Conn) changeInstance(ifindex int, next BPFDualPI2) error {
	if err := c.bpf.Change(ifindex, dualpi2.Config(next)); err != nil {
		return fmt.Errorf("interface %d: change to %s: %w: replace it", ifindex, next, err)
	}
	return nil
}

// Clean takes away what a bpf_dualpi2 or a bpf_shaper has left on an interface from which somebody else has taken its
// qdisc: a program, and a limit on superpackets. Replace, Delete and Restore do that, too. Of a bpf_shaper that was
// ended while it was installed, it takes away a clsact that was not there before.
func (c *Conn) Clean(ifindex int, before Tree) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.clean(ifindex)
	if slices.ContainsFunc(before.Qdiscs, atTheIngress) {
		return err
	}
	if e := ignoreUnavailable(c.shaper.Clean(ifindex)); e != nil {
		err = errors.Join(err, fmt.Errorf("interface %d: what a bpf_shaper left: %w", ifindex, e))
	}
	return err
}

// clean takes away what an instance has left whose qdisc is gone from a device. Where it may not look, it has left
// none.
func (c *Conn) clean(ifindex int) error {
	if _, found, err := c.shaper.Read(ifindex); err == nil && found {
		t, err := c.tree(ifindex)
		if err != nil {
			return err
		}
		if root, _ := t.Root(); root.Kind != BPFShaping {
			if err := c.removeShaper(ifindex); err != nil {
				return err
			}
		}
	}
	if err := ignoreUnavailable(c.bpf.Clean(ifindex)); err != nil {
		return fmt.Errorf("interface %d: what a bpf_dualpi2 left: %w", ifindex, err)
	}
	return nil
}
