// SPDX-License-Identifier: Apache-2.0

package host

import (
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
	Hook    string     `json:"hook,omitempty"`    // of its chain; "": none, so other chains jump to it
	Limit   string     `json:"limit,omitempty"`   // the expression, or the match of iptables; "": it does not limit
	Rate    units.Rate `json:"rate,omitempty"`    // bit/s; 0: it counts something else, or the match does not say
	Drops   bool       `json:"drops,omitempty"`   // it drops, or rejects, what it limits; else what follows may
	Narrow  bool       `json:"narrow,omitempty"`  // TCP that is under way does not meet it: ICMP, SYN, new connections
	Counted bool       `json:"counted,omitempty"` // it drops, and has a counter for that
	Dropped uint64     `json:"dropped,omitempty"` // packets, by that counter
	Now     uint64     `json:"now,omitempty"`     // packets that it dropped while Deep.Listened passed
}

// Outgoing reports whether the rule may meet what this host itself sends.
func (r Rule) Outgoing() bool {
	return slices.Contains([]string{"output", "postrouting", "egress", ""}, r.Hook)
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
)

// families are in nft's words, by NFPROTO_*.
func families() map[byte]string {
	return map[byte]string{1: "inet", 2: "ip", 3: "arp", 5: "netdev", 7: "bridge", 10: "ip6"}
}

// chain is where a rule is.
type chain struct{ family, table, name string }

