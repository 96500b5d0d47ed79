// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"math"
	"slices"
)

// Parameters of draft-ietf-ippm-responsiveness-09, section 5, but for the interval: that is 1 s, as its clients have
// it, and not 5 s.
const (
	rpmInterval = 1.0  // s (ID)
	rpmDistance = 4    // intervals (MAD)
	rpmKeep     = 0.95 // of the probes, the fastest (TMP)
	rpmSteady   = 0.05 // of the newest moving average (SDT)
	rpmMost     = 16   // load-generating connections (MNP)
	rpmProbes   = 100  // a second, half of each kind (MPS)
)

// RPMProbe is one probe of a responsiveness test. Times are in ms.
type RPMProbe struct {
	At      float64 `json:"at"`      // seconds since the test began
	Foreign bool    `json:"foreign"` // on a connection of its own; else on one that carries load
	TCP     float64 `json:"tcp,omitempty"`
	TLS     float64 `json:"tls,omitempty"` // by the handshake's round trips
	HTTP    float64 `json:"http"`
}

// Responsiveness is round trips a minute, by the draft's formula.
type Responsiveness struct {
	RPM     float64 `json:"rpm"`
	Foreign float64 `json:"foreign"` // of new connections
	Loaded  float64 `json:"loaded"`  // of connections that carry load
	Probes  int     `json:"probes"`
}

// RPM is section 5.3's formula over probes; false without both kinds.
func RPM(probes []RPMProbe) (r Responsiveness, ok bool) {
	var tcp, tls, http, loaded []float64
	for _, p := range probes {
		if !p.Foreign {
			loaded = append(loaded, p.HTTP)
			continue
		}
		tcp, tls, http = append(tcp, p.TCP), append(tls, p.TLS), append(http, p.HTTP)
	}
	if len(tcp) == 0 || len(loaded) == 0 {
		return r, false
	}
	const minute = 60_000 // ms
	foreign := (trimmedMean(tcp) + trimmedMean(tls) + trimmedMean(http)) / 3
	self := trimmedMean(loaded)
	if foreign <= 0 || self <= 0 {
		return r, false
	}
	r = Responsiveness{Foreign: minute / foreign, Loaded: minute / self, Probes: len(probes)}
	r.RPM = (r.Foreign + r.Loaded) / 2
	return r, true
}

// trimmedMean is the mean without the slowest.
func trimmedMean(v []float64) float64 {
	s := slices.Clone(v)
	slices.Sort(s)
	s = s[:max(int(math.Ceil(rpmKeep*float64(len(s)))), 1)]
	sum := 0.0
	for _, x := range s {
		sum += x
	}
	return sum / float64(len(s))
}

// hasSettled reports whether values, one an interval, have settled: the last moving averages deviate little from each
// other.
func hasSettled(values []float64) bool {
	if len(values) < 2*rpmDistance-1 {
		return false
	}
	var averages []float64
	for i := len(values) - rpmDistance; i < len(values); i++ {
		sum := 0.0
		for _, v := range values[i-rpmDistance+1 : i+1] {
			sum += v
		}
		averages = append(averages, sum/rpmDistance)
	}
	mean, square := 0.0, 0.0
	for _, a := range averages {
		mean += a / rpmDistance
	}
	for _, a := range averages {
		square += (a - mean) * (a - mean) / rpmDistance
	}
	return math.Sqrt(square) < rpmSteady*averages[rpmDistance-1]
}

// Confidence is the draft's: how far a test came.
type Confidence string

// High: goodput and responsiveness have settled; Medium: they have not; Low: there were too few intervals.
const (
	High   Confidence = "high"
	Medium Confidence = "medium"
	Low    Confidence = "low"
)

// RPMResult is what a responsiveness test found.
type RPMResult struct {
	Version    int            `json:"version"`
	Says       string         `json:"says"`
	Target     string         `json:"target"`
	Interval   float64        `json:"interval"` // seconds
	Directions []RPMDirection `json:"directions"`
}

// Silent is the first direction in which no data moved, or no probe was answered; "" if there is none.
func (r *RPMResult) Silent() string {
	for _, d := range r.Directions {
		if d.Goodput == 0 || d.Probes == 0 {
			return d.Direction
		}
	}
	return ""
}

// RPMDirection is a direction's. The responsiveness is that of the last four intervals.
type RPMDirection struct {
	Direction  string     `json:"direction"`
	Goodput    float64    `json:"goodput"` // Mbit/s, mean of the last four intervals
	Conns      int        `json:"conns"`
	Confidence Confidence `json:"confidence"`
	Responsiveness
	Samples []RPMProbe `json:"samples"`
}

// class is the draft's word for a responsiveness.
func class(rpm float64) string {
	switch {
	case rpm < 300:
		return "poor"
	case rpm < 1000:
		return "fair"
	case rpm < 6000:
		return "good"
	}
	return "excellent"
}
