// SPDX-License-Identifier: Apache-2.0

package scenario

import "weir/internal/lab/measure"

// Job is what a guest is asked to do: one scenario without its sweep, one candidate, one seed.
type Job struct {
	Scenario  Scenario  `json:"scenario"`
	Candidate candidate `json:"candidate"`
	Seed      uint64    `json:"seed"`
}

// Reply is the one document that a guest hands back.
type Reply struct {
	Result *measure.Run `json:"result,omitempty"`
	Error  string       `json:"error,omitempty"`
}
