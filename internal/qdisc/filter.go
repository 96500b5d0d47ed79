// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/mdlayher/netlink"
)

// filterKind says which of a filter's options make it what it is. The kernel reports others besides, some of which it
// does not take back.
//
// The lists are what live tests have put back and found the same: a filter with anything else is not Restorable.
type filterKind struct {
	name     string
	said     [][2]uint16 // attributes that say what it does, from and to
	reported []uint16    // counters
	flags    uint16      // TCA_*_FLAGS, 0: it has none
	actions  uint16      // TCA_*_ACT
	police   uint16      // TCA_*_POLICE, the older way to say an action, 0: it has none
}

// filterKinds has the attributes by their numbers in include/uapi/linux/pkt_cls.h.
func filterKinds() []filterKind {
	return []filterKind{
		// CLASSID, EMATCHES, ACT, POLICE; PCNT, PAD
		{name: "basic", said: [][2]uint16{{1, 4}}, reported: []uint16{5, 6}, actions: 3, police: 4},
		// ACT; CLASSID, OPS_LEN, OPS; FLAGS, FLAGS_GEN
		{name: "bpf", said: [][2]uint16{{1, 1}, {3, 5}, {8, 9}}, flags: 9, actions: 1},
		// CLASSID to KEY_VLAN_ETH_TYPE; KEY_TCP_SRC_MASK to KEY_SCTP_DST; KEY_ICMPV4_CODE to KEY_ARP_THA_MASK;
		// KEY_TCP_FLAGS to KEY_CVLAN_ETH_TYPE; KEY_PORT_SRC_MIN to KEY_PORT_DST_MAX; IN_HW_COUNT
		{name: "flower", said: [][2]uint16{{1, 25}, {35, 42}, {49, 66}, {71, 79}, {87, 90}},
			reported: []uint16{flowerInHardware}, flags: flowerFlags, actions: 3},
		// CLASSID, POLICE, INDEV, ACT, MASK
		{name: "fw", said: [][2]uint16{{1, 5}}, actions: 4, police: 2},
		// CLASSID, ACT, FLAGS; PCNT, PAD
		{name: "matchall", said: [][2]uint16{{1, 3}}, reported: []uint16{4, 5}, flags: 3, actions: matchallAct},
		// CLASSID to INDEV; MARK, FLAGS; PCNT, PAD
		{name: "u32", said: [][2]uint16{{1, 8}, {10, 11}}, reported: []uint16{9, 12}, flags: 11, actions: 7, police: 6},
	}
}

// actionKind is the same of an action (include/uapi/linux/tc_act/tc_*.h).
type actionKind struct {
	name     string
	parms    uint16 // its struct, of size bytes
	size     int
	uses     [2]int   // offsets in it: how many have it in all, and how many filters
	said     []uint16 // attributes beside the struct
	reported []uint16
}

func actionKinds() []actionKind {
	uses := [2]int{12, 16} // in tc_gen, with which all but police begin (include/uapi/linux/pkt_cls.h)
	return []actionKind{
		// PARMS; PROB; TM, PAD
		{name: "gact", parms: 2, size: 20, uses: uses, said: []uint16{3}, reported: []uint16{1, 4}},
		// PARMS; TM, PAD
		{name: "mirred", parms: mirredParms, size: mirredLen, uses: uses, reported: []uint16{1, 3}},
		// TBF; RESULT, RATE64, PEAKRATE64, PKTRATE64, PKTBURST64; TM, PAD
		{name: "police", parms: 1, size: policeLen, uses: [2]int{policeRefs, policeBinds},
			said: []uint16{5, 8, 9, 10, 11}, reported: []uint16{6, 7}},
		// PARMS; PRIORITY, QUEUE_MAPPING, MARK, PTYPE, MASK, FLAGS, QUEUE_MAPPING_MAX; TM, PAD
		{name: "skbedit", parms: 2, size: 20, uses: uses, said: []uint16{3, 4, 5, 7, 8, 9, 10},
			reported: []uint16{1, 6}},
	}
}

