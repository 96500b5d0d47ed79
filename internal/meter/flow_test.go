// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"math"
	"slices"
	"testing"
)

// Of 10 Mbit/s of TLS, a record comes at once, and what it holds is less than what came.
func TestArrived(t *testing.T) {
	const step, record, over, steps = 125_000 / 4, 16384, 22, 80
	var came, payload, slow []int64
	read := int64(0)
	for i := range steps {
		came = append(came, step)
		records := step * int64(i+1) / (record + over)
		payload, read = append(payload, records*record-read), records*record
		slow = append(slow, step/2)
	}
	for _, c := range []struct {
		name          string
		came, payload []int64
		each          float64 // 0: the program's count
	}{
		{"records", came, payload, step * record / (record + over)},
		{"the kernel does not count", nil, payload, 0},
		{"it was closed", came[:40], payload, 0},
		{"too short", came[:19], payload[:19], 0},
		{"the program is far behind", came, slow, 0},
		{"nothing comes", make([]int64, steps), make([]int64, steps), 0},
		{"more payload than came", slow, came, 0},
	} {
		got := arrived(c.came, c.payload)
		if c.each == 0 {
			if !slices.Equal(got, c.payload) {
				t.Errorf("%s: %v, want the program's count", c.name, got)
			}
			continue
		}
		for i, n := range got {
			if math.Abs(float64(n)/c.each-1) > 0.001 {
				t.Errorf("%s: %d bytes in step %d, want %.0f", c.name, n, i, c.each)
			}
		}
	}
}
