// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"weir/internal/meter/irtt"
)

// Interval is the time between two probes.
const Interval = 10 * time.Millisecond

// Sample is one probe. Times are in milliseconds.
type Sample struct {
	At   float64 `json:"at"`  // seconds since the measurement began, when it was sent
	RTT  float64 `json:"rtt"` // -1: no answer
	Up   float64 `json:"up"`  // one way, as the two clocks have it: only its changes mean anything
	Down float64 `json:"down"`
	Lost Lost    `json:"lost,omitempty"`

	counted uint32 // datagrams of a load that had arrived at the server
}

// Lost says on which way a probe was lost.
type Lost string

// The server says which of the last 64 probes have arrived.
const (
	LostUp      Lost = "up"
	LostDown    Lost = "down"
	LostUnknown Lost = "unknown"
)

// Prober asks the other end with sparse packets.
type Prober struct {
	*Probes
	By       string        // udp, https, tcp or ssh
	Interval time.Duration // between two probes, on average

	// Run asks until the context ends. Before that it ends only with an error: where it cannot go on.
	Run func(context.Context) error

	flood *flood // on the same connection; nil: the other end counts no datagrams
}

// Probes is what was asked so far.
type Probes struct {
	mu      sync.Mutex
	began   time.Time // the samples' times count from here
	samples []Sample
	sent    []time.Time // that they were, if that is noted
	last    float64     // the newest RTT
}

// NewProbes is of a prober that begins now.
func NewProbes() *Probes { return &Probes{began: time.Now()} }

func (p *Probes) now() float64 { return time.Since(p.began).Seconds() }

// Seen is a copy of the samples.
func (p *Probes) Seen() []Sample {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.samples)
}

// Send notes a probe that goes out now, and returns its number.
func (p *Probes) Send() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.sent = append(p.sent, now)
	p.samples = append(p.samples, Sample{At: now.Sub(p.began).Seconds(), RTT: -1, Lost: LostUnknown})
	return len(p.sent) - 1
}

// Unanswered is how many probes went out since the newest one that was answered.
func (p *Probes) Unanswered() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range slices.Backward(p.samples) {
		if s.RTT >= 0 {
			break
		}
		n++
	}
	return n
}

// Answer notes when the answer to a probe of a number came. A second one changes nothing, and neither does one to a
// probe that was never sent.
func (p *Probes) Answer(n int, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer(n, at)
}

func (p *Probes) answer(n int, at time.Time) *Sample {
	if n < 0 || n >= len(p.sent) || p.samples[n].RTT >= 0 {
		return nil
	}
	s := &p.samples[n]
	s.RTT, s.Lost = float64(at.Sub(p.sent[n]))/float64(time.Millisecond), ""
	p.last = s.RTT
	return s
}

// minRTT is the shortest RTT so far, in ms; 0 if there was none.
func (p *Probes) minRTT() (rtt float64) {
	for _, s := range p.Seen() {
		if s.RTT >= 0 && (rtt == 0 || s.RTT < rtt) {
			rtt = s.RTT
		}
	}
	return rtt
}

func (p *Probes) newestRTT() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// prober asks a weir serve: by UDP at its port where it answers, else by HTTPS. A port that cannot be one is none.
func (t Target) prober(ctx context.Context, port int, want irtt.Params) *Prober {
	if port > 0 && port < 1<<16 {
		if u, err := openUDP(ctx, t.portAddr(strconv.Itoa(port)), irtt.Key(t.Token), want); err == nil {
			p := &Prober{Probes: u.Probes, By: "udp", Interval: u.interval(), Run: u.run}
			if u.params.Bulk != 0 {
				p.flood = u.flood()
			}
			return p
		}
	}
	return t.webProber(&url.URL{Path: PathSmall})
}

// udpProbe asks by UDP, in irtt's protocol.
type udpProbe struct {
	*Probes
	conn    net.Conn
	key     []byte
	token   uint64
	params  irtt.Params
	layout  irtt.Layout
	arrived []bool // at the server
}

