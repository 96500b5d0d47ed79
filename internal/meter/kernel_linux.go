// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// control runs f on the socket beneath a connection.
func control(c net.Conn, f func(fd int) error) error {
	raw, ok := beneath(c).(syscall.Conn)
	if !ok {
		return net.ErrClosed
	}
	conn, err := raw.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := conn.Control(func(fd uintptr) { inner = f(int(fd)) }); err != nil {
		return err
	}
	return inner
}

func readKernel(c net.Conn) (k kernelTCP, ok bool) {
	if c == nil {
		return k, false
	}
	err := control(c, func(fd int) error {
		var info unix.TCPInfo
		size := uint32(unsafe.Sizeof(info))
		if _, _, e := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.IPPROTO_TCP, unix.TCP_INFO,
			uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0); e != 0 {
			return e
		}
		cc, err := unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
		const ecn = 8 // TCPI_OPT_ECN (include/uapi/linux/tcp.h)
		k = kernelTCP{rtt: int64(info.Rtt), rttvar: int64(info.Rttvar), minRTT: int64(info.Min_rtt),
			sent: int64(info.Bytes_sent), again: int64(info.Bytes_retrans), acked: int64(info.Bytes_acked),
			received: int64(info.Bytes_received), delivered: int64(info.Delivered),
			ce: int64(info.Delivered_ce), busy: int64(info.Busy_time), receiver: int64(info.Rwnd_limited),
			buffer: int64(info.Sndbuf_limited), ecn: info.Options&ecn != 0, cc: cc}
		return err
	})
	return k, err == nil
}

// SetCC chooses a connection's congestion control; "" leaves the host's own.
func SetCC(c net.Conn, cc string) error {
	if cc == "" {
		return nil
	}
	err := control(c, func(fd int) error {
		return unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, cc)
	})
	if err != nil {
		return fmt.Errorf("congestion control %q: %w (here there are: %s)", cc, err, strings.Join(CCs(), ", "))
	}
	return nil
}

// CCs are the congestion controls that anybody may choose here.
func CCs() []string {
	text, _ := os.ReadFile("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
	return strings.Fields(string(text))
}

// SetUnsent bounds what waits in a connection's buffer and is not yet sent: what a bulk sender puts there only makes
// its own end late.
func SetUnsent(c net.Conn, bytes int) error {
	return control(c, func(fd int) error {
		return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, bytes)
	})
}
