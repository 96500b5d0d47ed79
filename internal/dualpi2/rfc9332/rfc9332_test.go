// SPDX-License-Identifier: Apache-2.0

package rfc9332

import (
	"math"
	"testing"
)

// The RFC's own figures: Appendix A.1 gives 16 ms, 0.16 Hz and 3.2 Hz with a maximum RTT of 100 ms, rounded; its
// target is 15 ms.
func TestDerive(t *testing.T) {
	p := Derive(15e-3, 100e-3)
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
func TestController(t *testing.T) {
	c := Controller{Params: Derive(15e-3, 100e-3), Max: 1}
	c.Prev, c.P = c.Target, 0.1
	if c.Update(c.Target); c.P != 0.1 {
		t.Errorf("at the target it moves to %v", c.P)
	}
	last := c.P
	for range 10000 {
		if c.Update(0.1); c.P < last {
			t.Fatalf("with a delay of 100 ms it falls from %v to %v", last, c.P)
		}
		last = c.P
	}
	if c.P != 1 || !c.Overloaded() || c.Classic(true) != (Signal{Drop: 1}) || c.L4S(0) != (Signal{Drop: 1}) {
		t.Errorf("it ends at %v", c.P)
	}
	for range 10000 {
		c.Update(0)
	}
	if c.P != 0 || c.L4S(2e-3) != (Signal{Mark: 1}) || c.L4S(0.5e-3) != (Signal{}) {
		t.Errorf("on an empty queue it ends at %v", c.P)
	}
}

// The coupling: where a Classic flow sees p, a scalable one sees k times its root.
func TestCoupling(t *testing.T) {
	c := Controller{Params: Derive(15e-3, 100e-3), Max: 1, P: 0.1}
	classic, scalable := c.Classic(true).Mark, c.L4S(0).Mark
	if math.Abs(scalable-c.K*math.Sqrt(classic)) > 1e-12 {
		t.Errorf("p_C is %v and p_CL %v", classic, scalable)
	}
}

func FuzzController(f *testing.F) {
	f.Add(0.015, 0.1, 0.02, 0.5)
	f.Fuzz(func(t *testing.T, target, maxRTT, delay, p float64) {
		for _, v := range []float64{target, maxRTT, delay, p} {
			if !(v >= 1e-6 && v <= 4) {
				t.Skip()
			}
		}
		c := Controller{Params: Derive(target, maxRTT), Max: 1, P: min(p, 1)}
		for range 50 {
			before, prev := c.P, c.Prev
			c.Update(delay)
			if !(c.P >= 0 && c.P <= 1) {
				t.Fatalf("p' is %v", c.P)
			}
			if delay >= c.Target && delay >= prev && c.P < before {
				t.Fatalf("above the target p' falls from %v to %v", before, c.P)
			}
			s := c.L4S(delay)
			if s.Mark+s.Drop > 1+1e-9 || s.Mark < 0 {
				if c.PCL() <= 1 {
					t.Fatalf("signals %+v at p' %v", s, c.P)
				}
			}
		}
	})
}
