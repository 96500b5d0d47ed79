// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"context"
	"fmt"
	"time"
	"weir/internal/stats"
)

// Hop is the first router on the way to the other end.
type Hop struct {
	Address  string `json:"address"`
	Wireless bool   `json:"wireless,omitempty"` // this host reaches it by Wi-Fi
}

// HopSeen is what the first router answered when it was asked for an echo.
type HopSeen struct {
	Hop
	Pings []Ping `json:"pings"`
}

// Ping is one request.
type Ping struct {
	At  float64 `json:"at"`  // seconds since the measurement began, when it was sent
	RTT float64 `json:"rtt"` // ms; -1: no answer
}

// HopPhase is what is known of the first hop in one phase.
type HopPhase struct {
	Sent  int        `json:"sent"`
	RTT   stats.Dist `json:"rtt"`
	Added float64    `json:"added"` // median above the idle phase's
	Queue Queue      `json:"queue,omitempty"`
}

// Queue is where most of a wait is.
type Queue string

// Nothing is said where it is neither, or where it cannot be told.
const (
	QueueHere   Queue = "here"   // between this host and the first router
	QueueBeyond Queue = "beyond" // that router, and the rest of the path
)

// AskHop asks the first router on the way to host:port, until the context ends. What it returns waits for that, and
// gives what was seen; nil where there is no such router, where it is not known, or where this host may not ask it.
func AskHop(ctx context.Context, addr string, began time.Time) (seen func() *HopSeen) {
	done := make(chan *HopSeen, 1)
	go func() { done <- askHop(ctx, addr, began) }()
	return func() *HopSeen { return <-done }
}

// look is what was seen from a time to another; nil where that is too little to tell.
func (h *HopSeen) look(from, to float64) *HopPhase {
	const enough = 10 // answers
	if h == nil {
		return nil
	}
	var rtt []float64
	p := &HopPhase{}
	for _, s := range h.Pings {
		if s.At < from || s.At >= to {
			continue
		}
		p.Sent++
		if inRange(s.RTT, 0, maxRTT) {
			rtt = append(rtt, s.RTT)
		}
	}
	if len(rtt) < enough || 2*len(rtt) < p.Sent {
		return nil
	}
	p.RTT = stats.NewDist(rtt)
	return p
}

// judge compares a phase of a load with the idle one, and with what the load adds on the whole path. A part of a path
// cannot be longer than the whole: such a router forwards sooner than it answers.
func (p *HopPhase) judge(idle *HopPhase, path *Added) {
	const most, slow, calm = 0.5, 1.5, 0.25 // of what is added on the whole path
	if p == nil || idle == nil {
		return
	}
	p.Added = p.RTT.P50 - idle.RTT.P50
	if path == nil || path.P50.Low < negligibleWait {
		return
	}
	switch part := p.Added / path.P50.Value; {
	case part > slow:
	case part > most:
		p.Queue = QueueHere
	case part < calm:
		p.Queue = QueueBeyond
	}
}

// sentence tells where most of the wait is, if that is known.
func (h *Hop) sentence(p *HopPhase) string {
	if h == nil || p == nil {
		return ""
	}
	switch {
	case p.Queue == QueueHere && h.Wireless:
		return fmt.Sprintf(" Most of the wait is on this host's Wi-Fi, between it and %s.", h.Address)
	case p.Queue == QueueHere:
		return fmt.Sprintf(" Most of the wait is on the first hop, between this host and %s.", h.Address)
	case p.Queue == QueueBeyond:
		return fmt.Sprintf(" Most of the wait is beyond the first hop, which ends at %s.", h.Address)
	}
	return ""
}
