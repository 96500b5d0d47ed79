// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
	"strings"

	"weir/internal/lab/scenario"
	"weir/internal/lab/verdict"
	"weir/internal/text"
)

// maxWidth of a terminal table, in columns.
const maxWidth = 100

// Terminal writes tables for a person to read; colour is for terminals only.
func Terminal(w io.Writer, reports []verdict.Report, colour bool) error {
	p := &painter{w: w, colour: colour}
	for i := range reports {
		if i > 0 {
			p.line("")
		}
		p.report(&reports[i])
	}
	return p.err
}

type painter struct {
	w      io.Writer
	colour bool
	err    error
}

func (p *painter) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintln(p.w, strings.TrimRight(fmt.Sprintf(format, args...), " "))
	}
}

func (p *painter) paint(code, s string) string {
	if !p.colour {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (p *painter) report(r *verdict.Report) {
	p.line("%s", p.paint("1", r.Title))
	p.wrapped("", basis(r))
	for i, t := range tables(r) {
		if s := setting(r.Points[i].Scenario); i == 0 || s != setting(r.Points[i-1].Scenario) {
			if i > 0 { // it belongs to what is below
				p.line("")
			}
			p.wrapped("", s)
		}
		p.line("")
		if t.label != "" {
			p.line("%s", p.paint("1", t.label))
		}
		p.table(t)
	}
	for _, v := range r.Claims {
		p.line("")
		mark := map[string]string{verdict.Reproduced: p.paint("32", "✓ reproduced"),
			verdict.NotReproduced: p.paint("31", "✗ not reproduced"),
			verdict.OnlyWhen:      p.paint("33", "~ reproduced only when"),
			verdict.NotMeasured:   p.paint("33", "? not measured")}[v.Verdict]
		where := ""
		if v.Holds != "" {
			where = " " + v.Holds
		}
		p.wrapped("", fmt.Sprintf("%s%s", mark, where))
		p.wrapped("  ", fmt.Sprintf("%s: “%s”", v.Source, v.Says))
		p.wrapped("  ", fmt.Sprintf("expected %s of %s; measured %s", v.Expect, claimText(v.Claim), measuredText(v)))
		if v.Note != "" {
			p.wrapped("  ", v.Note)
		}
	}
}

// claimText names the value that a claim is about.
func claimText(c scenario.Claim) string {
	text := fmt.Sprintf("%s [%s]", c.Metric, c.Candidate)
	if c.Over != "" {
		text += fmt.Sprintf(" / [%s]", c.Over)
	}
	if c.Minus != "" {
		text += fmt.Sprintf(" − [%s]", c.Minus)
	}
	return text
}

// table splits into several below each other when its columns do not fit.
func (p *painter) table(t table) {
	first := 0
	for _, r := range t.rows {
		first = max(first, text.Width(r.candidate))
	}
	widths := make([]int, len(t.columns))
	for i, m := range t.columns {
		widths[i] = max(text.Width(m.Heading), text.Width(unitName(m.Unit)))
		for _, r := range t.rows {
			widths[i] = max(widths[i], text.Width(r.cells[i]))
		}
	}
	for from := 0; from < len(t.columns); {
		to, width := from, first
		for to < len(t.columns) && (to == from || width+2+widths[to] <= maxWidth) {
			width += 2 + widths[to]
			to++
		}
		heads, unitLine := strings.Repeat(" ", first), strings.Repeat(" ", first)
		for i := from; i < to; i++ {
			heads += "  " + left(t.columns[i].Heading, widths[i])
			unitLine += "  " + left(unitName(t.columns[i].Unit), widths[i])
		}
		p.line("%s", heads)
		p.line("%s", unitLine)
		for _, r := range t.rows {
			row := r.candidate + strings.Repeat(" ", first-text.Width(r.candidate))
			for i := from; i < to; i++ {
				row += "  " + left(r.cells[i], widths[i])
			}
			p.line("%s", row)
		}
		from = to
		if from < len(t.columns) {
			p.line("")
		}
	}
	for _, r := range t.rows {
		if r.words != "" {
			p.wrapped("  ", r.candidate+": "+r.words)
		}
	}
}

// left pads on the left.
func left(s string, width int) string {
	return strings.Repeat(" ", max(0, width-text.Width(s))) + s
}

// wrapped breaks text at spaces, every further line indented once more.
func (p *painter) wrapped(indent, s string) {
	if s = strings.Join(strings.Fields(s), " "); s == "" {
		return
	}
	for _, line := range text.Wrap(indent, indent+"  ", s, maxWidth) {
		p.line("%s", line)
	}
}