// hooked reads a chain's message, and where packets meet it; "" if only other chains jump to it.
func hooked(msg []byte) (c chain, hook string) {
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

// readRule reads a rule's message; false if it is no suspect. A limit before nothing but a log limits the log.
func readRule(msg []byte) (Rule, bool) {
	if len(msg) < nfgenmsgLen {
		return Rule{}, false
	}
	r := ruleReader{Rule: Rule{Family: families()[msg[0]]}}
	for typ, data := range nftAttributes(msg[nfgenmsgLen:]) {
		switch typ {
		case ruleTable:
			r.Table = nftName(data)
		case ruleChain:
			r.Chain = nftName(data)
		case ruleHandle:
			r.Handle = bigEndian(data)
		case ruleExpressions:
			r.list(data, r.expression)
		}
	}
	switch {
	case !r.decides || r.byChance && !r.Drops || r.Limit == "" && (!r.Drops || !r.Counted || r.Narrow):
		return Rule{}, false
	case !r.Drops:
		r.Counted, r.Dropped = false, 0
	}
	return r.Rule, true
}

// ruleReader is a rule whose expressions go by, in the order in which packets meet them.
type ruleReader struct {
	Rule
	byChance bool // it limits by chance, as who shares out connections does, too
	decides  bool // it decides about the packet
	loaded   field
	offset   int    // the field's place among the bytes that were loaded
	mask     []byte // of what is loaded
}

// field is one that says which packets a rule means.
type field int

const (
	otherField field = iota
	protocol
	tcpFlags
	connectionState
)

// list hands over each expression of a list.
func (r *ruleReader) list(list []byte, each func(name string, data []byte)) {
	for _, element := range nftAttributes(list) {
		name, data := expression(element)
		each(name, data)
	}
}

// expression splits one into its name and what it holds.
func expression(b []byte) (name string, data []byte) {
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

func (r *ruleReader) expression(name string, data []byte) {
	r.condition(name, data)
	r.limit(name, data)
	switch name {
	case "cmp", "lookup", "range", "match": // a counter before it counts what the rule does not mean, too
		r.Counted, r.Dropped = false, 0
	case "counter":
		const packets = 2 // NFTA_COUNTER_PACKETS
		r.Counted, r.Dropped = true, bigEndian(nftAttribute(data, packets))
	case "reject":
		r.decides, r.Drops = true, true
	case "target":
		if nftName(nftAttribute(data, expressionName)) == "REJECT" {
			r.decides, r.Drops = true, true
		}
	case "immediate":
		const register, value, verdict, code = 1, 2, 2, 1 // NFTA_IMMEDIATE_*, NFTA_DATA_VERDICT, NFTA_VERDICT_CODE
		said := nftAttribute(nftAttribute(data, value), verdict)
		if number32(data, register) == 0 && said != nil {
			const drop = 0 // NF_DROP
			r.decides, r.Drops = true, number32(said, code) == drop
		}
	}
}

// limit takes an expression for the rule's limit if it is one.
func (r *ruleReader) limit(name string, data []byte) {
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
		if inner, held := expression(nftAttribute(data, one)); inner != "" {
			r.limit(inner, held)
		}
		r.list(nftAttribute(data, several), r.limit)
		return
	case "numgen":
		const kind, random = 3, 1 // NFTA_NG_TYPE, NFT_NG_RANDOM
		chance = number32(data, kind) == random
	case "match":
		name = nftName(nftAttribute(data, expressionName))
		limits = slices.Contains([]string{"limit", "hashlimit", "quota", "connlimit"}, name)
		chance = name == "statistic"
	}
	if limits || chance {
		r.Limit, r.Rate, r.byChance, r.Counted, r.Dropped = name, rate, chance, false, 0
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

// condition notes what the rule asks of a packet, as far as it shows that no TCP under way is meant.
func (r *ruleReader) condition(name string, data []byte) {
	switch name {
	case "meta", "ct":
		const key, metaProtocol, ctState = 2, 16, 0 // NFTA_META_KEY, NFTA_CT_KEY, NFT_META_L4PROTO, NFT_CT_STATE
		switch asked := number32(data, key); {
		case name == "meta" && asked == metaProtocol:
			r.load(protocol, 0)
		case name == "ct" && asked == ctState && nftAttribute(data, key) != nil:
			r.load(connectionState, 0)
		default:
			r.load(otherField, 0)
		}
	case "payload":
		r.payload(data)
	case "bitwise":
		const mask, value = 4, 1 // NFTA_BITWISE_MASK, NFTA_DATA_VALUE
		r.mask = nftAttribute(nftAttribute(data, mask), value)
	case "lookup", "range":
		if r.loaded != otherField { // what is in a set is not read
			r.Narrow = true
		}
		r.load(otherField, 0)
	case "cmp":
		r.compare(data)
	case "match":
		const flagMask, info = 9, 3 // of struct xt_tcp (include/uapi/linux/netfilter/xt_tcpudp.h); NFTA_MATCH_INFO
		switch nftName(nftAttribute(data, expressionName)) {
		case "conntrack", "state", "icmp", "icmp6", "udp":
			r.Narrow = true
		case "tcp":
			if tcp := nftAttribute(data, info); len(tcp) > flagMask && tcp[flagMask] != 0 {
				r.Narrow = true
			}
		}
	}
}

func (r *ruleReader) load(f field, offset int) { r.loaded, r.offset, r.mask = f, offset, nil }

// payload is a load of bytes of the packet.
func (r *ruleReader) payload(data []byte) {
	const base, offset, size = 2, 3, 4 // NFTA_PAYLOAD_*
	const network, transport = 1, 2    // NFT_PAYLOAD_*_HEADER
	const ipv4, ipv6, flags = 9, 6, 13 // where the headers have the protocol, the next header, and TCP's flags
	from, length := number32(data, offset), number32(data, size)
	holds := func(place uint64) bool { return from <= place && place-from < length }
	switch header := number32(data, base); {
	case header == network && holds(ipv4):
		r.load(protocol, int(ipv4-from))
	case header == network && from == ipv6 && length == 1:
		r.load(protocol, 0)
	case header == transport && holds(flags):
		r.load(tcpFlags, int(flags-from))
	default:
		r.load(otherField, 0)
	}
}

// compare is a comparison with what was loaded.
func (r *ruleReader) compare(data []byte) {
	const operator, value, dataValue, equal, unequal = 2, 3, 1, 0, 1 // NFTA_CMP_*, NFTA_DATA_VALUE, NFT_CMP_EQ, NEQ
	with, asked := nftAttribute(nftAttribute(data, value), dataValue), number32(data, operator)
	switch r.loaded {
	case protocol:
		const tcp = 6 // IPPROTO_TCP
		same := len(with) > r.offset && with[r.offset] == tcp
		r.Narrow = r.Narrow || same != (asked == equal)
	case tcpFlags:
		r.Narrow = true
	case connectionState:
		const established = 2 // NF_CT_STATE_BIT(IP_CT_ESTABLISHED)
		state, passing := with, uint64(equal)
		if r.mask != nil { // "any of these": not equal to none
			state, passing = r.mask, unequal
		}
		means := len(state) == 4 && binary.NativeEndian.Uint32(state)&established != 0
		r.Narrow = r.Narrow || !means || asked != passing
	}
	r.load(otherField, 0)
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

// place gives each rule the hook of its chain, and drops those that limit nothing and meet nothing that leaves. Of the
// others it keeps the first ones: who bans thousands of addresses has as many.
func (n *Netfilter) place(hooks map[chain]string) {
	for i := range n.Suspects {
		r := &n.Suspects[i]
		r.Hook = hooks[chain{r.Family, r.Table, r.Chain}]
	}
	const most = 1000
	plain := 0
	n.Suspects = slices.DeleteFunc(n.Suspects, func(r Rule) bool {
		if r.Limit != "" {
			return false
		}
		if r.Outgoing() {
			plain++
		}
		return plain > most || !r.Outgoing()
	})
}
