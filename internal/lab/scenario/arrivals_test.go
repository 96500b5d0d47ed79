// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/units"
)

// A source has the rate and the mean size that were asked for, and one seed gives one sequence.
func TestArrivals(t *testing.T) {
	const end = 1000 * time.Second
	for _, sizes := range sizeNames() {
		f := Flow{Count: 2, Every: units.Duration(50 * time.Millisecond), Bytes: 30000, Sizes: sizes,
			Start: units.Duration(100 * time.Second), Stop: units.Duration(900 * time.Second)}
		all := f.Arrivals(7, end)
		if !slices.Equal(all, f.Arrivals(7, end)) || slices.Equal(all, f.Arrivals(8, end)) {
			t.Errorf("%s: the seed does not decide", sizes)
		}
		if n := float64(len(all)); math.Abs(n-32000) > 4*2*math.Sqrt(16000) {
			t.Errorf("%s: %v connections in 800 s", sizes, n)
		}
		if most := f.expected(units.Duration(end)); len(all) > most || most > 34000 {
			t.Errorf("%s: %d connections, expected at most %d", sizes, len(all), most)
		}
		var total, gaps, squares float64
		least, largest := all[0].Bytes, all[0].Bytes
		for i, a := range all {
			if a.At < 100*time.Second || a.At >= 900*time.Second {
				t.Fatalf("%s: one begins at %v", sizes, a.At)
			}
			total += float64(a.Bytes)
			least, largest = min(least, a.Bytes), max(largest, a.Bytes)
			if i >= 2 && i%2 == 0 {
				gap := (a.At - all[i-1].At).Seconds()
				gaps += gap
				squares += gap * gap
			}
		}
		// Half of a heavy tail's mean is in few connections.
		if mean := total / float64(len(all)); math.Abs(mean-30000) > 3000 {
			t.Errorf("%s: mean size %v", sizes, mean)
		}
		n := float64(len(all)/2 - 1)
		if deviation := math.Sqrt(squares/n - gaps*gaps/n/n); math.Abs(deviation-0.05) > 0.002 {
			t.Errorf("%s: intervals deviate by %v s: those of a Poisson source as their mean does", sizes, deviation)
		}
		switch ratio := float64(largest) / float64(least); sizes {
		case fixedSizes:
			if ratio != 1 {
				t.Errorf("fixed sizes from %d to %d", least, largest)
			}
		case paretoSizes:
			if ratio < 100 || ratio > paretoRange*1.01 {
				t.Errorf("Pareto sizes from %d to %d", least, largest)
			}
		}
	}
}

func TestSourceRefused(t *testing.T) {
	for _, keys := range []string{
		`every = "1s"`, `sizes = "pareto"`, "every = \"1s\"\nbytes = \"1kb\"\nsizes = \"normal\"", `chunk = "1kb"`,
		`interval = "1s"`, "chunk = \"1kb\"\ninterval = \"10us\"", "every = \"1ms\"\nbytes = \"1kb\"",
		"every = \"1s\"\nbytes = \"1kb\"\nchunk = \"1kb\"\ninterval = \"1s\"", `every = "0s"`,
	} {
		text := minimal[:len(minimal)-len("[[candidate]]\nname = \"c\"\n")] + keys + "\n[[candidate]]\nname = \"c\"\n"
		if _, err := Load(write(t, "s.toml", text)); err == nil {
			t.Errorf("%q was accepted", keys)
		}
	}
}

// What a client's access, a neighbour and a peak rate cannot be.
func TestLimitersRefused(t *testing.T) {
	good := minimal + "[[client]]\nname = \"c\"\nrate = \"10mbit\"\n"
	if _, err := Load(write(t, "s.toml", good)); err != nil {
		t.Fatal(err)
	}
	bucket := "queue = \"bucket\"\npeak = \"90mbit\"\n"
	in := func(section, keys string) string {
		return strings.Replace(minimal, section+"\n", section+"\n"+keys, 1)
	}
	if _, err := Load(write(t, "s.toml", in("[provider]", bucket))); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		good + `upload = "1kbit"`, good + `buffer = "1kb"`, good + `rate = "0mbit"`,
		minimal + "[[client]]\nname = \"c\"\nupload = \"1mbit\"", minimal + "[[client]]\nname = \"c\"\nbuffer = \"1mb\"",
		in("[provider]", "peak = \"90mbit\"\n"), in("[provider]", "queue = \"bucket\"\npeak = \"40mbit\"\n"),
		in("[provider]", bucket+"change = [{ at = \"5s\", rate = \"95mbit\" }]\n"),
		in("[[flow]]", "host = \"somebody\"\n"), in("[[flow]]", "host = \"neighbour\"\ndirection = \"up\"\n"),
		in("[[flow]]", "host = \"neighbour\"\ndial = \"server\"\n"),
		strings.Replace(in("[[flow]]", "host = \"neighbour\"\n"), "[provider]\n", "[provider]\nqueue = \"policer\"\n", 1),
		"server = { relay = true }\n" + in("[[flow]]", "host = \"neighbour\"\n"),
	} {
		if _, err := Load(write(t, "s.toml", text)); err == nil {
			t.Errorf("accepted:\n%s", text)
		}
	}
}
