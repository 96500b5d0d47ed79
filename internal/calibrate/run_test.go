// SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	var cells []provider
	for _, rate := range []float64{5e6, 50e6} {
		for _, rtt := range []float64{0.012, 0.048} {
			for _, buffer := range []float64{0.02, 0.2, 1} {
				cells = append(cells, provider{rate: rate, rtt: rtt, kind: FIFO, buffer: buffer, overhead: 14})
			}
			for _, burst := range []float64{16 << 10, 64 << 10, 256 << 10} {
				if burst < rate*rtt/8/16 {
					continue // the simulator's connections all slow down at once, so they do not fill it
				}
				cells = append(cells, provider{rate: rate, rtt: rtt, kind: Policer, burst: burst})
			}
			for _, credit := range []float64{1, 3} {
				cells = append(cells, provider{rate: rate, rtt: rtt, kind: FIFO, buffer: 0.2, credit: credit,
					overhead: 38})
			}
		}
	}
	cells = append(cells,
		provider{rate: 50e6, rtt: 0.048, kind: FIFO, buffer: 0.2, overhead: 18, loss: 0.01},
		provider{rate: 50e6, rtt: 0.048, kind: FIFO, buffer: 0.2, overhead: 18, jitter: 0.005},
		provider{rate: 50e6, rtt: 0.048, kind: FIFO, buffer: 0.2, overhead: 26, own: 20e6},
		provider{rate: 20e6, rtt: 0.02, kind: FIFO, buffer: 0.2, overhead: 32, atm: true},
		provider{rate: 8e6, rtt: 0.02, kind: FIFO, buffer: 0.2, overhead: 10, atm: true})
	for _, p := range cells {
		p.udp = true
		cells = append(cells, p)
	}
	for _, p := range cells {
		t.Run(fmt.Sprintf("%+v", p), func(t *testing.T) {
			t.Parallel()
			s := simulate(p, 1)
			r, err := Run(context.Background(), s, Options{})
			if err != nil {
				t.Fatal(err)
			}
			within := 0.002
			if p.loss+p.jitter+p.own > 0 {
				within = 0.005
			} else if p.udp && p.kind == FIFO && !p.atm {
				within = 0.0005
			}
			if e := r.Rate.Value/p.rate - 1; math.Abs(e) > within {
				t.Errorf("rate %+.2f %%", 100*e)
			}
			if r.Kind != p.kind {
				t.Errorf("kind %s", r.Kind)
			}
			byte := 0.5
			if p.own > 0 || !p.udp && p.kind == Policer && p.rate < 10e6 { // few packets, so a wide interval
				byte = 1
			}
			if !r.ATM && math.Abs(r.Overhead.Value-p.overhead) > byte || r.ATM != p.atm || r.Overhead.Sort != Within {
				t.Errorf("overhead %+v, ATM %v", r.Overhead, r.ATM)
			}
			if credit := r.Credit.Value > 0; credit != (p.credit > 0) {
				t.Errorf("credit %+v", r.Credit)
			}
			if !r.Verified.Calm {
				t.Errorf("not verified: %+v %v", r.Verified, r.Notes)
			}
			most := 15.0
			switch {
			case p.atm || p.overhead >= 30: // a third size
				most = 18
			case p.rate < 10e6, p.udp && p.loss+p.jitter > 0: // packets are few; TCP is asked again; or it takes longer
				most = 17
			}
			if r.Took > most {
				t.Errorf("took %.1f s", r.Took)
			}
			if t.Failed() {
				t.Logf("%+v", r)
			}
		})
	}
}

