// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/meter"
	"weir/internal/page"
)

// measured is of a link on which downloads add some ms; of the upload no probe came back.
func measured(added float64) meter.Result {
	rec := &meter.Recording{Target: "192.0.2.1:4747", Time: time.Unix(1_800_000_000, 0), Local: "here", Probe: "udp",
		Interval: 10, Remote: meter.Hello{Name: "<b>there</b>"}, Notes: []string{"A <i>note</i>."}}
	flow := func(direction string) []meter.Flow {
		return []meter.Flow{{Direction: direction, Bins: slices.Repeat([]int64{125_000}, 100)}}
	}
	rec.Spans = []meter.Span{{Name: meter.Idle, From: 0, To: 5},
		{Name: meter.Download, From: 5, To: 15, Local: flow(meter.Download)},
		{Name: meter.Upload, From: 15, To: 25, Far: flow(meter.Upload)}}
	for i := range 2500 {
		s := meter.Sample{At: float64(i) / 100, RTT: 48}
		if s.At >= 5 {
			s.RTT += added
		}
		if s.At >= 15 {
			s.RTT = -1
		}
		rec.Samples = append(rec.Samples, s)
	}
	return meter.Summarize(rec)
}

// A page of a measurement asks for nothing, has a picture of all that was seen, and the figures of each load.
func TestMeasuredPage(t *testing.T) {
	before, after := measured(160), measured(2)
	write := func(all ...namedResult) string {
		var b bytes.Buffer
		if err := writeMeasuredPage(&b, all); err != nil {
			t.Fatal(err)
		}
		if refers := regexp.MustCompile(`(?i)src=|href="[^#]|url\(|@import|<script[^>]|fetch|import\(`).
			FindString(b.String()); refers != "" {
			t.Errorf("the page refers to something: %s", refers)
		}
		if strings.Contains(b.String(), "<b>there") || strings.Contains(b.String(), "<i>note") {
			t.Error("another host's words are taken for HTML")
		}
		return b.String()
	}
	html := write(namedResult{"before", before}, namedResult{"after", after})
	// Of the upload there are no round trips.
	if n := strings.Count(html, "<svg"); n != 3 {
		t.Errorf("%d pictures, want 3", n)
	}
	// The two that are over time have the same seconds.
	times := regexp.MustCompile(`data-x="(\S+ \S+) s"`).FindAllStringSubmatch(html, -1)
	if len(times) != 2 || times[0][1] != times[1][1] || times[0][1] != "0 25" {
		t.Errorf("pictures over time: %q", times)
	}
	for _, want := range []string{"The way from here to &lt;b&gt;there", "Downloads add 160 ms", "Neither downloads",
		"<td>10.0 (10.0–10.0)</td>", "<td>160 (160–160)</td>", "<td>2.00 (2.00–2.00)</td>", "<td>100.00</td>",
		"A &lt;i&gt;note", `data-name="after, upload"`} {
		if !strings.Contains(html, want) {
			t.Errorf("%s is not there", want)
		}
	}
	// What one measurement says is there once, and each note by itself.
	before.Notes = []string{"first", "second"}
	html = write(namedResult{"x", before})
	if n := strings.Count(html, "Downloads add 160 ms"); n != 1 ||
		!strings.Contains(html, "<li>first</li><li>second</li>") {
		t.Errorf("it says so %d times, or its notes run together", n)
	}
	after.Recording = nil // as of a file that somebody has made smaller
	if html := write(namedResult{"x", after}); strings.Contains(html, "<svg") || !strings.Contains(html, "2.00 (") {
		t.Error("a result without samples")
	}
	write(namedResult{"x", meter.Result{}})
	points := goodputPoints(before.Recording, meter.Download)
	if first, last := points[0], points[len(points)-1]; first != (page.Point{X: 5}) || last.Y != 0 ||
		math.Abs(last.X-15) > 1e-9 || points[1].Y != 10 {
		t.Errorf("%v", points)
	}
}
