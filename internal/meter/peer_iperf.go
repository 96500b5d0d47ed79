// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"
)

// iperfPool has the streams of one test of iperf3, which wants all of them before the test begins. None sends before it
// is taken.
type iperfPool struct {
	mu   sync.Mutex
	free map[int][]net.Conn // by the size of their packets, in bytes of IP; 0: what fits
	all  []net.Conn
}

// iperfEach is how many streams of a size there are: the most that a calibration has at once, and those that follow
// when it has sent small packets.
const iperfEach = 20

// OpenIperf begins a test with an iperf3 server, for packets of these sizes.
func OpenIperf(ctx context.Context, addr, cc string, sizes []int) (*Peer, error) {
	s := &iperf{addr: addr, Options: Options{CC: cc}}
	if err := s.begin(ctx, false); err != nil {
		return nil, err
	}
	streams := &iperfPool{free: map[int][]net.Conn{}}
	if err := streams.open(ctx, s, sizes); err != nil {
		streams.close()
		s.control.Close()
		return nil, err
	}
	return &Peer{Name: "iperf3://" + addr, Addr: addr,
		Note: "An iperf3 server answers no probe, so the round trips are those of TCP handshakes with it.",
		Fill: func(_ context.Context, _ string, packet int) (*Filling, error) { return streams.take(packet) },
		Ask:  func(context.Context) (*Prober, error) { return newConnectProber(s.at, iperfEvery), nil },
		Close: func() {
			s.exchange(iperfMine{}) // what it answers is not of use
			streams.close()
			s.control.Close()
		}}, nil
}

func (p *iperfPool) open(ctx context.Context, s *iperf, sizes []int) error {
	test := iperfTest{TCP: true, Time: int(longest.Seconds()), Parallel: len(sizes) * iperfEach, Len: iperfBlock,
		Pacing: 1000, Version: "3.12"}
	if err := s.send(test); err != nil {
		return err
	}
	if err := s.expect(iperfStreams); err != nil {
		return err
	}
	for range iperfEach {
		for _, size := range sizes {
			c, err := s.connect(ctx, Upload, size)
			if err != nil {
				return err
			}
			p.free[size], p.all = append(p.free[size], c), append(p.all, c)
		}
	}
	return s.expect(iperfStart, iperfRunning)
}

// take gives a stream. One that ends is not closed, for then the server might end the test: it only sends no more.
func (p *iperfPool) take(packet int) (*Filling, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	free := p.free[packet]
	if len(free) == 0 {
		return nil, fmt.Errorf("no stream of iperf3 is left whose packets have %d bytes", packet)
	}
	p.free[packet] = free[1:]
	c := free[0]
	send := func() {
		for block := make([]byte, iperfBlock); ; {
			if _, err := c.Write(block); err != nil {
				return
			}
		}
	}
	return &Filling{Conn: c, Send: send, End: func() { c.SetWriteDeadline(time.Now()) }}, nil
}

func (p *iperfPool) close() {
	for _, c := range p.all {
		c.Close()
	}
}
