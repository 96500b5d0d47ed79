// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"io/fs"
	"iter"
	"slices"
	"strings"

	"github.com/mdlayher/netlink"

	"weir/internal/text"
	"weir/internal/units"
)

// Netfilter is what of a host's rules can limit its traffic.
type Netfilter struct {
	Read  bool `json:"read,omitempty"`  // the rules of nf_tables, iptables-nft's among them, were looked at
	Rules int  `json:"rules,omitempty"` // of nf_tables, that were looked at
	// of those that limit, and that drop what this host itself sends and count it
	Suspects []Rule `json:"suspects,omitempty"`
	// families and tables of iptables-legacy, whose rules netlink does not show: "ip filter"
	Legacy []string `json:"legacy,omitempty"`
	Lacks  string   `json:"lacks,omitempty"` // why not all were looked at
}

// Rule is a rule that limits a rate, an amount or a number of connections, or drops by chance; or one that drops, and
// counts it.
type Rule struct {
	Family  string     `json:"family"` // in nft's words, as those that follow
	Table   string     `json:"table"`
	Chain   string     `json:"chain"`
	Handle  uint64     `json:"handle"`
	Hooks   []string   `json:"hooks,omitempty"`    // from which packets reach its chain, also by jumps; none: unknown
	Limit   string     `json:"limit,omitempty"`    // the expression, or the match of iptables; "": it does not limit
	Rate    units.Rate `json:"rate,omitempty"`     // bit/s; 0: it counts something else, or the match does not say
	Drops   bool       `json:"drops,omitempty"`    // it drops, or rejects, what it limits; else what follows may
	Narrow  bool       `json:"narrow,omitempty"`   // no TCP or UDP under way meets it: ICMP, SYN, new connections
	OnlyUDP bool       `json:"only_udp,omitempty"` // of what is under way no TCP meets it
	Counted bool       `json:"counted,omitempty"`  // it drops, and has a counter for that
	Dropped uint64     `json:"dropped,omitempty"`  // packets, by that counter
	Now     uint64     `json:"now,omitempty"`      // packets that it dropped while Deep.Listened passed
}

// Outgoing reports whether the rule meets what this host itself sends. One that does not limit must meet nothing else:
// what it drops and counts may be anybody's.
func (r Rule) Outgoing() bool {
	leaves := func(hook string) bool { return slices.Contains([]string{"output", "postrouting", "egress"}, hook) }
	arrives := func(hook string) bool { return !leaves(hook) }
	return slices.ContainsFunc(r.Hooks, leaves) && (r.Limit != "" || !slices.ContainsFunc(r.Hooks, arrives))
}

// equals reports whether both are one rule.
func (r Rule) equals(other Rule) bool {
	return r.Family == other.Family && r.Table == other.Table && r.Chain == other.Chain && r.Handle == other.Handle
}

// listen notes what each rule has dropped since an earlier look.
func (n *Netfilter) listen(before Netfilter) {
	for i := range n.Suspects {
		now := &n.Suspects[i]
		was := slices.IndexFunc(before.Suspects, now.equals)
		if was >= 0 && now.Dropped > before.Suspects[was].Dropped {
			now.Now = now.Dropped - before.Suspects[was].Dropped
		}
	}
}

// legacyTables are those that iptables-legacy has made, whether they hold rules or not. Net is the folder of the
// reader's network namespace. Only root may read of them.
func (t *tree) legacyTables(net string) (tables []string) {
	for _, family := range []struct{ name, file string }{{"ip", "/ip_tables_names"}, {"ip6", "/ip6_tables_names"}} {
		names, _ := fs.ReadFile(t.root, net+family.file)
		for table := range strings.FieldsSeq(string(names)) {
			tables = append(tables, family.name+" "+text.OneLine(table))
		}
	}
	return tables
}

