// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"net/netip"
	"os"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"

	"weir/internal/units"
)

// Sockets sums up the established TCP connections of a network namespace, those that never leave the host left out. It
// is one look at them, so what it says of a path it says of the paths that were in use.
//
// A connection is busy when it has sent within the last second and has either ten segments in flight or data that waits
// to be sent: it is the network, and not the program, that it waits for. Its minimum RTT is that of the last five
// minutes (net.ipv4.tcp_min_rtt_wlen): a queue that has stood for longer has become the minimum, and is seen too small
// or not at all.
type Sockets struct {
	Total      int            `json:"total"`
	Congestion map[string]int `json:"congestion,omitempty"` // by congestion control
	// to a port that somebody listens at; the others were dialled from here
	Accepted   int            `json:"accepted"`
	Busy       int            `json:"busy"`
	Queueing   int            `json:"queueing"`    // busy, with an RTT far above its minimum
	QueueRTT   units.Duration `json:"queue_rtt"`   // of those, the median RTT
	QueueMin   units.Duration `json:"queue_min"`   // and their median minimum
	Lossy      int            `json:"lossy"`       // busy, and losing packets with an RTT near its minimum
	LossyBBR   int            `json:"lossy_bbr"`   // of those, under BBR
	LossyShare units.Share    `json:"lossy_share"` // of the bytes that those sent, what was sent again
	// busy, and for a fifth of that time or more held back by the receiver's window
	Receiver int            `json:"receiver_bound"`
	Buffer   int            `json:"buffer_bound"` // … by this host's send buffer
	App      int            `json:"app_limited"`  // busy, with a program that did not always have something to send
	Rate     units.Rate     `json:"rate"`         // sum of what the busy ones deliver, bits per second
	Fastest  units.Rate     `json:"fastest"`      // of the busy ones
	RTT      units.Duration `json:"rtt"`          // the minimum RTT that nine in ten connections stay below
	// of what dialled connections carry, accepted ones carry it too, the other way
	Passed units.Share `json:"passed"`
	CE     int         `json:"marked"`         // connections of which packets were marked CE and arrived
	Cut    int         `json:"cut,omitempty"`  // answers of the kernel that could not be understood
	Read   bool        `json:"read,omitempty"` // the connections were looked at
}

// Dialled is how many connections this host has opened.
func (s Sockets) Dialled() int { return s.Total - s.Accepted }

// ReadPath looks at the live connections alone, for how far away their other ends are. It loads no module for that;
// where one is missing, or the kernel does not answer, nothing is read.
func ReadPath(f Facts) (s Sockets) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if unloaded(os.DirFS("/"), f.Kernel, "tcp_diag") == "" {
		_ = s.read(sockDiag, f.Links, f.Uplink)
	}
	return s
}

// dump asks the kernel for all sockets of a family, and hands over each answer's payload.
type dump func(family byte, each func([]byte)) error

// read sums up. Connections to the host's own addresses and to its containers never leave it, and do not count.
func (s *Sockets) read(ask dump, links []Link, uplink string) error {
	a := &aggregate{Sockets: s, own: map[netip.Addr]bool{}}
	for _, l := range links {
		for _, text := range l.Addrs {
			if prefix, err := netip.ParsePrefix(text); err == nil {
				a.own[prefix.Addr()] = true
				if l.Name != uplink && (l.Kind == "bridge" || l.Kind == "veth") {
					a.inside = append(a.inside, prefix)
				}
			}
		}
	}
	s.Congestion = map[string]int{}
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		clear(a.listening[:])
		// A kernel without IPv6 knows of no such family.
		if err := ask(family, a.add); err != nil && (family == unix.AF_INET || !errors.Is(err, unix.ENOENT)) {
			return err
		}
	}
	s.Read = true
	s.QueueRTT, s.QueueMin, s.RTT = a.queueRTT.quantile(0.5), a.queueMin.quantile(0.5), a.minRTT.quantile(0.9)
	if a.sent > 0 {
		s.LossyShare = units.Share(min(a.again/a.sent, 1))
	}
	s.Passed = a.passed()
	return nil
}

// aggregate is the sums while sockets go by.
type aggregate struct {
	*Sockets
	own                        map[netip.Addr]bool
	inside                     []netip.Prefix
	listening                  [1 << 16 / 64]uint64 // ports, a bit each; listeners come before connections
	queueRTT, queueMin, minRTT histogram
	sent, again                float64 // bytes of lossy connections
	accepted, dialled          carried
}

// carried is what connections have carried since they were opened, in bytes.
type carried struct{ in, out float64 }

// passed compares what came in by connections of the one sort with what went out by those of the other, in both
// directions. It is 1 where a program ends connections and carries on by others. A server dials nothing, and who
// downloads accepts nothing.
func (a *aggregate) passed() units.Share {
	const enough = 1e6 // bytes
	same := min(a.dialled.in, a.accepted.out) + min(a.accepted.in, a.dialled.out)
	if same < enough {
		return 0
	}
	return units.Share(same / (max(a.dialled.in, a.accepted.out) + max(a.accepted.in, a.dialled.out)))
}

