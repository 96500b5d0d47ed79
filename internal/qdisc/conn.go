// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"weir/internal/units"
	"weir/internal/wire"

	"github.com/mdlayher/netlink"
)

// Conn is one rtnetlink socket, in one network namespace. It may be used from several goroutines; each request has it
// to itself.
type Conn struct {
	mu     sync.Mutex
	nl     *netlink.Conn
	bpf    loader
	shaper shaperLoader
	source int // interface that an ifb's packets have arrived at; 0 of any other device
}

// Dial opens one. netns is the file descriptor of a network namespace; 0 is the calling thread's own.
func Dial(netns int) (*Conn, error) {
	nl, err := netlink.Dial(netlinkRoute, &netlink.Config{NetNS: netns})
	if err != nil {
		return nil, fmt.Errorf("rtnetlink: %w", err)
	}
	// Kernels before 4.12 cannot say what was wrong with a request.
	_ = nl.SetOption(netlink.ExtendedAcknowledge, true)
	c := &Conn{nl: nl, bpf: noBPF{}, shaper: noShaper{}}
	if netns == 0 {
		c.bpf, c.shaper = loadersHere()
	}
	return c, nil
}

// Close closes the socket.
func (c *Conn) Close() error { return c.nl.Close() }

// kernelError puts the kernel's own explanation first. errors.Is finds the errno in it, errors.As the *netlink.OpError.
type kernelError struct{ op *netlink.OpError }

func (e kernelError) Unwrap() error { return e.op }
func (e kernelError) Error() string {
	if e.op.Message == "" {
		return e.op.Err.Error()
	}
	return fmt.Sprintf("%s (%v)", e.op.Message, e.op.Err)
}

func explain(err error) error {
	var op *netlink.OpError
	if errors.As(err, &op) {
		return kernelError{op}
	}
	return err
}

// The attributes of disciplines, classes and filters (TCA_*, include/uapi/linux/rtnetlink.h).
const (
	tcaKind         = 1
	tcaOptions      = 2
	tcaStats        = 3
	tcaStats2       = 7
	tcaStab         = 8
	tcaChain        = 11
	tcaOffload      = 12
	tcaIngressBlock = 13
	tcaEgressBlock  = 14
)

// tcmsg is struct tcmsg (include/uapi/linux/rtnetlink.h) without its family and padding.
type tcmsg struct {
	ifindex        int
	handle, parent Handle
	info           uint32
}

const tcmsgLen = 20

func (m tcmsg) bytes() []byte {
	b := make([]byte, 4, tcmsgLen)
	for _, v := range []uint32{uint32(m.ifindex), uint32(m.handle), uint32(m.parent), m.info} {
		b = binary.NativeEndian.AppendUint32(b, v)
	}
	return b
}

// split takes an answer apart; a known kind of attribute that is too short for what it says is an error.
func split(m netlink.Message, want uint16) (tcmsg, []netlink.Attribute, error) {
	if uint16(m.Header.Type) != want {
		return tcmsg{}, nil, fmt.Errorf("the kernel answered with message type %d, not %d", m.Header.Type, want)
	}
	if len(m.Data) < tcmsgLen {
		return tcmsg{}, nil, fmt.Errorf("the kernel's answer is cut off after %d bytes", len(m.Data))
	}
	v := func(i int) uint32 { return binary.NativeEndian.Uint32(m.Data[4*i:]) }
	attributes, err := unpack(m.Data[tcmsgLen:])
	if err != nil {
		return tcmsg{}, nil, fmt.Errorf("the kernel's answer: %w", err)
	}
	return tcmsg{int(int32(v(1))), Handle(v(2)), Handle(v(3)), v(4)}, attributes, nil
}

// text is a string attribute up to its NUL. No kernel has sent other than ASCII, and JSON could not carry it.
func cString(b []byte) string {
	if i := slices.Index(b, 0); i >= 0 {
		b = b[:i]
	}
	return strings.ToValidUTF8(string(b), "?")
}

// dump asks for a list. One that changed meanwhile is asked for again.
func (c *Conn) dump(typ uint16, flags netlink.HeaderFlags, body []byte) ([]netlink.Message, error) {
	const attempts = 4
	for range attempts {
		answer, err := c.nl.Execute(
			netlink.Message{Header: netlink.Header{Type: netlink.HeaderType(typ), Flags: netlink.Request | flags},
				Data: body})
		if err != nil {
			return nil, explain(err)
		}
		if !slices.ContainsFunc(answer,
			func(m netlink.Message) bool { return m.Header.Flags&netlink.DumpInterrupted != 0 }) {
			return answer, nil
		}
	}
	return nil, errors.New("the list changed each time it was read")
}