// struct tc_police, two of whose fields are a struct tc_ratespec (include/uapi/linux/pkt_cls.h, pkt_sched.h).
const (
	policeLen   = 56
	policeRate  = 20 // the offset of the rate's struct, and next to it the peak rate's
	policePeak  = 32
	policeRefs  = 44
	policeBinds = 48
	rateCellLog = 0 // offsets in a tc_ratespec
	rateBytes   = 8

	policeRateTable = 2 // TCA_POLICE_RATE
	policePeakTable = 3
	rateTableLen    = 1024 // TC_RTAB_SIZE
)

// configuration is a filter's options without what only counts, as the kernel takes them. The error says what may not
// come back.
func (f Filter) configuration() ([]byte, error) {
	at := slices.IndexFunc(filterKinds(), func(k filterKind) bool { return k.name == f.Kind })
	switch {
	case f.Template:
		return nil, errors.New("its template says what filters there are to look like, and no test has shown that it " +
			"comes back")
	case f.Kind == "":
		return nil, errors.New("the kernel cannot list them, which fw without a mark leads to")
	case at < 0:
		return nil, errors.New("no test has shown that filters of this kind come back")
	case f.Options == nil:
		return nil, errors.New("the kernel does not report what it does")
	}
	k := filterKinds()[at]
	list, err := unpack(f.Options)
	if err != nil {
		return nil, err
	}
	var kept []netlink.Attribute
	for _, a := range list {
		switch {
		case slices.Contains(k.reported, a.Type):
			continue
		case !slices.ContainsFunc(k.said, func(span [2]uint16) bool { return span[0] <= a.Type && a.Type <= span[1] }):
			return nil, fmt.Errorf("no test has shown that one with attribute %d comes back", a.Type)
		case a.Type == k.actions:
			a.Data, err = actions(a.Data)
		case a.Type == k.police:
			police := slices.IndexFunc(actionKinds(), func(k actionKind) bool { return k.name == "police" })
			a.Data, err = actionKinds()[police].options(a.Data)
		case a.Type == k.flags && len(a.Data) == 4:
			const asked = 1 | 2 | 16 // TCA_CLS_FLAGS_SKIP_HW, SKIP_SW, VERBOSE; the others say what came of it
			flags := binary.NativeEndian.Uint32(a.Data) & asked
			if flags == 0 {
				continue
			}
			a.Data = u32bytes(flags)
		case f.Kind == "u32" && a.Type == u32Mark && len(a.Data) == 12:
			a.Data = append(slices.Clone(a.Data[:8]), make([]byte, 4)...) // its success counts
		case f.Kind == "basic" && a.Type == 2:
			err = ematches(a.Data)
		}
		if err != nil {
			return nil, err
		}
		kept = append(kept, a)
	}
	// TCA_BPF_OPS
	if f.Kind == "bpf" && !slices.ContainsFunc(kept, func(a netlink.Attribute) bool { return a.Type == 5 }) {
		return nil, errors.New("the kernel does not report its program")
	}
	if f.Kind == "flower" {
		if kept, err = f.outerType(kept); err != nil {
			return nil, err
		}
	}
	return netlink.MarshalAttributes(kept)
}

// outerType puts the Ethernet type of flower's filters for VLANs back. The kernel reports that of what is in the
// innermost tag. It takes keys for tags only with that of the outermost (net/sched/cls_flower.c, fl_set_key), which is
// the protocol as tc makes them.
func (f Filter) outerType(list []netlink.Attribute) ([]netlink.Attribute, error) {
	const ethType, vlanID, vlanType = flowerEthType, 23, 25
	tagged := f.Protocol == ethVLAN || f.Protocol == ethService
	at := 0
	for i, a := range list {
		switch {
		case a.Type == ethType:
			at = i
		case vlanID <= a.Type && a.Type <= vlanType && !tagged:
			return nil, errors.New("the kernel does not report the type of its outer tag")
		}
	}
	if !tagged {
		return list, nil
	}
	outer := netlink.Attribute{Type: ethType, Data: binary.BigEndian.AppendUint16(nil, f.Protocol)}
	if len(list) > 0 && list[at].Type == ethType {
		list[at] = outer
		return list, nil
	}
	return append(list, outer), nil
}

