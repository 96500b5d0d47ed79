// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/json"

	"weir/internal/kernel"
)

// GoalsText is a list of goals in JSON: the one that was asked for, and those of other devices.
type GoalsText struct {
	Goal   Goal   `json:"goal"`
	Others []Goal `json:"others,omitempty"`
}

// TextOf is a list of goals as JSON has it.
func TextOf(goals []Goal) (t GoalsText) {
	if len(goals) > 0 {
		t.Goal, t.Others = goals[0], goals[1:]
	}
	return t
}

// ChangeText is a change in JSON.
type ChangeText struct {
	kernel.TargetText
	Old      string `json:"old"`
	New      string `json:"new"`
	Owner    string `json:"owner,omitempty"`
	Reason   string `json:"reason"`
	Evidence string `json:"evidence,omitempty"`
}

// Text is a change as JSON has it.
func (c Change) Text() ChangeText {
	return ChangeText{c.Target.Text(), write(c.Old), write(c.New), c.Owner, c.Reason, c.Evidence}
}

// MarshalJSON writes the change as text: what a person would type.
func (c Change) MarshalJSON() ([]byte, error) { return json.Marshal(c.Text()) }

func write(v kernel.Value) string {
	if v == nil {
		return ""
	}
	return v.String()
}