// devices asks for what the kernel's defaults follow, of one interface or (0) of all.
func (c *Conn) devices(ifindex int) (map[int]device, error) {
	const (
		skipStats = 8 // RTEXT_FILTER_SKIP_STATS
		ether     = 1 // ARPHRD_ETHER
		loopback  = 772
	)
	body := make([]byte, 16) // struct ifinfomsg
	binary.NativeEndian.PutUint32(body[4:], uint32(ifindex))
	attribute, err := netlink.MarshalAttributes(
		[]netlink.Attribute{{Type: iflaExtMask, Data: u32bytes(skipStats)}})
	if err != nil {
		return nil, err
	}
	flags := netlink.Dump
	if ifindex != 0 {
		flags = 0
	}
	answer, err := c.dump(getLink, flags, append(body, attribute...))
	if err != nil {
		return nil, err
	}
	found := map[int]device{}
	for _, m := range answer {
		if m.Header.Type != newLink || len(m.Data) < len(body) {
			return nil, fmt.Errorf("the kernel's list of interfaces is cut off after %d bytes", len(m.Data))
		}
		attributes, err := unpack(m.Data[len(body):])
		if err != nil {
			return nil, fmt.Errorf("the kernel's list of interfaces: %w", err)
		}
		d := device{present: true}
		if kind := binary.NativeEndian.Uint16(m.Data[2:]); kind == ether || kind == loopback {
			d.header, d.known = wire.EthernetHeader, true
		}
		for _, a := range attributes {
			f := &fields{a.Data}
			switch a.Type {
			case iflaMTU:
				d.mtu = f.u32()
			case iflaTxQLen:
				d.queue = f.u32()
			}
		}
		found[int(int32(binary.NativeEndian.Uint32(m.Data[4:])))] = d
	}
	return found, nil
}

// Trees reads every interface's tree, by interface index; one that has never been up has an empty tree.
func (c *Conn) Trees() (map[int]Tree, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.trees(0)
}

// Tree reads one interface's tree.
func (c *Conn) Tree(ifindex int) (Tree, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tree(ifindex)
}

// RootStats reads the counters of an interface's root alone, for those who look often: a tenth of a Tree's cost, but
// for mq and cake_mq. A root that the kernel does not list, as that of an interface that is down, has none. What a
// bpf_dualpi2 counts by itself is not read: that costs more than all the rest.
func (c *Conn) RootStats(ifindex int) (Stats, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fail := func(err error) (Stats, bool, error) {
		return Stats{}, false, fmt.Errorf("counters of interface %d: %w", ifindex, explain(err))
	}
	// Without NLM_F_ECHO the kernel tells only those who listen to changes (net/sched/sch_api.c, qdisc_get_notify);
	// with an acknowledgement there is always something to wait for.
	sent, err := c.nl.Send(netlink.Message{
		Header: netlink.Header{Type: getQdisc, Flags: netlink.Request | netlink.Acknowledge | netlink.Echo},
		Data:   tcmsg{ifindex: ifindex, parent: Root}.bytes(),
	})
	if err != nil {
		return fail(err)
	}
	var stats Stats
	found, kind := false, ""
	for {
		answer, err := c.nl.Receive()
		if err != nil {
			return fail(err)
		}
		if err := netlink.Validate(sent, answer); err != nil {
			return fail(err)
		}
		for _, m := range answer {
			if m.Header.Type == netlink.Error { // of code 0: the acknowledgement
				if k, _ := row(kind); k.perDelivery {
					t, err := c.tree(ifindex)
					root, found := t.Root()
					return root.Stats, found, err
				}
				return stats, found, nil
			}
			at, attributes, err := split(m, newQdisc)
			if err != nil {
				return fail(err)
			}
			q, err := readQdisc(at, attributes, device{})
			if err != nil {
				return fail(err)
			}
			stats, found, kind = q.Stats, true, q.Kind
		}
	}
}

func (c *Conn) tree(ifindex int) (Tree, error) {
	trees, err := c.trees(ifindex)
	if err != nil {
		return Tree{}, err
	}
	t, ok := trees[ifindex]
	if !ok {
		return Tree{}, fmt.Errorf("interface %d: %w", ifindex, syscall.ENODEV)
	}
	return t, nil
}

