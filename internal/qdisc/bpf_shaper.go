// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"syscall"

	"weir/internal/bpf"
	"weir/internal/shaper"
	"weir/internal/units"

	"github.com/mdlayher/netlink"
)

// The attributes by which a recorded bpf_shaper says its options. They are this package's own, and no kernel sees them.
const (
	shaperRate = iota + 0x1001
	shaperShare
	shaperSide
	shaperPrefix6
	shaperFraming
	shaperOverhead
	shaperRaw
	shaperMPU
	shaperClients
)

// BPFShaper is Weir's own shaper (internal/shaper): a program at a device's egress that gives each packet the time at
// which it is to leave, so that clients share a rate on as many CPUs as there are. What is below it keeps these times:
// fq, or mq with fq on each queue.
//
// No kernel lists it. A Tree has it as a root whose handle is Shaper, and what the kernel has for a root below it.
type BPFShaper struct {
	Rate     units.Rate
	Share    units.Share // of the rate that is sent
	Side     string      // dsthost or srchost: the address of a packet that is its client
	Prefix6  uint8       // bits of an IPv6 address that are a client
	ATM      string      // noatm, atm, ptm
	Overhead int32       // bytes added to each packet
	Raw      bool        // counts the device's header, whatever the overhead is
	MPU      uint32      // bytes that a packet counts for at least
	Clients  Clients     // whose weight or rate is their own
}

// Shaper is the handle of a bpf_shaper in a Tree, which no discipline of the kernel's can have.
const Shaper Handle = 0xFFFFFF00

func newBPFShaper() *BPFShaper {
	c := shaper.Defaults()
	return &BPFShaper{Share: c.Share, Side: "dsthost", Prefix6: uint8(c.Prefix6), ATM: c.ATM, Raw: true}
}

func (q BPFShaper) Kind() string   { return BPFShaping }
func (q BPFShaper) String() string { return format(q) }
func (q BPFShaper) edit() editor   { return &q }
func (q BPFShaper) draft() Spec    { return q }

// encode returns every option, as a bpf_dualpi2's does.
func (q BPFShaper) encode(Spec) ([]byte, error) {
	var attributes []netlink.Attribute
	for _, o := range q.edit().options() {
		if o.attr != 0 && (o.skip == nil || !o.skip()) {
			attributes = append(attributes, netlink.Attribute{Type: o.attr, Data: o.encode()})
		}
	}
	return netlink.MarshalAttributes(attributes)
}

func (q *BPFShaper) options() []option {
	framing, overhead, raw, mpu := overheads{&q.ATM, &q.Overhead, &q.Raw, &q.MPU}.options(shaperFraming,
		shaperOverhead, shaperRaw, shaperMPU)
	return []option{
		rate("rate", shaperRate, 8, &q.Rate), q.share(),
		choice(shaperSide, 4, 0, &q.Side, "dsthost", "srchost"),
		count("prefix6", shaperPrefix6, 1, &q.Prefix6, 1, 128),
		framing, overhead, raw, mpu, q.clients(),
	}
}

// share is kept as millionths.
func (q *BPFShaper) share() option {
	const millionths = 1e6
	return value("share", shaperShare, 4,
		func(s string) (uint64, error) {
			share, err := units.ParseShare(s)
			return uint64(float64(share)*millionths + 0.5), err
		},
		func(v uint64) string { return units.Share(float64(v) / millionths).String() },
		func() uint64 { return uint64(float64(q.Share)*millionths + 0.5) },
		func(v uint64) { q.Share = units.Share(float64(v) / millionths) })
}

func (q *BPFShaper) clients() option {
	return option{
		words: []string{"clients"},
		attr:  shaperClients,
		read: func(_ string, a *args) error {
			text, err := a.next()
			if err != nil {
				return err
			}
			q.Clients, err = ParseClients(text)
			return err
		},
		write: func() string {
			if q.Clients == "" {
				return ""
			}
			return "clients " + string(q.Clients)
		},
		skip:   func() bool { return q.Clients == "" },
		encode: func() []byte { return []byte(q.Clients) },
		decode: func(b []byte) (err error) { q.Clients, err = ParseClients(string(b)); return err },
	}
}

func (q *BPFShaper) decode(b []byte, _ device) error { return decodeAttributes(q.options(), b) }

func (q *BPFShaper) finish() (Spec, error) {
	q.Rate -= q.Rate % 8
	c, err := q.config()
	if err == nil {
		err = errors.Join(overheads{&q.ATM, &q.Overhead, &q.Raw, &q.MPU}.check(),
			oneOf("side", q.Side, "dsthost", "srchost"))
	}
	switch {
	case err != nil:
		return nil, err
	case q.Rate == 0:
		return nil, errors.New("needs a rate: bpf_shaper rate 950mbit")
	}
	if err := c.Check(); err != nil {
		return nil, err
	}
	q.Clients = clientsOf(c.Clients)
	return *q, nil
}

// config is what the programs are told.
func (q BPFShaper) config() (shaper.Config, error) {
	clients, err := q.Clients.rules()
	return shaper.Config{Rate: q.Rate, Share: q.Share, BySource: q.Side == "srchost", Prefix6: int(q.Prefix6),
		ATM: q.ATM, Overhead: q.Overhead, Raw: q.Raw, MPU: q.MPU, Clients: clients}, err
}

