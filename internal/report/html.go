// SPDX-License-Identifier: Apache-2.0

package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"

	"weir/internal/lab/verdict"
)

var (
	//go:embed report.html.tmpl
	page string
	//go:embed report.js
	script string
)

type htmlPage struct {
	Style   template.CSS
	Script  template.JS
	Reports []htmlReport
}

type htmlReport struct {
	Title, About, Basis string
	Points              []htmlPoint
	Claims              []htmlClaim
}

type htmlPoint struct {
	Label, Setting string
	Head           string // of the first column
	Columns        []string
	Rows           []htmlRow
	Pictures       []htmlPicture
}

type htmlRow struct {
	Color     int
	Candidate string
	Cells     []string
	Words     string
	Notes     []string
	Weir      []string // what weir up said
}

type htmlPicture struct {
	Name string
	SVG  template.HTML
}

type htmlClaim struct {
	Class, Verdict, Source, Says, Of, Expect, Measured, Note string
}

// HTML writes one file that opens without a network, and asks for none.
func HTML(w io.Writer, reports []verdict.Report) error {
	t, err := template.New("report").Parse(page)
	if err != nil {
		return err
	}
	all := htmlPage{Style: template.CSS(chartStyle), Script: template.JS(script)}
	for i := range reports {
		r := &reports[i]
		h := htmlReport{Title: r.Title, About: r.About, Basis: basis(r)}
		for k, tab := range tables(r) {
			h.Points = append(h.Points, newHTMLPoint(tab, &r.Points[k], fmt.Sprintf("chart-%d-%d", i, k)))
		}
		for _, v := range r.Claims {
			h.Claims = append(h.Claims, newHTMLClaim(v))
		}
		all.Reports = append(all.Reports, h)
	}
	return t.Execute(w, all)
}

func newHTMLPoint(t table, p *verdict.Point, id string) htmlPoint {
	h := htmlPoint{Label: t.label, Setting: setting(p.Scenario), Head: "candidate"}
	for _, m := range t.columns {
		h.Columns = append(h.Columns, strings.TrimSpace(m.Heading()+" "+unitName(m.Unit())))
	}
	for n, line := range t.rows {
		row := htmlRow{Color: n % colours, Candidate: line.candidate, Cells: line.cells, Words: line.words}
		if runs := p.Cells[n].Runs; len(runs) > 0 {
			row.Weir = runs[0].Weir
		}
		h.Rows = append(h.Rows, row)
	}
	for n, c := range charts(p) {
		h.Pictures = append(h.Pictures, htmlPicture{c.name, template.HTML(c.svg(fmt.Sprintf("%s-%d", id, n)))})
	}
	return h
}

func newHTMLClaim(v verdict.Verdict) htmlClaim {
	class := map[string]string{verdict.Reproduced: "yes", verdict.NotReproduced: "no", verdict.OnlyWhen: "partly",
		verdict.NotMeasured: "partly"}[v.Verdict]
	return htmlClaim{class, strings.TrimSpace(v.Verdict + " " + v.Holds), v.Source, v.Says, claimed(v.Claim), v.Expect,
		measuredText(v), v.Note}
}