// ematches refuses extended matches that no test has shown to come back (tc-ematch(8)).
func ematches(tree []byte) error {
	const list, container, cmp, nbyte, u32, meta = 2, 0, 1, 2, 3, 4 // TCA_EMATCH_TREE_LIST, TCF_EM_*
	matches, err := unpack(inner(tree, list))
	for _, m := range matches {
		if len(m.Data) < 4 {
			return errors.New("has an extended match that is cut off")
		}
		// struct tcf_ematch_hdr: an id, the kind, flags.
		if kind := binary.NativeEndian.Uint16(m.Data[2:]); !slices.Contains([]uint16{container, cmp, nbyte, u32, meta},
			kind) {
			return fmt.Errorf("no test has shown that extended matches of kind %d come back", kind)
		}
	}
	return err
}

// actions are a filter's actions, one after the other, as they make the same anew.
func actions(reported []byte) ([]byte, error) {
	list, err := unpack(reported)
	if err != nil {
		return nil, err
	}
	for i := range list {
		if list[i].Data, err = action(list[i].Data); err != nil {
			return nil, err
		}
	}
	return netlink.MarshalAttributes(list)
}

// action returns an action of a filter's own. The number that the kernel had given it is another's by the time that it
// comes back: it gets a new one.
func action(reported []byte) ([]byte, error) {
	const stats, cookie, flags, hwStats = 4, 6, 7, 8 // TCA_ACT_*
	name := cString(inner(reported, actKind))
	at := slices.IndexFunc(actionKinds(), func(k actionKind) bool { return k.name == name })
	if at < 0 {
		return nil, fmt.Errorf("no test has shown that its action %s comes back", name)
	}
	list, err := unpack(reported)
	if err != nil {
		return nil, err
	}
	for _, a := range list {
		if a.Type == stats && inner(a.Data, statsRate) != nil {
			return nil, fmt.Errorf("its action %s %w", name, errEstimated)
		}
	}
	list = slices.DeleteFunc(list, func(a netlink.Attribute) bool {
		return !slices.Contains([]uint16{actKind, actOptions, cookie, flags, hwStats}, a.Type)
	})
	for i := range list {
		if list[i].Type == actOptions {
			if list[i].Data, err = actionKinds()[at].options(list[i].Data); err != nil {
				return nil, fmt.Errorf("its action %s %w", name, err)
			}
			list[i].Type |= netlink.Nested
		}
	}
	return netlink.MarshalAttributes(list)
}

func (k actionKind) options(reported []byte) ([]byte, error) {
	list, err := unpack(reported)
	if err != nil {
		return nil, err
	}
	var kept, tables []netlink.Attribute
	for _, a := range list {
		switch {
		case a.Type == k.parms && len(a.Data) == k.size:
			for _, use := range k.uses {
				if binary.NativeEndian.Uint32(a.Data[use:]) != 1 {
					return nil, errors.New("is shared with others, or was made by itself")
				}
			}
			a.Data = slices.Clone(a.Data)
			for _, at := range []int{0, k.uses[0], k.uses[1]} { // the index is first in each
				clear(a.Data[at : at+4])
			}
			switch k.name {
			case "mirred":
				if binary.NativeEndian.Uint32(a.Data[mirredDevice:]) == 0 {
					return nil, errors.New("leads to a device that is gone, or to a shared block")
				}
			case "police":
				tables = rateTables(a.Data)
			}
		case slices.Contains(k.said, a.Type):
		case slices.Contains(k.reported, a.Type):
			continue
		default:
			return nil, fmt.Errorf("has attribute %d, and no test has shown that it comes back", a.Type)
		}
		kept = append(kept, a)
	}
	return netlink.MarshalAttributes(append(kept, tables...))
}

