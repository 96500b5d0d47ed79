// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
	"strings"

	"weir/internal/lab/scenario"
	"weir/internal/lab/verdict"
	"weir/internal/page"
)

// HTML writes one file that opens without a network, and asks for none. inputs are each report's scenario, as its files
// have it.
func HTML(w io.Writer, reports []verdict.Report, inputs [][]scenario.File) error {
	var pages []page.Report
	for i := range reports {
		r := &reports[i]
		all := tables(r)
		h := page.Report{Title: r.Title, About: r.About, Basis: basis(r), Legend: legend(all),
			Origin: fmt.Sprintf("%s, weir-lab %s, linux %s", r.Command, r.Version, r.Kernel)}
		for _, f := range inputs[i] {
			h.Inputs = append(h.Inputs, page.Input{Name: f.Name, Text: string(f.Text)})
		}
		for k, tab := range all {
			h.Points = append(h.Points, newSection(tab, &r.Points[k], fmt.Sprintf("chart-%d-%d", i, k)))
		}
		for _, v := range r.Claims {
			h.Claims = append(h.Claims, newClaim(v))
		}
		pages = append(pages, h)
	}
	return page.Write(w, pages...)
}

func newSection(t table, p *verdict.Point, id string) page.Section {
	h := page.Section{Label: t.label, Setting: setting(p.Scenario), Head: "candidate"}
	for _, m := range t.columns {
		h.Columns = append(h.Columns, column(m))
	}
	for n, line := range t.rows {
		row := page.Row{Color: n % page.Colours, Candidate: line.candidate, Cells: line.cells, Words: line.words}
		if runs := p.Cells[n].Runs; len(runs) > 0 {
			row.Weir = runs[0].Weir
		}
		h.Rows = append(h.Rows, row)
	}
	h.Draw(id, charts(p)...)
	return h
}

func newClaim(v verdict.Verdict) page.Claim {
	class := map[string]string{verdict.Reproduced: "yes", verdict.NotReproduced: "no", verdict.OnlyWhen: "partly",
		verdict.NotMeasured: "partly"}[v.Verdict]
	return page.Claim{Class: class, Verdict: strings.TrimSpace(v.Verdict + " " + v.Holds), Source: v.Source,
		Says: v.Says, Of: claimText(v.Claim), Expect: v.Expect, Measured: measuredText(v), Note: v.Note}
}
