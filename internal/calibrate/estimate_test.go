// SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"math"
	"testing"
	"time"
)

// carried is a plateau of packets of one size, at a rate of which each packet takes so many bytes.
func carried(rate, size, takes float64) plateau {
	p := rate / 8 / takes
	return plateau{own: flow{p, p * size}, uncertainty: 0.0005}
}

func TestFitFraming(t *testing.T) {
	for _, overhead := range []float64{-14, 0, 4, 14, 18, 26, 38, 60} {
		f := fitFraming(carried(5e6, 1500, 1500+overhead), carried(5e6, 240, 240+overhead))
		if !f.known || f.atm || math.Abs(f.overhead-overhead) > 1e-6 {
			t.Errorf("%v: %+v", overhead, f)
		}
		// A third size does not make cells of plain bytes.
		f = fitFraming(carried(5e6, 1500, 1500+overhead), carried(5e6, 240, 240+overhead),
			carried(5e6, 264, 264+overhead))
		if f.atm || math.Abs(f.overhead-overhead) > 1e-6 {
			t.Errorf("%v, three sizes: %+v", overhead, f)
		}
	}
	for _, overhead := range []float64{8, 14, 24, 32, 40, 44} {
		f := fitFraming(carried(8e6, 1500, atmSize(1500+overhead)), carried(8e6, 240, atmSize(240+overhead)),
			carried(8e6, 264, atmSize(264+overhead)))
		if !f.atm || math.Abs(f.overhead-overhead) > f.uncertainty+0.5 {
			t.Errorf("ATM and %v: %+v", overhead, f)
		}
		if rate := f.bitRate(carried(8e6, 1500, atmSize(1500+overhead))); math.Abs(rate/8e6-1) > 1e-9 {
			t.Errorf("ATM and %v: rate %v", overhead, rate)
		}
	}
	// What is not known well fits with cells by chance.
	var rough []plateau
	for _, x := range [][2]float64{{1500, 1696}, {240, 316}, {264, 318}} {
		p := carried(8e6, x[0], x[1])
		p.uncertainty = 0.06
		rough = append(rough, p)
	}
	if f := fitFraming(rough...); f.known && f.atm {
		t.Errorf("rates that are off by 6 %%: %+v", f)
	}
	if f := fitFraming(carried(5e6, 1500, 1514), carried(5e6, 1500, 1514)); f.known {
		t.Errorf("one size tells %+v", f)
	}
}

func TestKindOf(t *testing.T) {
	still := idleLink{base: 0.02, noise: 0.001}
	for _, x := range []struct {
		name string
		p    plateau
		lost float64
		want Kind
	}{
		{"a queue stands", plateau{medianWait: 0.1, bulkWait: 0.1}, 0, FIFO},
		{"a full queue drops", plateau{medianWait: 0.02, bulkWait: 0.02, lost: 0.3}, 0, FIFO},
		{"nothing waits, much is dropped", plateau{lost: 0.1}, 0, Policer},
		{"nothing waits, the path loses", plateau{lost: 0.012}, 0.01, Unsaturated},
		{"nothing waits", plateau{}, 0, Unsaturated},
		{"a sparse flow waits for one turn of the others", plateau{medianWait: 0.009, bulkWait: 0.06,
			packetGap: 0.01, lost: 0.1}, 0, FairQueue},
		{"behind datagrams of its own flow", plateau{lost: 0.1, bulkWait: 0.005, floodWait: 0.02}, 0, FairQueue},
		{"its own packets wait, others do not", plateau{medianWait: 0.001, bulkWait: 0.03, lost: 0.05}, 0, FairQueue},
	} {
		if got := kindOf(x.p, still, x.lost); got != x.want {
			t.Errorf("%s: %s, want %s", x.name, got, x.want)
		}
	}
}

func TestWithoutImpossible(t *testing.T) {
	for _, x := range []struct {
		in, out framing
	}{
		{framing{overhead: 14, uncertainty: 0.3, known: true}, framing{overhead: 14, uncertainty: 0.3, known: true}},
		{framing{overhead: -1, uncertainty: 1, known: true}, framing{uncertainty: 1, known: true}},
		{framing{overhead: -90, uncertainty: 2, known: true}, framing{uncertainty: 2}},
		{framing{overhead: 25, uncertainty: 48, known: true}, framing{overhead: 25, uncertainty: 48}},
		{framing{overhead: 148, uncertainty: 1, known: true}, framing{overhead: 148, uncertainty: 1}},
		{framing{overhead: 36, uncertainty: 12, atm: true, known: true},
			framing{overhead: 36, uncertainty: 12, atm: true, known: true}},
	} {
		if got := x.in.withoutImpossible(); got != x.out {
			t.Errorf("%+v: %+v", x.in, got)
		}
	}
}

// A queue that forgets its losses slowly has not lost for the path.
func TestLossFalls(t *testing.T) {
	for _, x := range []struct {
		quarters [4]float64 // share that is lost
		want     bool
	}{
		{[4]float64{0, 0, 0, 0}, false},
		{[4]float64{0.01, 0.012, 0.009, 0.011}, false},
		{[4]float64{0.3, 0.2, 0.04, 0}, true},
		{[4]float64{0.05, 0.12, 0.02, 0}, true},
	} {
		var all series
		sample := Sample{}
		for i := range 150 {
			sample.At = time.Duration(i) * 10 * time.Millisecond
			all = append(all, sample)
			sample.Segments += 17
			sample.Retransmitted += 17 * x.quarters[i*4/150]
		}
		if got := lossFalls(all, 0, 1.5); got != x.want {
			t.Errorf("%v: %v", x.quarters, got)
		}
	}
}

// Of a path over which next to nothing was sent, little is taken to be lost.
func TestBelowRateOfNothing(t *testing.T) {
	if most := lookBelowRate(nil, nil, idleLink{}, 0, 1).allowedLoss(nil); most > 0.2 {
		t.Errorf("%.0f %% may be lost", 100*most)
	}
}

// A path loses at any time, and a policer beside bursts all at once. One loss is no cluster.
func TestLossClusters(t *testing.T) {
	for name, c := range map[string]struct {
		lost func(sample int) bool
		want bool
	}{
		"none":          {func(int) bool { return false }, false},
		"one":           {func(i int) bool { return i == 70 }, false},
		"at any time":   {func(i int) bool { return i%8 == 3 }, false},
		"all at once":   {func(i int) bool { return i >= 60 && i < 80 }, true},
		"in two bursts": {func(i int) bool { return i >= 30 && i < 40 || i >= 130 && i < 140 }, true},
	} {
		var all series
		again := 0.0
		for i := range 160 {
			if c.lost(i) {
				again++
			}
			all = append(all, Sample{At: time.Duration(i) * 10 * time.Millisecond, Segments: 10 * float64(i),
				Retransmitted: again})
		}
		if got := lossClusters(all, 0, 1.6); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
