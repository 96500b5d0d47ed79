// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// hopInterval is the mean time between two requests: enough for a median, and nothing that anybody has to wait for.
const hopInterval = 200 * time.Millisecond

func askHop(ctx context.Context, addr string, began time.Time) *HopSeen {
	c, err := (&net.Dialer{}).DialContext(ctx, "udp", addr) // nothing is sent
	if err != nil {
		return nil
	}
	defer c.Close()
	to, ok := c.RemoteAddr().(*net.UDPAddr)
	if !ok {
		return nil
	}
	hop, gateway, err := firstHop(to.AddrPort().Addr().Unmap())
	if err != nil {
		return nil
	}
	conn, err := openPing(gateway)
	if err != nil {
		return nil
	}
	defer conn.Close()
	p := &pinger{Probes: &Probes{began: began}, conn: conn, gateway: gateway}
	rand.Read(p.secret[:])
	p.run(ctx)
	seen := &HopSeen{Hop: hop}
	for _, s := range p.samples {
		seen.Pings = append(seen.Pings, Ping{s.At, max(s.RTT, -1)}) // a clock that was set meanwhile made it negative
	}
	return seen
}

// firstHop is the router to which the kernel hands packets for an address. What is on the same link has none.
func firstHop(to netip.Addr) (h Hop, gateway netip.Addr, err error) {
	routes, err := netlink.RouteGet(to.AsSlice())
	if err != nil {
		return h, gateway, err
	}
	for _, r := range routes {
		at := r.Gw
		if via, ok := r.Via.(*netlink.Via); ok { // a router of the other family
			at = via.Addr
		}
		device, err := net.InterfaceByIndex(r.LinkIndex)
		gateway, ok := netip.AddrFromSlice(at)
		if !ok || err != nil {
			continue
		}
		if gateway = gateway.Unmap(); gateway.IsLinkLocalUnicast() && gateway.Is6() {
			gateway = gateway.WithZone(device.Name)
		}
		_, err = os.Stat("/sys/class/net/" + device.Name + "/phy80211")
		return Hop{gateway.String(), err == nil}, gateway, nil
	}
	return h, gateway, errors.New("no router is on the way")
}

// openPing opens a socket that sends echo requests to an address. It needs no root where net.ipv4.ping_group_range has
// the user's group, as systemd sets it.
func openPing(to netip.Addr) (*net.UDPConn, error) {
	family, protocol := unix.AF_INET, unix.IPPROTO_ICMP
	if to.Is6() {
		family, protocol = unix.AF_INET6, unix.IPPROTO_ICMPV6
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "ping")
	defer file.Close()
	// When an answer came is the kernel's to say: a busy host reads it later.
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); err != nil {
		return nil, err
	}
	var at unix.Sockaddr
	if to.Is6() {
		v6 := &unix.SockaddrInet6{Addr: to.As16()}
		if device, err := net.InterfaceByName(to.Zone()); err == nil {
			v6.ZoneId = uint32(device.Index)
		}
		at = v6
	} else {
		at = &unix.SockaddrInet4{Addr: to.As4()}
	}
	if err := unix.Connect(fd, at); err != nil {
		return nil, err
	}
	c, err := net.FilePacketConn(file)
	if err != nil {
		return nil, err
	}
	return c.(*net.UDPConn), nil // as every socket of datagrams of IP
}

// pinger asks for echoes (RFC 792, RFC 4443).
type pinger struct {
	*Probes
	conn    *net.UDPConn
	gateway netip.Addr
	secret  [8]byte // of this run; the kernel chooses the identifier
}

// run asks until the context ends, and then waits a little for what is under way.
func (p *pinger) run(ctx context.Context) {
	done := make(chan struct{})
	go func() { defer close(done); p.receive() }()
	for next := time.Now(); ctx.Err() == nil; wait(ctx, time.Until(next)) {
		p.conn.Write(p.request(uint16(p.Send()))) // one that cannot be sent is not answered
		next = nextProbe(next, time.Now(), hopInterval)
	}
	p.conn.SetReadDeadline(time.Now().Add(AnswerTime))
	<-done
}

// Types of messages, of ICMP and of ICMPv6.
const (
	echo, echoReply   = 8, 0
	echo6, echoReply6 = 128, 129
)

// request is an echo request. The kernel fills in the checksum and the identifier.
func (p *pinger) request(seq uint16) []byte {
	kind := byte(echo)
	if p.gateway.Is6() {
		kind = echo6
	}
	b := []byte{kind, 0, 0, 0, 0, 0}
	return append(binary.BigEndian.AppendUint16(b, seq), p.secret[:]...)
}

func (p *pinger) receive() {
	b, beside := make([]byte, 256), make([]byte, 256)
	for {
		n, size, _, from, err := p.conn.ReadMsgUDPAddrPort(b, beside)
		now := time.Now()
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // such as "no route to host": the next may pass
			time.Sleep(Interval)
			continue
		}
		if at, ok := kernelTime(beside[:size]); ok {
			now = at
		}
		p.note(b[:n], from.Addr(), now)
	}
}

// note takes an answer, if it is one: from the router, to a request that is not answered yet, with what only that
// request said.
func (p *pinger) note(b []byte, from netip.Addr, at time.Time) {
	want := p.request(0)
	kind := byte(echoReply)
	if p.gateway.Is6() {
		kind = echoReply6
	}
	if len(b) != len(want) || b[0] != kind || b[1] != 0 || !bytes.Equal(b[8:], want[8:]) ||
		from.Unmap().WithZone("") != p.gateway.WithZone("") {
		return
	}
	p.Answer(int(binary.BigEndian.Uint16(b[6:])), at)
}

// kernelTime is when the kernel says that a packet came.
func kernelTime(beside []byte) (at time.Time, ok bool) {
	const size = 16 // of two numbers of 64 bits
	all, err := unix.ParseSocketControlMessage(beside)
	if err != nil {
		return at, false
	}
	for _, c := range all {
		if c.Header.Level == unix.SOL_SOCKET && c.Header.Type == unix.SCM_TIMESTAMPNS && len(c.Data) >= size {
			seconds, ns := binary.NativeEndian.Uint64(c.Data), binary.NativeEndian.Uint64(c.Data[8:])
			return time.Unix(int64(seconds), int64(ns)), true
		}
	}
	return at, false
}
