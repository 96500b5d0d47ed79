// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"weir/internal/meter"
	"weir/internal/page"
)

// namedResult is a measurement of a real link, and what it is called beside another: before, after.
type namedResult struct {
	Name string
	meter.Result
}

// writeMeasuredPage is HTML of measurements of one link: its pictures, of each phase and of the whole time.
func writeMeasuredPage(w io.Writer, all []namedResult) error {
	last := all[len(all)-1]
	var probe, when []string
	for _, m := range all {
		probe = append(probe, fmt.Sprintf("%s every %s ms", m.Probe, meter.Figure(m.Interval)))
		when = append(when, m.Time.UTC().Format("2006-01-02 15:04 UTC"))
	}
	h := page.Report{Title: "The way from " + cmp.Or(last.Local, "here") + " to " + cmp.Or(last.Remote, last.Target),
		About: last.Says, Basis: "Measured " + strings.Join(when, " and ") + ", probe: " + probe[len(probe)-1]}
	h.Points = append(h.Points, timelineSection(all))
	for _, name := range []string{meter.Download, meter.Upload, meter.Both} {
		if p := phaseSection(all, name); len(p.Rows) > 0 {
			h.Points = append(h.Points, p)
		}
	}
	return page.Write(w, h)
}

// timelineSection has what each measurement says, and its round trips and goodput from beginning to end.
func timelineSection(all []namedResult) page.Section {
	h := page.Section{Head: "measured", Columns: []string{"idle round trip, ms"}, Setting: "The whole time"}
	trips := page.Chart{Name: "Round trip over time", X: page.Axis{Unit: "s"}, Y: page.Axis{Unit: "ms"}}
	goodput := page.Chart{Name: "Goodput over time: downloads (solid) and uploads (dashed)", X: page.Axis{Unit: "s"},
		Y: page.Axis{Unit: "Mbit/s"}}
	for k, m := range all {
		row := page.Row{Color: k, Candidate: m.Name, Cells: []string{"-"}, Words: m.Says, Notes: m.Notes}
		if len(all) == 1 {
			row.Words = "" // the page begins with it
		}
		if idle := m.Find(meter.Idle); idle != nil && idle.RTT.N > 0 {
			row.Cells[0] = meter.Figure(idle.RTT.P50)
		}
		h.Rows = append(h.Rows, row)
		if m.Recording == nil {
			continue
		}
		var at, rtt []float64
		for _, s := range m.Recording.Samples {
			at, rtt = append(at, s.At), append(rtt, s.RTT)
		}
		trips.Lines = append(trips.Lines, page.Line{Name: m.Name, Color: k, Points: page.Peaks(at, rtt)})
		for _, direction := range []string{meter.Download, meter.Upload} {
			if points := goodputPoints(m.Recording, direction); len(points) > 0 {
				name, dash := m.Name+", "+direction, direction == meter.Upload
				goodput.Lines = append(goodput.Lines, page.Line{Name: name, Color: k, Dash: dash, Points: points})
			}
		}
	}
	for _, l := range slices.Concat(trips.Lines, goodput.Lines) { // one above the other: with the same seconds
		for _, p := range l.Points {
			trips.X.Reaches = append(trips.X.Reaches, p.X)
		}
	}
	goodput.X.Reaches = trips.X.Reaches
	h.Draw("chart-whole", trips, goodput)
	return h
}

// phaseSection is a load: how fast it was, what it added, and all round trips meanwhile.
func phaseSection(all []namedResult, name string) page.Section {
	h := page.Section{Label: name, Head: "measured", Setting: "Behind each figure: how far off it may be",
		Columns: []string{"download Mbit/s", "upload Mbit/s", "added p50 ms", "added p90 ms", "added p99 ms",
			"jitter ms", "lost %"}}
	share := page.Chart{Name: "Round trip meanwhile: share of samples at or below", X: page.Axis{Unit: "ms"},
		Y: page.Axis{Unit: "%"}}
	for k, m := range all {
		p := m.Find(name)
		if p == nil {
			continue
		}
		cells := []string{"-", "-", "-", "-", "-", "-", fmt.Sprintf("%.2f", 100*p.Loss.Value)}
		for i, direction := range []string{meter.Download, meter.Upload} {
			if g, there := p.Goodput[direction]; there {
				cells[i] = meter.Ranged(g)
			}
		}
		if a := p.Added; a != nil {
			cells[2], cells[3], cells[4] = meter.Ranged(a.P50), meter.Ranged(a.P90), meter.Ranged(a.P99)
		}
		if p.Jitter != nil {
			cells[5] = meter.Ranged(*p.Jitter)
		}
		h.Rows = append(h.Rows, page.Row{Color: k, Candidate: m.Name, Cells: cells})
		if rtt := roundTrips(m.Recording, name); len(rtt) > 0 {
			share.Lines = append(share.Lines, page.Line{Name: m.Name, Color: k, Points: page.Distribution(rtt)})
		}
	}
	h.Draw("chart-"+name, share)
	return h
}

// goodputPoints is the goodput of a direction over time.
func goodputPoints(rec *meter.Recording, direction string) (points []page.Point) {
	step := meter.Step.Seconds()
	for _, s := range rec.Spans {
		flows := s.Local
		if direction == meter.Upload {
			flows = s.Far
		}
		var bins []float64
		for _, f := range flows {
			if f.Direction != direction {
				continue
			}
			for i, n := range f.Bins {
				if i == len(bins) {
					bins = append(bins, 0)
				}
				bins[i] += float64(n) * 8 / 1e6 / step
			}
		}
		if len(bins) == 0 {
			continue
		}
		points = append(points, page.Point{X: s.From, Y: 0}) // before and after a load there is none
		for i, v := range bins {
			points = append(points, page.Point{X: s.From + float64(i+1)*step, Y: v})
		}
		points = append(points, page.Point{X: s.From + float64(len(bins))*step, Y: 0})
	}
	return points
}

// roundTrips are the round trips of a phase. What was lost is left out.
func roundTrips(rec *meter.Recording, name string) (rtt []float64) {
	if rec == nil {
		return nil
	}
	for _, s := range rec.Spans {
		for _, p := range rec.Samples {
			if s.Name == name && p.At >= s.From && p.At < s.To && p.RTT >= 0 {
				rtt = append(rtt, p.RTT)
			}
		}
	}
	return rtt
}
