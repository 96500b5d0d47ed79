// SPDX-License-Identifier: Apache-2.0

// Package page writes reports as one HTML file with pictures, and line charts as SVG. A page opens without a network
// and asks for none.
//
// It knows nothing of what was measured: it is given headings, cells and curves.
package page

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
)

var (
	//go:embed report.html.tmpl
	body string
	//go:embed report.js
	script string
	//go:embed chart.css
	chartStyle string
)

// Report is one report of a page: its sections, and a verdict on each claim.
type Report struct {
	Title, About, Basis string
	Points              []Section
	Claims              []Claim
	Legend              []Term // what the columns mean
	Origin              string // what made it; empty: nothing is said
	Inputs              []Input
}

// Term is a word and what it means.
type Term struct{ Name, Text string }

// Input is a file that a report was made from.
type Input struct{ Name, Text string }

// Section is a table, with the charts below it.
type Section struct {
	Label, Setting string
	Head           string // of the first column
	Columns        []string
	Rows           []Row
	Pictures       []picture
}

// Row is one line of a table, and what there is to say of it.
type Row struct {
	Color     int
	Candidate string
	Cells     []string
	Words     string
	Notes     []string
	Weir      []string // what weir up said
}

// picture is a chart, drawn.
type picture struct {
	Name string
	SVG  template.HTML
}

// Claim is a sentence about results, and the verdict on it. Class is its colour: yes, no or partly.
type Claim struct {
	Class, Verdict, Source, Says, Of, Expect, Measured, Note string
}

// Write writes one page with these reports.
func Write(w io.Writer, reports ...Report) error {
	t, err := template.New("report").Parse(body)
	if err != nil {
		return err
	}
	return t.Execute(w, struct {
		Style   template.CSS
		Script  template.JS
		Reports []Report
	}{template.CSS(chartStyle), template.JS(script), reports})
}

// Draw adds those charts that have something to show. id begins their ids, which no other picture of the page may have.
func (s *Section) Draw(id string, all ...Chart) {
	for n, c := range all {
		if len(c.Lines) > 0 {
			s.Pictures = append(s.Pictures, picture{c.Name, template.HTML(c.svg(fmt.Sprintf("%s-%d", id, n)))})
		}
	}
}
