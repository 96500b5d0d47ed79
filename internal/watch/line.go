// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"time"

	"weir/internal/change"
	"weir/internal/host"
	"weir/internal/meter/live"
	"weir/internal/units"
)

// Version is that of a Line's JSON.
const Version = 1

// Line is the State after a second, as JSON has it.
type Line struct {
	Version    int            `json:"version"`
	At         time.Time      `json:"at"`
	Bottleneck Verdict        `json:"bottleneck"`
	Outgoing   *Shown         `json:"outgoing,omitempty"`
	Incoming   *Shown         `json:"incoming,omitempty"`
	Clients    *live.Result   `json:"connections,omitempty"` // of the busiest 100 networks; the last look
	BBR        *Senders       `json:"bpf_bbr,omitempty"`     // where it is registered, and root looks
	Goal       *change.Status `json:"status,omitempty"`      // as weir status --json has it
	GoalError  string         `json:"status_error,omitempty"`
	Findings   []Seen         `json:"findings"`
	Unknown    []host.Unread  `json:"unknown,omitempty"` // what could not be seen, and why
}

// Shown is a queue and what it did in the last second.
type Shown struct {
	Queue
	Last Second         `json:"last"`
	Sent units.Rate     `json:"sent"`  // bit/s
	Wait units.Duration `json:"waits"` // the most that stood there, at the rate that it is served with
}

func (t Track) summary() *Shown {
	if len(t.Seconds) == 0 || t.Dev == "" {
		return nil
	}
	last := t.Seconds[len(t.Seconds)-1]
	return &Shown{t.Queue, last, last.Rate(), last.Wait()}
}

// Line is the State as JSON has it.
func (s State) Line() Line {
	const most = 100
	l := Line{Version: Version, At: s.Now, Bottleneck: s.Verdict(), Outgoing: s.Out.summary(), Incoming: s.In.summary(),
		Findings: s.Findings, Unknown: s.Doctor.Unknown}
	if l.Findings == nil {
		l.Findings = []Seen{}
	}
	if s.BBR.Connections > 0 {
		l.BBR = &s.BBR
	}
	if !s.ClientsAt.IsZero() {
		r := s.Clients
		r.Networks = r.Networks[:min(len(r.Networks), most)]
		l.Clients = &r
	}
	switch {
	case s.Goal.Err != nil:
		l.GoalError = s.Goal.Err.Error()
	case !s.Goal.At.IsZero():
		l.Goal = &s.Goal.Status
	}
	return l
}
