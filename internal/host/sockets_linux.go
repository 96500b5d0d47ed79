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
	"time"
	"unsafe"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"weir/internal/bbr"
	"weir/internal/units"
)

// Unasked says why the kernel cannot be asked for connections without loading a module, which would change the host; ""
// if it can.
func Unasked() string {
	root := os.DirFS("/")
	return unloaded(root, line(root, "proc/sys/kernel/osrelease"), "tcp_diag")
}

// ReadPath looks at the live connections alone, for how far away their other ends are. It loads no module for that;
// where one is missing, or the kernel does not answer, nothing is read. Of devices that are said not to pass, by their
// index, none is counted that leaves by them.
func ReadPath(f Facts, pass map[int]bool) (s Sockets) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if unloaded(os.DirFS("/"), f.Kernel, "tcp_diag") != "" {
		return s
	}
	ask := sockDiag
	if len(pass) > 0 {
		routes, err := OpenRoutes()
		if err != nil {
			return s
		}
		defer routes.Close()
		ask = func(family byte, each func([]byte)) error {
			return sockDiag(family, func(msg []byte) {
				if passes, known := pass[routes.deviceOf(msg)]; passes || !known {
					each(msg)
				}
			})
		}
	}
	_ = s.read(ask, f.Links, f.Uplink)
	return s
}

// dump asks the kernel for all sockets of a family, and hands over each answer's payload.
type dump func(family byte, each func([]byte)) error

// read sums up. Connections to the host's own addresses and to its containers never leave it, and do not count.
func (s *Sockets) read(ask dump, links []Link, uplink string) error {
	a := &aggregate{Sockets: s, own: map[netip.Addr]bool{}, each: map[netip.Addr]int{}}
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
	a.summarize()
	s.RTT, s.Passed = a.minRTT.quantile(0.9), a.passedShare()
	return nil
}

// summarize sums up what the busy connections have in common.
func (a *aggregate) summarize() {
	a.QueueRTT, a.QueueMin, a.MinRTT = a.queueRTT.quantile(0.5), a.queueMin.quantile(0.5), a.busyMin.quantile(0.5)
	if a.sent > 0 {
		a.LossyShare = units.Share(min(a.again/a.sent, 1))
	}
}

// senders are what of a look is kept for a later one.
type senders struct {
	accounts map[uint64]account // of connections that have sent something, by their cookies
	recent   []sender           // those that are busy, or may turn out to be
	bringing []sender           // those that bring bulk data in
}

// sender is a connection that has sent something within the last second.
type sender struct {
	cookie uint64
	to     netip.Addr
	cc     string
	info   tcpInfo
}

// account is what has come of a connection since it was opened, or between two looks.
type account struct {
	sent, again, acked, received uint64 // bytes; again: of what was sent
	segments, repeats            uint32 // that carry data, and how many of them were sent again
	// us: in which there was something to send, and of that without room in the receiver's window, in the send buffer
	busy, windowless, bufferless uint64
}

// bulk is more than requests are, in bytes.
const bulk = 1 << 20

// listen judges anew which connections are busy, and what they wait for, by what they did since an earlier look, which
// was so long ago. One that was not there then is judged by its whole life.
func (s *Sockets) listen(before *Sockets, passed time.Duration, most bounds) {
	if s.senders == nil || before.senders == nil || !s.Read || !before.Read {
		return
	}
	s.Busy, s.Most, s.Queueing, s.Lossy, s.LossyBBR, s.LossyShare = 0, 0, 0, 0, 0, 0
	s.Receiver, s.Buffer, s.Refused, s.Paced, s.Pace, s.App, s.Rate, s.Fastest = 0, 0, 0, 0, 0, 0, 0, 0
	s.Clamped, s.SendBuffer, s.Received = 0, 0, 0
	a := &aggregate{Sockets: s, each: map[netip.Addr]int{}}
	for i := range s.senders.recent {
		x := &s.senders.recent[i]
		since := x.info.account().since(before.senders.accounts[x.cookie])
		if !x.info.waitsForNetwork() && since.acked < bulk {
			continue
		}
		if most.cwnds[x.info.Snd_cwnd] && x.info.Unacked >= x.info.Snd_cwnd {
			a.Clamped++
		}
		// Who has sent all that an end lets it may have tried twice.
		if bound := a.addBusy(x, since); !bound && since.wasRefused(&x.info) {
			a.Refused++
		}
	}
	a.summarize()
	earlier := map[uint64]*tcpInfo{}
	for i := range before.senders.bringing {
		x := &before.senders.bringing[i]
		earlier[x.cookie] = &x.info
	}
	for i := range s.senders.bringing {
		x := &s.senders.bringing[i]
		since := x.info.account().since(before.senders.accounts[x.cookie])
		s.Received += units.Rate(8 * float64(since.received) / passed.Seconds())
		s.Window.add(&x.info, earlier[x.cookie], float64(since.received)/passed.Seconds(), most)
	}
}

