// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/xml"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A picture is XML, its lines lie inside, and where they lie gives back what was measured.
func TestRoundTrips(t *testing.T) {
	point := &sample()[0].Points[0]
	var b bytes.Buffer
	if err := RoundTrips(&b, "A & B", point, "as found | cubic", "Weir"); err != nil {
		t.Fatal(err)
	}
	var names []string
	for d := xml.NewDecoder(&b); ; {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		start, ok := token.(xml.StartElement)
		if !ok || start.Name.Local != "polyline" {
			continue
		}
		attr := map[string]string{}
		for _, a := range start.Attr {
			attr[a.Name.Local] = a.Value
		}
		names = append(names, attr["data-name"])
		inside(t, attr["data-name"], attr["points"])
	}
	if !slices.Equal(names, []string{"as found | cubic", "Weir"}) {
		t.Errorf("lines of %q", names)
	}
	if err := RoundTrips(io.Discard, "", point, "Weir", "nobody"); err == nil {
		t.Error("a candidate that is not there is drawn")
	}
}

// inside, which knows how package page draws, looks at the line of sample: a sine of 3 ms around 212.34 ms or 52.42 ms,
// below 250 ms.
func inside(t *testing.T, name, points string) {
	t.Helper()
	const chartWidth, chartHeight, marginBelow, marginTop = 640, 270, 30, 26
	low, high := math.Inf(1), math.Inf(-1)
	for p := range strings.FieldsSeq(points) {
		x, y, _ := strings.Cut(p, ",")
		at, err := strconv.ParseFloat(x, 64)
		value, err2 := strconv.ParseFloat(y, 64)
		if err != nil || err2 != nil || at < 0 || at > chartWidth {
			t.Fatalf("%s: %s", name, p)
		}
		ms := 250 * (chartHeight - marginBelow - value) / (chartHeight - marginBelow - marginTop)
		low, high = min(low, ms), max(high, ms)
	}
	want := map[string]float64{"as found | cubic": 212.34, "Weir": 52.42}[name]
	if math.Abs(low-(want-3)) > 0.02 || math.Abs(high-(want+3)) > 0.02 {
		t.Errorf("%s is drawn from %.2f to %.2f ms, want %.2f ± 3", name, low, high, want)
	}
}