// shaperOf is what a running one was told.
func shaperOf(c shaper.Config) BPFShaper {
	q := BPFShaper{Rate: c.Rate, Share: c.Share, Side: "dsthost", Prefix6: uint8(c.Prefix6), ATM: c.ATM,
		Overhead: c.Overhead, Raw: c.Raw, MPU: c.MPU, Clients: clientsOf(c.Clients)}
	if c.BySource {
		q.Side = "srchost"
	}
	return q
}

// shaperLoader is what internal/shaper offers. The tests have another.
type shaperLoader interface {
	Install(ifindex, from int, c shaper.Config) error
	Change(ifindex int, c shaper.Config) error
	Read(ifindex int) (shaper.Instance, bool, error)
	Remove(ifindex int) error
	Clean(ifindex int) error
}

// noShaper is for where noBPF is.
type noShaper struct{}

func (noShaper) Install(int, int, shaper.Config) error   { return bpf.ErrNotSupported }
func (noShaper) Change(int, shaper.Config) error         { return bpf.ErrNotSupported }
func (noShaper) Read(int) (shaper.Instance, bool, error) { return shaper.Instance{}, false, nil }
func (noShaper) Remove(int) error                        { return nil }
func (noShaper) Clean(int) error                         { return nil }

// addShaper makes the shaper of an interface the root of its tree, where what the kernel has there keeps times of
// departure. One that cannot be read has no Spec.
func (c *Conn) addShaper(ifindex int, t *Tree) {
	root, ok := t.Root()
	if !ok || !t.keepsTimes(root) {
		return
	}
	i, found, err := c.shaper.Read(ifindex)
	if err != nil || !found {
		return
	}
	top := Qdisc{Kind: BPFShaping, Handle: Shaper, Parent: Root, Stats: root.Stats}
	if i.Known {
		options := shaperOf(i.Config)
		if spec, err := sayable(&options); err == nil {
			top.Spec = spec
			top.Options, _ = spec.encode(nil)
		}
		top.Stats.Marks += i.Stats.Marks
		top.Stats.Drops += i.Stats.Drops
		top.Stats.X = i.Stats
	}
	for j, q := range t.Qdiscs {
		if q.Parent == Root {
			t.Qdiscs[j].Parent = Shaper
		}
	}
	t.Qdiscs = append([]Qdisc{top}, t.Qdiscs...)
}

// keepsTimes reports whether what is at q holds each packet until the time that it was given: fq, also on each of
// several queues.
func (t Tree) keepsTimes(q Qdisc) bool {
	k, _ := row(q.Kind)
	below := t.children(q)
	if k.slots != perQueue {
		return q.Kind == "fq"
	}
	return len(below) > 0 && !slices.ContainsFunc(below, func(q Qdisc) bool { return q.Kind != "fq" })
}

// divide takes a tree's shaper from what the kernel has.
func (t Tree) divide() (top *Qdisc, below Tree) {
	root, ok := t.Root()
	if !ok || root.Kind != BPFShaping {
		return nil, t
	}
	below = Tree{nil, t.Classes, t.Filters}
	for _, q := range t.Qdiscs {
		if q.Handle == Shaper {
			continue
		}
		if q.Parent == Shaper {
			q.Parent = Root
		}
		below.Qdiscs = append(below.Qdiscs, q)
	}
	return &root, below
}

// divide takes the shaper from a stack that has been checked.
func (s Stack) divide() (top *BPFShaper, below Stack) {
	if top, ok := s[0].(BPFShaper); ok {
		return &top, s[1:]
	}
	return nil, s
}

// shaper is what a recorded one was told; nil of none.
func (q *Qdisc) shaper() (*BPFShaper, error) {
	if q == nil {
		return nil, nil
	}
	spec, ok := decode(q.Kind, q.Options, device{}).(BPFShaper)
	if !ok {
		return nil, errors.New("the bpf_shaper could not be read (that takes CAP_SYS_ADMIN, and the version of weir " +
			"that made it)")
	}
	return &spec, nil
}

// setShaper brings a shaper into force, in place where one is, or takes it away.
func (c *Conn) setShaper(ifindex int, want *BPFShaper) error {
	if want == nil {
		return c.removeShaper(ifindex)
	}
	config, err := want.config()
	if err != nil {
		return err
	}
	now, found, err := c.shaper.Read(ifindex)
	switch {
	case err == nil && found && now.Known && shaperOf(now.Config) == *want:
		return nil
	case err == nil && found && now.Known:
		err = c.shaper.Change(ifindex, config)
	default:
		err = c.shaper.Install(ifindex, cmp.Or(c.source, ifindex), config)
	}
	if err != nil {
		return fmt.Errorf("interface %d: install %s: %w", ifindex, want, err)
	}
	return nil
}

// removeShaper takes a shaper away.
func (c *Conn) removeShaper(ifindex int) error {
	if err := ignoreUnavailable(c.shaper.Remove(ifindex)); err != nil {
		return fmt.Errorf("interface %d: the bpf_shaper: %w", ifindex, err)
	}
	return nil
}

// ignoreUnavailable leaves out errors of where one may not look, or cannot: nothing has been put there.
func ignoreUnavailable(err error) error {
	if errors.Is(err, bpf.ErrNotSupported) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENODEV) {
		return nil
	}
	return err
}