// struct inet_diag_msg and its attributes (include/uapi/linux/inet_diag.h).
const (
	diagLen      = 72
	diagState    = 1
	diagSport    = 4
	diagDst      = 24
	inetDiagInfo = 2
	inetDiagCong = 4

	tcpEstablished = 1
	tcpListen      = 10
)

// Offsets in struct tcp_info (include/uapi/linux/tcp.h). A kernel gives as much of it as it knows.
const (
	infoFlags       = 7 // bit 0: delivery_rate_app_limited
	infoMSS         = 16
	infoUnacked     = 24
	infoLastSent    = 44 // ms ago
	infoRTT         = 68 // us
	infoRetrans     = 100
	infoBytesAcked  = 120
	infoBytesIn     = 128 // received
	infoNotsent     = 144
	infoMinRTT      = 148 // us
	infoSegsOut     = 156 // with data
	infoRate        = 160 // bytes per second
	infoBusy        = 168 // us, as the next two
	infoRwndLimited = 176
	infoBufLimited  = 184
	infoDeliveredCE = 196
	infoBytesSent   = 200
	infoBytesAgain  = 208
)

// tcpInfo is what of a struct tcp_info has arrived; what has not is zero.
type tcpInfo []byte

func (t tcpInfo) u32(at int) uint32 {
	if len(t) < at+4 {
		return 0
	}
	return binary.NativeEndian.Uint32(t[at:])
}

func (t tcpInfo) u64(at int) uint64 {
	if len(t) < at+8 {
		return 0
	}
	return binary.NativeEndian.Uint64(t[at:])
}

func (a *aggregate) add(msg []byte) {
	if len(msg) < diagLen {
		a.Cut++
		return
	}
	port := binary.BigEndian.Uint16(msg[diagSport:])
	switch msg[diagState] {
	case tcpListen:
		a.listening[port/64] |= 1 << (port % 64)
		return
	case tcpEstablished:
	default:
		return
	}
	to := netip.AddrFrom16([16]byte(msg[diagDst:])).Unmap()
	if msg[0] == unix.AF_INET {
		to = netip.AddrFrom4([4]byte(msg[diagDst:]))
	}
	if to.IsLoopback() || a.own[to] ||
		slices.ContainsFunc(a.inside, func(p netip.Prefix) bool { return p.Contains(to) }) {
		return
	}
	var info tcpInfo
	var cc string
	for b := msg[diagLen:]; len(b) > 0; {
		if len(b) < 4 {
			a.Cut++
			break
		}
		length, typ := int(binary.NativeEndian.Uint16(b)),
			binary.NativeEndian.Uint16(b[2:])&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER)
		if length < 4 || length > len(b) {
			a.Cut++
			break
		}
		switch data := b[4:length]; typ {
		case inetDiagInfo:
			info = tcpInfo(data)
		case inetDiagCong:
			name, _, _ := bytes.Cut(data, []byte{0})
			if _, known := a.Congestion[string(name)]; known || len(a.Congestion) < 64 {
				cc = string(bytes.ToValidUTF8(name, []byte("?")))
			}
		}
		b = b[min((length+3)&^3, len(b)):]
	}
	a.Total++
	carried := &a.dialled
	if a.listening[port/64]&(1<<(port%64)) != 0 {
		a.Accepted++
		carried = &a.accepted
	}
	carried.in += float64(info.u64(infoBytesIn))
	carried.out += float64(info.u64(infoBytesAcked))
	if cc != "" {
		a.Congestion[cc]++
	}
	if info.u32(infoDeliveredCE) > 0 {
		a.CE++
	}
	rtt, least := info.u32(infoRTT), info.u32(infoMinRTT)
	if least == 0 || least == math.MaxUint32 || rtt == 0 {
		return
	}
	a.minRTT.add(least)
	const recently, transfer = 1000, 10 // ms; segments
	if info.u32(infoLastSent) > recently || info.u32(infoUnacked) < transfer && info.u32(infoNotsent) == 0 {
		return
	}
	a.busy(info, cc, rtt, least)
}

