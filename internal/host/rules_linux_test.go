// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"testing"

	"github.com/mdlayher/netlink"
	"github.com/mdlayher/netlink/nltest"
	"golang.org/x/sys/unix"
)

// What the kernel answers, and does not, is what is known of its rules.
func TestAskRules(t *testing.T) {
	rules, chains := answered(t, "rule"), answered(t, "chain")
	refuses := func(errno unix.Errno) nltest.Func {
		return func(req []netlink.Message) ([]netlink.Message, error) {
			return nltest.Error(int(errno), []netlink.Message{{Data: req[0].Data}})
		}
	}
	answers := func(flags netlink.HeaderFlags, times int) nltest.Func {
		return func(req []netlink.Message) ([]netlink.Message, error) {
			const getRule = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETRULE
			payloads := chains
			if req[0].Header.Type == getRule {
				payloads = nil
				for range times {
					payloads = append(payloads, rules...)
				}
			}
			var all []netlink.Message
			for _, data := range payloads {
				all = append(all, netlink.Message{Header: netlink.Header{Flags: flags}, Data: data})
			}
			return nltest.Multipart(append(all, netlink.Message{
				Header: netlink.Header{Type: netlink.Done}, Data: make([]byte, 4)}))
		}
	}
	suspects := 34
	for name, c := range map[string]struct {
		kernel nltest.Func
		want   string // read, rules, suspects, what it lacks
	}{
		"root":     {answers(0, 1), fmt.Sprintf("true %d %d ", len(rules), suspects)},
		"nobody":   {refuses(unix.EPERM), "false 0 0 its rules: needs root"},
		"without":  {refuses(unix.EINVAL), "true 0 0 "},
		"too many": {answers(0, 10_000/len(rules)+1), "true 10000 9000 the rules behind the first 10000"},
		"changes": {answers(netlink.DumpInterrupted, 1),
			"false 0 0 its rules: they changed while they were read"},
		"fails": {refuses(unix.EIO), "false 0 0 its rules: nf_tables: netlink receive: input/output error"},
	} {
		conn := nltest.Dial(c.kernel)
		n := Netfilter{Read: true}
		n.ask(conn)
		conn.Close()
		if got := fmt.Sprintf("%v %d %d %s", n.Read, n.Rules, len(n.Suspects), n.Lacks); got != c.want {
			t.Errorf("%s: %s\nwant %s", name, got, c.want)
		}
		if name == "root" && n.Suspects[0].Hook != "input" {
			t.Errorf("its hook is %q", n.Suspects[0].Hook)
		}
	}
}