// The kernel's numbers (include/uapi/linux/netfilter/nf_tables.h, nfnetlink.h and netfilter.h).
const (
	nfgenmsgLen = 4 // struct nfgenmsg, which begins with the family

	chainTable, chainName, chainHook = 1, 3, 4 // NFTA_CHAIN_*
	hookNumber                       = 1       // NFTA_HOOK_HOOKNUM

	ruleTable, ruleChain, ruleHandle, ruleExpressions = 1, 2, 3, 4 // NFTA_RULE_*

	expressionName, expressionData = 1, 2 // NFTA_EXPR_*, of a match and a target NFTA_MATCH_NAME, NFTA_TARGET_NAME, too

	mapTable, mapName, mapElements = 1, 2, 3 // NFTA_SET_ELEM_LIST_*
	elementData                    = 2       // NFTA_SET_ELEM_DATA

	objectTable, objectName, objectType, objectData = 1, 2, 3, 4 // NFTA_OBJ_*
	objectCounter                                   = 1          // NFT_OBJECT_COUNTER
	countedPackets                                  = 2          // NFTA_COUNTER_PACKETS

	dataValue, dataVerdict    = 1, 2 // NFTA_DATA_*
	verdictCode, verdictChain = 1, 2 // NFTA_VERDICT_*
	verdictDrop               = 0    // NF_DROP
	verdictRegister           = 0    // NFT_REG_VERDICT

	versionIPv4, versionIPv6 = 2, 10 // NFPROTO_*
)

// families are in nft's words, by NFPROTO_*.
func families() map[byte]string {
	return map[byte]string{1: "inet", 2: "ip", 3: "arp", 5: "netdev", 7: "bridge", 10: "ip6"}
}

// member is one of a table: a chain, a map or a counter.
type member struct{ family, table, name string }

// hooked reads a chain's message, and where packets meet it; "" if only other chains jump to it.
func hooked(msg []byte) (c member, hook string) {
	if len(msg) < nfgenmsgLen {
		return c, ""
	}
	c.family = families()[msg[0]]
	for typ, data := range nftAttributes(msg[nfgenmsgLen:]) {
		switch typ {
		case chainTable:
			c.table = nftName(data)
		case chainName:
			c.name = nftName(data)
		case chainHook:
			names := []string{"prerouting", "input", "forward", "output", "postrouting", "ingress"}
			switch c.family {
			case "netdev":
				names = []string{"ingress", "egress"}
			case "arp":
				names = []string{"input", "output"}
			}
			if n := number32(data, hookNumber); n < uint64(len(names)) {
				hook = names[n]
			}
		}
	}
	return c, hook
}

// verdict is what becomes of a packet, as far as it matters here.
type verdict struct {
	drops bool
	chain string // that it jumps or goes to
}

func readVerdict(data []byte) verdict {
	said := nftAttribute(data, dataVerdict)
	return verdict{said != nil && number32(said, verdictCode) == verdictDrop, nftName(nftAttribute(said, verdictChain))}
}

// verdicts reads a message about a map's elements.
func verdicts(msg []byte) (list []verdict) {
	if len(msg) < nfgenmsgLen {
		return nil
	}
	for _, element := range nftAttributes(nftAttribute(msg[nfgenmsgLen:], mapElements)) {
		if data := nftAttribute(element, elementData); data != nil {
			list = append(list, readVerdict(data))
		}
	}
	return list
}

// readCounter reads an object's message; false if it does not count.
func readCounter(msg []byte) (c member, packets uint64, counts bool) {
	if len(msg) < nfgenmsgLen {
		return c, 0, false
	}
	b := msg[nfgenmsgLen:]
	c = member{families()[msg[0]], nftName(nftAttribute(b, objectTable)), nftName(nftAttribute(b, objectName))}
	packets = bigEndian(nftAttribute(nftAttribute(b, objectData), countedPackets))
	return c, packets, number32(b, objectType) == objectCounter
}