// add judges what keeps the window small that this host announces to a connection's other end, which sends so many
// bytes a second; was is the same connection at an earlier look, nil if it brought nothing in then. Without that a
// buffer is only known not to grow where none does.
//
// The kernel lets a window grow to twice what comes in in a round trip (tcp_rcv_space_adjust). So where most of it is
// used it can grow no more. The shortest RTT is that of the path; in a queue no window is too small.
func (w *Windows) add(now, was *tcpInfo, rate float64, most bounds) {
	const used, unread = 0.7, 0.5
	left := func(t *tcpInfo) bool {
		return t.memory.receiveBuffer > 0 && float64(t.memory.unread) >= unread*float64(t.memory.receiveBuffer)
	}
	if was != nil && left(now) && left(was) {
		w.Unread++
		return
	}
	announced := now.Rcv_wnd
	if announced == 0 { // before Linux 6.2
		announced = now.Rcv_ssthresh
	}
	announced = min(announced, now.mostWindow) // the kernel's own figure may be more
	known := announced > 0 && now.Min_rtt > 0 && now.Min_rtt < math.MaxUint32
	if !known || rate*float64(now.Min_rtt)/1e6 < used*float64(announced) {
		return
	}
	buffer := now.memory.receiveBuffer
	switch {
	case uint64(buffer) == most.buffer:
		w.Maximum++
	case float64(announced) >= 0.9*float64(now.mostWindow):
		w.Scale++
	case buffer > 0 && (most.fixed || was != nil && was.memory.receiveBuffer == buffer):
		w.Fixed++
	default:
		return
	}
	w.Largest = max(w.Largest, units.Size(announced))
}

func (t *tcpInfo) account() account {
	return account{t.Bytes_sent, t.Bytes_retrans, t.Bytes_acked, t.Bytes_received, t.Data_segs_out, t.Total_retrans,
		t.Busy_time, t.Rwnd_limited, t.Sndbuf_limited}
}

func (a account) since(before account) account {
	return account{
		increase(a.sent, before.sent), increase(a.again, before.again), increase(a.acked, before.acked),
		increase(a.received, before.received), increase(a.segments, before.segments),
		increase(a.repeats, before.repeats), increase(a.busy, before.busy),
		increase(a.windowless, before.windowless), increase(a.bufferless, before.bufferless),
	}
}

func increase[T uint32 | uint64](now, was T) T { return max(now, was) - was }

// aggregate is the sums while sockets go by.
type aggregate struct {
	*Sockets
	own                        map[netip.Addr]bool
	inside                     []netip.Prefix
	listening                  [1 << 16 / 64]uint64 // ports, a bit each; listeners come before connections
	queueRTT, queueMin, minRTT histogram
	busyMin                    histogram
	sent, again                float64            // bytes of lossy connections
	each                       map[netip.Addr]int // busy ones, by where they go to
	accepted, dialled          carried
}

// carried is what connections have carried since they were opened, in bytes.
type carried struct{ in, out float64 }

// passedShare compares what came in by connections of the one sort with what went out by those of the other, in both
// directions. It is 1 where a program ends connections and carries on by others. A server dials nothing, and who
// downloads accepts nothing.
func (a *aggregate) passedShare() units.Share {
	const enough = 1e6 // bytes
	same := min(a.dialled.in, a.accepted.out) + min(a.accepted.in, a.dialled.out)
	if same < enough {
		return 0
	}
	return units.Share(same / (max(a.dialled.in, a.accepted.out) + max(a.accepted.in, a.dialled.out)))
}

