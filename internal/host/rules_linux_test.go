// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/mdlayher/netlink"
	"github.com/mdlayher/netlink/nltest"
	"golang.org/x/sys/unix"
)

// asked reads rules of a kernel.
func asked(kernel nltest.Func) Netfilter {
	n := Netfilter{Read: true}
	n.ask(func() (*netlink.Conn, error) { return nltest.Dial(kernel), nil })
	return n
}

// kernelOf answers what is in a file of testdata, rules so many times, with these flags of each kind of message.
func kernelOf(t *testing.T, from string, times int, flags map[uint16]netlink.HeaderFlags) nltest.Func {
	kinds := map[uint16]string{unix.NFT_MSG_GETRULE: "rule", unix.NFT_MSG_GETCHAIN: "chain",
		unix.NFT_MSG_GETOBJ: "object", unix.NFT_MSG_GETSETELEM: "elements"}
	return func(req []netlink.Message) ([]netlink.Message, error) {
		message := uint16(req[0].Header.Type) - unix.NFNL_SUBSYS_NFTABLES<<8
		var all []netlink.Message
		for range max(1, times) {
			for _, data := range answered(t, from, kinds[message]) {
				if of := req[0].Data[nfgenmsgLen:]; bytes.HasPrefix(data[nfgenmsgLen:], of) {
					all = append(all, netlink.Message{Header: netlink.Header{Flags: flags[message]}, Data: data})
				}
			}
			if message != unix.NFT_MSG_GETRULE {
				break
			}
		}
		return nltest.Multipart(append(all, netlink.Message{
			Header: netlink.Header{Type: netlink.Done}, Data: make([]byte, 4)}))
	}
}

// What the kernel answers, and does not, is what is known of its rules.
func TestAskRules(t *testing.T) {
	rules := answered(t, "rules.txt", "rule")
	refuses := func(errno unix.Errno) nltest.Func {
		return func(req []netlink.Message) ([]netlink.Message, error) {
			return nltest.Error(int(errno), []netlink.Message{{Data: req[0].Data}})
		}
	}
	interrupted := func(message uint16) map[uint16]netlink.HeaderFlags {
		return map[uint16]netlink.HeaderFlags{message: netlink.DumpInterrupted}
	}
	const suspects, limiting = 35, 34
	for name, c := range map[string]struct {
		kernel nltest.Func
		want   string // read, rules, suspects, of those that meet what leaves, what it lacks
	}{
		"root":    {kernelOf(t, "rules.txt", 1, nil), fmt.Sprintf("true %d %d 19 ", len(rules), suspects)},
		"nobody":  {refuses(unix.EPERM), "false 0 0 0 its rules: needs root"},
		"without": {refuses(unix.EINVAL), "true 0 0 0 "},
		"too many": {kernelOf(t, "rules.txt", 10_000/len(rules)+1, nil),
			"true 10000 8750 4750 the rules behind the first 10000"},
		"changes": {kernelOf(t, "rules.txt", 1, interrupted(unix.NFT_MSG_GETRULE)),
			"false 0 0 0 its rules: they changed while they were read"},
		"chains change": {kernelOf(t, "rules.txt", 1, interrupted(unix.NFT_MSG_GETCHAIN)),
			fmt.Sprintf("false %d %d 0 its rules: they changed while they were read", len(rules), limiting)},
		"fails": {refuses(unix.EIO), "false 0 0 0 its rules: nf_tables: netlink receive: input/output error"},
	} {
		n := asked(c.kernel)
		outgoing := 0
		for _, r := range n.Suspects {
			if r.Outgoing() {
				outgoing++
			}
		}
		if got := fmt.Sprintf("%v %d %d %d %s", n.Read, n.Rules, len(n.Suspects), outgoing, n.Lacks); got != c.want {
			t.Errorf("%s: %s\nwant %s", name, got, c.want)
		}
	}
}