// rateTables are what the kernel insists on with a policer's rates, and has not looked into since 3.8
// (net/sched/sch_api.c, qdisc_get_rtab): it only wants a cell's size, which it does not report.
func rateTables(police []byte) (tables []netlink.Attribute) {
	const cellLog = 3
	for _, r := range []struct {
		at    int
		table uint16
	}{{policeRate, policeRateTable}, {policePeak, policePeakTable}} {
		if spec := police[r.at:]; binary.NativeEndian.Uint32(spec[rateBytes:]) != 0 {
			spec[rateCellLog] = cellLog
			tables = append(tables, netlink.Attribute{Type: r.table, Data: make([]byte, rateTableLen)})
		}
	}
	return tables
}

// sameFilter compares two filters by what they do and where; two of a kind that is not known, by where alone.
func sameFilter(a, b Filter) bool {
	x, errX := a.configuration()
	y, errY := b.configuration()
	if (errX == nil) != (errY == nil) || errX == nil && string(x) != string(y) {
		return false
	}
	return a.Kind == b.Kind && a.Parent == b.Parent && a.Handle == b.Handle && a.Priority == b.Priority &&
		a.Protocol == b.Protocol &&
		a.Chain == b.Chain && a.Root == b.Root && a.Template == b.Template
}

// place is where a classifier sits: all filters of one place are of one kind and one protocol.
type place struct {
	parent   Handle
	chain    uint32
	priority uint16
	protocol uint16
}

func (f Filter) place() place { return place{f.Parent, f.Chain, f.Priority, f.Protocol} }

// markRoots adds what only the order of the listing, newest first, reveals. Of u32's hash tables the oldest of its
// place is the root, which the kernel made by itself. Filters basic and bpf are made anew in the order in which they
// are asked.
func markRoots(filters []Filter) []Filter {
	filters = slices.Clone(filters)
	slices.Reverse(filters)
	rooted := map[place]bool{}
	for i, f := range filters {
		if f.table() && !rooted[f.place()] {
			rooted[f.place()], filters[i].Root = true, true
		}
	}
	return filters
}

// asksInOrder reports whether filters of one place are asked in the order in which they came, the newest first, and not
// by number.
func (f Filter) asksInOrder() bool { return f.Kind == "basic" || f.Kind == "bpf" }

func filterRequest(typ uint16, flags netlink.HeaderFlags, ifindex int, handle uint32, p place, kind, what string,
	options []byte) (request, error) {
	list := attributes(kind, options)
	if p.chain != 0 {
		list = append(list, netlink.Attribute{Type: tcaChain, Data: u32bytes(p.chain)})
	}
	protocol := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, p.protocol))
	return newRequest(typ, flags, tcmsg{ifindex: ifindex, handle: Handle(handle), parent: p.parent,
		info: uint32(p.priority)<<16 | uint32(protocol)},
		fmt.Sprintf("%s %s %d", what, kind, p.priority), list...)
}

// replayFilters makes the filters at q and at its classes.
func (t Tree) replayFilters(ifindex int, q Qdisc) ([]request, error) {
	here := slices.DeleteFunc(slices.Clone(t.Filters),
		func(f Filter) bool { return f.Parent.major() != q.Handle.major() })
	requests, after, err := tables(ifindex, here)
	if err != nil {
		return nil, err
	}
	for _, f := range here {
		if f.table() {
			continue
		}
		options, err := f.configuration()
		if err != nil {
			options = f.Options // as good as can be
		}
		r, err := filterRequest(newFilter, netlink.Create|netlink.Excl, ifindex, f.Handle, f.place(), f.Kind,
			"restore filter", options)
		if err != nil {
			return nil, err
		}
		requests = append(requests, r)
	}
	return append(requests, after...), nil
}

const (
	// the number of the first that the kernel makes below one qdisc; it counts on from there, and never back
	firstTable = 0x800
	tableShift = 20
)

