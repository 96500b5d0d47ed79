// SPDX-License-Identifier: Apache-2.0

// Package rfc9332 is the DualPI2 AQM of RFC 9332 as a model, written from the pseudo-code of its Appendix A in real
// numbers: what the BPF programs are compared with. It holds no packets and no clock, and nothing of the product runs
// on it.
package rfc9332

import "math"

// Params are those of figure 2. Times are in seconds, gains in Hz.
type Params struct {
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

// Derive gives the parameters of Appendix A.1. They follow from the target (its typical RTT) and the largest RTT for
// which the C queue is to be stable.
func Derive(target, maxRTT float64) Params {
	p := Params{Target: target, K: 2, Step: 1e-3}
	p.TUpdate = min(target, maxRTT/3)
	p.Alpha = 0.1 * p.TUpdate / (maxRTT * maxRTT)
	p.Beta = 0.3 / maxRTT
	p.PCMax = min(1/(p.K*p.K), 1)
	return p
}

// Controller is the PI controller.
type Controller struct {
	Params
	P    float64 // p', the base probability
	Prev float64 // the queue delay at the last update, in seconds
	Max  float64 // the largest p': 1, or 1/k where overload is left to the queues' limits
}

// Update is dualpi2_update of figure 6, for the delay that it finds, in seconds. The pseudo-code leaves the bounds of a
// probability to the reader.
func (c *Controller) Update(delay float64) {
	c.P += c.Alpha*(delay-c.Target) + c.Beta*(delay-c.Prev)
	c.P = min(max(c.P, 0), c.Max)
	c.Prev = delay
}

// PCL is the coupled probability, p_CL: beyond 1 the queues are overloaded.
func (c *Controller) PCL() float64 { return c.K * c.P }

// PC is the Classic probability.
func (c *Controller) PC() float64 { return c.P * c.P }

// Overloaded reports whether packets of both queues are dropped, rather than marked (figure 4 and section 2.5.1.1).
func (c *Controller) Overloaded() bool { return c.PC() > c.PCMax }

// Signal is how likely a packet is marked, and how likely dropped.
type Signal struct{ Mark, Drop float64 }

// Classic is what becomes of a packet in the C queue (figure 4, lines 9 to 15).
func (c *Controller) Classic(ect bool) Signal {
	if ect && !c.Overloaded() {
		return Signal{Mark: c.PC()}
	}
	return Signal{Drop: c.PC()}
}

// L4S is what becomes of an ECN-capable packet in the L queue that has waited for so many seconds (figure 4, lines 2 to
// 8). When overloaded, one that is not dropped is marked.
func (c *Controller) L4S(sojourn float64) Signal {
	if c.Overloaded() {
		return Signal{Drop: c.PC(), Mark: 1 - c.PC()}
	}
	native := 0.0
	if sojourn > c.Step {
		native = 1
	}
	return Signal{Mark: math.Max(native, c.PCL())}
}
