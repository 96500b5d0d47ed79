// SPDX-License-Identifier: Apache-2.0

//go:build all

package meter

// In make test-all: iperf3 measures for as long as it is told.

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/internal/calibrate"
	"weir/internal/hint"
	"weir/internal/testkind"
)

// unhurried is how many times as long as the least a measurement takes here: on a busy machine little happens in a
// short phase.
const unhurried = 3

// iperfServer starts an iperf3 server. It gives its address, and what waits until it listens for its next test.
func iperfServer(t *testing.T, args ...string) (addr string, listens func()) {
	t.Helper()
	testkind.Program(t)
	if _, err := exec.LookPath("iperf3"); err != nil {
		t.Skip("skipped, not passed: this needs iperf3 (scripts/need test)")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	l.Close()
	server := exec.Command("iperf3", append([]string{"-s", "--forceflush", "-B", "127.0.0.1", "-p", port},
		args...)...)
	out, err := server.StdoutPipe()
	if err == nil {
		err = server.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Process.Kill(); server.Wait() })
	lines := bufio.NewScanner(out)
	return net.JoinHostPort("127.0.0.1", port), func() {
		t.Helper()
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "Server listening") {
				return
			}
		}
		t.Fatal("iperf3 has ended")
	}
}

// A server that ends after the first phase is said in one line, and what was measured until then is kept.
func TestIperfEnds(t *testing.T) {
	addr, listens := iperfServer(t, "--one-off")
	listens()
	rec, err := MeasureIperf(t.Context(), addr, Options{Time: 4 * time.Second, Conns: 2})
	if err == nil || !strings.Contains(err.Error(), "nobody answers") {
		t.Errorf("error: %v", err)
	}
	if got := len(rec.Spans); got != 2 {
		t.Errorf("%d phases are kept", got)
	}
}

// Between two tests iperf3 ends connections that came too early. It is asked again; before the first test it is not.
func TestIperfBetween(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for i := 0; ; i++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			if i < 3 {
				c.(*net.TCPConn).SetLinger(0) // so that it is reset
				c.Close()
				continue
			}
			c.Write([]byte{iperfParams})
		}
	}()
	at := l.Addr().String()
	_, port, _ := net.SplitHostPort(at)
	s := &iperf{addr: "localhost:" + port}
	var p *hint.Error
	if err := s.begin(t.Context(), false); !errors.As(err, &p) {
		t.Errorf("at first: %v", err)
	}
	if err := s.begin(t.Context(), true); err != nil {
		t.Errorf("between two tests: %v", err)
	}
	if s.at != at {
		t.Errorf("%q is where it went", s.at)
	}
	// Nobody begins a test for who has ended the measurement.
	ended, end := context.WithCancel(t.Context())
	end()
	s.phases = 2
	s.control.Close()
	if s.Close(ended, Upload, nil); !errors.Is(s.next, context.Canceled) {
		t.Error(s.next)
	}
}

// The real iperf3 takes each phase for a test, and both ends count the same bytes.
func TestIperf(t *testing.T) {
	addr, listens := iperfServer(t)
	listens()
	options := Options{Time: unhurried * 6 * time.Second, Conns: 3, Both: true}
	rec, err := MeasureIperf(context.Background(), addr, options)
	if err != nil {
		t.Fatal(err)
	}
	r := Summarize(rec)
	for _, name := range []string{Download, Upload, Both} {
		p := r.Find(name)
		if p == nil {
			t.Fatalf("no phase %s: %v", name, r.Notes)
		}
		for _, direction := range []string{Download, Upload} {
			if got, want := p.Goodput[direction].Value > 1, name == direction || name == Both; got != want {
				t.Errorf("%s: %s of %v Mbit/s", name, direction,
					p.Goodput[direction].Value)
			}
		}
		for _, s := range p.Senders {
			if s.Flows != 3 || len(s.Ended) > 0 {
				t.Errorf("%s: %d flows, ended: %v", name, s.Flows, s.Ended)
			}
		}
	}
	for _, note := range r.Notes {
		if strings.Contains(note, "did not say") || strings.Contains(note, "have arrived") {
			t.Error(note)
		}
	}
	if len(rec.Samples) < 40 {
		t.Errorf("%d probes", len(rec.Samples))
	}
}