func (a *aggregate) busy(info tcpInfo, cc string, rtt, least uint32) {
	a.Busy++
	rate := units.Rate(min(info.u64(infoRate), math.MaxUint32*128) * 8)
	a.Rate += rate
	a.Fastest = max(a.Fastest, rate)
	if len(info) > infoFlags && info[infoFlags]&1 != 0 {
		a.App++
	}
	const fifth = 5
	if busy := info.u64(infoBusy); busy > 0 {
		if info.u64(infoRwndLimited) >= busy/fifth && info.u64(infoRwndLimited) > 0 {
			a.Receiver++
		}
		if info.u64(infoBufLimited) >= busy/fifth && info.u64(infoBufLimited) > 0 {
			a.Buffer++
		}
	}
	// Far above: by half, and by 10 ms, which no wireless hop's jitter explains. Near: by a quarter at most, or 2 ms.
	switch above := int64(rtt) - int64(least); {
	case above >= max(int64(least)/2, 10_000):
		a.Queueing++
		a.queueRTT.add(rtt)
		a.queueMin.add(least)
	case above <= max(int64(least)/4, 2_000):
		sent, again := float64(info.u64(infoBytesSent)), float64(info.u64(infoBytesAgain))
		if sent == 0 { // before Linux 4.19
			mss := float64(info.u32(infoMSS))
			sent, again = mss*float64(info.u32(infoSegsOut)), mss*float64(info.u32(infoRetrans))
		}
		const lost, some = 0.01, 10 // of the bytes; segments, of which fewer are an accident
		if sent > 0 && again/sent >= lost && info.u32(infoRetrans) >= some {
			a.Lossy++
			if cc == "bbr" {
				a.LossyBBR++
			}
			a.sent += sent
			a.again += again
		}
	}
}

// histogram counts times in microseconds, in steps of 3 %.
type histogram struct {
	count [32 * 32]uint32
	total uint32
}

func (h *histogram) add(us uint32) {
	h.total++
	h.count[step(us)]++
}

// step is exact below 64; above, the position of the highest bit and the five bits after it.
func step(us uint32) int {
	if us < 64 {
		return int(us)
	}
	shift := bits.Len32(us) - 6
	return shift*32 + int(us>>shift)
}

func (h *histogram) quantile(q float64) units.Duration {
	if h.total == 0 {
		return 0
	}
	need := uint32(math.Ceil(q * float64(h.total)))
	for i, n := range h.count {
		if n >= need {
			us := i
			if i >= 64 {
				shift := i/32 - 1
				us = (i - shift*32) << shift
				us += 1 << shift / 2
			}
			return units.Duration(us) * 1000
		}
		need -= n
	}
	return 0
}

// sockDiag asks the kernel. Answers are looked at where they arrive; none is kept.
func sockDiag(family byte, each func([]byte)) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return fmt.Errorf("sock_diag: %w", err)
	}
	defer unix.Close(fd)
	const (
		timeout  = 2 // s; a kernel answers at once
		reqLen   = unix.NLMSG_HDRLEN + 56
		inetDiag = 20 // SOCK_DIAG_BY_FAMILY
	)
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: timeout}); err != nil {
		return fmt.Errorf("sock_diag: %w", err)
	}
	req := make([]byte, reqLen) // struct nlmsghdr, struct inet_diag_req_v2
	binary.NativeEndian.PutUint32(req[0:], reqLen)
	binary.NativeEndian.PutUint16(req[4:], inetDiag)
	binary.NativeEndian.PutUint16(req[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	req[16], req[17] = family, unix.IPPROTO_TCP
	req[18] = 1<<(inetDiagInfo-1) | 1<<(inetDiagCong-1)
	binary.NativeEndian.PutUint32(req[20:], 1<<tcpEstablished|1<<tcpListen)
	if err := unix.Sendto(fd, req, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("sock_diag: %w", err)
	}
	buf := make([]byte, 64<<10)
	for {
		n, from, err := unix.Recvfrom(fd, buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("sock_diag: %w", err)
		}
		if sender, ok := from.(*unix.SockaddrNetlink); !ok || sender.Pid != 0 {
			continue // not the kernel
		}
		if done, err := answers(buf[:n], each); done || err != nil {
			return err
		}
	}
}

// answers takes one datagram of the kernel's apart; true after the last answer.
func answers(b []byte, each func([]byte)) (bool, error) {
	for len(b) > 0 {
		if len(b) < unix.NLMSG_HDRLEN {
			return false, fmt.Errorf("sock_diag: the kernel's answer is cut off after %d bytes", len(b))
		}
		length, typ := binary.NativeEndian.Uint32(b), binary.NativeEndian.Uint16(b[4:])
		if length < unix.NLMSG_HDRLEN || uint64(length) > uint64(len(b)) {
			return false, fmt.Errorf("sock_diag: the kernel's answer says it is %d bytes long, of %d", length, len(b))
		}
		data := b[unix.NLMSG_HDRLEN:length]
		switch typ {
		case unix.NLMSG_DONE:
			return true, nil
		case unix.NLMSG_ERROR:
			if len(data) < 4 {
				return false, errors.New("sock_diag: the kernel's error is cut off")
			}
			if errno := -int32(binary.NativeEndian.Uint32(data)); errno > 0 {
				return false, fmt.Errorf("sock_diag: %w", unix.Errno(errno))
			}
			return true, nil
		case unix.NLMSG_NOOP:
		default:
			each(data)
		}
		b = b[min(uint64(length+3)&^3, uint64(len(b))):]
	}
	return false, nil
}
