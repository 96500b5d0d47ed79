// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"weir/internal/cli"
	"weir/internal/meter"
	"weir/internal/meter/far"
	"weir/internal/stats"
	"weir/internal/text"
)

// How a try of a host has ended.
const (
	kept        = "kept"
	planned     = "planned"
	putBack     = "put back"
	unchanged   = "failed, unchanged"
	leftToTimer = "failed, left to the timer"
	untilReboot = "failed, kept until a reboot"
	overtaken   = "failed, changed by somebody else"
	untouched   = "untouched"
)

// tried is a host's row of the table.
type tried struct {
	Hostname string `json:"hostname"`
	// 90th percentile of the delay that a load adds, in ms, of the load under which it was longest before; nil where
	// it was not measured
	Before *stats.Estimate `json:"before"`
	After  *stats.Estimate `json:"after"`
	Factor *float64        `json:"factor"` // after by before; nil where they differ by no more than chance
	State  string          `json:"state"`
	Why    string          `json:"why,omitempty"` // it failed

	phase string // the load that Before is of
}

// before notes the figure that is to become smaller.
func (t *tried) before(r meter.Result) {
	for _, p := range r.Phases {
		if p.Added != nil && (t.Before == nil || p.Added.P90.Value > t.Before.Value) {
			t.Before, t.phase = &p.Added.P90, p.Name
		}
	}
}

// after notes what became of it.
func (t *tried) after(r meter.Result) {
	p := r.Find(t.phase)
	if p == nil || p.Added == nil || t.Before == nil {
		return
	}
	t.After = &p.Added.P90
	if t.Before.Apart(*t.After) && t.Before.Value > 0 {
		factor := t.After.Value / t.Before.Value
		t.Factor = &factor
	}
}

// hostsToTry checks all names before anybody is reached.
func hostsToTry(args []string) (names []string, err error) {
	const try = "weir try user@host --rate 50mbit"
	for _, arg := range args {
		name, _ := sshName(arg)
		if err := far.Check(name); err != nil {
			return nil, cli.Usage(try, "%v", err)
		}
		if slices.Contains(names, name) {
			return nil, cli.Usage(try, "%s is named twice", name)
		}
		names = append(names, name)
	}
	return names, nil
}

// tryEach tries one host after the other. The first that fails ends it, and its error is the error.
func tryEach(ctx context.Context, hosts []string, try func(context.Context, string) (tried, error)) (all []tried,
	err error) {
	for _, name := range hosts {
		if err == nil && ctx.Err() != nil {
			err = errors.New("interrupted")
		}
		if err != nil {
			all = append(all, tried{Hostname: name, State: untouched})
			continue
		}
		var row tried
		row, err = try(ctx, name)
		err = interrupted(err)
		if err != nil && !errors.Is(err, cli.ErrNo) {
			row.Why = strings.Join(strings.Fields(err.Error()), " ")
		}
		all = append(all, row)
	}
	return all, err
}

// interrupted is an error, with a person's word for it where somebody has ended what failed.
func interrupted(err error) error {
	if errors.Is(err, context.Canceled) {
		return errors.New("interrupted")
	}
	return err
}

// showTried prints the table. Of one host there is none, unless it is asked for.
func (o tryOptions) showTried(w io.Writer, all []tried) error {
	head := []string{"hostname", "before", "after", "factor", "state"}
	switch {
	case o.json:
		return cli.PrintJSON(w, map[string][]tried{"hosts": all})
	case o.markdown:
		fmt.Fprintf(w, "| %s |\n|---|---:|---:|---:|---|\n", strings.Join(head, " | "))
		cell := strings.NewReplacer("|", `\|`)
		for _, t := range all {
			row := t.cells()
			for i := range row {
				row[i] = cell.Replace(row[i])
			}
			fmt.Fprintf(w, "| %s |\n", strings.Join(row, " | "))
		}
		return nil
	case len(all) == 1:
		return nil
	}
	width := text.Width(head[0])
	rows := [][]string{head}
	for _, t := range all {
		rows = append(rows, t.cells())
		width = max(width, text.Width(text.OneLine(t.Hostname)))
	}
	fmt.Fprintln(w)
	for _, row := range rows {
		fmt.Fprintf(w, "%s%10s  %10s  %14s  %s\n", pad(row[0], width), row[1], row[2], row[3], row[4])
	}
	return nil
}

// cells are a row as a person reads it.
func (t tried) cells() []string {
	ms := func(e *stats.Estimate) string {
		if e == nil {
			return "–"
		}
		return figure(e.Value) + " ms"
	}
	change := "–"
	switch {
	case t.Factor != nil:
		change = meter.Figure(*t.Factor) + " ×"
	case t.After != nil:
		change = "no change seen"
	}
	return []string{text.OneLine(t.Hostname), ms(t.Before), ms(t.After), change, t.State}
}
