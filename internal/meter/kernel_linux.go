// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"weir/internal/calibrate"
)

// control runs f on the socket beneath a connection.
func control(c net.Conn, f func(fd int) error) error {
	raw, ok := rawConn(c).(syscall.Conn)
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

func readKernel(c net.Conn) (k TCPInfo, ok bool) {
	if c == nil {
		return k, false
	}
	err := control(c, func(fd int) error {
		info, err := tcpInfo(fd)
		if err != nil {
			return err
		}
		cc, err := unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
		const ecn = 8 // TCPI_OPT_ECN (include/uapi/linux/tcp.h)
		k = TCPInfo{RTT: int64(info.Rtt), RTTVar: int64(info.Rttvar), MinRTT: int64(info.Min_rtt),
			BytesSent: int64(info.Bytes_sent), BytesRetrans: int64(info.Bytes_retrans),
			BytesAcked: int64(info.Bytes_acked), BytesReceived: int64(info.Bytes_received),
			Delivered: int64(info.Delivered), DeliveredCE: int64(info.Delivered_ce), BusyTime: int64(info.Busy_time),
			RWndLimited: int64(info.Rwnd_limited), SndBufLimited: int64(info.Sndbuf_limited),
			ECN: info.Options&ecn != 0, CC: cc}
		return err
	})
	return k, err == nil
}

// packetBound bounds a connection's packets before it connects, in bytes of IP; 0: nothing is bounded.
func packetBound(packet int) func(network, address string, c syscall.RawConn) error {
	if packet == 0 {
		return nil
	}
	return func(network, _ string, c syscall.RawConn) error {
		headers := 40 // IPv4 and TCP; options count as payload here
		if network == "tcp6" {
			headers = 60
		}
		var inner error
		err := c.Control(func(fd uintptr) {
			inner = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, packet-headers)
		})
		if err == nil {
			err = inner
		}
		return err
	}
}

// pace bounds how fast a connection sends, in bytes of payload a second; 0: it does not.
func pace(c net.Conn, rate float64) error {
	most := uint64(math.MaxUint64) // no bound (net/core/sock.c)
	if rate > 0 {
		most = uint64(rate)
	}
	return control(c, func(fd int) error {
		return unix.SetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE, most)
	})
}

// receivedEarly is how many packets a connection has received before one that should have come earlier
// (tcpi_rcv_ooopack); false where the kernel does not say.
func receivedEarly(c net.Conn) (packets uint32, ok bool) {
	err := control(c, func(fd int) error {
		info, err := tcpInfo(fd)
		if err == nil {
			packets = info.Rcv_ooopack
		}
		return err
	})
	return packets, err == nil
}

func tcpInfo(fd int) (*unix.TCPInfo, error) {
	return unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
}

// sentAgain reports whether anything of a connection was sent twice.
func sentAgain(c net.Conn) (again bool) {
	control(c, func(fd int) error {
		info, err := tcpInfo(fd)
		again = err == nil && info.Total_retrans > 0
		return err
	})
	return again
}

// headersOf is what a connection's packets have before their payload, in bytes: IP, TCP and its time stamps.
func headersOf(c net.Conn) (headers float64, err error) {
	err = control(c, func(fd int) error {
		info, err := tcpInfo(fd)
		if err == nil {
			headers = headerBytes(c, info)
		}
		return err
	})
	return headers, err
}

func headerBytes(c net.Conn, info *unix.TCPInfo) float64 {
	const stamps = 1 // TCPI_OPT_TIMESTAMPS (include/uapi/linux/tcp.h), which take 12 bytes
	headers := 40.0
	if a, ok := c.LocalAddr().(*net.TCPAddr); ok && a.IP.To4() == nil {
		headers = 60
	}
	if info.Options&stamps != 0 {
		headers += 12
	}
	return headers
}

