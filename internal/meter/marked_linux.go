// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"encoding/binary"
	"net"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Marked is a UDP socket. It says which byte of DSCP and ECN a packet arrived with, and chooses that of each packet
// that it sends.
type Marked struct {
	conn    *net.UDPConn
	v6      bool // an address of IPv6 is bound, which may speak IPv4, too
	control []byte
	missed  uint32 // packets that had come and found no room, as the kernel counts them
}

// Tells is whether marks are known at all.
func (*Marked) Tells() bool { return true }

// Mark asks the kernel to tell of a socket. It is the socket's only reader from then on.
func Mark(c *net.UDPConn) (*Marked, error) {
	m := &Marked{conn: c, control: make([]byte, 3*unix.CmsgSpace(4))}
	a, ok := c.LocalAddr().(*net.UDPAddr)
	m.v6 = !ok || a.IP.To4() == nil
	if err := control(c, func(fd int) error {
		return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RXQ_OVFL, 1)
	}); err != nil {
		return m, err
	}
	return m, m.set(unix.IP_RECVTOS, unix.IPV6_RECVTCLASS, 1)
}

// Missed is how many packets had come until the last one that was read, and found no room because the reader was late.
// It wraps.
func (m *Marked) Missed() uint32 { return m.missed }

// set sets an option of IPv4, and its like of IPv6 on a socket that has it.
func (m *Marked) set(v4, v6, value int) error {
	return control(m.conn, func(fd int) error {
		if m.v6 {
			if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, v6, value); err != nil {
				return err
			}
		}
		return unix.SetsockoptInt(fd, unix.IPPROTO_IP, v4, value)
	})
}

// Whole chooses whether packets may be fragmented. If not, their length is bounded by the device alone, whatever is
// known of the path.
func (m *Marked) Whole(whole bool) error {
	if whole {
		return m.set(unix.IP_MTU_DISCOVER, unix.IPV6_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE)
	}
	return m.set(unix.IP_MTU_DISCOVER, unix.IPV6_MTU_DISCOVER, unix.IP_PMTUDISC_WANT)
}

// Read reads a packet.
func (m *Marked) Read(b []byte) (n int, tos byte, from netip.AddrPort, err error) {
	n, size, _, from, err := m.conn.ReadMsgUDPAddrPort(b, m.control)
	if err != nil {
		return n, 0, from, err
	}
	tos, missed := parseControl(m.control[:size])
	if missed != 0 { // else none had been, or nothing is told
		m.missed = missed
	}
	return n, tos, from, nil
}

// told finds in what the kernel tells beside a packet its byte, and how many found no room; 0 where it does not.
func parseControl(control []byte) (tos byte, missed uint32) {
	all, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return 0, 0
	}
	for _, c := range all {
		switch h := c.Header; {
		case h.Level == unix.IPPROTO_IP && h.Type == unix.IP_TOS && len(c.Data) >= 1:
			tos = c.Data[0]
		case h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_TCLASS && len(c.Data) >= 4:
			tos = byte(binary.NativeEndian.Uint32(c.Data))
		case h.Level == unix.SOL_SOCKET && h.Type == unix.SO_RXQ_OVFL && len(c.Data) >= 4:
			missed = binary.NativeEndian.Uint32(c.Data)
		}
	}
	return tos, missed
}

// Write sends a packet. The address is the zero one on a socket that is connected.
func (m *Marked) Write(b []byte, tos byte, to netip.AddrPort) error {
	peer := to.Addr()
	if a, ok := m.conn.RemoteAddr().(*net.UDPAddr); ok {
		peer = a.AddrPort().Addr()
	}
	level, kind := unix.IPPROTO_IP, unix.IP_TOS
	if !peer.Unmap().Is4() {
		level, kind = unix.IPPROTO_IPV6, unix.IPV6_TCLASS
	}
	_, _, err := m.conn.WriteMsgUDPAddrPort(b, controlInt(level, kind, int32(tos)), to)
	return err
}

// controlInt is a control message with a number.
func controlInt(level, kind int, value int32) []byte {
	b := make([]byte, unix.CmsgSpace(4))
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
	h.Level, h.Type = int32(level), int32(kind)
	h.SetLen(unix.CmsgLen(4))
	binary.NativeEndian.PutUint32(b[unix.CmsgLen(0):], uint32(value))
	return b
}
