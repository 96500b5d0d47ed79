// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"cmp"
	"fmt"
	"time"

	"weir/internal/doctor"
	"weir/internal/text"
	"weir/internal/units"
)

// Here is whether the bottleneck is this host's queue.
type Here string

const (
	Yes     Here = "yes"     // packets wait here nearly always
	Partly  Here = "partly"  // they wait, and the queue drains now and then
	No      Here = "no"      // the queue drains: the application limits, or another network
	Idle    Here = "idle"    // nothing is sent, so nothing is limited
	Unknown Here = "unknown" // the queue cannot be seen
)

// Verdict is whether the bottleneck is here, and why one may say so.
type Verdict struct {
	Here Here   `json:"here"`
	Says string `json:"says"`
}

// window is what a verdict rests on.
const window = 10 * time.Second

// Verdict judges the outgoing queue by the last ten seconds. A bottleneck's queue is never empty; one that drains has
// caught up with all that wanted to leave.
func (s State) Verdict() Verdict {
	const (
		always, seldom = 0.9, 0.1 // of the looks, those that found packets
		quiet          = 0.01     // of the rate; the chatter of a host
		full           = 0.9      // of the rate
	)
	w, q := sumSeconds(s.Out.last(window)), s.Out.Queue
	if s.Now.IsZero() {
		return Verdict{Unknown, "Looking …"}
	}
	if q.Kind == "" || q.Kind == "noqueue" || w.Looks == 0 {
		return Verdict{Unknown, "Cannot be told: " + whyNot(q) + "."}
	}
	held := float64(w.Looks-w.Empty) / float64(w.Looks)
	of, rate, limit := fmt.Sprintf("%d of %d looks in %.0f s", w.Looks-w.Empty, w.Looks,
		max(1, time.Duration(w.Span).Seconds())), w.Rate(), cmp.Or(w.Shaped, q.Speed)
	used := ""
	if limit > 0 {
		name := roundedRate(limit)
		if w.Shaped != q.Rate {
			name = "a rate that moves (" + roundedRate(q.Rate) + " now)"
		}
		used = fmt.Sprintf(", and %.0f %% of %s are in use", 100*float64(rate)/float64(limit), name)
	}
	elsewhere := s.Doctor.Bottleneck.Limit == doctor.LimitRate
	switch {
	case held >= always && limit > 0 && float64(rate) < full*float64(limit):
		return Verdict{Yes, fmt.Sprintf("Yes, or right below it: packets waited here at %s%s. The device, or a class "+
			"or tin of the queue, sends no more.", of, used)}
	case held >= always:
		return Verdict{Yes, fmt.Sprintf("Yes: packets waited here at %s%s. The queue never drains.", of, used)}
	case elsewhere && (held <= seldom || s.waitsMuchLonger(w)): // between two bursts a queue is empty when doctor looks
		return Verdict{No, fmt.Sprintf("No: connections wait, and packets waited here at %s. It is %s", of,
			s.Doctor.Bottleneck.Says)}
	case held > seldom:
		return Verdict{Partly, fmt.Sprintf("Now and then: packets waited here at %s%s, and the queue drained between. "+
			"Bursts wait here.", of, used)}
	case rate < units.Rate(quiet*float64(max(limit, 10_000_000))):
		return Verdict{Idle, fmt.Sprintf("Nothing to tell: this host sends %s, and no queue stands here.", mbit(rate))}
	}
	return Verdict{No, fmt.Sprintf("No: the queue here drains. Packets waited at %s%s. The application limits, or "+
		"another network.", of, used)}
}

// waitsMuchLonger reports whether connections wait much longer than anything did in this queue.
func (s State) waitsMuchLonger(w Second) bool {
	const much = 4                                       // times
	here := 8e3 * float64(w.Backlog) / float64(w.Shaped) // ms, the most
	return w.Shaped > 0 && s.Clients.All.Added.P50 > much*here
}

// whyNot says why a queue tells nothing.
func whyNot(q Queue) string {
	switch {
	case q.Hidden != "":
		return q.Hidden
	case q.Dev == "":
		return "there is no default route, so the uplink is not known (--dev names it)"
	case q.Kind == "":
		return q.Dev + " has no queue that the kernel lists"
	case q.Kind == "noqueue":
		return q.Dev + " has no queue (noqueue), and counts nothing"
	}
	return "it was not looked at yet"
}

// roundedRate writes a rate as tc does, to five digits.
func roundedRate(r units.Rate) string { return units.Rounded(float64(r)).String() }

// mbit writes a rate to three digits.
func mbit(r units.Rate) string { return figure(float64(r)/1e6) + " Mbit/s" }

// unseen is what a person should know that is not shown, in a line; "" if that is nothing.
func (s State) unseen() string {
	switch n := len(s.Doctor.Unknown); {
	case n == 1:
		return "Not seen: " + text.OneLine(s.Doctor.Unknown[0].What+" ("+s.Doctor.Unknown[0].Why+").")
	case n > 1:
		return fmt.Sprintf("Not seen: %s and %s (weir doctor lists them).", text.OneLine(s.Doctor.Unknown[0].What),
			text.Counted(n-1, "other thing"))
	}
	return ""
}
