// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
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
	n.ask(func() (*netlink.Conn, error) {
		const datagram = 64 << 10 // bytes, which the kernel fills
		return netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{MessageBufferSize: datagram})
	})
}

// ask lists the rules, and then, where some are suspect, what they refer to.
func (n *Netfilter) ask(dial func() (*netlink.Conn, error)) {
	const most = 10_000 // rules or chains, a few megabytes; who has more has them made by a program
	all := newRuleset()
	dump := func(message uint16, data []byte, each func([]byte)) (whole bool, err error) {
		count := 0
		err = dumpTables(dial, message, data, func(msg []byte) bool {
			if count++; count <= most {
				each(msg)
			}
			return count <= most
		})
		return count <= most, err
	}
	every := make([]byte, nfgenmsgLen) // of all families
	whole, err := dump(unix.NFT_MSG_GETRULE, every, func(msg []byte) {
		n.Rules++
		all.add(msg)
	})
	if err == nil && !whole {
		n.Lacks = fmt.Sprintf("the rules behind the first %d", most)
	}
	if err == nil && len(all.suspects) > 0 {
		err = all.ask(dump, every)
	}
	n.Suspects = all.rules()
	if n.Lacks != "" {
		all.noteMissing(n.Lacks)
	}
	n.Lacks = strings.Join(all.unknown, ", ")
	switch {
	case errors.Is(err, unix.EPERM):
		n.Read, n.Lacks = false, "its rules: needs root"
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EPROTONOSUPPORT):
		// nfnetlink, and no nf_tables; or a kernel without both
	case err != nil:
		n.Read, n.Lacks = false, "its rules: "+err.Error()
	}
}

// ask lists the chains, the counters, and what the first maps of verdicts hold.
func (s *ruleset) ask(dump func(uint16, []byte, func([]byte)) (bool, error), every []byte) error {
	_, err := dump(unix.NFT_MSG_GETCHAIN, every, func(msg []byte) {
		c, hook := hooked(msg)
		s.hooks[c] = hook
	})
	if err == nil && len(s.uses) > 0 {
		_, err = dump(unix.NFT_MSG_GETOBJ, every, func(msg []byte) {
			if c, packets, counts := readCounter(msg); counts {
				s.counters[c] = packets
			}
		})
	}
	const most = 256 // maps
	for i, m := range s.maps {
		if err != nil {
			break
		}
		whole := i < most
		if whole {
			whole, err = dump(unix.NFT_MSG_GETSETELEM, m.elements(), func(msg []byte) { s.addElements(m, msg) })
		}
		if !whole {
			s.noteMissing("all that maps of verdicts lead to")
			break
		}
	}
	return err
}

// elements is the payload that asks for those of a map.
func (m member) elements() []byte {
	header := make([]byte, nfgenmsgLen)
	for number, name := range families() {
		if name == m.family {
			header[0] = number
		}
	}
	e := netlink.NewAttributeEncoder()
	e.String(mapTable, m.table)
	e.String(mapName, m.name)
	b, _ := e.Encode() // two strings
	return append(header, b...)
}

// dumpTables asks for a list, and hands over each answer's payload until it has had enough.
func dumpTables(dial func() (*netlink.Conn, error), message uint16, data []byte, each func([]byte) bool) error {
	conn, err := dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	header := netlink.Header{Flags: netlink.Request | netlink.Dump,
		Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | message)}
	if _, err := conn.Send(netlink.Message{Header: header, Data: data}); err != nil {
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