// tables makes u32's hash tables, and what is to be taken away again afterwards. The kernel makes a place's root table
// with the place, and numbers it by itself (net/sched/cls_u32.c, u32_init, gen_new_htid). So all that it has numbered
// are made in their order. For each number that nobody has any more there is a place for a moment.
func tables(ifindex int, filters []Filter) (requests, after []request, err error) {
	add := func(handle uint32, p place, divisor []byte) {
		r, addErr := filterRequest(newFilter, netlink.Create|netlink.Excl, ifindex, handle, p, "u32",
			"restore a table of", divisor)
		requests, err = append(requests, r), errors.Join(err, addErr)
	}
	numbered := slices.DeleteFunc(slices.Clone(filters), func(f Filter) bool { return !f.table() })
	slices.SortStableFunc(numbered, func(a, b Filter) int { return cmp.Compare(a.Handle, b.Handle) })
	next, spare := uint32(firstTable), uint16(math.MaxUint16)
	var chosen []Filter // by somebody
	for _, f := range numbered {
		number := f.Handle >> tableShift
		if number < firstTable {
			chosen = append(chosen, f)
			continue
		}
		for ; next < number; next++ {
			for slices.ContainsFunc(filters, func(f Filter) bool { return f.Priority == spare }) {
				spare--
			}
			p := place{parent: f.Parent, priority: spare, protocol: ethAll}
			add(0, p, nil)
			r, dropErr := filterRequest(delFilter, 0, ifindex, 0, p, "u32", "take away a table of", nil)
			after, err = append(after, r), errors.Join(err, dropErr)
			spare--
		}
		if next++; f.Root {
			add(0, f.place(), nil)
		} else {
			add(0, f.place(), f.Options)
		}
	}
	for _, f := range chosen {
		add(f.Handle, f.place(), f.Options)
	}
	return requests, after, err
}

// filtersRestorable returns why filters could not be put back: nil if tests have shown that such come back.
func (t Tree) filtersRestorable() error {
	for i, f := range t.Filters {
		if _, err := f.configuration(); err != nil {
			return &Lost{What: because(f.String(), err), object: f.object(), remove: f.remove()}
		}
		// Each of these lists the tables of all, and so nothing tells whose they are.
		if j := slices.IndexFunc(t.Filters[:i], func(other Filter) bool {
			return f.Kind == "u32" && other.Kind == "u32" && f.Priority == other.Priority &&
				f.Parent.major() == other.Parent.major() && f.place() != other.place()
		}); j >= 0 {
			return &Lost{What: fmt.Sprintf("%v: %v has the same priority, and the kernel does not tell their "+
				"tables apart", f, t.Filters[j]), object: "filter", remove: f.remove()}
		}
	}
	return nil
}

// object is tc's word for what f is.
func (f Filter) object() string {
	if f.Template {
		return "chain"
	}
	return "filter"
}

// String names a filter as tc filter show does.
func (f Filter) String() string {
	if f.Template {
		return fmt.Sprintf("chain %d at %s", f.Chain, f.Parent)
	}
	if f.Kind == "" {
		return "filters at " + f.Parent.String()
	}
	text := fmt.Sprintf("filter %s at %s (protocol %s, pref %d", f.Kind, f.Parent, f.protocol(), f.Priority)
	if f.Chain != 0 {
		text += fmt.Sprintf(", chain %d", f.Chain)
	}
	return text + ")"
}

// remove is tc's line, after the device, that takes away all filters of f's place.
func (f Filter) remove() string {
	if f.Template {
		return fmt.Sprintf("parent %s chain %d", f.Parent, f.Chain)
	}
	if f.Kind == "" {
		return "parent " + f.Parent.String()
	}
	text := fmt.Sprintf("parent %s prio %d protocol %s", f.Parent, f.Priority, f.protocol())
	if f.Chain != 0 {
		text += fmt.Sprintf(" chain %d", f.Chain)
	}
	return text + " " + f.Kind
}

// protocol is tc's name of the Ethernet type, or its number.
func (f Filter) protocol() string {
	names := map[uint16]string{ethAll: "all", ethIP: "ip", ethIPv6: "ipv6",
		ethARP: "arp", ethVLAN: "802.1Q"}
	if name, ok := names[f.Protocol]; ok {
		return name
	}
	return fmt.Sprintf("0x%04x", f.Protocol)
}