// readRule reads a rule's message.
func readRule(msg []byte) *ruleReader {
	if len(msg) < nfgenmsgLen {
		return &ruleReader{}
	}
	r := &ruleReader{Rule: Rule{Family: families()[msg[0]]}}
	if msg[0] == versionIPv4 || msg[0] == versionIPv6 {
		r.version = msg[0]
	}
	for typ, data := range nftAttributes(msg[nfgenmsgLen:]) {
		switch typ {
		case ruleTable:
			r.Table = nftName(data)
		case ruleChain:
			r.Chain = nftName(data)
		case ruleHandle:
			r.Handle = bigEndian(data)
		case ruleExpressions:
			r.eachExpression(data, r.readExpression)
		}
	}
	r.Narrow, r.OnlyUDP = r.noTCP && r.noUDP, r.noTCP && !r.noUDP
	return r
}

// isSuspect reports whether the rule can limit, or drops and counts. A limit before nothing but a log limits the log.
func (r *ruleReader) isSuspect() bool {
	return r.decides && (!r.byChance || r.Drops) && (r.Limit != "" || r.Drops && r.Counted && !r.Narrow)
}

// ruleReader is a rule whose expressions go by, in the order in which packets meet them.
type ruleReader struct {
	Rule
	byChance     bool     // it limits by chance, as who shares out connections does, too
	decides      bool     // it decides about the packet
	chains       []string // that it jumps or goes to
	verdicts     string   // the map that has its verdicts
	counter      string   // the object that counts for it
	object       bool     // it uses what a map of objects has for the packet: a limit, a quota or a counter
	noTCP, noUDP bool     // none that is under way meets it
	version      byte     // of IP, of the packets that it means: NFPROTO_*; 0: not known
	loaded       field
	offset       int    // the field's place among the bytes that were loaded
	mask         []byte // of what is loaded
}

// member is one of the rule's table.
func (r *ruleReader) member(name string) member { return member{r.Family, r.Table, name} }

// eachExpression hands over each expression of a list.
func (r *ruleReader) eachExpression(list []byte, each func(name string, data []byte)) {
	for _, element := range nftAttributes(list) {
		name, data := splitExpression(element)
		each(name, data)
	}
}

// splitExpression splits one into its name and what it holds.
func splitExpression(b []byte) (name string, data []byte) {
	for typ, part := range nftAttributes(b) {
		switch typ {
		case expressionName:
			name = nftName(part)
		case expressionData:
			data = part
		}
	}
	return name, data
}

func (r *ruleReader) readExpression(name string, data []byte) {
	r.readCondition(name, data)
	r.readLimit(name, data)
	switch name {
	case "lookup":
		const set, register = 1, 3 // NFTA_LOOKUP_SET, NFTA_LOOKUP_DREG
		if nftAttribute(data, register) != nil && number32(data, register) == verdictRegister {
			r.decides, r.verdicts = true, nftName(nftAttribute(data, set))
		}
		r.forgetCounter()
	case "cmp", "range", "match": // a counter before it counts what the rule does not mean, too
		r.forgetCounter()
	case "counter":
		r.Counted, r.Dropped, r.counter = true, bigEndian(nftAttribute(data, countedPackets)), ""
	case "objref":
		const kind, name, objects = 1, 2, 4 // NFTA_OBJREF_IMM_*, NFTA_OBJREF_SET_NAME
		r.object = r.object || nftAttribute(data, objects) != nil
		if number32(data, kind) == objectCounter {
			r.Counted, r.Dropped, r.counter = true, 0, nftName(nftAttribute(data, name))
		}
	case "reject":
		r.decides, r.Drops = true, true
	case "queue":
		r.queueToProgram()
	case "target":
		switch nftName(nftAttribute(data, expressionName)) {
		case "REJECT":
			r.decides, r.Drops = true, true
		case "NFQUEUE":
			r.queueToProgram()
		}
	case "immediate":
		const register, value = 1, 2 // NFTA_IMMEDIATE_*
		to := nftAttribute(data, value)
		if number32(data, register) == verdictRegister && nftAttribute(to, dataVerdict) != nil {
			said := readVerdict(to)
			r.decides, r.Drops = true, said.drops
			r.jumpTo(said)
		}
	}
}

