// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Chart is a line chart. Its SVG has classes and no colours: the page or the file around it gives those.
type Chart struct {
	Name  string
	X, Y  Axis
	Lines []Line
}

// Axis is one of a chart's two scales.
type Axis struct {
	Unit  string
	Whole bool // its values are counted, so that no tick lies between two
	// values that it reaches whatever the lines do: of pictures one above the other that share it
	Reaches []float64
}

// Line is one candidate's curve.
type Line struct {
	Name   string
	Color  int // of the palette
	Dash   bool
	Points []Point
}

// Point is one of a line, in the units of the axes.
type Point struct{ X, Y float64 }

// Of a chart, in the SVG's own units; a page scales it.
const (
	chartWidth  = 640
	chartHeight = 270
	marginTop   = 26 // the unit of the y axis stands there
	marginRight = 26 // half of the last tick's label
	marginBelow = 30
	letter      = 7.5 // the width of a digit, at most
	Colours     = 8   // of the palette: the classes c0 to c7
)

// scale maps an axis's values to the picture.
type scale struct {
	from, to, step float64
	at, end        float64 // where from and to lie
}

// newScale has its ends and its ticks at round values: 1, 2 or 5 times a power of ten apart, most+1 ticks or fewer.
func newScale(low, high float64, most int, whole bool) scale {
	if high <= low {
		high = low + 1
	}
	power := math.Pow(10, math.Floor(math.Log10((high-low)/float64(most))))
	for _, times := range []float64{1, 2, 5, 10, 20} {
		s := scale{step: times * power}
		if whole {
			s.step = max(1, s.step)
		}
		s.from = math.Floor(low/s.step+1e-9) * s.step
		s.to = math.Ceil(high/s.step-1e-9) * s.step
		if math.Round((s.to-s.from)/s.step) <= float64(most) || times == 20 {
			return s
		}
	}
	panic("unreachable")
}

func (s scale) place(v float64) float64 { return s.at + (v-s.from)/(s.to-s.from)*(s.end-s.at) }

// ticks are the round values of an axis, and how they are written.
func (s scale) ticks() (values []float64, labels []string) {
	decimals := max(0, int(-math.Floor(math.Log10(s.step)+1e-9)))
	for k := range int(math.Round((s.to-s.from)/s.step)) + 1 {
		v := s.from + float64(k)*s.step
		values, labels = append(values, v), append(labels, strconv.FormatFloat(v, 'f', decimals, 64))
	}
	return values, labels
}

// scales fits a chart's axes to its lines. The y axis begins at zero.
func (c Chart) scales() (x, y scale) {
	low, high, top := math.Inf(1), math.Inf(-1), 0.0
	for _, l := range c.Lines {
		for _, p := range l.Points {
			low, high, top = min(low, p.X), max(high, p.X), max(top, p.Y)
		}
	}
	for _, v := range c.X.Reaches {
		low, high = min(low, v), max(high, v)
	}
	if low > high {
		low, high = 0, 1
	}
	x, y = newScale(low, high, 10, c.X.Whole), newScale(0, top, 6, c.Y.Whole)
	widest := 0
	_, labels := y.ticks()
	for _, l := range labels {
		widest = max(widest, len(l))
	}
	x.at, x.end = 12+letter*float64(widest), chartWidth-marginRight
	y.at, y.end = chartHeight-marginBelow, marginTop
	return x, y
}

// svg draws the chart for a page, in which its id is the only one.
func (c Chart) svg(id string) string {
	x, y := c.scales()
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" role="img" aria-labelledby="%s-title %s-desc" `,
		chartWidth, chartHeight, id, id)
	fmt.Fprintf(&b, `data-box="%s %s %s %s" data-x="%s %s %s" data-y="%s %s %s">`+"\n",
		short(x.at), short(y.end), short(x.end), short(y.at),
		digits(x.from), digits(x.to), c.X.Unit, digits(y.from), digits(y.to), c.Y.Unit)
	fmt.Fprintf(&b, "<title id=\"%s-title\">%s</title>\n<desc id=\"%s-desc\">%s</desc>\n",
		id, html.EscapeString(c.Name), id, html.EscapeString(c.describe()))
	c.draw(&b, x, y)
	b.WriteString("</svg>")
	return b.String()
}

// File draws the chart as a file that stands alone: with its name, a legend, and its colours.
func (c Chart) File() string {
	const above = 56
	x, y := c.scales()
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" `,
		chartWidth, chartHeight+above)
	fmt.Fprintf(&b, "aria-labelledby=\"title desc\">\n<title id=\"title\">%s</title>\n<desc id=\"desc\">%s</desc>\n",
		html.EscapeString(c.Name), html.EscapeString(c.describe()))
	fmt.Fprintf(&b, "<style>\n%s</style>\n<rect class=\"paper\" width=\"100%%\" height=\"100%%\" rx=\"6\"/>\n",
		chartStyle)
	fmt.Fprintf(&b, "<text class=\"name\" x=\"14\" y=\"24\">%s</text>\n", html.EscapeString(c.Name))
	at := 14.0
	for _, l := range c.Lines {
		fmt.Fprintf(&b, `<path class="line c%d" d="M%s 42h16"/>`, l.Color%Colours, short(at))
		fmt.Fprintf(&b, "<text x=\"%s\" y=\"46\">%s</text>\n", short(at+22), html.EscapeString(l.Name))
		at += 22 + letter*float64(len(l.Name)) + 16
	}
	fmt.Fprintf(&b, "<g transform=\"translate(0 %d)\">\n", above)
	c.draw(&b, x, y)
	b.WriteString("</g>\n</svg>\n")
	return b.String()
}

