// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"testing"
)

// The first goal stands by itself, and the others behind it.
func TestTextOf(t *testing.T) {
	all := []Goal{{Dev: "eth0"}, {Dev: "eth1"}, {Dev: "eth2"}}
	if got := TextOf(all); got.Goal != all[0] || !slices.Equal(got.Others, all[1:]) {
		t.Errorf("%+v", got)
	}
	if got := TextOf(nil); got.Goal != (Goal{}) || got.Others != nil {
		t.Errorf("%+v", got)
	}
}