// The streams of a calibration send when they are taken, one that ends does not end the test, and another test can
// follow.
func TestIperfPeer(t *testing.T) {
	addr, listens := iperfServer(t)
	for round := range 2 {
		listens()
		p, err := OpenIperf(t.Context(), addr, "", []int{0, 600})
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		for _, size := range []int{0, 600, 600} {
			f, err := p.Fill(t.Context(), "", size)
			if err != nil {
				t.Fatal(err)
			}
			go f.Send()
			var s calibrate.Sample
			for end := time.Now().Add(10 * time.Second); s.Delivered < 100 && time.Now().Before(end); {
				time.Sleep(10 * time.Millisecond)
				s = calibrate.Sample{}
				if _, err := readSending(f.Conn, &s); err != nil {
					t.Fatal(err)
				}
			}
			f.End()
			if s.Delivered < 100 || size > 0 && s.Payload/s.Segments > float64(size) {
				t.Errorf("round %d, %d bytes: %+v", round, size, s)
			}
		}
		if _, err := p.Fill(t.Context(), "", 700); err == nil {
			t.Error("a stream of a size that nobody asked for")
		}
		p.Close()
	}
}

// A server that is none, or that lies, gives one line and ends in time.
func TestIperfHostile(t *testing.T) {
	for name, c := range map[string]struct {
		say  []byte
		want string
	}{
		"silent":      {nil, "speaks no iperf3"},
		"busy":        {[]byte{0xff}, "another test runs there"},
		"http":        {[]byte("HTTP/1.1 400 Bad Request"), "speaks no iperf3: state 72 came"},
		"error":       {[]byte{0xfe, 0, 0, 0, 142, 0, 0, 0, 0}, "refuses the test (iperf3's error 142)"},
		"ended":       {[]byte{iperfTerminate}, "was ended"},
		"other state": {[]byte{iperfParams, iperfResults}, "state 13 came, and not 10"},
		"no streams":  {[]byte{iperfParams, iperfStreams, iperfRunning}, "state 2 came, and not 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr := scripted(t, c.say)
			_, err := MeasureIperf(context.Background(), addr, Options{Time: 5 * time.Second, Conns: 1})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("more than a line: %q", err)
			}
		})
	}
}

// A message is no longer than one may be, whatever its length says.
func TestIperfMessage(t *testing.T) {
	for name, c := range map[string]struct {
		say []byte
		ok  bool
	}{
		"whole":    {append(binary.BigEndian.AppendUint32(nil, 2), "{}"...), true},
		"cut":      {append(binary.BigEndian.AppendUint32(nil, 9), "{}"...), false},
		"endless":  {binary.BigEndian.AppendUint32(nil, 1<<32-1), false},
		"no bytes": {nil, false},
	} {
		near, far := net.Pipe()
		go func() { far.Write(c.say); far.Close() }()
		if _, err := (&iperf{control: near}).message(); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// scripted says the same to everybody, and hangs up.
func scripted(t *testing.T, say []byte) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				c.SetDeadline(time.Now().Add(20 * time.Second))
				io.ReadFull(c, make([]byte, iperfCookie))
				c.Write(say)
				if say != nil {
					io.Copy(io.Discard, c)
				}
			}()
		}
	}()
	return l.Addr().String()
}

// Whatever an iperf3 server says of a test, it ends, and what is told can be summed up and written.
func FuzzIperf(f *testing.F) {
	message := func(text string) []byte {
		b := binary.BigEndian.AppendUint32([]byte{iperfResults}, uint32(len(text)))
		return append(append(b, text...), iperfDisplay)
	}
	f.Add(message(`{"congestion_used":"bbr","streams":[{"id":1,"bytes":1e6}]}`))
	f.Add(message(`{"congestion_used":"\u001b[2J","streams":[{"bytes":1e308},{"bytes":1e308}]}`))
	f.Add([]byte{iperfResults, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, said []byte) {
		near, far := net.Pipe()
		go io.Copy(io.Discard, far)
		go func() {
			far.Write(said)
			far.Close()
		}()
		s := &iperf{control: near, phases: 1}
		b := &Bulk{direction: Upload, conn: near, rec: Record(nil, Upload, false), cancel: func() {},
			done: make(chan error, 1)}
		b.rec.Add(1000)
		local, told, note := s.Close(context.Background(), Upload, []*Bulk{b})
		rec := &Recording{Spans: []Span{{Name: Upload, To: 10, Local: local, Far: told}}, Notes: []string{note}}
		if _, err := json.Marshal(Summarize(rec)); err != nil {
			t.Error(err)
		}
	})
}
