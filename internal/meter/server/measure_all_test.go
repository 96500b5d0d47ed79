// SPDX-License-Identifier: Apache-2.0

//go:build all

package server

// In make test-all: what is measured takes real time.

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"weir/internal/meter"
	"weir/internal/units"
)

// pinned is a server with a token, and what a client needs to know of it.
func pinned(t *testing.T, change func(*Config)) (*running, meter.Target) {
	var print string
	r := start(t, func(c *Config) {
		c.Token, c.Rate = "secret", units.Rate(100e6) // so that the machine is not the limit
		print = meter.Fingerprint(c.Certificate.Certificate[0])
		if change != nil {
			change(c)
		}
	})
	return r, meter.Target{Addr: r.addr, Token: r.token, Pin: print}
}

// Client and server on one host: bytes arrive in both directions, both ends tell, and probes are answered.
func TestMeasure(t *testing.T)      { testMeasure(t, false) }
func TestMeasurePlain(t *testing.T) { testMeasure(t, true) }

func testMeasure(t *testing.T, plain bool) {
	_, target := pinned(t, nil)
	shown := 0
	rec, err := meter.Measure(context.Background(), target, meter.Options{Time: 4 * time.Second, Conns: 2, CC: "reno",
		Both: true, Plain: plain, Progress: func(meter.Progress) { shown++ }})
	if err != nil {
		t.Fatal(err)
	}
	if rec.Probe != "udp" || rec.Remote.Name != "here" || len(rec.Samples) == 0 || len(rec.Spans) != 4 || shown == 0 {
		t.Errorf("%s, %d samples, %d spans, %d shown: %q", rec.Probe, len(rec.Samples), len(rec.Spans), shown,
			rec.Notes)
	}
	answered := 0
	for _, s := range rec.Samples {
		if s.RTT > 0 {
			answered++
		}
	}
	if answered == 0 {
		t.Errorf("%d of %d probes are answered", answered, len(rec.Samples))
	}
	for _, s := range rec.Spans {
		want := map[string]int{meter.Idle: 0, meter.Both: 4}
		n, there := want[s.Name]
		if !there {
			n = 2
		}
		if len(s.Local) != n || len(s.Far) != n {
			t.Errorf("%s: %d flows here, %d there", s.Name, len(s.Local), len(s.Far))
		}
		for i, f := range append(s.Local, s.Far...) {
			far, sent, sender := i >= n, int64(0), false
			for _, b := range f.Bins {
				sent += b
			}
			sender = far == (f.Direction == meter.Download)
			if sent == 0 || sender && (!f.Kernel || f.CC != "reno" || len(f.RTT) == 0) {
				t.Errorf("%s, far %v: %d bytes, %+v", s.Name, far, sent, f)
			}
		}
	}
	if r := meter.Summarize(rec); r.Find(meter.Download).Goodput[meter.Download].Value <= 0 ||
		r.Find(meter.Upload).Goodput[meter.Upload].Value <= 0 {
		t.Errorf("%+v", r.Phases)
	}
}

// A responsiveness test against this server: both directions have goodput, and both kinds of probes are answered.
func TestResponsiveness(t *testing.T) {
	_, target := pinned(t, nil)
	r, err := meter.MeasureRPM(context.Background(), "https://"+target.Addr+"/t/secret/.well-known/nq", target.Pin,
		meter.Options{Time: 8 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Directions) != 2 || r.Interval != 1 {
		t.Fatalf("%+v", r)
	}
	probes := 0
	for _, d := range r.Directions {
		if d.Goodput <= 0 || d.Conns < 1 || d.Probes > 0 && (d.RPM <= 0 || d.Foreign <= 0 || d.Loaded <= 0) {
			d.Samples = nil
			t.Errorf("%+v", d)
		}
		probes += d.Probes
	}
	if probes == 0 { // on a machine that is busy one direction may have none
		t.Error("no probe is answered")
	}
	for url, want := range map[string]string{"https://" + target.Addr: "wants a token",
		"https://" + target.Addr + "/t/secret/small": "makes no sense", "https://": "is no URL"} {
		if _, err := meter.MeasureRPM(context.Background(), url, target.Pin,
			meter.Options{Time: time.Second}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", url, err, want)
		}
	}
}

// What is wrong is said in a line, with what to try.
func TestRefusals(t *testing.T) {
	_, good := pinned(t, nil)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := closed.Addr().String()
	closed.Close()
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	go func() {
		for {
			c, err := mute.Accept()
			if err != nil {
				return
			}
			c.Write([]byte("220 hello\r\n"))
			c.Close()
		}
	}()
	_, full := pinned(t, func(c *Config) { c.Tests = 0 })
	_, short := pinned(t, func(c *Config) { c.Duration = time.Second })
	other := good
	other.Pin = "sha256:" + strings.Repeat("00", 32)
	without, unpinned := good, good
	without.Token, unpinned.Pin = "", ""
	named := unpinned
	_, port, err := net.SplitHostPort(named.Addr)
	if err != nil {
		t.Fatal(err)
	}
	named.Addr = net.JoinHostPort("localhost", port) // the name that is in it
	for want, c := range map[string]struct {
		target meter.Target
		cc     string
	}{
		"nobody answers at":                    {meter.Target{Addr: nobody}, ""},
		"nosuch.invalid has no address":        {meter.Target{Addr: "nosuch.invalid:1"}, ""},
		"speaks no TLS":                        {meter.Target{Addr: mute.Addr().String()}, ""},
		"has another fingerprint":              {other, ""},
		"is for localhost":                     {unpinned, ""},
		"is not signed by a trusted authority": {named, ""},
		"wants a token":                        {without, ""},
		"another test runs there":              {full, ""},
		"lets a test take 1 s":                 {short, ""},
		`congestion control "nosuch"`:          {good, "nosuch"},
	} {
		_, err := meter.Measure(context.Background(), c.target,
			meter.Options{Time: 2 * time.Second, Conns: 1, CC: c.cc})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// Ctrl-C gives what there is; and where UDP does not pass, HTTPS is asked.
func TestInterrupted(t *testing.T) {
	_, target := pinned(t, nil)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	rec, err := meter.Measure(ctx, target, meter.Options{Time: time.Minute, Conns: 1, Progress: func(p meter.Progress) {
		if p.Elapsed > 300*time.Millisecond {
			cancel()
		}
	}})
	if err != nil || len(rec.Spans) != 1 || len(rec.Samples) == 0 {
		t.Errorf("%+v, %v", rec, err)
	}
}

// A server's own rate would be taken for the link's.
func TestCalibrateNeedsAServerWithoutARate(t *testing.T) {
	_, target := pinned(t, nil)
	_, err := meter.OpenServed(context.Background(), target)
	if err == nil || !strings.Contains(err.Error(), "a rate of its own") {
		t.Error(err)
	}
}

// Ended at any time, it leaves no connection that sends.
func TestCalibrateEnds(t *testing.T) {
	r, target := pinned(t, func(c *Config) { c.Rate = 0 })
	ctx, cancel := context.WithTimeout(context.Background(), 1300*time.Millisecond)
	defer cancel()
	peer, err := meter.OpenServed(ctx, target)
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	if _, err := meter.Calibrate(ctx, []*meter.Peer{peer}, meter.CalibrateOptions{}); ctx.Err() == nil {
		t.Fatal(err)
	}
	running := func() int {
		r.server.gate.mu.Lock()
		defer r.server.gate.mu.Unlock()
		n := 0
		for _, x := range r.server.gate.clients {
			n += x.running
		}
		return n
	}
	for range 100 {
		if running() == 0 {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Errorf("%d transfers still run", running())
}
