// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"weir/internal/meter/irtt"
)

// lookFor is how long the path is looked at, at most.
const lookFor = 1500 * time.Millisecond

// look looks at what the path does to packets: to the address that is used, and to one of the other family.
func (s *served) look(ctx context.Context, other netip.Addr) []PathSeen {
	if !s.hello.Path || s.hello.UDP <= 0 || s.hello.UDP >= 1<<16 {
		return nil
	}
	if s.Progress != nil {
		s.Progress(Progress{Phase: "path", All: s.Time})
	}
	ctx, cancel := context.WithTimeout(ctx, lookFor)
	defer cancel()
	addresses := []netip.Addr{s.target.ip}
	if other.IsValid() {
		addresses = append(addresses, other)
	}
	seen := make([]PathSeen, len(addresses))
	var group sync.WaitGroup
	for i, ip := range addresses {
		group.Go(func() {
			seen[i] = PathSeen{Address: ip.String(), Used: i == 0}
			to := s.target
			to.ip = ip
			if p := openPath(ctx, to.portAddr(strconv.Itoa(s.hello.UDP)), irtt.Key(to.Token)); p != nil {
				seen[i].Device = p.device
				seen[i].Packets = p.run(ctx)
			}
		})
	}
	group.Wait()
	if !seen[0].answered() {
		return nil // the probe says that UDP does not pass
	}
	return seen
}

func (s PathSeen) answered() bool {
	return slices.ContainsFunc(s.Packets, func(p PathPacket) bool { return p.Answered })
}

// pathProbe sends packets, and notes what becomes of them.
type pathProbe struct {
	socket *Marked
	conn   *net.UDPConn
	key    []byte
	token  uint64
	layout irtt.Layout
	over   int // bytes of IP and UDP
	device int

	mu      sync.Mutex
	packets []PathPacket
	sent    []time.Time
}

// openPath agrees with a server on a connection that looks at the path; nil where that cannot be.
func openPath(ctx context.Context, addr string, key []byte) *pathProbe {
	dialed, err := net.Dial("udp", addr)
	if err != nil {
		return nil
	}
	p := &pathProbe{conn: dialed.(*net.UDPConn), key: key, over: 28}
	want := irtt.Params{Version: irtt.Protocol, Duration: int64(lookFor), Received: irtt.CountReceived | irtt.Window,
		Path: 1}
	var granted irtt.Params
	if p.socket, err = Mark(p.conn); err == nil {
		p.token, granted, err = negotiate(ctx, p.conn, want, key, 400, 800)
	}
	if err == nil && p.socket.Tells() {
		err = p.socket.Whole(true)
	}
	if err != nil || granted.Path == 0 || !p.socket.Tells() {
		p.conn.Close()
		return nil
	}
	p.layout = irtt.NewLayout(granted, len(key) > 0)
	local := dialed.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
	if local.Is6() {
		p.over = 48
	}
	p.device = min(mtuOf(local), maxPath)
	return p
}

// mtuOf is the longest packet of the device that has an address. What the kernel has learned of a path is not asked.
func mtuOf(local netip.Addr) int {
	devices, _ := net.Interfaces()
	for _, d := range devices {
		addresses, _ := d.Addrs()
		for _, a := range addresses {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Unmap() == local.WithZone("") {
				return d.MTU
			}
		}
	}
	return 1500
}

// run sends until all is known, or the time is over. What nobody has waited for is left out.
func (p *pathProbe) run(ctx context.Context) []PathPacket {
	done := make(chan struct{})
	go func() { defer close(done); p.receive() }()
	settled := 0
	for ctx.Err() == nil {
		next := nextPath(p.seen(), p.device)
		if len(next) == 0 {
			break
		}
		p.send(ctx, next)
		if p.settle(ctx) {
			settled = len(p.seen())
		}
	}
	p.conn.Write(irtt.Close(p.token, p.key))
	p.conn.SetReadDeadline(time.Now())
	<-done
	p.conn.Close()
	all := p.seen()
	late := slices.DeleteFunc(all[settled:], func(k PathPacket) bool { return !k.Arrived })
	return all[:settled+len(late)]
}

func (p *pathProbe) seen() []PathPacket {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.packets)
}

// send sends packets, as fast as the server answers and so that no queue of a slow link fills.
func (p *pathProbe) send(ctx context.Context, all []PathPacket) {
	const short, long, slack = 5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond
	due := time.Now()
	for _, k := range all {
		p.mu.Lock()
		seq := uint32(len(p.packets))
		p.packets, p.sent = append(p.packets, k), append(p.sent, time.Now())
		p.mu.Unlock()
		b := p.layout.PathRequest(p.token, seq, k.Size-p.over, k.TOS, p.key)
		p.socket.Write(b, k.TOS, netip.AddrPort{}) // what does not leave does not pass
		if due = due.Add(short); k.Size > smallPath {
			due = due.Add(long - short)
		}
		if least := time.Now().Add(-slack); due.Before(least) {
			due = least
		}
		sleep(time.Until(due))
		if ctx.Err() != nil {
			return
		}
	}
}

// settle waits for the last answers: twice the longest round trip so far, or until one of the last three is there. It
// reports whether that was so before the time was over.
func (p *pathProbe) settle(ctx context.Context) bool {
	const last, least, step = 3, 100 * time.Millisecond, 5 * time.Millisecond
	for began := time.Now(); ctx.Err() == nil; wait(ctx, step) {
		longest := 0.0
		seen := p.seen()
		for _, k := range seen {
			longest = max(longest, k.RTT)
		}
		patience := max(2*time.Duration(longest*float64(time.Millisecond)), least)
		if longest > 0 && time.Since(began) > patience {
			return true
		}
		for _, k := range seen[max(len(seen)-last, 0):] {
			if k.Answered {
				wait(ctx, 2*step) // for those that were overtaken
				return true
			}
		}
	}
	return false
}

func (p *pathProbe) receive() {
	b := make([]byte, irtt.MaxPath+1)
	for {
		n, tos, _, err := p.socket.Read(b)
		now := time.Now()
		if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
			return
		}
		if err != nil { // such as "connection refused"
			time.Sleep(time.Millisecond)
			continue
		}
		if e, err := p.layout.ParseEcho(b[:n], p.token, p.key); err == nil {
			p.note(e, tos, now)
		}
	}
}

// note takes an answer. The first one to a packet counts.
func (p *pathProbe) note(e irtt.Echo, tos byte, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if int64(e.Seq) >= int64(len(p.packets)) {
		return
	}
	k := &p.packets[e.Seq]
	if !k.Answered {
		k.Answered, k.Seen, k.Back = true, e.Seen, tos
		k.RTT = float64(now.Sub(p.sent[e.Seq])) / float64(time.Millisecond)
	}
	k.Arrived = true
	for i := range min(64, int(e.Seq)+1) {
		if e.Window>>i&1 != 0 {
			p.packets[int(e.Seq)-i].Arrived = true
		}
	}
}