// openUDP agrees with the server on a test. Nobody answers where a firewall keeps UDP out.
func openUDP(ctx context.Context, addr string, key []byte, want irtt.Params) (*udpProbe, error) {
	conn, err := net.Dial("udp", addr)
	if err != nil {
		return nil, err
	}
	want.Version, want.Received = irtt.Protocol, irtt.CountReceived|irtt.Window
	want.StampAt, want.Clock = irtt.StampBoth, irtt.ClockWall
	u := &udpProbe{Probes: NewProbes(), conn: conn, key: key}
	u.token, u.params, err = negotiate(ctx, conn, want, key, 300, 600, 1200)
	if err != nil {
		conn.Close()
		return nil, err
	}
	const seldom = time.Second // a load would be over before much is known, and the end is as late
	if given := time.Duration(u.params.Interval); given > seldom {
		conn.Close()
		return nil, fmt.Errorf("%s wants %v between two probes", addr, given)
	}
	u.layout = irtt.NewLayout(u.params, len(key) > 0)
	return u, nil
}

// negotiate opens a connection of irtt, and waits so many milliseconds for each answer.
func negotiate(ctx context.Context, conn net.Conn, want irtt.Params, key []byte, patience ...time.Duration) (
	token uint64, p irtt.Params, err error) {
	b := make([]byte, irtt.MaxLength)
	defer conn.SetReadDeadline(time.Time{})
	for _, patience := range patience {
		if _, err = conn.Write(irtt.Open(want, key)); err == nil {
			conn.SetReadDeadline(time.Now().Add(patience * time.Millisecond))
			n, e := conn.Read(b)
			if err = e; err == nil {
				if token, p, err = irtt.ParseOpened(b[:n], key); err == nil {
					return token, p, nil
				}
			}
		}
		if ctx.Err() != nil {
			return 0, p, ctx.Err()
		}
	}
	return 0, p, err
}

// flood is what sends datagrams on the probe's connection.
func (u *udpProbe) flood() *flood {
	over := 28
	if a, ok := u.conn.LocalAddr().(*net.UDPAddr); ok && a.IP.To4() == nil {
		over = 48
	}
	return &flood{conn: u.conn, token: u.token, key: u.key, shape: u.layout, over: over}
}

// interval is the time between two probes: what the server wants, if that is longer.
func (u *udpProbe) interval() time.Duration { return max(time.Duration(u.params.Interval), Interval) }

// AnswerTime is for how long a prober waits, at its end, for answers that are under way.
const AnswerTime = 500 * time.Millisecond

// run probes until the context ends, and then waits a little for what is under way.
func (u *udpProbe) run(ctx context.Context) error {
	done := make(chan struct{})
	go func() { defer close(done); u.receive() }()
	interval := u.interval()
	runtime.LockOSThread() // for sleep
	defer runtime.UnlockOSThread()
	for next := time.Now(); ctx.Err() == nil; {
		u.conn.Write(u.layout.Request(u.params, u.token, uint32(u.Send()), u.key))
		next = nextProbe(next, time.Now(), interval)
		sleep(time.Until(next))
	}
	u.conn.SetReadDeadline(time.Now().Add(AnswerTime))
	<-done
	u.conn.Write(irtt.Close(u.token, u.key))
	u.conn.Close()
	u.judge()
	return nil
}

// nextProbe is when the probe after the one of a time goes out. Probes at equal intervals beat with traffic that is as
// regular, and would always meet the same part of it (RFC 2330, section 11.1). Those that are late are left out.
func nextProbe(due, now time.Time, interval time.Duration) time.Time {
	due = due.Add(interval*3/4 + time.Duration(rand.Int64N(int64(interval/2))))
	if due.Before(now) {
		return now
	}
	return due
}

func (u *udpProbe) receive() {
	b := make([]byte, irtt.MaxLength)
	for {
		n, err := u.conn.Read(b)
		now := time.Now()
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // such as "connection refused": the next may pass
			time.Sleep(Interval)
			continue
		}
		e, err := u.layout.ParseEcho(b[:n], u.token, u.key)
		if err == nil {
			u.note(e, now)
		}
	}
}