// struct inet_diag_msg and its attributes (include/uapi/linux/inet_diag.h).
const (
	diagLen       = 72
	diagState     = 1
	diagSport     = 4 // here struct inet_diag_sockid begins
	diagDport     = 6
	diagSrc       = 8
	diagDst       = 24
	diagIf        = 40
	diagCookie    = 44
	inetDiagInfo  = 2
	inetDiagCong  = 4
	inetDiagTOS   = 5
	inetDiagClass = 6 // of IPv6
	inetDiagSkMem = 7

	tcpEstablished = 1
	tcpListen      = 10
)

// tcpInfo is what of a struct tcp_info has arrived: a kernel gives as much of it as it knows. The rest is zero.
type tcpInfo struct {
	unix.TCPInfo
	appLimited bool   // a bit of which unix.TCPInfo has no field
	mostWindow uint32 // bytes, that this host can announce by the scale that was agreed on
	memory     buffers
	tos        byte // DSCP and ECN with which it sends
}

// buffers is what a socket's buffers hold and may hold, in bytes, overheads included.
type buffers struct{ unread, receiveBuffer, queued, sendBuffer uint32 }

func readInfo(b []byte) (t tcpInfo) {
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&t.TCPInfo)), unsafe.Sizeof(t.TCPInfo)), b)
	// include/uapi/linux/tcp.h: the byte with the scales of both windows, this host's in the higher half, and the one
	// whose lowest bit is tcpi_delivery_rate_app_limited
	const scales, flags, scaled = 6, 7, 4 // and TCPI_OPT_WSCALE
	t.appLimited = len(b) > flags && b[flags]&1 != 0
	t.mostWindow = math.MaxUint16
	if len(b) > scales && t.Options&scaled != 0 {
		t.mostWindow <<= b[scales] >> 4
	}
	return t
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
	if to.IsLoopback() || a.own[to] || slices.ContainsFunc(a.inside,
		func(p netip.Prefix) bool { return p.Contains(to) }) {
		return
	}
	info, cc := a.attributes(msg[diagLen:])
	a.Total++
	carried := &a.dialled
	if a.listening[port/64]&(1<<(port%64)) != 0 {
		a.Accepted++
		carried = &a.accepted
	}
	carried.in += float64(info.Bytes_received)
	carried.out += float64(info.Bytes_acked)
	if cc != "" {
		a.Congestion[cc]++
	}
	if info.Delivered_ce > 0 {
		a.CE++
	}
	const cs1, lowerEffort, ssh = 8, 1, 22
	if dscp := info.tos >> 2; dscp == cs1 || dscp == lowerEffort {
		a.Background++
		if port == ssh || binary.BigEndian.Uint16(msg[diagDport:]) == ssh {
			a.BackgroundSSH++
		}
	}
	x := sender{binary.NativeEndian.Uint64(msg[diagCookie:]), to, cc, info}
	const some = 10_000 // bytes, of which fewer change nothing
	if a.senders != nil && max(info.Bytes_sent, info.Bytes_acked, info.Bytes_received) >= some {
		a.senders.accounts[x.cookie] = info.account()
	}
	if bringsIn(&info) {
		a.Receiving++
		if a.senders != nil {
			a.senders.bringing = append(a.senders.bringing, x)
		}
	}
	if info.Min_rtt == 0 || info.Min_rtt == math.MaxUint32 || info.Rtt == 0 {
		return
	}
	a.minRTT.add(info.Min_rtt)
	const recently = 1000 // ms
	if info.Last_data_sent > recently {
		return
	}
	if info.waitsForNetwork() {
		a.addBusy(&x, info.account())
	}
	if a.senders != nil && (info.waitsForNetwork() || info.Bytes_acked >= bulk) {
		a.senders.recent = append(a.senders.recent, x)
	}
}

