// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"testing"
)

// What a value has written is read as that value; of a queue that has no words here the text is kept.
func TestValueReadsBack(t *testing.T) {
	for text, c := range map[string]struct {
		kind  Kind
		known bool
	}{
		"htb rate 50mbit | fq_codel":       {Root, true},
		"of another age":                   {Root, false},
		"cake bandwidth 50mbit besteffort": {Ingress, true},
		"of another age, too":              {Ingress, false},
	} {
		v, err := Target{Kind: c.kind}.Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		known := false
		switch v := v.(type) {
		case Queue:
			known = v.Other == ""
		case Incoming:
			known = v.Other == ""
		}
		if known != c.known || v.String() != text {
			t.Errorf("%s: %#v", text, v)
		}
		if again, err := (Target{Kind: c.kind}).Parse(v.String()); err != nil || !again.Meets(v) {
			t.Errorf("%s, again: %#v, %v", text, again, err)
		}
	}
}
