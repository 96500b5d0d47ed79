// SPDX-License-Identifier: Apache-2.0

package host

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// Connection is an established TCP connection as the kernel has it at one moment.
type Connection struct {
	Cookie   uint64 // which no other socket has had since the boot
	Local    netip.Addr
	Remote   netip.AddrPort
	Accepted bool // to a port that somebody listens at
	CC       string
	Info     unix.TCPInfo // what this kernel does not tell is zero
}

// Connections looks at the connections of a network namespace, as often as is wanted.
type Connections struct {
	own    []netip.Addr
	inside bool
	ask    dump
	last   int // how many there were
}

// OpenConnections prepares the looks. Connections that never leave the host are left out, unless inside is set. It
// needs no root.
func OpenConnections(inside bool) (*Connections, error) {
	c := &Connections{inside: inside, ask: sockDiag}
	var f Facts
	if err := readLinks(&f); err != nil {
		return nil, err
	}
	for _, l := range f.Links {
		for _, text := range l.Addrs {
			if prefix, err := netip.ParsePrefix(text); err == nil {
				c.own = append(c.own, prefix.Addr())
			}
		}
	}
	return c, nil
}

// Read is one look.
func (c *Connections) Read() (all []Connection, err error) {
	all = make([]Connection, 0, c.last+c.last/8) // they are large, and rarely many more than they were
	defer func() { c.last = len(all) }()
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		a := &aggregate{Sockets: &Sockets{Congestion: map[string]int{}}}
		err := c.ask(family, func(msg []byte) {
			if x, ok := a.connection(msg); ok && (c.inside || !c.local(x.Remote.Addr())) {
				all = append(all, x)
			}
		})
		// A kernel without IPv6 knows of no such family.
		if err != nil && (family == unix.AF_INET || !errors.Is(err, unix.ENOENT)) {
			return nil, err
		}
	}
	return all, nil
}

func (c *Connections) local(a netip.Addr) bool { return a.IsLoopback() || slices.Contains(c.own, a) }

// connection reads an answer of the kernel's; false where it tells of something else. Listeners come first.
func (a *aggregate) connection(msg []byte) (c Connection, ok bool) {
	if len(msg) < diagLen {
		return c, false
	}
	port := binary.BigEndian.Uint16(msg[diagSport:])
	switch msg[diagState] {
	case tcpListen:
		a.listening[port/64] |= 1 << (port % 64)
		return c, false
	case tcpEstablished:
	default:
		return c, false
	}
	const dport, src, cookie = 6, 8, 44 // struct inet_diag_sockid, behind four bytes
	address := func(at int) netip.Addr {
		if msg[0] == unix.AF_INET {
			return netip.AddrFrom4([4]byte(msg[at:]))
		}
		return netip.AddrFrom16([16]byte(msg[at:])).Unmap()
	}
	info, cc := a.attributes(msg[diagLen:])
	return Connection{
		Cookie:   binary.NativeEndian.Uint64(msg[cookie:]),
		Local:    address(src),
		Remote:   netip.AddrPortFrom(address(diagDst), binary.BigEndian.Uint16(msg[dport:])),
		Accepted: a.listening[port/64]&(1<<(port%64)) != 0,
		CC:       cc,
		Info:     info.TCPInfo,
	}, true
}
