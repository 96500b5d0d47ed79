// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"weir/internal/meter"
)

// Measured is a measurement of a real link, and what it is called beside another: before, after.
type Measured struct {
	Name string
	meter.Result
}

// MeasuredHTML is HTML of measurements of one link: its pictures, of each phase and of the whole time.
func MeasuredHTML(w io.Writer, all []Measured) error {
	t, err := template.New("report").Parse(page)
	if err != nil {
		return err
	}
	last := all[len(all)-1]
	var probe, when []string
	for _, m := range all {
		probe = append(probe, fmt.Sprintf("%s every %s ms", m.Probe, meter.Figure(m.Interval)))
		when = append(when, m.Time.UTC().Format("2006-01-02 15:04 UTC"))
	}
	h := htmlReport{Title: "The way from " + cmp.Or(last.Local, "here") + " to " + cmp.Or(last.Remote, last.Target),
		About: last.Says, Basis: "Measured " + strings.Join(when, " and ") + ", probe: " + probe[len(probe)-1]}
	h.Points = append(h.Points, wholeTime(all))
	for _, name := range []string{meter.Download, meter.Upload, meter.Both} {
		if p := phase(all, name); len(p.Rows) > 0 {
			h.Points = append(h.Points, p)
		}
	}
	return t.Execute(w, htmlPage{Style: template.CSS(chartStyle), Script: template.JS(script),
		Reports: []htmlReport{h}})
}

// wholeTime has what each measurement says, and its round trips and goodput from beginning to end.
func wholeTime(all []Measured) htmlPoint {
	h := htmlPoint{Head: "measured", Columns: []string{"idle round trip, ms"}, Setting: "The whole time"}
	trips := chart{name: "Round trip over time", x: axis{unit: "s"}, y: axis{unit: "ms"}}
	goodput := chart{name: "Goodput over time: downloads (solid) and uploads (dashed)", x: axis{unit: "s"},
		y: axis{unit: "Mbit/s"}}
	for k, m := range all {
		row := htmlRow{Color: k, Candidate: m.Name, Cells: []string{"-"}, Words: m.Says, Notes: m.Notes}
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
		trips.lines = append(trips.lines, line{m.Name, k, false, peaks(at, rtt)})
		for _, direction := range []string{meter.Download, meter.Upload} {
			if points := arrived(m.Recording, direction); len(points) > 0 {
				name, dash := m.Name+", "+direction, direction == meter.Upload
				goodput.lines = append(goodput.lines, line{name, k, dash, points})
			}
		}
	}
	for _, l := range slices.Concat(trips.lines, goodput.lines) { // one above the other: with the same seconds
		for _, p := range l.points {
			trips.x.reaches = append(trips.x.reaches, p.x)
		}
	}
	goodput.x.reaches = trips.x.reaches
	h.picture("whole", trips, goodput)
	return h
}

// phase is a load: how fast it was, what it added, and all round trips meanwhile.
func phase(all []Measured, name string) htmlPoint {
	h := htmlPoint{Label: name, Head: "measured", Setting: "Behind each figure: how far off it may be",
		Columns: []string{"download Mbit/s", "upload Mbit/s", "added p50 ms", "added p90 ms", "added p99 ms",
			"jitter ms", "lost %"}}
	share := chart{name: "Round trip meanwhile: share of samples at or below", x: axis{unit: "ms"}, y: axis{unit: "%"}}
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
		h.Rows = append(h.Rows, htmlRow{Color: k, Candidate: m.Name, Cells: cells})
		if rtt := meanwhile(m.Recording, name); len(rtt) > 0 {
			share.lines = append(share.lines, line{m.Name, k, false, distribution(rtt)})
		}
	}
	h.picture(name, share)
	return h
}

// picture adds those charts that have something to show.
func (h *htmlPoint) picture(id string, all ...chart) {
	for n, c := range all {
		if len(c.lines) > 0 {
			svg := c.svg(fmt.Sprintf("chart-%s-%d", id, n))
			h.Pictures = append(h.Pictures, htmlPicture{c.name, template.HTML(svg)})
		}
	}
}

// arrived is the goodput of a direction over time.
func arrived(rec *meter.Recording, direction string) (points []point) {
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
		points = append(points, point{s.From, 0}) // before and after a load there is none
		for i, v := range bins {
			points = append(points, point{s.From + float64(i+1)*step, v})
		}
		points = append(points, point{s.From + float64(len(bins))*step, 0})
	}
	return points
}

// meanwhile are the round trips of a phase. What was lost is left out.
func meanwhile(rec *meter.Recording, name string) (rtt []float64) {
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
