// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"fmt"
	"html/template"
	"image/color"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"weir/internal/lab"
)

// Pictures are drawn in these colours and then given the page's, which differ between light and dark: palette[i] becomes var(--c<i>).
var palette = []color.RGBA{{0x10, 0, 0, 255}, {0x20, 0, 0, 255}, {0x30, 0, 0, 255}, {0x40, 0, 0, 255}, {0x50, 0, 0, 255}, {0x60, 0, 0, 255}, {0x70, 0, 0, 255}, {0x80, 0, 0, 255}}

const (
	plotWidth  = 16 * vg.Centimeter
	plotHeight = 7 * vg.Centimeter
	maxPoints  = 700 // of a line: more cannot be seen
)

// line is one candidate's curve.
type line struct {
	name  string
	color int
	dash  bool
	xys   plotter.XYs
}

type picture struct {
	Name string // for tests and for those who cannot see it
	SVG  template.HTML
}

// pictures draws a point: latency over time and as a distribution, goodput, queues. Of several seeds the first is drawn.
func pictures(p *lab.PointResult) ([]picture, error) {
	var all []picture
	draw := func(name, x, y string, lines []line) error {
		if len(lines) == 0 {
			return nil
		}
		svg, err := render(x, y, lines)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, picture{name, svg})
		return nil
	}
	probes, kinds := pictured(p)
	overTime, cdf := make([][]line, len(probes)), make([][]line, len(probes))
	var goodput, perFlow, queues []line
	provider := "provider"
	for k := range p.Cells {
		c := &p.Cells[k]
		if len(c.Runs) == 0 {
			continue
		}
		run := &c.Runs[0]
		for _, probe := range run.Probes {
			if i := slices.Index(probes, probe.Probe); i >= 0 && probe.Delay.N > 0 {
				overTime[i] = append(overTime[i], line{c.Candidate, k, false, peaks(probe.At, probe.Series)})
				cdf[i] = append(cdf[i], line{c.Candidate, k, false, distribution(probe.Series)})
			}
		}
		var total []float64
		for _, s := range run.Series.Goodput {
			for i, v := range s.Values {
				if i == len(total) {
					total = append(total, 0)
				}
				total[i] += v
			}
		}
		if len(total) > 0 {
			goodput = append(goodput, line{c.Candidate, k, false, steps(run.Series.Step, total)})
		}
		if len(run.Flows) > 1 {
			perFlow = append(perFlow, line{c.Candidate, k, false, ranked(run.Flows)})
		}
		queues = append(queues, line{c.Candidate + ", here", k, false, steps(run.Series.Step, run.Series.Uplink)})
		theirs := run.Series.Provider
		if run.Series.Inward != nil { // of a relay it is this side that fills first
			theirs, provider = run.Series.Inward, "provider, on the way in"
		}
		queues = append(queues, line{c.Candidate + ", provider", k, true, steps(run.Series.Step, theirs)})
	}
	type drawing struct {
		name, x, y string
		lines      []line
	}
	var drawings []drawing
	for i, name := range probes {
		what := "the UDP probe"
		if kinds[i] != "udp" {
			what = fmt.Sprintf("%s, %s,", kinds[i], name)
		}
		drawings = append(drawings, drawing{"Round trip of " + what + " over time", "s", "ms", overTime[i]},
			drawing{"Round trip of " + strings.TrimSuffix(what, ",") + ": share of samples at or below", "ms", "%",
				cdf[i]})
	}
	drawings = append(drawings, drawing{"Goodput over time", "s", "Mbit/s", goodput},
		drawing{"Goodput of each flow, the fastest first", "flow", "Mbit/s", perFlow},
		drawing{fmt.Sprintf("Queues: here (solid) and at the %s (dashed)", provider), "s", "KiB", queues})
	for _, d := range drawings {
		if err := draw(d.name, d.x, d.y, d.lines); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// pictured are the probes to draw, by name with their kinds: the first that echoes UDP or, without one, each that
// types.
func pictured(p *lab.PointResult) (names, kinds []string) {
	for k := range p.Cells {
		if len(p.Cells[k].Runs) == 0 {
			continue
		}
		for _, probe := range p.Cells[k].Runs[0].Probes {
			if probe.Kind == "udp" {
				return []string{probe.Probe}, []string{probe.Kind}
			}
			if probe.Kind == "ssh" {
				names, kinds = append(names, probe.Probe), append(kinds, probe.Kind)
			}
		}
		break
	}
	return names, kinds
}

func steps(step float64, values []float64) plotter.XYs {
	xys := make(plotter.XYs, len(values))
	for i, v := range values {
		xys[i] = plotter.XY{X: float64(i+1) * step, Y: v}
	}
	return xys
}

// ranked lists flows by what they got.
func ranked(flows []lab.FlowResult) plotter.XYs {
	var v []float64
	for _, f := range flows {
		v = append(v, f.Goodput)
	}
	slices.Sort(v)
	slices.Reverse(v)
	xys := make(plotter.XYs, len(v))
	for i := range v {
		xys[i] = plotter.XY{X: float64(i + 1), Y: v[i]}
	}
	return xys
}

// peaks thins a line by keeping the highest sample of each stretch, so that no spike is lost. Lost samples are left out.
func peaks(at, values []float64) plotter.XYs {
	stretch := (len(values) + maxPoints - 1) / maxPoints
	var xys plotter.XYs
	for i := 0; i < len(values); i += max(1, stretch) {
		best := -1
		for k := i; k < min(i+stretch, len(values)); k++ {
			if values[k] >= 0 && (best < 0 || values[k] > values[best]) {
				best = k
			}
		}
		if best >= 0 {
			xys = append(xys, plotter.XY{X: at[best], Y: values[best]})
		}
	}
	return xys
}

func distribution(values []float64) plotter.XYs {
	var s []float64
	for _, v := range values {
		if v >= 0 {
			s = append(s, v)
		}
	}
	slices.Sort(s)
	var xys plotter.XYs
	for i := range maxPoints {
		k := i * (len(s) - 1) / (maxPoints - 1)
		xys = append(xys, plotter.XY{X: s[k], Y: 100 * float64(k+1) / float64(len(s))})
	}
	return xys
}

func render(xLabel, yLabel string, lines []line) (template.HTML, error) {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = xLabel, yLabel
	p.BackgroundColor = color.Transparent
	for _, f := range []*font.Font{&p.X.Label.TextStyle.Font, &p.Y.Label.TextStyle.Font, &p.X.Tick.Label.Font, &p.Y.Tick.Label.Font} {
		f.Variant = "Sans"
	}
	p.Y.Min = 0
	p.Add(plotter.NewGrid())
	for _, l := range lines {
		if len(l.xys) == 0 {
			continue
		}
		drawn, err := plotter.NewLine(l.xys)
		if err != nil {
			return "", err
		}
		drawn.Color = palette[l.color%len(palette)]
		drawn.Width = vg.Points(1.2)
		if l.dash {
			drawn.Dashes = []vg.Length{vg.Points(4), vg.Points(2)}
		}
		p.Add(drawn)
	}
	canvas := vgsvg.New(plotWidth, plotHeight)
	p.Draw(draw.New(canvas))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return "", err
	}
	text := b.String()
	if i := strings.Index(text, "<svg"); i >= 0 {
		text = text[i:] // an HTML page has no place for an XML declaration
	}
	for i, c := range palette {
		text = strings.ReplaceAll(text, fmt.Sprintf("#%02X%02X%02X", c.R, c.G, c.B), fmt.Sprintf("var(--c%d)", i))
	}
	text = strings.ReplaceAll(text, "#000000", "var(--ink)")
	text = strings.ReplaceAll(text, "#808080", "var(--rule)") // the grid's
	return template.HTML(text), nil
}
