// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"weir/internal/measure"
	"weir/internal/meter"
)

// A try is kept for what is surely better, and not for chance, nor at the price of a load.
func TestJudged(t *testing.T) {
	row := func(figure string, before, after float64, sure bool) meter.Row {
		return meter.Row{Figure: figure, Before: measure.Estimate{Value: before}, After: measure.Estimate{Value: after},
			Sure: sure}
	}
	const added, goodput = "download: added p90, ms", "download: download, Mbit/s"
	for _, c := range []struct {
		name          string
		rows          []meter.Row
		better, worse bool
	}{
		{"nothing", nil, false, false},
		{"shorter", []meter.Row{row(added, 160, 1, true)}, true, false},
		{"shorter by chance", []meter.Row{row(added, 160, 100, false)}, false, false},
		{"longer", []meter.Row{row(added, 1, 160, true)}, false, true},
		{"shorter for what shaping costs", []meter.Row{row(added, 160, 1, true), row(goodput, 50, 47, true)}, true,
			false},
		{"shorter for half of the link", []meter.Row{row(added, 160, 1, true), row(goodput, 50, 25, true)}, true, true},
		{"less jitter alone", []meter.Row{row("download: jitter, ms", 9, 1, true)}, false, false},
	} {
		if better, worse := judged(c.rows); better != c.better || worse != c.worse {
			t.Errorf("%s: better %v, worse %v", c.name, better, worse)
		}
	}
}