// forgetCounter forgets the rule's counter.
func (r *ruleReader) forgetCounter() { r.Counted, r.Dropped, r.counter = false, 0, "" }

// queueToProgram hands the packet to a program, which may do anything.
func (r *ruleReader) queueToProgram() { r.decides, r.Limit = true, cmp.Or(r.Limit, "queue") }

// jumpTo notes the chain that a verdict leads to.
func (r *ruleReader) jumpTo(v verdict) {
	if v.chain != "" {
		r.chains = append(r.chains, v.chain)
	}
}

// field is one that says which packets a rule means.
type field int

const (
	otherField field = iota
	protocol
	tcpFlags
	connectionState
	ipVersion
	etherType
)

const (
	protocolTCP, protocolUDP = 6, 17 // IPPROTO_*
	acknowledges, pushes     = 16, 8 // TCP's flags
	stateEstablished         = 2     // NF_CT_STATE_BIT(IP_CT_ESTABLISHED), and XT_CONNTRACK_STATE_BIT of it
)

// midConnectionValues are the values that a field has of a protocol's packets in the middle of a connection; none: any.
func (f field) midConnectionValues(protocolNumber byte) [][]byte {
	switch {
	case f == protocol:
		return [][]byte{{protocolNumber}}
	case f == tcpFlags && protocolNumber == protocolTCP:
		return [][]byte{{acknowledges}, {acknowledges | pushes}}
	case f == connectionState:
		return [][]byte{binary.NativeEndian.AppendUint32(nil, stateEstablished)}
	}
	return nil
}

// restrict notes a condition that packets under way meet only with one of the values that pass.
func (r *ruleReader) restrict(passes func(value []byte) bool) {
	excludes := func(protocolNumber byte) bool {
		values := r.loaded.midConnectionValues(protocolNumber)
		return values != nil && !slices.ContainsFunc(values, passes)
	}
	r.noTCP = r.noTCP || excludes(protocolTCP)
	r.noUDP = r.noUDP || excludes(protocolUDP)
}

// readLimit takes an expression for the rule's limit if it is one.
func (r *ruleReader) readLimit(name string, data []byte) {
	limits, chance := false, false
	var rate units.Rate
	switch name {
	case "limit":
		limits, rate = true, byteLimit(data)
	case "quota", "connlimit":
		limits = true
	case "objref":
		const kind = 1                                                     // NFTA_OBJREF_IMM_TYPE
		names := map[uint64]string{2: "quota", 4: "limit", 5: "connlimit"} // NFT_OBJECT_*
		name, limits = names[number32(data, kind)], names[number32(data, kind)] != ""
	case "dynset":
		const one, several = 7, 10 // NFTA_DYNSET_EXPR, NFTA_DYNSET_EXPRESSIONS
		if inner, held := splitExpression(nftAttribute(data, one)); inner != "" {
			r.readLimit(inner, held)
		}
		r.eachExpression(nftAttribute(data, several), r.readLimit)
		return
	case "numgen":
		chance = true
	case "match":
		name = nftName(nftAttribute(data, expressionName))
		limits = slices.Contains([]string{"limit", "hashlimit", "quota", "connlimit"}, name)
		chance = name == "statistic"
	}
	if limits || chance {
		r.Limit, r.Rate, r.byChance = name, rate, chance
		r.forgetCounter()
	}
}

