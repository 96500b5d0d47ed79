// SPDX-License-Identifier: Apache-2.0

package wire

import "testing"

// As net/sched/sch_cake.c, cake_calc_overhead, counts.
func TestCells(t *testing.T) {
	for bytes, want := range map[int][2]int{0: {0, 0}, 1: {53, 2}, 48: {53, 49}, 49: {106, 50}, 64: {106, 65},
		65: {106, 67}, 1500: {32 * 53, 1524}} {
		if got := [2]int{Cells(bytes), Words(bytes)}; got != want {
			t.Errorf("%d bytes: %v, want %v", bytes, got, want)
		}
	}
}