func (c *Conn) trees(ifindex int) (map[int]Tree, error) {
	devices, err := c.devices(ifindex)
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	answer, err := c.dump(getQdisc, netlink.Dump, tcmsg{ifindex: ifindex}.bytes())
	if err != nil {
		return nil, fmt.Errorf("list queueing disciplines: %w", err)
	}
	trees := map[int]Tree{}
	for i := range devices {
		trees[i] = Tree{}
	}
	for _, m := range answer {
		at, attributes, err := split(m, newQdisc)
		if err != nil {
			return nil, fmt.Errorf("list queueing disciplines: %w", err)
		}
		if ifindex != 0 && at.ifindex != ifindex { // most kernels list all
			continue
		}
		q, err := readQdisc(at, attributes, devices[at.ifindex])
		if err != nil {
			return nil, fmt.Errorf("interface %d: %w", at.ifindex, err)
		}
		c.instance(at.ifindex, &q)
		t := trees[at.ifindex]
		t.Qdiscs = append(t.Qdiscs, q)
		trees[at.ifindex] = t
	}
	for i, t := range trees {
		if err := c.complete(i, &t, devices[i]); err != nil {
			return nil, fmt.Errorf("interface %d: %w", i, err)
		}
		c.addShaper(i, &t)
		trees[i] = t
	}
	return trees, nil
}

func readQdisc(at tcmsg, attributes []netlink.Attribute, d device) (Qdisc, error) {
	q := Qdisc{Handle: at.handle, Parent: at.parent}
	var stats []byte
	for _, a := range attributes {
		f := &fields{a.Data}
		switch a.Type {
		case tcaKind:
			q.Kind = cString(a.Data)
		case tcaOptions:
			q.Options = a.Data
		case tcaStats2:
			stats = a.Data
		case tcaStab:
			q.SizeTable = a.Data
		case tcaIngressBlock:
			q.IngressBlock = f.u32()
		case tcaEgressBlock:
			q.EgressBlock = f.u32()
		case tcaOffload:
			q.Offloaded = len(a.Data) > 0 && a.Data[0] != 0
		}
	}
	if q.Kind == "" {
		return q, errors.New("the kernel reports a queueing discipline without a kind")
	}
	var err error
	if q.Stats, err = decodeQdiscStats(q.Kind, stats); err != nil {
		return q, err
	}
	if k, _ := find(q.Kind); k.slots != classSlot { // that one has its options in its class
		q.Spec = decode(q.Kind, q.Options, d)
	}
	return q, nil
}

// classful reports whether somebody makes the classes of a kind.
func classful(kind string) bool { k, _ := row(kind); return k.classes }

// complete adds the classes, the filters, and what can only be said with them.
func (c *Conn) complete(ifindex int, t *Tree, d device) error {
	if slices.ContainsFunc(t.Qdiscs, func(q Qdisc) bool { return classful(q.Kind) }) {
		answer, err := c.dump(getClass, netlink.Dump, tcmsg{ifindex: ifindex}.bytes())
		if err != nil {
			return fmt.Errorf("list classes: %w", err)
		}
		for _, m := range answer {
			at, attributes, err := split(m, newClass)
			if err != nil {
				return fmt.Errorf("list classes: %w", err)
			}
			class, err := readClass(at, attributes)
			if err != nil {
				return err
			}
			if classful(class.Kind) {
				t.Classes = append(t.Classes, class)
			}
		}
	}
	for i := range t.Qdiscs {
		if q := &t.Qdiscs[i]; q.Kind == "htb" {
			q.Spec = t.readHTB(*q, d)
		}
	}
	for i := range t.Qdiscs {
		q := &t.Qdiscs[i]
		if k, _ := row(q.Kind); k.perDelivery {
			for _, child := range t.children(*q) {
				q.Stats.Marks += child.Stats.Marks
			}
		}
	}
	for _, q := range t.Qdiscs {
		if k, _ := row(q.Kind); q.Parent == Ingress || k.unfiltered || q.Handle == 0 && q.Parent != Root {
			continue
		}
		filters, err := c.filters(ifindex, q.Handle)
		if err != nil {
			return err
		}
		templates, err := c.templates(ifindex, q.Handle)
		if err != nil {
			return err
		}
		t.Filters = append(append(t.Filters, markRoots(filters)...), templates...)
	}
	for _, class := range t.Classes {
		if class.Handle.minor() == 0 { // hfsc's root, whose filters are the qdisc's
			continue
		}
		filters, err := c.filters(ifindex, class.Handle)
		if err != nil {
			return err
		}
		t.Filters = append(t.Filters, markRoots(filters)...)
	}
	*t = t.sorted()
	return nil
}

