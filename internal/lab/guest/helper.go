// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"weir/internal/traffic"
)

// The programs that a lab's relay runs, as processes of their own: this binary by another name.
const (
	tunnelProgram = "weir-lab-tunnel" // LOCAL SNDBUF INNER=OUTER…
	proxyProgram  = "weir-lab-proxy"  // LOCAL ORIGIN PORT…
)

// clientSndBuf is room for more than any path of the lab holds, in bytes.
const clientSndBuf = 4 << 20

// helper starts a program in a host. It ends with the machine.
func (t *topology) helper(s space, program string, args ...string) error {
	return s.in(func() error {
		c := exec.Command("/init", args...)
		c.Args[0] = program
		// A signal that comes by the clock would be one more thing that happens at a time of its own.
		c.Env = append(os.Environ(), "GODEBUG=asyncpreemptoff=1")
		c.Stdout, c.Stderr = os.Stdout, os.Stderr
		return c.Start()
	})
}

// help is a helper's life. A relay is known by its programs' names, so each takes that of one that does the same.
func help(program string, args []string) {
	run, name := carry, "vtund\x00"
	if program == proxyProgram {
		run, name = splitConnections, "socat\x00"
	}
	_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(unsafe.StringData(name))), 0, 0, 0)
	err := run(args)
	fmt.Printf("%s: %v\n", program, err)
	os.Exit(1)
}

// makeTun makes a tun that stays when nobody has it open.
func makeTun(s space, txQLen int) error {
	return s.in(func() error {
		tun, err := openTun()
		if err != nil {
			return err
		}
		defer unix.Close(tun)
		if err := unix.IoctlSetInt(tun, unix.TUNSETPERSIST, 1); err != nil {
			return err
		}
		l, err := s.links.LinkByName(tunDevice)
		if err != nil {
			return err
		}
		return s.links.LinkSetTxQLen(l, txQLen)
	})
}

func openTun() (int, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, err
	}
	request, err := unix.NewIfreq(tunDevice)
	if err != nil {
		return -1, err
	}
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("TUNSETIFF: %w", err)
	}
	return fd, nil
}

// tunnel is a user-space VPN in what matters for queues: what it reads from the tun it sends as UDP, one packet each,
// to whom the address inside is; while the socket has no room it waits, and what comes meanwhile waits in the tun's
// ring.
type tunnel struct {
	*traffic.Loop
	tun, udp int
	peers    map[netip.Addr]unix.Sockaddr
	only     unix.Sockaddr // of a client: all goes to the relay
	waiting  []byte        // read, and not yet sent
	to       unix.Sockaddr
	out, in  [maxDatagram]byte
}

const (
	maxDatagram  = 65536
	tunnelHeader = 32 // bytes before each packet: as WireGuard's, without its padding
)

func carry(args []string) error {
	runtime.LockOSThread()
	local, err := netip.ParseAddrPort(args[0])
	if err != nil {
		return err
	}
	loop, err := traffic.NewLoop()
	if err != nil {
		return err
	}
	t := &tunnel{Loop: loop, peers: map[netip.Addr]unix.Sockaddr{}}
	for _, arg := range args[2:] {
		inside, outside, _ := strings.Cut(arg, "=")
		peer, err := netip.ParseAddrPort(outside)
		if err != nil {
			return err
		}
		if inside == "*" {
			t.only = sockaddrOf(peer)
		} else {
			t.peers[netip.MustParseAddr(inside)] = sockaddrOf(peer)
		}
	}
	if t.tun, err = openTun(); err != nil {
		return err
	}
	family := unix.AF_INET
	if local.Addr().Is6() {
		family = unix.AF_INET6
	}
	if t.udp, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0); err != nil {
		return err
	}
	if err := unix.Bind(t.udp, sockaddrOf(local)); err != nil {
		return err
	}
	if size, _ := strconv.Atoi(args[1]); size > 0 {
		if err := unix.SetsockoptInt(t.udp, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, size); err != nil {
			return err
		}
	}
	t.Watch(t.tun, unix.EPOLLIN, t.fromTun)
	t.Watch(t.udp, unix.EPOLLIN, t.fromUDP)
	return t.Run(t.Now() + 24*time.Hour)
}

func sockaddrOf(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is6() {
		return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
}

// fromTun sends what comes out of the kernel until there is no more, or no room.
func (t *tunnel) fromTun() {
	for {
		if t.waiting == nil {
			n, err := unix.Read(t.tun, t.out[tunnelHeader:])
			if err != nil || n <= 0 {
				return
			}
			if t.to = t.peer(t.out[tunnelHeader : tunnelHeader+n]); t.to == nil {
				continue
			}
			t.waiting = t.out[:tunnelHeader+n]
		}
		if err := unix.Sendto(t.udp, t.waiting, 0, t.to); err == unix.EAGAIN {
			t.Forget(t.tun)
			t.Watch(t.udp, unix.EPOLLIN|unix.EPOLLOUT, t.relayBoth)
			return
		}
		t.waiting = nil
	}
}

// relayBoth serves the socket while something waits for it to have room.
func (t *tunnel) relayBoth() {
	t.fromUDP()
	if unix.Sendto(t.udp, t.waiting, 0, t.to) == unix.EAGAIN {
		return
	}
	t.waiting = nil
	t.Watch(t.udp, unix.EPOLLIN, t.fromUDP)
	t.Watch(t.tun, unix.EPOLLIN, t.fromTun)
}

// peer is to whom a packet goes.
func (t *tunnel) peer(packet []byte) unix.Sockaddr {
	if t.only != nil {
		return t.only
	}
	switch {
	case len(packet) >= 20 && packet[0]>>4 == 4:
		return t.peers[netip.AddrFrom4([4]byte(packet[16:]))]
	case len(packet) >= 40 && packet[0]>>4 == 6:
		return t.peers[netip.AddrFrom16([16]byte(packet[24:]))]
	}
	return nil
}

func (t *tunnel) fromUDP() {
	for {
		n, _, err := unix.Recvfrom(t.udp, t.in[:], 0)
		if err != nil {
			return
		}
		if n > tunnelHeader {
			_, _ = unix.Write(t.tun, t.in[tunnelHeader:n])
		}
	}
}

// splitConnections is a TCP proxy as Go programs are: what is accepted on a port goes on to the same port of the
// origin, by splice. It calls from the port that it was called from, by which the lab knows whose connection is
// whose.
func splitConnections(args []string) error {
	local, origin := args[0], args[1]
	failed := make(chan error)
	for _, port := range args[2:] {
		l, err := net.Listen("tcp", net.JoinHostPort(local, port))
		if err != nil {
			return err
		}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					failed <- err
					return
				}
				go passOn(c, local, net.JoinHostPort(origin, port))
			}
		}()
	}
	return <-failed
}

func passOn(client net.Conn, local, origin string) {
	from := client.RemoteAddr().(*net.TCPAddr)
	dialer := net.Dialer{
		LocalAddr: &net.TCPAddr{IP: net.ParseIP(local), Port: from.Port},
		Control: func(_, _ string, c syscall.RawConn) error {
			var failed error
			err := c.Control(func(fd uintptr) {
				failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR,
					1)
			})
			return errors.Join(err, failed)
		},
	}
	server, err := dialer.Dial("tcp", origin)
	if err != nil {
		fmt.Printf("%s: %v\n", proxyProgram, err)
		client.Close()
		return
	}
	one := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		_ = to.(*net.TCPConn).CloseWrite()
	}
	go one(client, server)
	one(server, client)
}
