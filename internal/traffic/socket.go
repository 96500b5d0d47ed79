// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"fmt"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Host is one end of traffic: an address, and the network namespace that it lives in.
type Host struct {
	NetNS int // file descriptor of the namespace; 0 is the loop's own
	Addr  netip.Addr
}

// via is h by another address, if that is valid: where somebody finds it behind address translation, say.
func (h Host) via(a netip.Addr) Host {
	if a.IsValid() {
		h.Addr = a
	}
	return h
}

// socket makes a non-blocking socket of the given type inside h's namespace.
func (l *Loop) socket(h Host, kind int) (int, error) {
	family := unix.AF_INET
	if h.Addr.Is6() {
		family = unix.AF_INET6
	}
	if h.NetNS != 0 {
		if err := unix.Setns(h.NetNS, unix.CLONE_NEWNET); err != nil {
			return -1, fmt.Errorf("enter namespace: %w", err)
		}
		defer func() {
			if err := unix.Setns(l.home, unix.CLONE_NEWNET); err != nil {
				l.Fail(fmt.Errorf("leave namespace: %w", err))
			}
		}()
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, fmt.Errorf("socket: %w", err)
	}
	return fd, nil
}

// bound makes a socket bound to h's address and port; a stream socket also listens.
func (l *Loop) bound(h Host, kind, port int) (int, error) {
	fd, err := l.socket(h, kind)
	if err != nil {
		return -1, err
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	if err := unix.Bind(fd, sockaddr(h.Addr, port)); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("bind %v port %d: %w", h.Addr, port, err)
	}
	if kind == unix.SOCK_STREAM {
		if err := unix.Listen(fd, 1024); err != nil {
			unix.Close(fd)
			return -1, fmt.Errorf("listen: %w", err)
		}
	}
	return fd, nil
}

// connect makes a socket in from, prepares it (what its first packet says depends on that) and starts connecting it to
// port on to. It is established when it becomes writable.
func (l *Loop) connect(from, to Host, kind, port int, prepare func(fd int) error) (int, error) {
	fd, err := l.socket(from, kind)
	if err != nil {
		return -1, err
	}
	if err := prepare(fd); err != nil {
		unix.Close(fd)
		return -1, err
	}
	if err := unix.Connect(fd, sockaddr(to.Addr, port)); err != nil && err != unix.EINPROGRESS {
		unix.Close(fd)
		return -1, fmt.Errorf("connect to %v port %d: %w", to.Addr, port, err)
	}
	return fd, nil
}

// noPreparation prepares nothing.
func noPreparation(int) error { return nil }

func sockaddr(a netip.Addr, port int) unix.Sockaddr {
	if a.Is6() {
		return &unix.SockaddrInet6{Addr: a.As16(), Port: port}
	}
	return &unix.SockaddrInet4{Addr: a.As4(), Port: port}
}

func portOf(sa unix.Sockaddr) int {
	switch a := sa.(type) {
	case *unix.SockaddrInet4:
		return a.Port
	case *unix.SockaddrInet6:
		return a.Port
	}
	return 0
}

// tcpInfo reads TCP_INFO. Fields that this kernel does not have stay zero.
func tcpInfo(fd int) (info unix.TCPInfo, ok bool) {
	size := uint32(unsafe.Sizeof(info))
	_, _, err := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.IPPROTO_TCP, unix.TCP_INFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	return info, err == 0
}

func write(fd int, b []byte) (int, unix.Errno) {
	n, _, err := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	if err != 0 {
		return 0, err
	}
	return int(n), 0
}

func read(fd int, b []byte) (int, unix.Errno) {
	n, _, err := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	if err != 0 {
		return 0, err
	}
	return int(n), 0
}

// setCC chooses the congestion control of a socket; "": that of the sysctl.
func setCC(fd int, cc string) error {
	if cc == "" {
		return nil
	}
	if err := unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, cc); err != nil {
		return fmt.Errorf("congestion control %q: %w", cc, err)
	}
	return nil
}
