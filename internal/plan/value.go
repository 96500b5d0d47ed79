// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/json"

	"weir/internal/kernel"
)

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