// note takes an answer; a second one to the same probe changes nothing.
func (u *udpProbe) note(e irtt.Echo, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if int64(e.Seq) >= int64(len(u.sent)) {
		return
	}
	const ms = float64(time.Millisecond)
	if s := u.answer(int(e.Seq), now); s != nil {
		s.Up = float64(e.Recv-u.sent[e.Seq].UnixNano()) / ms
		s.Down = float64(now.UnixNano()-e.Send) / ms
		s.counted = e.Count
	}
	u.arrived = append(u.arrived, make([]bool, len(u.sent)-len(u.arrived))...)
	u.arrived[e.Seq] = true
	for i := range min(64, int(e.Seq)+1) {
		if e.Window>>i&1 != 0 {
			u.arrived[int(e.Seq)-i] = true
		}
	}
}

// judge says on which way the lost ones were lost, if a later answer told.
func (u *udpProbe) judge() {
	u.mu.Lock()
	defer u.mu.Unlock()
	answered := -1000
	for i := len(u.samples) - 1; i >= 0; i-- {
		switch s := &u.samples[i]; {
		case s.RTT >= 0:
			answered = i
		case i < len(u.arrived) && u.arrived[i]:
			s.Lost = LostDown
		case answered-i < 64 && answered > i:
			s.Lost = LostUp
		}
	}
}

// webProbe asks by HTTPS over a connection of its own, where UDP does not pass. A lost packet shows as a long wait.
type webProbe struct {
	*Probes
	target Target
	small  *url.URL // of a small answer; its host is the target's
}

func (t Target) webProber(small *url.URL) *Prober {
	p := &webProbe{NewProbes(), t, small}
	return &Prober{Probes: p.Probes, By: "https", Interval: 2 * Interval, Run: p.run}
}

func (p *webProbe) run(ctx context.Context) error {
	transport := p.target.transport()
	defer transport.CloseIdleConnections()
	c := newHTTPClient(transport, 0)
	tick := time.NewTicker(2 * Interval)
	defer tick.Stop()
	for n := 0; ctx.Err() == nil; n++ {
		s := Sample{At: p.now(), RTT: -1, Lost: LostUnknown}
		r, err := p.target.request(ctx, http.MethodGet, p.small.Path, p.small.Query(), nil)
		if err != nil {
			return err
		}
		sent := time.Now()
		answer, err := c.Do(r)
		if err == nil {
			_, err = io.Copy(io.Discard, io.LimitReader(answer.Body, 1<<10))
			answer.Body.Close()
		}
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			s.RTT, s.Lost = float64(time.Since(sent))/float64(time.Millisecond), ""
		}
		if n > 0 { // the first one connects
			p.mu.Lock()
			p.samples = append(p.samples, s)
			p.last = s.RTT
			p.mu.Unlock()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return nil
}

// connectProbe asks by connecting, where the other end knows no better: from SYN to SYN-ACK, which its kernel sends. A
// kernel asks again after a second: then it is not known which SYN was answered, and none counts where the one before
// took less than half of that.
type connectProbe struct {
	*Probes
	addr  string
	every time.Duration
}

func newConnectProber(addr string, every time.Duration) *Prober {
	p := &connectProbe{NewProbes(), addr, every}
	return &Prober{Probes: p.Probes, By: "tcp", Interval: every, Run: p.run}
}

func (p *connectProbe) run(ctx context.Context) error {
	const patience = 3 * time.Second
	var group sync.WaitGroup
	defer group.Wait()
	tick := time.NewTicker(p.every)
	defer tick.Stop()
	for ctx.Err() == nil {
		n := p.Send()
		group.Go(func() {
			c, err := net.DialTimeout("tcp", p.addr, patience)
			now := time.Now()
			if err != nil {
				return
			}
			again := sentAgain(c)
			c.Close()
			if !again || p.newestRTT() >= 500 {
				p.Answer(n, now)
			}
		})
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return nil
}