// byteLimit is the rate of a limit in bytes, in bit/s; 0 if it is one of packets.
func byteLimit(data []byte) units.Rate {
	const rate, unit, kind, inBytes = 1, 2, 4, 1 // NFTA_LIMIT_*, NFT_LIMIT_PKT_BYTES; the unit is in seconds
	seconds := bigEndian(nftAttribute(data, unit))
	if number32(data, kind) != inBytes || seconds == 0 {
		return 0
	}
	const most = 1 << 50 // bit/s, more than any link has
	return units.Rate(min(bigEndian(nftAttribute(data, rate))/seconds, most/8) * 8)
}

// readCondition notes what the rule asks of a packet, as far as it shows that nothing under way is meant.
func (r *ruleReader) readCondition(name string, data []byte) {
	switch name {
	case "meta", "ct":
		const key = 2                         // NFTA_META_KEY, NFTA_CT_KEY
		asked := map[string]map[uint64]field{ // NFT_META_*, NFT_CT_STATE
			"meta": {1: etherType, 15: ipVersion, 16: protocol}, "ct": {0: connectionState}}
		if nftAttribute(data, key) != nil {
			r.load(asked[name][number32(data, key)], 0)
		}
	case "payload":
		r.readPayload(data)
	case "bitwise":
		const mask, xor = 4, 5 // NFTA_BITWISE_*
		r.mask = nftAttribute(nftAttribute(data, mask), dataValue)
		changes := bytes.Trim(nftAttribute(nftAttribute(data, xor), dataValue), "\x00")
		if r.mask == nil || len(changes) > 0 {
			r.load(otherField, 0)
		}
	case "lookup": // what is in a set is not read
		r.load(otherField, 0)
	case "range":
		const operator, from, to, equal = 2, 3, 4, 0 // NFTA_RANGE_*, NFT_RANGE_EQ
		low, high := nftAttribute(nftAttribute(data, from), dataValue), nftAttribute(nftAttribute(data, to), dataValue)
		r.restrict(func(value []byte) bool {
			within := r.compareMasked(value, low) >= 0 && r.compareMasked(value, high) <= 0
			return within == (number32(data, operator) == equal)
		})
	case "cmp":
		r.readComparison(data)
	case "match":
		const info = 3 // NFTA_MATCH_INFO
		r.readMatch(nftName(nftAttribute(data, expressionName)), nftAttribute(data, info))
	}
}

// readMatch reads one of iptables's matches (include/uapi/linux/netfilter/xt_*.h).
func (r *ruleReader) readMatch(name string, info []byte) {
	switch name {
	case "icmp", "icmp6":
		r.noTCP, r.noUDP = true, true
	case "udp":
		r.noTCP = true
	case "tcp":
		const flagMask, flags, inverted, flagsInverted = 9, 10, 11, 4 // of struct xt_tcp; XT_TCP_INV_FLAGS
		r.noUDP = true
		if len(info) <= inverted {
			return
		}
		r.load(tcpFlags, 0)
		r.restrict(func(value []byte) bool {
			return (value[0]&info[flagMask] == info[flags]) == (info[inverted]&flagsInverted == 0)
		})
	case "state":
		if len(info) >= 4 { // struct xt_state_info
			r.established(binary.NativeEndian.Uint32(info)&stateEstablished != 0)
		}
	case "conntrack":
		const asked, inverted, states, state = 146, 148, 150, 1 // of struct xt_conntrack_mtinfo*; XT_CONNTRACK_STATE
		if len(info) <= states+1 || binary.NativeEndian.Uint16(info[asked:])&state == 0 {
			return
		}
		meets := binary.NativeEndian.Uint16(info[states:])&stateEstablished != 0
		r.established(meets == (binary.NativeEndian.Uint16(info[inverted:])&state == 0))
	}
}

// established notes whether a condition on a connection's state is met by those under way.
func (r *ruleReader) established(meets bool) {
	r.noTCP, r.noUDP = r.noTCP || !meets, r.noUDP || !meets
}

func (r *ruleReader) load(f field, offset int) { r.loaded, r.offset, r.mask = f, offset, nil }

