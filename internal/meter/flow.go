// SPDX-License-Identifier: Apache-2.0

// Package meter measures a link between two hosts: how fast it is, and how long everything else waits meanwhile.
//
// It is the client and what client and server say to each other; internal/meter/server is the other end. It changes no
// setting of a host, and prints nothing. It is built for every system; only Linux tells it what the kernel knows.
package meter

import (
	"math"
	"net"
	"sync/atomic"
	"time"
)

// Step is the time between two samples of a flow.
const Step = 100 * time.Millisecond

// maxSteps bounds what is kept of a flow.
const maxSteps = 3000

// Flow is what one end knows of a bulk connection. Only the sender's kernel knows RTTs and what limits it; it is zero
// where the kernel does not tell.
type Flow struct {
	Direction string  `json:"direction"`         // Download or Upload, as the client sees it
	CC        string  `json:"cc,omitempty"`      // congestion control of the sender
	ECN       bool    `json:"ecn,omitempty"`     // negotiated
	Bins      []int64 `json:"bins,omitempty"`    // bytes of payload in each Step of its span
	Kernel    bool    `json:"kernel"`            // this end's kernel told what follows
	RTT       []int64 `json:"rtt,omitempty"`     // smoothed, in µs, at each Step
	MinRTT    int64   `json:"min_rtt"`           // µs
	RTTVar    int64   `json:"rttvar"`            // µs, mean of the samples
	Sent      int64   `json:"sent"`              // bytes, with those sent again
	Again     int64   `json:"again"`             // bytes sent again
	Delivered int64   `json:"delivered"`         // packets
	CE        int64   `json:"ce"`                // of those, marked on their way
	Elapsed   int64   `json:"elapsed"`           // µs that the following are parts of
	Busy      int64   `json:"busy"`              // µs with data under way or waiting
	Receiver  int64   `json:"receiver"`          // µs limited by the receiver's window
	Buffer    int64   `json:"buffer"`            // µs limited by the send buffer
	Starved   bool    `json:"starved,omitempty"` // its program had nothing to send at most looks
	Error     string  `json:"error,omitempty"`   // what ended it early

	rttvars int64     // µs, their sum
	began   time.Time // when this end recorded its first Step; zero: the other end tells of it
}

// Directions, as the client sees them.
const (
	Download = "download"
	Upload   = "upload"
	Both     = "both"
	Idle     = "idle"
)

// Recorder samples a bulk connection until it is stopped.
type Recorder struct {
	flow    Flow
	conn    net.Conn
	bytes   atomic.Int64
	began   time.Time
	first   TCPInfo // when it began
	counted bool    // this end receives, and its kernel counts what comes
	share   float64 // of what comes, payload
	payload count   // by the program
	came    count   // by the kernel
	stop    chan struct{}
	done    chan struct{}
}

// inTLS is the share of payload in TLS 1.3's records of 16 KiB (RFC 8446, section 5.2). Go sends shorter ones at first,
// up to 128 KiB (crypto/tls, recordSizeBoostThreshold).
const inTLS = 16384. / (16384 + 5 + 1 + 16)

// Record begins to sample. The connection may be nil, and TLS may be on top of it.
//
// Of TLS a record comes at once, which is much on a slow link. So what a receiver's kernel has counted is taken, where
// it tells, and of it the part that is payload.
func Record(conn net.Conn, direction string, sender bool) *Recorder {
	r := &Recorder{flow: Flow{Direction: direction}, began: time.Now(), share: 1, stop: make(chan struct{}),
		done: make(chan struct{})}
	if conn != nil && rawConn(conn) != conn {
		r.share = inTLS
	}
	r.conn = conn
	if r.first, r.counted = readKernel(conn); sender {
		r.flow.Kernel, r.counted = r.counted, false
	}
	go r.run()
	return r
}

// Add counts payload.
func (r *Recorder) Add(n int) { r.bytes.Add(int64(n)) }

// Bytes is the payload so far.
func (r *Recorder) Bytes() int64 { return r.bytes.Load() }

func (r *Recorder) run() {
	defer close(r.done)
	tick := time.NewTicker(Step)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-r.stop:
			return
		}
		if steps := min(int(time.Since(r.began)/Step), maxSteps); steps > len(r.payload.bins) {
			r.payload.fill(steps, r.bytes.Load())
			if k, ok := readKernel(r.conn); r.counted && ok { // else it was closed
				r.came.fill(steps, int64(float64(k.BytesReceived-r.first.BytesReceived)*r.share))
			}
			r.sample()
		}
	}
}

// count is how far a counter came in each Step.
type count struct {
	bins []int64
	last int64
}

// fill goes up to a step. A tick that came late stands for those that were left out.
func (c *count) fill(steps int, now int64) {
	missed := steps - len(c.bins)
	for i := range missed {
		part := (now - c.last) / int64(missed)
		if i == missed-1 {
			part = now - c.last - part*int64(missed-1)
		}
		c.bins = append(c.bins, part)
	}
	c.last = now
}

// Shift has the bins begin so many seconds later. What was before is left out; before it began, nothing came.
func (f *Flow) Shift(later float64) {
	n := int(math.Round(later / Step.Seconds()))
	if n < 0 {
		f.Bins = append(make([]int64, min(-n, maxSteps)), f.Bins...)
		return
	}
	f.Bins = f.Bins[min(n, len(f.Bins)):]
}

func (r *Recorder) sample() {
	if !r.flow.Kernel {
		return
	}
	if k, ok := readKernel(r.conn); ok { // else it was closed
		r.flow.Sample(k, r.first, time.Since(r.began))
	}
}

// Sample adds what the sender's kernel says of a flow. First is what it said when the flow began, a time before.
func (f *Flow) Sample(now, first TCPInfo, elapsed time.Duration) {
	if now.RTT > 0 {
		f.RTT = append(f.RTT, now.RTT)
		f.rttvars += now.RTTVar
		f.RTTVar = f.rttvars / int64(len(f.RTT))
	}
	f.CC, f.ECN, f.MinRTT = now.CC, now.ECN, now.MinRTT
	f.Sent, f.Again = now.BytesSent-first.BytesSent, now.BytesRetrans-first.BytesRetrans
	f.Delivered, f.CE = now.Delivered-first.Delivered, now.DeliveredCE-first.DeliveredCE
	f.Busy, f.Receiver = now.BusyTime-first.BusyTime, now.RWndLimited-first.RWndLimited
	f.Buffer, f.Elapsed = now.SndBufLimited-first.SndBufLimited, elapsed.Microseconds()
}

// Stop ends the sampling and gives what there is. It may be called once, before the connection is closed.
func (r *Recorder) Stop(err string) Flow {
	close(r.stop)
	<-r.done
	r.sample()
	r.flow.Bins = r.payload.bins
	copy(r.flow.Bins, r.came.bins)
	r.flow.Error, r.flow.began = err, r.began
	return r.flow
}

// rawConn is the connection that a kernel knows.
func rawConn(c net.Conn) net.Conn {
	for {
		over, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return c
		}
		c = over.NetConn()
	}
}