// What others' TCP has lost is known, a little loss is not a queue's, and no plain overhead is negative.
func TestRunBeside(t *testing.T) {
	for _, x := range []struct {
		name   string
		p      provider
		within float64
		byte   float64
	}{
		{"TCP beside the test, behind a policer", provider{rate: 33e6, rtt: 0.03, kind: Policer, burst: 64 << 10,
			own: 11e6, udp: true}, 0.005, 1},
		{"TCP beside the test, in a short queue", provider{rate: 95e6, rtt: 0.08, kind: FIFO, buffer: 0.05, own: 19e6,
			overhead: 14}, 0.005, 5},
		{"half of a long queue is TCP's beside the test", provider{rate: 71e6, rtt: 0.08, kind: FIFO, buffer: 0.3,
			own: 35.5e6, overhead: 10}, 0.002, 1},
		{"a loss of 0.1 %", provider{rate: 47e6, rtt: 0.03, kind: FIFO, buffer: 0.05, overhead: 10, loss: 0.001,
			udp: true}, 0.001, 0.5},
		{"a loss of 0.1 %, far away", provider{rate: 19.3e6, rtt: 0.15, kind: FIFO, buffer: 0.035, overhead: 14,
			loss: 0.001, udp: true}, 0.002, 0.5},
		{"loss, and three sizes", provider{rate: 11e6, rtt: 0.012, kind: FIFO, buffer: 0.1, overhead: 38, loss: 0.01,
			udp: true}, 0.01, 2},
		{"half a second of credit", provider{rate: 7.3e6, rtt: 0.05, kind: FIFO, buffer: 0.2, overhead: 18,
			credit: 0.5, udp: true}, 0.002, 0.5},
		{"cells of IP packets alone", provider{rate: 24e6, rtt: 0.037, kind: FIFO, buffer: 0.4, atm: true, udp: true},
			0.002, 0},
	} {
		for seed := range uint64(4) {
			t.Run(fmt.Sprintf("%s, seed %d", x.name, seed), func(t *testing.T) {
				t.Parallel()
				r, err := Run(context.Background(), simulate(x.p, seed), Options{})
				if err != nil {
					t.Fatal(err)
				}
				e := r.Rate.Value/x.p.rate - 1
				if math.Abs(e) > x.within {
					t.Errorf("rate %+.2f %%", 100*e)
				}
				if x.p.rate < r.Rate.Low*0.9999 || x.p.rate > r.Rate.High*1.0001 {
					t.Errorf("rate %+.3f %%, which is not in %+v", 100*e, r.Rate)
				}
				if r.Kind != x.p.kind || r.Credit.Value > 0 != (x.p.credit > 0) || r.ATM != x.p.atm {
					t.Errorf("kind %s, credit %+v, ATM %v", r.Kind, r.Credit, r.ATM)
				}
				if !r.ATM && math.Abs(r.Overhead.Value-x.p.overhead) > x.byte || r.Overhead.Sort != Within {
					t.Errorf("overhead %+v", r.Overhead)
				}
				if !r.Verified.Calm {
					t.Errorf("not verified: %+v %v", r.Verified, r.Notes)
				}
			})
		}
	}
}