// readPayload reads a load of bytes of the packet.
func (r *ruleReader) readPayload(data []byte) {
	const base, offset, size = 2, 3, 4     // NFTA_PAYLOAD_*
	const network, transport = 1, 2        // NFT_PAYLOAD_*_HEADER
	const ofIPv4, ofIPv6, flags = 9, 6, 13 // where the headers have the protocol, the next header, and TCP's flags
	header, from, length := number32(data, base), number32(data, offset), number32(data, size)
	holds := func(place uint64) bool { return from <= place && place-from < length }
	switch {
	case header == network && r.version == versionIPv4 && holds(ofIPv4):
		r.load(protocol, int(ofIPv4-from))
	case header == network && r.version == versionIPv6 && holds(ofIPv6):
		r.load(protocol, int(ofIPv6-from))
	case header == transport && holds(flags):
		r.load(tcpFlags, int(flags-from))
	default:
		r.load(otherField, 0)
	}
}

// readComparison reads a comparison with what was loaded.
func (r *ruleReader) readComparison(data []byte) {
	const operator, value = 2, 3 // NFTA_CMP_*
	const equal, unequal, less, lessOrEqual, more, moreOrEqual = 0, 1, 2, 3, 4, 5
	with, asked := nftAttribute(nftAttribute(data, value), dataValue), number32(data, operator)
	if asked == equal && r.loaded == ipVersion && len(with) == 1 {
		r.version = with[0]
	}
	if asked == equal && r.loaded == etherType && len(with) == 2 {
		r.version = map[uint16]byte{0x0800: versionIPv4, 0x86dd: versionIPv6}[binary.BigEndian.Uint16(with)]
	}
	r.restrict(func(own []byte) bool {
		if asked != equal && len(with) != len(own) { // the bytes around it decide, too
			return true
		}
		switch d := r.compareMasked(own, with); asked {
		case equal:
			return d == 0
		case unequal:
			return d != 0
		case less:
			return d < 0
		case lessOrEqual:
			return d <= 0
		case more:
			return d > 0
		case moreOrEqual:
			return d >= 0
		}
		return true
	})
}

// compareMasked compares a value of the field that was loaded, behind the mask, with its place in what it is compared
// with.
func (r *ruleReader) compareMasked(value, with []byte) int {
	end := r.offset + len(value)
	if len(with) < end {
		return 1
	}
	value = bytes.Clone(value)
	if len(r.mask) >= end {
		for i := range value {
			value[i] &= r.mask[r.offset+i]
		}
	}
	return bytes.Compare(value, with[r.offset:end])
}

// nftAttributes goes through netlink attributes as far as they are whole; of those of one number each comes.
func nftAttributes(b []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		list, err := netlink.UnmarshalAttributes(b)
		if err != nil {
			return
		}
		for _, a := range list {
			if !yield(a.Type&^(netlink.Nested|netlink.NetByteOrder), a.Data) {
				return
			}
		}
	}
}

// nftAttribute is the first of a number; nil if there is none.
func nftAttribute(b []byte, typ uint16) []byte {
	for t, data := range nftAttributes(b) {
		if t == typ {
			return data
		}
	}
	return nil
}

// number32 is an attribute of a 32-bit number as nf_tables has them, in network byte order; 0 if there is none.
func number32(b []byte, typ uint16) uint64 {
	if data := nftAttribute(b, typ); len(data) == 4 {
		return bigEndian(data)
	}
	return 0
}

// bigEndian is a number of 4 or 8 bytes.
func bigEndian(b []byte) uint64 {
	switch len(b) {
	case 4:
		return uint64(binary.BigEndian.Uint32(b))
	case 8:
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// nftName is a name up to its NUL, which may hold anything.
func nftName(b []byte) string {
	name, _, _ := strings.Cut(string(b), "\x00")
	return text.OneLine(name)
}