// Where what rules do lies in maps that were not followed, that is said.
func TestNotFollowed(t *testing.T) {
	named := func(typ uint16, name string) []byte { return attribute(typ, append([]byte(name), 0)) }
	number := func(typ uint16, n uint32) []byte { return attribute(typ, binary.BigEndian.AppendUint32(nil, n)) }
	expr := func(name string, data ...[]byte) []byte {
		return attribute(1, append(named(expressionName, name), attribute(expressionData, slices.Concat(data...))...))
	}
	rule := func(expressions ...[]byte) []byte {
		return slices.Concat([]byte{1, 0, 0, 0}, named(ruleTable, "t"), named(ruleChain, "c"),
			attribute(ruleHandle, []byte{0, 0, 0, 0, 0, 0, 0, 7}),
			attribute(ruleExpressions, slices.Concat(expressions...)))
	}
	drop := expr("immediate", number(1, verdictRegister),
		attribute(2, attribute(dataVerdict, number(verdictCode, verdictDrop))))
	vmap := func(name string) []byte {
		return expr("lookup", named(1, name), number(2, 1), number(3, verdictRegister))
	}
	limit := expr("limit", attribute(1, []byte{0, 0, 0, 0, 0, 0, 0, 9}))
	ofMap := expr("objref", number(3, 1), named(4, "limits"))
	const objects, maps = "what rules take from maps of limits, quotas or counters", "all that maps of verdicts lead to"
	several := func(n int, more ...[]byte) (rules [][]byte) {
		for i := range n {
			rules = append(rules, rule(expr("hash"), vmap(fmt.Sprint("m", i))))
		}
		return append(rules, more...)
	}
	for name, c := range map[string]struct {
		rules    [][]byte
		elements int
		want     string
	}{
		"a limit":                     {[][]byte{rule(limit, drop)}, 1, ""},
		"a map of limits":             {[][]byte{rule(ofMap, drop)}, 1, objects},
		"a map of counters, to count": {[][]byte{rule(ofMap)}, 1, ""},
		"a map of verdicts":           {several(1, rule(limit, drop)), 1, ""},
		"many maps":                   {several(256, rule(limit, drop)), 1, ""},
		"more maps":                   {several(257, rule(limit, drop)), 1, maps},
		"a map with many verdicts":    {several(1, rule(limit, drop)), 10_001, maps},
		"both":                        {several(257, rule(ofMap, drop), rule(limit, drop)), 1, objects + ", " + maps},
	} {
		n := asked(func(req []netlink.Message) ([]netlink.Message, error) {
			var all []netlink.Message
			switch uint16(req[0].Header.Type) - unix.NFNL_SUBSYS_NFTABLES<<8 {
			case unix.NFT_MSG_GETRULE:
				for _, r := range c.rules {
					all = append(all, netlink.Message{Data: r})
				}
			case unix.NFT_MSG_GETSETELEM:
				for range c.elements {
					all = append(all, netlink.Message{Data: []byte{1, 0, 0, 0}})
				}
			}
			return nltest.Multipart(append(all, netlink.Message{Header: netlink.Header{Type: netlink.Done},
				Data: make([]byte, 4)}))
		})
		if !n.Read || n.Lacks != c.want {
			t.Errorf("%s: %+v, want %q", name, n, c.want)
		}
	}
}

// What rules refer to is looked up: the chains that jump to theirs, counters of their own, and maps of verdicts.
func TestAskReferences(t *testing.T) {
	sameRules(t, asked(kernelOf(t, "ruleset.txt", 1, nil)).Suspects, []string{
		"inet mixed shared 12: input+output limit 8.388608mbit drops counted 0",
		"inet mixed mapped 14: output  drops counted 0",
		"inet mixed out 24: output numgen drops",
		"inet mixed out 27: output numgen drops",
		"inet mixed out 28: output  drops counted 3",
		"inet mixed out 32: output limit drops counted 0",
		"inet mixed out 34: output limit drops counted 0",
		"inet mixed out 35: output limit UDP drops counted 0",
		"inet mixed out 36: output limit UDP drops",
		"inet mixed out 37: output limit narrow drops",
		"inet mixed out 38: output limit drops",
		"inet mixed out 39: output limit drops",
		"inet mixed out 40: output limit drops",
		"inet mixed out 41: output limit drops",
		"inet mixed out 42: output limit narrow drops",
		"inet mixed out 43: output limit drops",
		"inet mixed out 44: output limit narrow drops",
		"inet mixed out 45: output limit drops",
		"inet mixed out 46: output limit narrow drops",
		"ip6 six out 2: output limit drops",
		"ip6 six out 3: output limit drops",
		"ip filter OUTPUT 2: output hashlimit drops counted 0",
		"ip filter OUTPUT 3: output hashlimit narrow drops counted 0",
		"ip filter OUTPUT 4: output limit narrow drops counted 0",
		"ip filter OUTPUT 5: output limit drops counted 0",
		"ip filter OUTPUT 6: output limit UDP drops counted 0",
		"ip filter OUTPUT 7: output queue",
	})
}
