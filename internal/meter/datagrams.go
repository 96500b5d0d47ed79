// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"context"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/calibrate"
	"weir/internal/meter/irtt"
)

// flood sends datagrams at a rate, on the connection of a probe whose answers tell how many have arrived.
type flood struct {
	conn  net.Conn
	token uint64
	key   []byte
	shape irtt.Layout
	over  int // bytes of IP and UDP

	sent    atomic.Int64 // packets of the size that is sent now
	size    int          // of these, in bytes of IP
	before  calibrate.Sample
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// Between two bursts are tick and tickBytes at most: a policer forgets what it could have let through while none came.
const (
	tick      = 200 * time.Microsecond
	tickBytes = 6000 // of the rate
)

// begin sends packets of a size, in bytes of IP, at a rate in bit/s of these.
func (f *flood) begin(size int, rate float64) {
	f.end()
	f.size = size
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel = cancel
	packet := f.shape.BulkPacket(f.token, size-f.over, f.key)
	pause := min(tick, time.Duration(tickBytes*8/rate*float64(time.Second)))
	f.running.Go(func() { f.send(ctx, packet, rate/8/float64(size), pause) })
}

// send sends so many packets a second. What the host was too late for is left out, but for a few.
func (f *flood) send(ctx context.Context, packet []byte, each float64, pause time.Duration) {
	const (
		most = 32    // at once
		long = 10e-3 // s: whoever ends it does not wait for longer
	)
	runtime.LockOSThread() // for sleep
	defer runtime.UnlockOSThread()
	owed, last := 1.0, time.Now()
	for ctx.Err() == nil {
		now := time.Now()
		owed = min(owed+each*now.Sub(last).Seconds(), most)
		last = now
		for ; owed >= 1; owed-- {
			f.conn.Write(packet) // what this host's queue drops was sent as far as the link is concerned
			f.sent.Add(1)
		}
		sleep(max(pause, time.Duration(min((1-owed)/each, long)*float64(time.Second))))
	}
}

// end stops it.
func (f *flood) end() {
	if f.cancel == nil {
		return
	}
	f.cancel()
	f.running.Wait()
	f.cancel = nil
	f.count(&f.before)
	f.sent.Store(0)
}

// count adds what was sent, as TCP's connections count it.
func (f *flood) count(s *calibrate.Sample) {
	n := float64(f.sent.Load())
	s.Segments += n
	s.Headers += n * float64(f.over)
	s.Payload += n * float64(f.size-f.over)
}

// look adds all that was ever sent.
func (f *flood) look(s *calibrate.Sample) {
	s.Segments += f.before.Segments
	s.Headers += f.before.Headers
	s.Payload += f.before.Payload
	if f.cancel != nil {
		f.count(s)
	}
}