// waitsForNetwork reports whether a connection that sends waits for the network, and not for the program.
func (t *tcpInfo) waitsForNetwork() bool {
	const transfer = 10 // segments
	return t.Unacked >= transfer || t.Notsent_bytes > 0
}

// attributes takes apart what follows a struct inet_diag_msg, as far as it is whole. By hand: a decoder of the netlink
// library makes 8.5 ms and 6.2 MB of 2.1 ms and 0.2 MB (BenchmarkSockets10000).
func (a *aggregate) attributes(b []byte) (info tcpInfo, cc string) {
	const flags = unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER
	for len(b) > 0 {
		length := 0
		if len(b) >= unix.NLA_HDRLEN {
			length = int(binary.NativeEndian.Uint16(b))
		}
		if length < unix.NLA_HDRLEN || length > len(b) {
			a.Cut++
			break
		}
		switch data := b[unix.NLA_HDRLEN:length]; binary.NativeEndian.Uint16(b[2:]) &^ flags {
		case inetDiagInfo:
			memory, tos := info.memory, info.tos
			info = readInfo(data)
			info.memory, info.tos = memory, tos
		case inetDiagTOS, inetDiagClass:
			if len(data) > 0 && data[0] != 0 {
				info.tos = data[0]
			}
		case inetDiagSkMem:
			// SK_MEMINFO_* (include/uapi/linux/sock_diag.h)
			const received, receiveBuffer, sendBuffer, queued = 0, 1 * 4, 3 * 4, 5 * 4
			if len(data) >= queued+4 {
				field := func(at int) uint32 { return binary.NativeEndian.Uint32(data[at:]) }
				info.memory = buffers{field(received), field(receiveBuffer), field(queued), field(sendBuffer)}
			}
		case inetDiagCong:
			name, _, _ := bytes.Cut(data, []byte{0})
			if _, known := a.Congestion[string(name)]; known || len(a.Congestion) < 64 {
				cc = string(bytes.ToValidUTF8(name, []byte("?")))
			}
		}
		b = b[min((length+3)&^3, len(b)):]
	}
	return info, cc
}

// bufferFull reports whether all that the send buffer has room for is on its way: the program cannot add to it, and the
// kernel counts the connection as one whose program has nothing to send.
func (t *tcpInfo) bufferFull() bool {
	const full = 0.8
	return t.memory.sendBuffer > 0 && float64(t.memory.queued) >= full*float64(t.memory.sendBuffer) &&
		t.Notsent_bytes < t.Snd_mss
}

// wasRefused reports whether more was sent between two looks than the network got, of a connection as it is at the
// second: TCP counts what it sends before a rule or a queue of this host refuses it (tcp_transmit_skb), and keeps it to
// send it again. Before Linux 4.19 nothing is counted. What was on its way at the first look counts as if it had left
// later.
func (a account) wasRefused(now *tcpInfo) bool {
	const some, share = 10, 1000 // segments, of which fewer are an accident; one in so many bytes
	mss := uint64(now.Snd_mss)
	left := a.again + a.acked + uint64(now.Unacked)*mss
	return a.sent > left+some*mss && a.sent-left > a.sent/share
}

// pace is the rate above which the program wants nothing sent, if about that is delivered; 0 else.
func (t *tcpInfo) pace() units.Rate {
	const none = 1 << 50 // bytes per second, which stands for no bound
	if t.Max_pacing_rate == 0 || t.Max_pacing_rate >= none {
		return 0
	}
	if most := float64(t.Max_pacing_rate); float64(t.Delivery_rate) < 0.7*most || float64(t.Delivery_rate) > 1.3*most {
		return 0
	}
	return units.Rate(8 * t.Max_pacing_rate)
}

// bringsIn reports whether a connection carries bulk data to this host now: more than it carries away, and more than
// requests are.
func bringsIn(info *tcpInfo) bool {
	const recently = 1000 // ms
	return info.Last_data_recv <= recently && info.Bytes_received >= bulk && info.Bytes_received > info.Bytes_acked
}

