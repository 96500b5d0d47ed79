// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"time"
	"weir/internal/hint"
)

// IperfPort is iperf3's.
const IperfPort = "5201"

// The states that the two ends of an iperf3 test tell each other, a signed byte each (iperf_api.h).
const (
	iperfStart     = 1
	iperfRunning   = 2
	iperfEnd       = 4
	iperfParams    = 9
	iperfStreams   = 10
	iperfTerminate = 11
	iperfResults   = 13
	iperfDisplay   = 14
	iperfDone      = 16
	iperfDenied    = -1
	iperfError     = -2
)

const (
	iperfCookie   = 37                    // bytes, with the zero at its end
	iperfPatience = 8 * time.Second       // for an answer
	iperfLongest  = 1 << 20               // bytes of a message that a server may send
	iperfBlock    = 128 << 10             // bytes of a write
	iperfEvery    = 80 * time.Millisecond // between two probes: each costs the server a connection
)

// iperf is an iperf3 server. It knows one test at a time, and each phase is one.
type iperf struct {
	Options
	addr    string
	at      string   // the address that its name led to, where all connections go
	control net.Conn // of the next phase, or of the one that runs
	cookie  []byte
	phases  int   // still to come
	next    error // why there is no next phase
}

// MeasureIperf measures the way to an iperf3 server, by TCP. The probe is a TCP handshake with it.
func MeasureIperf(ctx context.Context, addr string, o Options) (*Recording, error) {
	if err := TryCC(o.CC); err != nil {
		return nil, err
	}
	names, _, _ := o.phases()
	s := &iperf{Options: o, addr: addr, phases: len(names) - 1}
	// From now on it is busy with us: it would take a probe for somebody else's test.
	if err := s.begin(ctx, false); err != nil {
		return nil, err
	}
	defer func() { s.control.Close() }()
	rec := &Recording{Target: "iperf3://" + addr, Remote: Hello{Version: 1, Name: addr}}
	m := &Session{Options: o, Transport: s, Prober: newConnectProber(s.at, iperfEvery), Recording: rec, To: s.at,
		Device: deviceTo(s.at)}
	err := m.Run(ctx)
	rec.Notes = append(rec.Notes, "An iperf3 server does not say when data arrives, so uploads are counted as they "+
		"leave.")
	return rec, err
}

func (s *iperf) dial(ctx context.Context, packet int) (net.Conn, error) {
	d := &net.Dialer{Timeout: iperfPatience, Control: packetBound(packet)}
	c, err := d.DialContext(ctx, "tcp", cmp.Or(s.at, s.addr))
	if err != nil {
		return nil, dialError(s.addr, err, "iperf3 -s on that host, and a firewall that lets its port through")
	}
	return c, nil
}

// begin asks for a test, until the server has ended the one before. Between two tests iperf3 does not listen for a
// moment, and ends whatever waited there, so again bears both.
func (s *iperf) begin(ctx context.Context, again bool) error {
	const pause = 200 * time.Millisecond
	var err error
	for end := time.Now().Add(iperfPatience); time.Now().Before(end) && ctx.Err() == nil; wait(ctx, pause) {
		var c net.Conn
		if c, err = s.dial(ctx, 0); err != nil {
			if again {
				continue
			}
			return err
		}
		s.control = c
		const letters = "abcdefghijklmnopqrstuvwxyz234567"
		s.cookie = make([]byte, iperfCookie)
		rand.Read(s.cookie)
		for i, b := range s.cookie {
			s.cookie[i] = letters[int(b)%len(letters)]
		}
		s.cookie[iperfCookie-1] = 0
		if err = s.write(c, s.cookie); err == nil {
			err = s.expect(iperfParams)
		}
		if err == nil {
			s.at = c.RemoteAddr().String()
			return nil
		}
		s.control.Close()
		if !again && !errors.Is(err, errIperfBusy) {
			break
		}
	}
	switch {
	case err == nil:
		return ctx.Err()
	case errors.Is(err, errIperfBusy):
		return hint.New(s.addr+" is busy: another test runs there", "again later")
	}
	return err
}

var errIperfBusy = errors.New("another test runs there")

