// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// readRules asks for the rules of nf_tables; of a kernel that has not loaded it there are none, and to ask would load
// it.
func (n *Netfilter) readRules(root fs.FS, release string) {
	n.Read = true
	if unloaded(root, release, "nf_tables") != "" {
		return
	}
	const datagram = 64 << 10 // bytes, which the kernel fills
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{MessageBufferSize: datagram})
	if errors.Is(err, unix.EPROTONOSUPPORT) { // a kernel without
		return
	}
	if err != nil {
		n.Read, n.Lacks = false, "its rules: "+err.Error()
		return
	}
	defer conn.Close()
	n.ask(conn)
}

// ask lists the rules, and then, where some are suspect, the chains for their hooks.
func (n *Netfilter) ask(conn *netlink.Conn) {
	const most = 10_000 // rules or chains, a few megabytes; who has more has them made by a program
	err := dumpTables(conn, unix.NFT_MSG_GETRULE, func(msg []byte) bool {
		if n.Rules == most {
			n.Lacks = fmt.Sprintf("the rules behind the first %d", most)
			return false
		}
		n.Rules++
		if r, suspect := readRule(msg); suspect {
			n.Suspects = append(n.Suspects, r)
		}
		return true
	})
	hooks := map[chain]string{}
	if err == nil && len(n.Suspects) > 0 && n.Lacks == "" {
		err = dumpTables(conn, unix.NFT_MSG_GETCHAIN, func(msg []byte) bool {
			c, hook := hooked(msg)
			hooks[c] = hook
			return len(hooks) < most
		})
	}
	n.place(hooks)
	switch {
	case errors.Is(err, unix.EPERM):
		n.Read, n.Lacks = false, "its rules: needs root"
	case errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP): // nfnetlink, and no nf_tables
	case err != nil:
		n.Read, n.Lacks = false, "its rules: "+err.Error()
	}
}

// dumpTables asks for a list of all families, and hands over each answer's payload until it has had enough.
func dumpTables(conn *netlink.Conn, message uint16, each func([]byte) bool) error {
	header := netlink.Header{Flags: netlink.Request | netlink.Dump,
		Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | message)}
	if _, err := conn.Send(netlink.Message{Header: header, Data: make([]byte, nfgenmsgLen)}); err != nil {
		return fmt.Errorf("nf_tables: %w", err)
	}
	const silence = 10 * time.Second
	conn.SetReadDeadline(time.Now().Add(silence)) // which a test's kernel does not have
	for m, err := range conn.ReceiveIter() {
		switch {
		case err != nil:
			return fmt.Errorf("nf_tables: %w", err)
		case m.Header.Flags&netlink.DumpInterrupted != 0:
			return errors.New("they changed while they were read")
		case !each(m.Data):
			return nil
		}
	}
	return nil
}
