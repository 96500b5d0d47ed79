// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"slices"

	"weir/internal/bbr"
	"weir/internal/lab/measure"
)

// Job is what a guest is asked to do: one scenario without its sweep, one candidate, one seed.
type Job struct {
	Scenario  Scenario  `json:"scenario"`
	Candidate candidate `json:"candidate"`
	Seed      uint64    `json:"seed"`
}

// UsesBBR reports whether a sender may use Weir's own congestion control.
func (j Job) UsesBBR() bool {
	c := j.Candidate
	return c.Sysctl[congestionControl] == bbr.Name || c.Weir != nil && c.Weir.CC == bbr.Name ||
		slices.ContainsFunc(j.Scenario.Flow, func(f Flow) bool { return f.CC == bbr.Name }) ||
		slices.ContainsFunc(j.Scenario.Probe, func(p Probe) bool { return p.CC == bbr.Name })
}

// Reply is the one document that a guest hands back.
type Reply struct {
	Result *measure.Run `json:"result,omitempty"`
	Error  string       `json:"error,omitempty"`
}