func TestRunSaysWhatItDoesNotKnow(t *testing.T) {
	run := func(p provider) (*Result, error) { return Run(context.Background(), simulate(p, 1), Options{}) }
	t.Run("nobody answers", func(t *testing.T) {
		if _, err := run(provider{rate: 50e6, rtt: 0.02, kind: FIFO, buffer: 0.1, none: true}); !errors.Is(err,
			ErrSilent) {
			t.Error(err)
		}
	})
	t.Run("a very long way", func(t *testing.T) {
		for _, rtt := range []float64{1.5, 2, 3} {
			r, err := run(provider{rate: 50e6, rtt: rtt, kind: FIFO, buffer: 0.1, overhead: 14})
			if err != nil || math.Abs(r.Base.Value-rtt) > 0.1*rtt {
				t.Errorf("of %v s: %+v, %v", rtt, r, err)
			}
		}
	})
	t.Run("this host is too busy to look", func(t *testing.T) {
		r, err := run(provider{rate: 50e6, rtt: 0.02, kind: FIFO, buffer: 0.1, look: 0.06})
		if !errors.Is(err, ErrBusy) {
			t.Errorf("%+v, %v", r, err)
		}
	})
	t.Run("the peer takes nothing", func(t *testing.T) {
		r, err := run(provider{rate: 50e6, rtt: 0.02, kind: FIFO, buffer: 0.1, stalls: 1})
		if !errors.Is(err, ErrStalled) {
			t.Errorf("%+v, %v", r, err)
		}
	})
	t.Run("nobody answers any more", func(t *testing.T) {
		for _, mute := range []float64{1, 9, 10, 11} { // before it is filled, or later
			r, err := run(provider{rate: 50e6, rtt: 0.02, kind: FIFO, buffer: 0.1, overhead: 14, mute: mute})
			if err != nil || r.Kind != Unsaturated && r.Verified.Calm || r.Base.Value < 0.019 {
				t.Errorf("after %v s: %+v, %v", mute, r, err)
			}
		}
	})
	t.Run("the sender is slower than the link", func(t *testing.T) {
		r, err := run(provider{rate: 90e6, rtt: 0.02, kind: FIFO, buffer: 0.1, app: 40e6})
		if err != nil || r.Kind != Unsaturated || r.Rate.Sort != AtLeast || r.Verified.Calm {
			t.Errorf("%+v, %v", r, err)
		}
	})
	t.Run("datagrams have a limit of their own", func(t *testing.T) {
		r, err := run(provider{rate: 50e6, rtt: 0.02, kind: FIFO, buffer: 0.1, overhead: 14, udp: true, policed: 20e6})
		if err != nil || r.Verified.Calm || r.Rate.Sort != Left ||
			!strings.Contains(strings.Join(r.Notes, " "), "and UDP at ") {
			t.Errorf("%+v, %v", r, err)
		}
	})
	t.Run("too few packets to tell what the path loses", func(t *testing.T) {
		for rate, calm := range map[float64]bool{300e3: false, 500e3: true} {
			r, err := run(provider{rate: rate, rtt: 0.05, kind: FIFO, buffer: 0.5, overhead: 14})
			said := strings.Contains(strings.Join(r.Notes, " "), "so slow a link carries too few packets")
			if err != nil || r.Verified.Calm != calm || said == calm {
				t.Errorf("%+v, %v", r, err)
			}
		}
	})
	t.Run("what others' UDP loses", func(t *testing.T) {
		p := provider{rate: 33e6, rtt: 0.03, kind: Policer, burst: 64 << 10, own: 11e6, ownUDP: true}
		r, err := run(p)
		if err != nil || r.Overhead.Sort != Unknown || p.rate < r.Rate.Low || p.rate > r.Rate.High {
			t.Errorf("%+v, %v", r, err)
		}
	})
	t.Run("a credit that outlasts the test", func(t *testing.T) {
		r, err := run(provider{rate: 20e6, rtt: 0.02, kind: FIFO, buffer: 0.2, credit: 60})
		if err != nil || len(r.Notes) == 0 {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// Where hardly a datagram passes, TCP's answer stands.
func TestRunWithoutDatagrams(t *testing.T) {
	for _, rate := range []float64{20e6, 50e6, 100e6} {
		for _, kind := range []Kind{FIFO, Policer} {
			p := provider{rate: rate, rtt: 0.02, kind: kind, buffer: 0.1, burst: 64 << 10, overhead: 14, udp: true,
				policed: 3e3}
			r, err := Run(t.Context(), simulate(p, 1), Options{})
			if err != nil || math.Abs(r.Rate.Value/rate-1) > 0.002 || !r.Verified.Calm {
				t.Errorf("%s of %.0f Mbit/s: %+v, %+v, %v", kind, rate/1e6, r.Rate, r.Verified, err)
			}
		}
	}
}

// Where TCP and datagrams disagree, neither is believed; on a fast link one that cannot be right is left out.
func TestAcceptsDatagrams(t *testing.T) {
	const standing = 0.1
	known := framing{overhead: 14, uncertainty: 0.1, known: true}
	nonsense := framing{overhead: 600, uncertainty: 0.1, known: true}
	for _, c := range []struct {
		name            string
		framing         framing
		tcp, udp, waits float64 // bit/s, s
		believed, said  bool
	}{
		{"they agree", known, 50e6, 50e6, standing, true, false},
		{"they disagree", known, 50e6, 40e6, standing, false, true},
		{"TCP is held by a policer", known, 40e6, 50e6, 0, false, true},
		{"fast, and they agree", known, 500e6, 500e6, standing, true, false},
		{"fast, and a slow host", known, 500e6, 400e6, standing, false, false},
		{"fast, and sizes that make no sense together", nonsense, 500e6, 500e6, standing, false, false},
		{"fast, and no framing", framing{}, 500e6, 500e6, standing, false, false},
		{"fast, and TCP did not fill it", known, 400e6, 500e6, 0, true, false},
		{"fast, and TCP did fill it", known, 400e6, 500e6, standing, false, true},
	} {
		at := func(rate, waits float64) plateau {
			packets := rate / 8 / (largestDatagram + 14)
			return plateau{own: flow{packets, packets * largestDatagram}, uncertainty: 0.001, medianWait: waits}
		}
		r := &run{large: at(c.tcp, c.waits)}
		got := r.acceptsDatagrams(c.framing, at(c.udp, standing))
		if got != c.believed || (r.disagreement != "") != c.said {
			t.Errorf("%s: %v, %q", c.name, got, r.disagreement)
		}
	}
}

// On a fast link, a host that is too slow for the datagrams tells nothing, and TCP's answer stands.
func TestRunTooSlowForDatagrams(t *testing.T) {
	for _, p := range []provider{{}, {policed: 250e6}, {counted: 20e3}, {counted: 60e3}} {
		p.rate, p.rtt, p.kind, p.buffer, p.overhead, p.udp = 400e6, 0.02, FIFO, 0.1, 14, true
		r, err := Run(t.Context(), simulate(p, 1), Options{})
		if err != nil || math.Abs(r.Rate.Value/p.rate-1) > 0.002 || !r.Verified.Calm || r.Overhead.Value != 14 {
			t.Errorf("%.0f bit/s, %.0f packets/s: %+v, %+v, %v", p.policed, p.counted, r.Rate, r.Verified, err)
		}
	}
}

// What a policer drops of TCP's bursts below the rate is not the path's, for it passes datagrams. No TCP verifies that.
func TestRunShortPolicer(t *testing.T) {
	p := provider{rate: 400e6, rtt: 0.02, kind: Policer, burst: 64 << 10, udp: true, loss: 0.03, bursts: true}
	r, err := Run(t.Context(), simulate(p, 1), Options{})
	if err != nil || math.Abs(r.Rate.Value/p.rate-1) > 0.001 || r.Kind != Policer || r.Overhead.Value != 0 ||
		r.Loss.Value > 0.001 || r.Verified.Calm {
		t.Errorf("%+v, %v", r, err)
	}
	p.bursts = false
	if r, err = Run(t.Context(), simulate(p, 1), Options{}); err != nil || math.Abs(r.Loss.Value-p.loss) > 0.01 {
		t.Errorf("the path loses: %+v, %v", r, err)
	}
}

// Where it is not known what is counted, neither is the rate.
func TestConclude(t *testing.T) {
	r := &run{idle: idleLink{base: 0.02}, large: carried(20e6, 1500, 1538)}
	r.large.medianWait = 0.1
	got := r.conclude(&framing{overhead: 25, uncertainty: 48, known: true}, belowRate{})
	if got.Overhead.Sort != Unknown || 20e6 < got.Rate.Low || 20e6 > got.Rate.High {
		t.Errorf("%+v", got)
	}
}

// A short queue far away is empty at times, and then the link carries less than it could.
func TestConcludeOfAnIdleLink(t *testing.T) {
	r := &run{idle: idleLink{base: 0.1}, large: carried(132e6, 1500, 1514)}
	r.large.uncertainty, r.large.bestShare, r.large.medianWait = 0.04, 1.07, 0.007
	got := r.conclude(&framing{overhead: 14, uncertainty: 0.4, known: true}, belowRate{})
	if got.Rate.Sort != AtLeast || got.Rate.High < 141e6 {
		t.Errorf("%+v", got.Rate)
	}
	r.large.minWait = 0.006 // with a queue all the time it is only this host's traffic that varies
	if got = r.conclude(&framing{overhead: 14, uncertainty: 0.4, known: true}, belowRate{}); got.Rate.Sort != Within {
		t.Errorf("%+v", got.Rate)
	}
}

func TestRunEndsItsLoad(t *testing.T) {
	s := simulate(provider{rate: 5e6, rtt: 0.02, kind: FIFO, buffer: 0.1}, 1)
	ctx, cancel := context.WithCancel(context.Background())
	_, err := Run(ctx, s, Options{Phase: func(p Phase) {
		if p == Small {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if s.load.Connections != 0 {
		t.Errorf("%+v is still under way", s.load)
	}
}
