// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"weir/internal/lab/measure"
	"weir/internal/lab/verdict"
	"weir/internal/page"
)

// Figures are a scenario's tables for programs: the medians, as the tables have them, and the kernel that made them.
//
// A figure's id is its scenario, its point where there are several, its candidate and its metric, with " | " between
// them: "relay/nat | 4 downloads | Weir | added.through.p99".
type Figures struct {
	Scenario string            `json:"scenario"` // "relay/nat" of scenarios/relay/nat.toml
	Title    string            `json:"title"`
	Kernel   string            `json:"kernel"` // its release, and what built it
	Units    map[string]string `json:"units"`  // of each metric that has one: mbit, ms, s, %, kb or packets
	Rows     []figureRow       `json:"rows"`
}

// figureRow is what was measured of a candidate at a point: each metric's median over the seeds, with the digits that
// the table has. What never happened has no value.
type figureRow struct {
	Point     string                 `json:"point,omitempty"`
	Candidate string                 `json:"candidate"`
	Values    map[string]json.Number `json:"values"`
}

// backlog is the metric that has no column in most tables, whose words tell of it.
const backlog = "uplink.backlog"

// NewFigures takes the figures from a report.
func NewFigures(r *verdict.Report) Figures {
	f := Figures{Scenario: scenarioName(r.File), Title: r.Title, Kernel: r.Kernel, Units: map[string]string{}}
	queue, _ := measure.ParseMetric(backlog)
	for i, t := range tables(r) {
		p := &r.Points[i]
		for k := range p.Cells {
			c := &p.Cells[k]
			row := figureRow{Point: t.label, Candidate: c.Candidate, Values: map[string]json.Number{}}
			for _, m := range append(t.columns, queue) {
				v, ok := p.Of(m, c)
				if !ok {
					continue
				}
				row.Values[m.Name] = json.Number(page.Number(v.Median, m.Unit))
				if m.Unit != "" {
					f.Units[m.Name] = m.Unit
				}
			}
			f.Rows = append(f.Rows, row)
		}
	}
	return f
}

// scenarioName is a scenario's path below the folder scenarios, or its file's name, without ".toml".
func scenarioName(file string) string {
	file = strings.TrimSuffix(filepath.ToSlash(filepath.Clean(file)), ".toml")
	if _, below, ok := strings.Cut("/"+file, "/scenarios/"); ok {
		return below
	}
	return filepath.Base(file)
}

// Write writes the figures as JSON with a row a line.
func (f Figures) Write(w io.Writer) error {
	rows := f.Rows
	f.Rows = nil
	head, err := encode(f)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s[", strings.TrimSuffix(head, "null}"))
	for i, row := range rows {
		line, err := encode(row)
		if err != nil {
			return err
		}
		if i > 0 {
			b.WriteString(",")
		}
		fmt.Fprintf(&b, "\n%s", line)
	}
	b.WriteString("\n]}\n")
	_, err = w.Write(b.Bytes())
	return err
}

// encode returns JSON in one line, with < and > as they are.
func encode(v any) (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return strings.TrimSuffix(b.String(), "\n"), err
}
