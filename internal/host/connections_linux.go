// SPDX-License-Identifier: Apache-2.0

package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Connection is an established TCP connection as the kernel has it at one moment.
type Connection struct {
	Cookie   uint64 // which no other socket has had since the boot
	Local    netip.Addr
	Port     uint16 // of Local
	Remote   netip.AddrPort
	Accepted bool // to a port that somebody listens at
	CC       string
	Info     unix.TCPInfo // what this kernel does not tell is zero

	device uint32 // that it is bound to
}

// Connections looks at the connections of a network namespace, as often as is wanted.
type Connections struct {
	own    []netip.Addr
	inside bool
	ask    dump
	last   int // how many there were
	exact  *netlink.Conn
}

// OpenAllConnections prepares reading all connections of the host. It needs no root.
func OpenAllConnections() (*Connections, error) {
	c, err := OpenConnections()
	if err == nil {
		c.inside = true
	}
	return c, err
}

// OpenConnections prepares reading the connections that leave the host. It needs no root.
func OpenConnections() (*Connections, error) {
	c := &Connections{ask: sockDiag}
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
	if err := c.Each(func(x Connection) { all = append(all, x) }); err != nil {
		return nil, err
	}
	return all, nil
}

// Each is one look that keeps none of them.
func (c *Connections) Each(f func(Connection)) error {
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		a := &aggregate{Sockets: &Sockets{Congestion: map[string]int{}}}
		err := c.ask(family, func(msg []byte) {
			if x, ok := a.connection(msg); ok && (c.inside || !c.local(x.Remote.Addr())) {
				f(x)
			}
		})
		// A kernel without IPv6 knows of no such family.
		if err != nil && (family == unix.AF_INET || !errors.Is(err, unix.ENOENT)) {
			return err
		}
	}
	return nil
}

// Again looks at some that were seen, which costs some microseconds each. One that has ended meanwhile is left out.
func (c *Connections) Again(seen []Connection) (now []Connection, err error) {
	if c.exact == nil {
		if c.exact, err = netlink.Dial(unix.NETLINK_SOCK_DIAG, nil); err != nil {
			return nil, fmt.Errorf("sock_diag: %w", err)
		}
	}
	a := &aggregate{Sockets: &Sockets{Congestion: map[string]int{}}}
	for _, x := range seen {
		answers, err := c.exact.Execute(x.ask())
		switch {
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ESTALE):
			continue
		case err != nil:
			return nil, fmt.Errorf("sock_diag: %w", err)
		}
		for _, m := range answers {
			if y, ok := a.connection(m.Data); ok && y.Cookie == x.Cookie {
				y.Accepted = x.Accepted // a listener is not among what was asked for
				now = append(now, y)
			}
		}
	}
	return now, nil
}

// ask is the request for one connection (struct inet_diag_req_v2, whose last part is a struct inet_diag_sockid).
func (x Connection) ask() netlink.Message {
	const sockid = 4 // later in the request than in an answer
	req := make([]byte, 56)
	req[0], req[1] = unix.AF_INET, unix.IPPROTO_TCP
	req[2] = 1<<(inetDiagInfo-1) | 1<<(inetDiagCong-1)
	if x.Local.Is6() {
		req[0] = unix.AF_INET6
	}
	binary.NativeEndian.PutUint32(req[4:], 1<<tcpEstablished)
	id := req[sockid:]
	binary.BigEndian.PutUint16(id[diagSport:], x.Port)
	binary.BigEndian.PutUint16(id[diagDport:], x.Remote.Port())
	copy(id[diagSrc:], x.Local.AsSlice())
	copy(id[diagDst:], x.Remote.Addr().AsSlice())
	binary.NativeEndian.PutUint32(id[diagIf:], x.device)
	binary.NativeEndian.PutUint64(id[diagCookie:], x.Cookie)
	return netlink.Message{Header: netlink.Header{Type: unix.SOCK_DIAG_BY_FAMILY, Flags: netlink.Request}, Data: req}
}

// Close ends the looks.
func (c *Connections) Close() error {
	if c.exact == nil {
		return nil
	}
	return c.exact.Close()
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
	address := func(at int) netip.Addr {
		if msg[0] == unix.AF_INET {
			return netip.AddrFrom4([4]byte(msg[at:]))
		}
		return netip.AddrFrom16([16]byte(msg[at:])).Unmap()
	}
	info, cc := a.attributes(msg[diagLen:])
	return Connection{
		Cookie:   binary.NativeEndian.Uint64(msg[diagCookie:]),
		Local:    address(diagSrc),
		Port:     port,
		Remote:   netip.AddrPortFrom(address(diagDst), binary.BigEndian.Uint16(msg[diagDport:])),
		Accepted: a.listening[port/64]&(1<<(port%64)) != 0,
		CC:       cc,
		Info:     info.TCPInfo,
		device:   binary.NativeEndian.Uint32(msg[diagIf:]),
	}, true
}