// expect waits for states, one after the other.
func (s *iperf) expect(states ...int8) error {
	for _, want := range states {
		if err := s.await(want); err != nil {
			return err
		}
	}
	return nil
}

func (s *iperf) await(want int8) error {
	s.control.SetReadDeadline(time.Now().Add(iperfPatience))
	var b [1]byte
	if _, err := io.ReadFull(s.control, b[:]); err != nil {
		return hint.New(fmt.Sprintf("%s speaks no iperf3: %v", s.addr, cause(err)), "iperf3 -s on that host")
	}
	switch state := int8(b[0]); state {
	case want:
		return nil
	case iperfDenied:
		return errIperfBusy
	case iperfError:
		var numbers [8]byte // iperf3's own error, and the system's
		io.ReadFull(s.control, numbers[:])
		return hint.New(fmt.Sprintf("%s refuses the test (iperf3's error %d)", s.addr,
			int32(binary.BigEndian.Uint32(numbers[:]))), "iperf3 -c there, which says it in words")
	case iperfTerminate:
		return hint.New(s.addr+" was ended", "iperf3 -s on that host")
	default:
		return hint.New(fmt.Sprintf("%s speaks no iperf3: state %d came, and not %d", s.addr, state, want),
			"iperf3 -s on that host")
	}
}

// write writes to the server, or says that it has gone.
func (s *iperf) write(c net.Conn, b []byte) error {
	if _, err := c.Write(b); err != nil {
		return hint.New(fmt.Sprintf("%s ended the connection: %v", s.addr, cause(err)), "iperf3 -s on that host")
	}
	return nil
}

func (s *iperf) tell(state int8) error { return s.write(s.control, []byte{byte(state)}) }

// send sends a message: its length, and JSON.
func (s *iperf) send(v any) error {
	b, err := json.Marshal(v)
	if err == nil {
		err = s.write(s.control, append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...))
	}
	return err
}

// iperfTest is what a test shall be.
type iperfTest struct {
	TCP           bool   `json:"tcp"`
	Omit          int    `json:"omit"`
	Time          int    `json:"time"` // s
	Num           int    `json:"num"`
	Blocks        int    `json:"blockcount"`
	Parallel      int    `json:"parallel"`
	Reverse       bool   `json:"reverse,omitempty"`
	Bidirectional bool   `json:"bidirectional,omitempty"`
	Len           int    `json:"len"`
	Pacing        int    `json:"pacing_timer"` // µs
	Congestion    string `json:"congestion,omitempty"`
	Version       string `json:"client_version"`
}

// Open runs a test as far as its data. The server never ends it: it has more time than the phase.
func (s *iperf) Open(ctx context.Context, phase string) (all []*Bulk, err error) {
	defer func() {
		if err != nil {
			for _, b := range all {
				b.End()
			}
			all = nil
		}
	}()
	if s.next != nil {
		return nil, s.next
	}
	test := iperfTest{TCP: true, Time: int(s.Time.Seconds()) + 60, Parallel: s.Conns, Reverse: phase == Download,
		Bidirectional: phase == Both, Len: iperfBlock, Pacing: 1000, Congestion: s.CC, Version: "3.12"}
	if err := s.send(test); err != nil {
		return nil, err
	}
	if err := s.expect(iperfStreams); err != nil {
		return nil, err
	}
	// Of both directions, those that send come first.
	for _, direction := range []string{Upload, Download} {
		for range s.Conns {
			if phase != direction && phase != Both {
				continue
			}
			b, err := s.stream(ctx, direction)
			if err != nil {
				return all, err
			}
			all = append(all, b)
		}
	}
	if err := s.expect(iperfStart, iperfRunning); err != nil {
		return all, err
	}
	for _, b := range all {
		block := make([]byte, iperfBlock)
		if b.direction == Download {
			go b.Carry(b.conn.Read, block)
			continue
		}
		rand.Read(block) // nothing on the way can make it smaller
		go b.Carry(b.conn.Write, block)
	}
	return all, nil
}

func (s *iperf) stream(ctx context.Context, direction string) (*Bulk, error) {
	c, err := s.connect(ctx, direction, 0)
	if err != nil {
		return nil, err
	}
	return newBulk(direction, c, func() {}), nil
}