func readClass(at tcmsg, attributes []netlink.Attribute) (Class, error) {
	class := Class{Handle: at.handle, Parent: at.parent, Leaf: Handle(at.info)}
	var stats []byte
	for _, a := range attributes {
		switch a.Type {
		case tcaKind:
			class.Kind = cString(a.Data)
		case tcaOptions:
			class.Options = a.Data
		case tcaStats2:
			stats = a.Data
		}
	}
	var err error
	if class.Stats, err = decodeClassStats(class.Kind, stats); err != nil {
		return class, err
	}
	switch class.Kind {
	case "htb":
		var htb HTB
		if err := htb.decodeClass(class.Options); err == nil {
			class.Rate, class.Ceil = htb.Rate, htb.Ceil
		}
	case "hfsc":
		class.Rate = upperLimit(class.Options)
		class.Ceil = class.Rate
	}
	return class, nil
}

// upperLimit is what an hfsc class may have at most, in bit/s, once its burst is over; 0: all that there is.
func upperLimit(options []byte) units.Rate {
	const curve, curveLen, rate = 3, 12, 8 // TCA_HFSC_USC, struct tc_service_curve, its m2
	if b := inner(options, curve); len(b) == curveLen {
		return units.Rate(8 * uint64(binary.NativeEndian.Uint32(b[rate:])))
	}
	return 0
}

// readHTB puts an htb and its one class together; nil if it has another shape.
func (t Tree) readHTB(q Qdisc, d device) Spec {
	htb := newHTB()
	if err := htb.decode(q.Options, d); err != nil {
		return nil
	}
	var classes []Class
	for _, class := range t.Classes {
		if class.Handle.major() == q.Handle.major() {
			classes = append(classes, class)
		}
	}
	if len(classes) != 1 || classes[0].Parent != Root || classes[0].Handle.minor() != htb.Class {
		return nil
	}
	if err := htb.decodeClass(classes[0].Options); err != nil {
		return nil
	}
	spec, _ := sayable(htb)
	return spec
}

// errNoFilters is what a kernel without filters, or a discipline that takes none, says.
func errNoFilters(err error) bool {
	return errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOENT)
}

// filters lists those that hang at parent.
func (c *Conn) filters(ifindex int, parent Handle) ([]Filter, error) {
	list, err := c.listFilters(getFilter, newFilter, "filters", ifindex, parent)
	if errors.Is(err, syscall.EMSGSIZE) {
		// What the kernel says for ever of fw where no mark is given (net/sched/cls_fw.c, fw_walk): it takes each
		// packet's for its class.
		return []Filter{{Parent: parent}}, nil
	}
	// One without a number and options only announces those that follow.
	return slices.DeleteFunc(list, func(f Filter) bool { return f.Options == nil && f.Handle == 0 }), err
}

// templates lists the chains below a discipline that say what their filters are to look like (tc chain add). A kernel
// before 4.19 has none.
func (c *Conn) templates(ifindex int, parent Handle) ([]Filter, error) {
	all, err := c.listFilters(getChain, newChain, "chains", ifindex, parent)
	var list []Filter
	for _, f := range all {
		if f.Kind != "" { // else its filters are of any kind
			list = append(list, Filter{Parent: f.Parent, Template: true, Kind: f.Kind, Chain: f.Chain})
		}
	}
	return list, err
}

func (c *Conn) listFilters(get, answered uint16, what string, ifindex int, parent Handle) ([]Filter, error) {
	answer, err := c.dump(get, netlink.Dump, tcmsg{ifindex: ifindex, parent: parent}.bytes())
	if errNoFilters(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", what, err)
	}
	var list []Filter
	for _, m := range answer {
		at, attributes, err := split(m, answered)
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", what, err)
		}
		protocol := uint16(at.info)
		f := Filter{Parent: at.parent, Handle: uint32(at.handle), Priority: uint16(at.info >> 16),
			Protocol: binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, protocol))}
		for _, a := range attributes {
			switch a.Type {
			case tcaKind:
				f.Kind = cString(a.Data)
			case tcaOptions:
				if len(a.Data) > 0 { // JSON does not tell none from empty
					f.Options = a.Data
				}
			case tcaStats:
				f.drops = policerDrops(a.Data)
			case tcaChain:
				f.Chain = (&fields{a.Data}).u32()
			}
		}
		list = append(list, f)
	}
	return list, nil
}
