// SPDX-License-Identifier: Apache-2.0

package plan

import "testing"

// What a value has written is read as that value; of a queue that has no words here the text is kept.
func TestValueReadsBack(t *testing.T) {
	for text, c := range map[string]struct {
		kind  TargetKind
		known bool
	}{
		"htb rate 50mbit | fq_codel":       {Root, true},
		"of another age":                   {Root, false},
		"cake bandwidth 50mbit besteffort": {Ingress, true},
		"of another age, too":              {Ingress, false},
	} {
		v, err := c.kind.Parse(text)
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
		if again, err := c.kind.Parse(v.String()); err != nil || !again.Meets(v) {
			t.Errorf("%s, again: %#v, %v", text, again, err)
		}
	}
}

// A card's whole speed can be asked for, and no more.
func TestUpToTheSpeed(t *testing.T) {
	f := with(t, kernel("cake", "ifb", "act_mirred"))
	for _, c := range []struct {
		goal Goal
		fits bool
	}{
		{Goal{Rate: 1e9}, true}, {Goal{Rate: 1001e6}, false}, {Goal{Rate: 1e8, Ingress: 1e9}, true},
		{Goal{Rate: 1e8, Ingress: 1001e6}, false}, {Goal{Rate: 1e8, Ingress: 1001e6, Role: "relay"}, false},
	} {
		if _, err := Make(c.goal, f); (err == nil) != c.fits {
			t.Errorf("%s: %v", c.goal.Flags(), err)
		}
	}
}
