// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
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

// triedHost is a host's row of the table.
type triedHost struct {
	Hostname   string `json:"hostname"`
	difference        // of the 90th percentile of the delay that a load adds, in ms, of the load that added most before
	// of the time that a download of the file takes, in s; nil without --fetch
	Download *difference `json:"download,omitempty"`
	State    string      `json:"state"`
	Why      string      `json:"why,omitempty"` // it failed

	phase string         // the load that Before is of
	file  *meter.Fetches // as it was downloaded before
}

// difference is a figure before and after; nil where it was not measured.
type difference struct {
	Before *stats.Estimate `json:"before"`
	After  *stats.Estimate `json:"after"`
	Factor *float64        `json:"factor"` // after by before; nil where they differ by no more than chance
}

// finish notes the second figure, and the factor where they surely differ.
func (d *difference) finish(after stats.Estimate, sure bool) {
	d.After = &after
	if sure && d.Before.Value > 0 {
		factor := after.Value / d.Before.Value
		d.Factor = &factor
	}
}

// What --fetch takes: hostWord in the URL stands for the host's name, and a file is downloaded so often.
const (
	hostWord    = "HOST"
	exampleFile = "http://" + hostWord + "/100M.bin"
	downloads   = 5
)

// fileURL is the address of the file that --fetch names, on a host.
func (o tryOptions) fileURL(host string) string {
	_, name, found := strings.Cut(host, "@")
	if !found {
		name = host
	}
	if strings.Contains(name, ":") {
		name = "[" + name + "]"
	}
	if place := o.hostPlace(); place != nil {
		return o.fetch[:place[0]] + name + o.fetch[place[1]:]
	}
	return o.fetch
}

// ofHost is where a URL's host has hostWord, as a label of its own: a path may have it for its own reasons.
var ofHost = regexp.MustCompile(`^\w+://(?:[^/?#]*[.@])?(` + hostWord + `)(?:[.:/?#]|$)`)

// hostPlace is where in --fetch the host's name belongs; nil if it names a host itself.
func (o tryOptions) hostPlace() []int {
	if place := ofHost.FindStringSubmatchIndex(o.fetch); place != nil {
		return place[2:]
	}
	return nil
}

// checkFetch checks the URL of --fetch.
func (o tryOptions) checkFetch(hosts []string) error {
	if o.fetch == "" {
		return nil
	}
	if len(hosts) > 1 && o.hostPlace() == nil {
		return cli.Usage("--fetch "+exampleFile, "--fetch names a file of one host, and %d are tried", len(hosts))
	}
	for _, host := range hosts {
		if err := meter.CheckURL(o.fileURL(host)); err != nil {
			return cli.Usage("--fetch "+exampleFile, "--fetch: %v", err)
		}
	}
	return nil
}

// before notes the figures that are to become smaller.
func (t *triedHost) before(m sample) {
	for _, p := range m.Phases {
		if p.Added != nil && (t.Before == nil || p.Added.P90.Value > t.Before.Value) {
			t.Before, t.phase = &p.Added.P90, p.Name
		}
	}
	if m.file != nil {
		t.file = m.file
		t.Download = &difference{Before: &m.file.Seconds}
	}
}

// after notes what became of them.
func (t *triedHost) after(m sample) {
	if p := m.Find(t.phase); p != nil && p.Added != nil && t.Before != nil {
		t.finish(p.Added.P90, t.Before.Apart(p.Added.P90))
	}
	if t.file != nil && m.file != nil {
		t.Download.finish(m.file.Seconds, meter.CompareFetches(t.file, m.file)[0].Sure)
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
func tryEach(ctx context.Context, hosts []string,
	try func(context.Context, string) (triedHost, error)) (all []triedHost, err error) {
	for _, name := range hosts {
		if err == nil && ctx.Err() != nil {
			err = errors.New("interrupted")
		}
		if err != nil {
			all = append(all, triedHost{Hostname: name, State: untouched})
			continue
		}
		var row triedHost
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
func (o tryOptions) showTried(w io.Writer, all []triedHost) error {
	if o.json {
		return cli.PrintJSON(w, map[string][]triedHost{"hosts": all})
	}
	if len(all) == 1 && !o.markdown {
		return nil
	}
	head := []string{"hostname", "before", "after", "factor", "state"}
	if o.fetch != "" {
		head = slices.Insert(head, 4, "download before", "after", "factor")
	}
	rows := [][]string{head}
	for _, t := range all {
		rows = append(rows, t.cells(o.fetch != ""))
	}
	if o.markdown {
		printTriedMarkdown(w, rows)
		return nil
	}
	widths := make([]int, len(head))
	for _, row := range rows {
		for i, c := range row {
			widths[i] = max(widths[i], text.Width(c))
		}
	}
	fmt.Fprintln(w)
	for _, row := range rows {
		fmt.Fprint(w, row[0], strings.Repeat(" ", widths[0]-text.Width(row[0])))
		for i, c := range row[1 : len(row)-1] {
			fmt.Fprintf(w, "  %*s", max(widths[i+1], 10), c)
		}
		fmt.Fprintf(w, "  %s\n", row[len(row)-1])
	}
	return nil
}

// printTriedMarkdown prints the table, whose figures stand between the first column and the last.
func printTriedMarkdown(w io.Writer, rows [][]string) {
	for i, row := range rows {
		for j := range row {
			row[j] = markdownCell(row[j])
		}
		fmt.Fprintf(w, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			fmt.Fprintf(w, "|---%s|---|\n", strings.Repeat("|---:", len(row)-2))
		}
	}
}

// cells are a row as a person reads it.
func (t triedHost) cells(withDownload bool) []string {
	row := append([]string{text.OneLine(t.Hostname)}, t.difference.cells("ms")...)
	if withDownload {
		var d difference
		if t.Download != nil {
			d = *t.Download
		}
		row = append(row, d.cells("s")...)
	}
	return append(row, t.State)
}

// cells are the figures in their unit.
func (d difference) cells(unit string) []string {
	value := func(e *stats.Estimate) string {
		if e == nil {
			return "–"
		}
		return figureText(e.Value) + " " + unit
	}
	change := "–"
	switch {
	case d.Factor != nil:
		change = meter.Figure(*d.Factor) + " ×"
	case d.After != nil:
		change = "no change seen"
	}
	return []string{value(d.Before), value(d.After), change}
}