// addBusy adds a connection, by what has come of it lately, and reports whether one of its ends holds it back.
func (a *aggregate) addBusy(x *sender, lately account) (bound bool) {
	info := &x.info
	a.Busy++
	a.busyMin.add(info.Min_rtt)
	a.each[x.to]++
	a.Most = max(a.Most, a.each[x.to])
	rate := units.Rate(min(info.Delivery_rate, math.MaxUint32*128) * 8)
	a.Rate += rate
	a.Fastest = max(a.Fastest, rate)
	if info.appLimited {
		a.App++
	}
	if pace := info.pace(); pace != 0 {
		a.Paced++
		a.Pace = max(a.Pace, pace)
	}
	const fifth = 5
	bound = info.appLimited
	if lately.busy > 0 {
		if lately.windowless >= lately.busy/fifth && lately.windowless > 0 {
			a.Receiver++
			bound = true
		}
		if lately.bufferless >= lately.busy/fifth && lately.bufferless > 0 || info.bufferFull() {
			a.Buffer++
			a.SendBuffer = max(a.SendBuffer, info.memory.sendBuffer)
			bound = true
		}
	}
	// Far above: by half, and by 10 ms, which no wireless hop's jitter explains. Near: by a quarter at most, or 2 ms.
	least := int64(info.Min_rtt)
	switch above := int64(info.Rtt) - least; {
	case above >= max(least/2, 10_000):
		a.Queueing++
		a.queueRTT.add(info.Rtt)
		a.queueMin.add(info.Min_rtt)
	case above <= max(least/4, 2_000):
		sent, again := float64(lately.sent), float64(lately.again)
		if sent == 0 { // before Linux 4.19
			mss := float64(info.Snd_mss)
			sent, again = mss*float64(lately.segments), mss*float64(lately.repeats)
		}
		const lost, some = 0.01, 10 // of the bytes; segments, of which fewer are an accident
		if sent > 0 && again/sent >= lost && lately.repeats >= some {
			a.Lossy++
			if x.cc == "bbr" || x.cc == bbr.Name {
				a.LossyBBR++
			}
			a.sent += sent
			a.again += again
		}
	}
	return bound
}

// histogram counts times in microseconds, in steps of 3 %.
type histogram struct {
	count [32 * 32]uint32
	total uint32
}

func (h *histogram) add(us uint32) {
	h.total++
	h.count[bucketOf(us)]++
}

// bucketOf is exact below 64; above, the position of the highest bit and the five bits after it.
func bucketOf(us uint32) int {
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
	// In bytes. The kernel fills what it is given; to peek at each answer first doubles the time.
	const datagram = 64 << 10
	conn, err := netlink.Dial(unix.NETLINK_SOCK_DIAG, &netlink.Config{MessageBufferSize: datagram})
	if err != nil {
		return fmt.Errorf("sock_diag: %w", err)
	}
	defer conn.Close()
	return askTCP(conn, family, each)
}

// askTCP asks for all listeners and connections of a family.
func askTCP(conn *netlink.Conn, family byte, each func([]byte)) error {
	req := make([]byte, 56) // struct inet_diag_req_v2
	req[0], req[1] = family, unix.IPPROTO_TCP
	for _, kind := range []int{inetDiagInfo, inetDiagCong, inetDiagTOS, inetDiagClass, inetDiagSkMem} {
		req[2] |= 1 << (kind - 1)
	}
	binary.NativeEndian.PutUint32(req[4:], 1<<tcpEstablished|1<<tcpListen)
	header := netlink.Header{Type: unix.SOCK_DIAG_BY_FAMILY, Flags: netlink.Request | netlink.Dump}
	if _, err := conn.Send(netlink.Message{Header: header, Data: req}); err != nil {
		return fmt.Errorf("sock_diag: %w", err)
	}
	// A kernel answers at once, but a busy host may take seconds for 100,000 connections. About a datagram at a time.
	const silence, often = 10 * time.Second, 100
	conn.SetReadDeadline(time.Now().Add(silence)) // which a test's kernel does not have
	n := 0
	for m, err := range conn.ReceiveIter() {
		if err != nil {
			return fmt.Errorf("sock_diag: %w", err)
		}
		if n++; n%often == 0 {
			conn.SetReadDeadline(time.Now().Add(silence))
		}
		each(m.Data)
	}
	return nil
}
