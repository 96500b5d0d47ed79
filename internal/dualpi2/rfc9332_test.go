// SPDX-License-Identifier: Apache-2.0

package dualpi2

import (
	"math"
	"testing"
)

// The DualPI2 AQM of RFC 9332 as a model, written from the pseudo-code of its Appendix A in real numbers: what the BPF
// programs are compared with.

// modelParams are those of figure 2. Times are in seconds, gains in Hz.
type modelParams struct {
	Target  float64 // the C queue's delay
	TUpdate float64 // between two updates of the base probability
	Alpha   float64 // PI integral gain
	Beta    float64 // PI proportional gain
	K       float64 // coupling factor
	PCMax   float64 // the C queue's probability from which it is overload
	// the native L4S AQM's threshold: where figure 5 has a ramp, this is the step that sch_dualpi2 and the RFC's
	// section 4.2 use
	Step float64
}

// derive returns the parameters of Appendix A.1. They follow from the target (its typical RTT) and the largest RTT for
// which the C queue is to be stable.
func derive(target, maxRTT float64) modelParams {
	p := modelParams{Target: target, K: 2, Step: 1e-3}
	p.TUpdate = min(target, maxRTT/3)
	p.Alpha = 0.1 * p.TUpdate / (maxRTT * maxRTT)
	p.Beta = 0.3 / maxRTT
	p.PCMax = min(1/(p.K*p.K), 1)
	return p
}

// model is the PI controller, with what it has its queues do.
type model struct {
	modelParams
	P    float64 // p', the base probability
	Prev float64 // the queue delay at the last update, in seconds
	Max  float64 // the largest p': 1, or 1/k where overload is left to the queues' limits
}

// update is dualpi2_update of figure 6, for the delay that it finds, in seconds. The pseudo-code leaves the bounds of a
// probability to the reader.
func (c *model) update(delay float64) {
	c.P += c.Alpha*(delay-c.Target) + c.Beta*(delay-c.Prev)
	c.P = min(max(c.P, 0), c.Max)
	c.Prev = delay
}

// pcl is the coupled probability, p_CL: beyond 1 the queues are overloaded.
func (c *model) pcl() float64 { return c.K * c.P }

// pc is the Classic probability.
func (c *model) pc() float64 { return c.P * c.P }

// overloaded reports whether packets of both queues are dropped, rather than marked (figure 4 and section 2.5.1.1).
func (c *model) overloaded() bool { return c.pc() > c.PCMax }

// signal is how likely a packet is marked, and how likely dropped.
type signal struct{ Mark, Drop float64 }

// classic is what becomes of a packet in the C queue (figure 4, lines 9 to 15).
func (c *model) classic(ect bool) signal {
	if ect && !c.overloaded() {
		return signal{Mark: c.pc()}
	}
	return signal{Drop: c.pc()}
}

// l4s is what becomes of an ECN-capable packet in the L queue that has waited for so many seconds (figure 4, lines 2 to
// 8). When overloaded, one that is not dropped is marked.
func (c *model) l4s(sojourn float64) signal {
	if c.overloaded() {
		return signal{Drop: c.pc(), Mark: 1 - c.pc()}
	}
	native := 0.0
	if sojourn > c.Step {
		native = 1
	}
	return signal{Mark: math.Max(native, c.pcl())}
}

// The RFC's own figures: Appendix A.1 gives 16 ms, 0.16 Hz and 3.2 Hz with a maximum RTT of 100 ms, rounded; its
// target is 15 ms.
func TestModelParams(t *testing.T) {
	p := derive(15e-3, 100e-3)
	for _, c := range []struct {
		name      string
		got, want float64
	}{{"Tupdate", p.TUpdate, 15e-3}, {"alpha", p.Alpha, 0.15}, {"beta", p.Beta, 3}, {"p_Cmax", p.PCMax, 0.25}} {
		if math.Abs(c.got-c.want) > 1e-9 {
			t.Errorf("%s is %v, not %v", c.name, c.got, c.want)
		}
	}
}

// A delay at the target moves nothing, above it the probability climbs to its bound, and on an empty queue it returns
// to zero.
func TestModel(t *testing.T) {
	c := model{modelParams: derive(15e-3, 100e-3), Max: 1}
	c.Prev, c.P = c.Target, 0.1
	if c.update(c.Target); c.P != 0.1 {
		t.Errorf("at the target it moves to %v", c.P)
	}
	last := c.P
	for range 10000 {
		if c.update(0.1); c.P < last {
			t.Fatalf("with a delay of 100 ms it falls from %v to %v", last, c.P)
		}
		last = c.P
	}
	if c.P != 1 || !c.overloaded() || c.classic(true) != (signal{Drop: 1}) || c.l4s(0) != (signal{Drop: 1}) {
		t.Errorf("it ends at %v", c.P)
	}
	for range 10000 {
		c.update(0)
	}
	if c.P != 0 || c.l4s(2e-3) != (signal{Mark: 1}) || c.l4s(0.5e-3) != (signal{}) {
		t.Errorf("on an empty queue it ends at %v", c.P)
	}
}

// The coupling: where a Classic flow sees p, a scalable one sees k times its root.
func TestModelCoupling(t *testing.T) {
	c := model{modelParams: derive(15e-3, 100e-3), Max: 1, P: 0.1}
	classic, scalable := c.classic(true).Mark, c.l4s(0).Mark
	if math.Abs(scalable-c.K*math.Sqrt(classic)) > 1e-12 {
		t.Errorf("p_C is %v and p_CL %v", classic, scalable)
	}
}

func FuzzModel(f *testing.F) {
	f.Add(0.015, 0.1, 0.02, 0.5)
	f.Fuzz(func(t *testing.T, target, maxRTT, delay, p float64) {
		for _, v := range []float64{target, maxRTT, delay, p} {
			if !(v >= 1e-6 && v <= 4) {
				t.Skip()
			}
		}
		c := model{modelParams: derive(target, maxRTT), Max: 1, P: min(p, 1)}
		for range 50 {
			before, prev := c.P, c.Prev
			c.update(delay)
			if !(c.P >= 0 && c.P <= 1) {
				t.Fatalf("p' is %v", c.P)
			}
			if delay >= c.Target && delay >= prev && c.P < before {
				t.Fatalf("above the target p' falls from %v to %v", before, c.P)
			}
			s := c.l4s(delay)
			if s.Mark+s.Drop > 1+1e-9 || s.Mark < 0 {
				if c.pcl() <= 1 {
					t.Fatalf("signals %+v at p' %v", s, c.P)
				}
			}
		}
	})
}