// connect makes a connection of the test's, with packets of at most so many bytes of IP; 0: what fits.
func (s *iperf) connect(ctx context.Context, direction string, packet int) (net.Conn, error) {
	c, err := s.dial(ctx, packet)
	if err != nil {
		return nil, err
	}
	if direction == Upload {
		if err := SetCC(c, s.CC); err != nil {
			c.Close()
			return nil, err
		}
		SetUnsent(c, 128<<10)
	}
	if err := s.write(c, s.cookie); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// iperfStream is what an end tells of a stream.
type iperfStream struct {
	ID          int     `json:"id"`
	Bytes       int64   `json:"bytes"`
	Retransmits int     `json:"retransmits"` // -1: not known
	Jitter      float64 `json:"jitter"`
	Errors      int     `json:"errors"`
	Packets     int     `json:"packets"`
	Start       float64 `json:"start_time"` // s
	End         float64 `json:"end_time"`
}

// iperfMine is what this end tells of a test.
type iperfMine struct {
	CPU         float64       `json:"cpu_util_total"`
	User        float64       `json:"cpu_util_user"`
	System      float64       `json:"cpu_util_system"`
	Retransmits int           `json:"sender_has_retransmits"`
	Streams     []iperfStream `json:"streams"`
}

// iperfTheirs is what is of use in the server's answer.
type iperfTheirs struct {
	CC      string `json:"congestion_used"`
	Streams []struct {
		Bytes float64 `json:"bytes"`
	} `json:"streams"`
}

func (t iperfTheirs) bytes() (sum float64) {
	for _, x := range t.Streams {
		sum += x.Bytes
	}
	return sum
}

// Close ends a test, and makes the server ready for the next.
func (s *iperf) Close(ctx context.Context, phase string, flows []*Bulk) (local, far []Flow, note string) {
	sent := 0.0
	var mine iperfMine
	for i, b := range flows {
		f := b.Stop()
		if b.direction == Upload {
			b.conn.SetWriteDeadline(time.Now())
			sent += float64(b.rec.Bytes())
		}
		local = append(local, f)
		id := i + 1
		if i > 0 {
			id++ // iperf3 counts 1, 3, 4, 5
		}
		mine.Streams = append(mine.Streams, iperfStream{ID: id, Bytes: b.rec.Bytes(), Retransmits: -1,
			End: time.Since(b.rec.began).Seconds()})
	}
	theirs, err := s.exchange(mine)
	for _, b := range flows {
		b.Shut()
	}
	s.control.Close()
	for _, f := range local {
		if f.Direction == Download {
			far = append(far, Flow{Direction: Download, CC: theirs.CC})
			continue
		}
		f.Kernel = false
		far = append(far, f)
	}
	if err != nil {
		note = fmt.Sprintf("%s: the server did not say what it saw (%v).", phase, err)
	} else if arrived := theirs.bytes(); phase == Upload && math.Abs(arrived-sent) > 0.05*sent {
		note = fmt.Sprintf("upload: %s MB have left, and %s MB have arrived.", Figure(sent/1e6), Figure(arrived/1e6))
	}
	if s.phases--; s.phases > 0 {
		s.next = s.begin(ctx, true)
	}
	return local, far, note
}

// exchange ends a test as both ends of it are to.
func (s *iperf) exchange(mine iperfMine) (theirs iperfTheirs, err error) {
	if err = s.tell(iperfEnd); err == nil {
		err = s.expect(iperfResults)
	}
	if err == nil {
		err = s.send(mine)
	}
	if err != nil {
		return theirs, err
	}
	b, err := s.message()
	if err == nil {
		err = json.Unmarshal(b, &theirs)
	}
	if err != nil {
		return theirs, err
	}
	if err = s.expect(iperfDisplay); err == nil {
		err = s.tell(iperfDone)
	}
	return theirs, err
}

// message reads one of the server's.
func (s *iperf) message() ([]byte, error) {
	var length [4]byte
	s.control.SetReadDeadline(time.Now().Add(iperfPatience))
	if _, err := io.ReadFull(s.control, length[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > iperfLongest {
		return nil, fmt.Errorf("a message of %d bytes", n)
	}
	b := make([]byte, n)
	_, err := io.ReadFull(s.control, b)
	return b, err
}
