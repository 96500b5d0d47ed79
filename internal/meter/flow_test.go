// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"slices"
	"testing"
)

func TestShift(t *testing.T) {
	for _, c := range []struct {
		later float64
		want  []int64
	}{{0, []int64{1, 2, 3}}, {0.24, []int64{3}}, {0.26, nil}, {9, nil}, {-0.06, []int64{0, 1, 2, 3}},
		{-0.2, []int64{0, 0, 1, 2, 3}}} {
		f := Flow{Bins: []int64{1, 2, 3}}
		if f.Shift(c.later); !slices.Equal(f.Bins, c.want) {
			t.Errorf("%g s later: %v, want %v", c.later, f.Bins, c.want)
		}
	}
}
