// SPDX-License-Identifier: Apache-2.0

package report

import (
	_ "embed"
	"html/template"
	"io"
	"strings"

	"weir/internal/lab"
)

//go:embed report.html.tmpl
var page string

type htmlReport struct {
	Title, About, Basis string
	Points              []htmlPoint
	Claims              []htmlClaim
}

type htmlPoint struct {
	Label, Setting string
	Columns        []string
	Rows           []htmlRow
	Pictures       []picture
}

type htmlRow struct {
	Color     int
	Candidate string
	Cells     []string
	Words     string
	Weir      []string // what weir up said
}

type htmlClaim struct {
	Class, Verdict, Source, Says, Of, Expect, Measured, Note string
}

// HTML writes one file that opens without a network.
func HTML(w io.Writer, reports []lab.Report) error {
	t, err := template.New("report").Parse(page)
	if err != nil {
		return err
	}
	var all []htmlReport
	for i := range reports {
		r := &reports[i]
		h := htmlReport{Title: r.Title, About: r.About, Basis: basis(r)}
		for k, tab := range tables(r) {
			p := htmlPoint{Label: tab.label, Setting: setting(r.Points[k].Scenario)}
			for _, m := range tab.columns {
				p.Columns = append(p.Columns, strings.TrimSpace(m.Heading()+" "+unitName(m.Unit())))
			}
			for n, line := range tab.rows {
				p.Rows = append(p.Rows, htmlRow{n % len(palette), line.candidate, line.cells, line.words, r.Points[k].Cells[n].Runs[0].Weir})
			}
			if p.Pictures, err = pictures(&r.Points[k]); err != nil {
				return err
			}
			h.Points = append(h.Points, p)
		}
		for _, v := range r.Claims {
			class := map[string]string{lab.Reproduced: "yes", lab.NotReproduced: "no", lab.OnlyWhen: "partly", lab.NotMeasured: "partly"}[v.Verdict]
			h.Claims = append(h.Claims, htmlClaim{class, strings.TrimSpace(v.Verdict + " " + v.Holds), v.Source, v.Says, claimed(v.Claim), v.Expect, measuredText(v), v.Note})
		}
		all = append(all, h)
	}
	return t.Execute(w, all)
}
