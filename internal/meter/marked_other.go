// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package meter

import (
	"errors"
	"net"
	"net/netip"
)

// Marked is a UDP socket. The byte of DSCP and ECN of a packet is known on Linux alone, and is 0 here.
type Marked struct{ conn *net.UDPConn }

// Mark takes a socket.
func Mark(c *net.UDPConn) (*Marked, error) { return &Marked{c}, nil }

// Tells is whether marks are known at all.
func (*Marked) Tells() bool { return false }

// Whole chooses whether packets may be fragmented.
func (*Marked) Whole(bool) error { return errors.ErrUnsupported }

// Read reads a packet.
func (m *Marked) Read(b []byte) (n int, tos byte, from netip.AddrPort, err error) {
	n, from, err = m.conn.ReadFromUDPAddrPort(b)
	return n, 0, from, err
}

// Missed is how many packets found no room: not known.
func (*Marked) Missed() uint32 { return 0 }

// Write sends a packet. The address is the zero one on a socket that is connected.
func (m *Marked) Write(b []byte, _ byte, to netip.AddrPort) error {
	_, _, err := m.conn.WriteMsgUDPAddrPort(b, nil, to)
	return err
}