// readSending adds what a sender's kernel has counted of a connection, and gives its RTT.
func readSending(c net.Conn, to *calibrate.Sample) (rtt time.Duration, err error) {
	err = control(c, func(fd int) error {
		info, err := tcpInfo(fd)
		if err != nil {
			return err
		}
		to.Payload += float64(info.Bytes_sent)
		to.Segments += float64(info.Data_segs_out)
		to.Headers += headerBytes(c, info) * float64(info.Data_segs_out)
		to.Retransmitted += float64(info.Total_retrans)
		to.Delivered += float64(info.Delivered)
		rtt = time.Duration(info.Rtt) * time.Microsecond
		return nil
	})
	return rtt, err
}

// segmentsSent are what this host's TCP has sent, and what of that again: tcpOutSegs and tcpRetransSegs of RFC 4022.
func segmentsSent() (sent, again float64, ok bool) {
	text, err := os.ReadFile("/proc/thread-self/net/snmp")
	if err != nil {
		return 0, 0, false
	}
	return readSegments(string(text))
}

// readSegments reads the text of /proc/net/snmp: a line of names, and one of values. What is sent again is not in
// OutSegs.
func readSegments(text string) (sent, again float64, ok bool) {
	var names []string
	for line := range strings.Lines(text) {
		protocol, fields, _ := strings.Cut(line, ":")
		if protocol != "Tcp" {
			continue
		}
		if names == nil {
			names = strings.Fields(fields)
			continue
		}
		found := 0
		for i, v := range strings.Fields(fields) {
			n, err := strconv.ParseFloat(v, 64)
			if err != nil || i >= len(names) {
				return 0, 0, false
			}
			switch names[i] {
			case "OutSegs":
				sent, found = sent+n, found+1
			case "RetransSegs":
				sent, again, found = sent+n, n, found+1
			}
		}
		return sent, again, found == 2
	}
	return 0, 0, false
}

// SetCC chooses a connection's congestion control; "" leaves the host's own.
func SetCC(c net.Conn, cc string) error {
	if cc == "" {
		return nil
	}
	return control(c, func(fd int) error { return setCC(fd, cc) })
}

func setCC(fd int, cc string) error {
	err := unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, cc)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENOENT):
		return ccError(fmt.Sprintf("this kernel has no congestion control %q", cc), CCs())
	case errors.Is(err, unix.EPERM):
		return ccError(fmt.Sprintf("the congestion control %q is here for root alone", cc), CCs())
	}
	return fmt.Errorf("congestion control %q: %w", cc, err)
}

// TryCC reports whether a congestion control can be chosen here. The kernel loads its module where that is allowed.
func TryCC(cc string) error {
	if cc == "" {
		return nil
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return setCC(fd, cc)
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

// Discard reads what has arrived and throws it away in the kernel, which copies nothing. It counts as len(b) at most.
func Discard(c net.Conn, b []byte) (n int, err error) {
	raw, ok := rawConn(c).(syscall.Conn)
	if !ok {
		return 0, net.ErrClosed
	}
	conn, err := raw.SyscallConn()
	if err != nil {
		return 0, err
	}
	var inner error
	err = conn.Read(func(fd uintptr) bool {
		for {
			n, _, inner = unix.Recvfrom(int(fd), b, unix.MSG_TRUNC|unix.MSG_DONTWAIT)
			if inner != unix.EINTR {
				return inner != unix.EAGAIN
			}
		}
	})
	switch {
	case err != nil:
		return 0, err
	case inner != nil:
		return 0, inner
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// sleep lets the kernel wake this thread. Go's own timers are looked at when anything wakes the program, such as a
// packet that arrives: what is sent then would always meet the link just after it has sent one.
func sleep(d time.Duration) {
	left := unix.NsecToTimespec(max(d.Nanoseconds(), 0))
	for unix.ClockNanosleep(unix.CLOCK_MONOTONIC, 0, &left, &left) == unix.EINTR {
	}
}