// draw draws the axes, and over them the lines.
func (c Chart) draw(b *strings.Builder, x, y scale) {
	c.axes(b, x, y)
	for _, l := range c.Lines {
		dash := ""
		if l.Dash {
			dash = " dash"
		}
		fmt.Fprintf(b, `<polyline class="line c%d%s" data-name="%s" points="`, l.Color%Colours, dash,
			html.EscapeString(l.Name))
		for i, p := range l.Points {
			if i > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(short(x.place(p.X)) + "," + short(y.place(p.Y)))
		}
		b.WriteString("\"/>\n")
	}
}

// axes draws the grid, its labels, and the units: that of y above it, that of x behind the last label.
func (c Chart) axes(b *strings.Builder, x, y scale) {
	values, labels := y.ticks()
	for i, v := range values {
		at := short(y.place(v))
		fmt.Fprintf(b, `<path class="grid" d="M%s %sH%s"/>`, short(x.at), at, short(x.end))
		fmt.Fprintf(b, `<text class="end" x="%s" y="%s" dy=".35em">%s</text>`+"\n", short(x.at-6), at, labels[i])
	}
	fmt.Fprintf(b, `<text x="4" y="%d" dy="-1em">%s</text>`+"\n", marginTop, c.Y.Unit)
	values, labels = x.ticks()
	for i, v := range values {
		if i == len(values)-1 {
			labels[i] = strings.TrimSpace(labels[i] + " " + c.X.Unit)
		}
		at := short(x.place(v))
		fmt.Fprintf(b, `<path class="grid" d="M%s %sV%s"/>`, at, short(y.at), short(y.end))
		fmt.Fprintf(b, `<text class="middle" x="%s" y="%s" dy="1.3em">%s</text>`+"\n", at, short(y.at), labels[i])
	}
}

// describe says in words between which values each line lies, for those who cannot see it.
func (c Chart) describe() string {
	var parts []string
	for _, l := range c.Lines {
		if len(l.Points) == 0 {
			continue
		}
		least, most := l.Points[0].Y, l.Points[0].Y
		for _, p := range l.Points {
			least, most = min(least, p.Y), max(most, p.Y)
		}
		parts = append(parts, fmt.Sprintf("%s: %s to %s %s", l.Name, Number(least, ""), Number(most, ""), c.Y.Unit))
	}
	return strings.Join(parts, "; ") + "."
}

// short writes a place in the picture to a hundredth of a unit.
func short(v float64) string { return digits(math.Round(v*100) / 100) }

// digits writes a number with no zeros that say nothing.
func digits(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

const maxPoints = 700 // of a line: more cannot be seen

// Peaks thins a line by keeping the highest sample of each stretch, so that no spike is lost. Lost samples are left
// out.
func Peaks(at, values []float64) []Point {
	stretch := (len(values) + maxPoints - 1) / maxPoints
	var xys []Point
	for i := 0; i < len(values); i += max(1, stretch) {
		best := -1
		for k := i; k < min(i+stretch, len(values)); k++ {
			if values[k] >= 0 && (best < 0 || values[k] > values[best]) {
				best = k
			}
		}
		if best >= 0 {
			xys = append(xys, Point{at[best], values[best]})
		}
	}
	return xys
}

// Distribution is the share of values, in percent, at or below each. Lost samples are left out.
func Distribution(values []float64) []Point {
	var s []float64
	for _, v := range values {
		if v >= 0 {
			s = append(s, v)
		}
	}
	slices.Sort(s)
	xys := []Point{{s[0], 0}}
	for i := range maxPoints {
		k := i * (len(s) - 1) / (maxPoints - 1)
		xys = append(xys, Point{s[k], 100 * float64(k+1) / float64(len(s))})
	}
	return xys
}

// Number writes a value as precisely as its unit deserves: packets whole, others with three digits or more.
func Number(v float64, unit string) string {
	decimals := 2
	switch {
	case unit == "packets":
		decimals = 0
	case math.Abs(v) >= 1000:
		decimals = 0
	case math.Abs(v) >= 100:
		decimals = 1
	}
	text := strconv.FormatFloat(v, 'f', decimals, 64)
	if strings.Trim(text, "-0.") == "" {
		text = strings.TrimPrefix(text, "-") // no -0.00
	}
	return text
}
