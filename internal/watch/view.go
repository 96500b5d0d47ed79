// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"weir/internal/bbr"
	"weir/internal/change"
	"weir/internal/meter"
	"weir/internal/meter/live"
	"weir/internal/text"
	"weir/internal/units"
)

// View is how a State is looked at.
type View struct {
	Width, Height int    // of the screen; a Height of 0 shows all
	Sort          int    // the index of an order of networks
	Filter        string // of networks: what a row has to contain
	Typing        bool   // the filter is being typed
	Paused        bool
	// how the host stands to its goal, in a sentence
	Words func(change.Status, error) string
}

// order is one of networks.
type order struct {
	name    string
	compare func(a, b live.Network) int
}

// clock is how a time of the day is written.
const clock = "15:04:05"

// orders are those that there are. What they leave open, the busiest first decides.
func orders() []order {
	by := func(name string, of func(live.Network) float64) order {
		return order{name, func(a, b live.Network) int { return cmp.Compare(of(b), of(a)) }}
	}
	return []order{
		by("rate", func(n live.Network) float64 { return n.Out + n.In }),
		by("added RTT", func(n live.Network) float64 { return n.Added.P50 }),
		by("sent again", func(n live.Network) float64 { return n.Retransmitted }),
		by("connections", func(n live.Network) float64 { return float64(n.Connections) }),
		{"network", func(a, b live.Network) int { return cmp.Compare(a.Network, b.Network) }},
	}
}

// Lines are those of the screen: none is wider than it, and there are as many as it is high.
func (v View) Lines(s State) []string {
	const (
		low, high  = 4, 10 // rows of the graph
		few, many  = 2, 8  // findings
		tall       = 40
		someOfThem = 8 // networks, before the graph grows
	)
	most := few
	if v.Height == 0 || v.Height >= tall {
		most = many
	}
	top, middle := slices.Concat(v.head(s), v.followed(s), v.verdict(s)), slices.Concat(v.parts(s), shares(s.Out),
		v.incoming(s), shares(s.In))
	bottom := slices.Concat(v.senders(s), v.goal(s), v.findings(s, most))
	if v.Height == 0 { // there is room to read each to its end
		bottom = v.wrapLines(bottom)
	}
	rows, left := many, len(s.Clients.Networks)+2
	if v.Height > 0 {
		const title, heads, foot = 1, 2, 1
		left = v.Height - len(top) - len(middle) - len(bottom) - title - foot
		rows = min(max(left-min(len(s.Clients.Networks), someOfThem)-heads, low), high)
		left -= rows
	}
	all := slices.Concat(top, v.graph(s, rows), middle, v.clients(s, left), bottom)
	if v.Height > 0 { // the keys stay at the foot
		all = all[:min(len(all), v.Height-1)]
		all = append(all, slices.Repeat([]string{""}, v.Height-1-len(all))...)
		all = append(all, v.keys())
	}
	for i := range all {
		all[i] = v.fitLine(all[i])
	}
	return all
}

// wrapLines puts what does not fit in a line below it.
func (v View) wrapLines(lines []string) (all []string) {
	for _, line := range lines {
		all = append(all, text.Wrap("", "  ", line, v.Width)...)
	}
	return all
}

// fitLine makes a line one that a terminal can show: names are their owners' choice.
func (v View) fitLine(line string) string {
	line = text.OneLine(line)
	if text.Width(line) > v.Width {
		line = string([]rune(line)[:max(v.Width-1, 0)]) + "…"
	}
	return strings.TrimRight(line, " ")
}

// figure writes a number with three digits, and nothing as 0.
func figure(f float64) string {
	if f == 0 {
		return "0"
	}
	return meter.Figure(f)
}

// millis writes a time in milliseconds, to three digits.
func millis(d units.Duration) string { return figure(float64(d)/1e6) + " ms" }

func (v View) head(s State) []string {
	q := s.Out.Queue
	words := []string{"weir watch", cmp.Or(q.Dev, "no uplink"), cmp.Or(q.Kind, "no queue")}
	if q.Rate != 0 {
		words[2] += ", shaped to " + roundedRate(q.Rate)
	}
	words = append(words, s.Now.Format(clock))
	if v.Paused {
		words = append(words, "PAUSED")
	}
	head := []string{strings.Join(words, " · ")}
	if q.Kind == "" || len(s.Out.Seconds) == 0 {
		return head
	}
	return append(head, text.Wrap("sends ", "  ", traffic(q, s.Out.Seconds[len(s.Out.Seconds)-1]), v.Width)...)
}

// followed is what weir follow does at the queues that are shown, and what it waits for where none is shaped yet.
func (v View) followed(s State) (lines []string) {
	for _, f := range s.Goal.Followed {
		if f.Dev == s.Out.Dev || f.Dev == s.In.Dev {
			says := f.Says(s.Now)
			if f.Tries != "" { // for a moment, in which nothing is to move
				lines, says = append(lines, says[0]), says[1:]
			}
			lines = append(lines, v.wrapLines(says)...)
		}
	}
	return lines
}

// traffic is a queue's last second.
func traffic(q Queue, s Second) string {
	per := func(n uint64) string { return perSecond(n, max(time.Duration(s.Span).Seconds(), 0.5)) }
	used := mbit(s.Rate())
	if q.Rate != 0 {
		used = figure(float64(s.Rate())/1e6) + " of " + mbit(q.Rate)
	}
	waits := text.Counted(int(s.Qlen), "packet")
	if wait := s.Wait(); wait != 0 {
		waits = millis(wait) + ", " + waits
	}
	return fmt.Sprintf("%s · waiting %s · %s drops/s, %s marks/s", used, waits, per(s.Drops), per(s.Marks))
}

// perSecond is how many there were a second.
func perSecond(n uint64, seconds float64) string { return fmt.Sprintf("%.0f", float64(n)/seconds) }

func (v View) verdict(s State) []string {
	const question = "Is the bottleneck here?  "
	lines := text.Wrap(question, "  ", s.Verdict().Says, v.Width)
	if q := s.Out.Queue; q.Hidden != "" && q.Kind != "" {
		lines = append(lines, text.Wrap("", "  ", "Not seen: "+q.Hidden+".", v.Width)...)
	}
	return lines
}

// graph draws how long packets waited, as bars from the left to now.
func (v View) graph(s State, rows int) []string {
	const label = 10
	cols := max(v.Width-label, 10)
	step := max(int64(Kept/time.Second)+int64(cols)-1, 1) / int64(cols) // seconds a column, rounded up
	unit, of := "ms", func(x Second) float64 { return float64(x.Wait()) / 1e6 }
	if s.Out.Rate == 0 {
		unit, of = "packets", func(x Second) float64 { return float64(x.Qlen) }
	}
	values, most := make([]float64, cols), 0.0
	for i := range values {
		values[i] = -1
	}
	now := s.Now.Unix() / step
	for _, x := range s.Out.Seconds {
		if at := cols - 1 - int(now-x.At.Unix()/step); at >= 0 && at < cols {
			values[at] = max(values[at], of(x))
			most = max(most, values[at])
		}
	}
	top := round(most)
	lines := []string{fmt.Sprintf("Waiting here, %s, the most in %d s each, over %.0f min", unit, step,
		Kept.Minutes())}
	for r := rows - 1; r >= 0; r-- {
		name := ""
		switch r {
		case rows - 1:
			name = figure(top)
		case 0:
			name = "0"
		}
		lines = append(lines, fmt.Sprintf("%8s ▏", name)+bars(values, top, r, rows))
	}
	return lines
}

// bars is a row of a graph: eighths of a cell, and a dot at the foot where nothing waited.
func bars(values []float64, top float64, row, rows int) string {
	var b strings.Builder
	for _, x := range values {
		eighths := int(x/top*float64(rows*8)) - row*8
		switch {
		case x < 0 || x == 0 && row > 0:
			b.WriteByte(' ')
		case x == 0:
			b.WriteRune('.')
		case eighths <= 0 && row > 0:
			b.WriteByte(' ')
		default:
			b.WriteRune([]rune("▁▂▃▄▅▆▇█")[min(max(eighths, 1), 8)-1])
		}
	}
	return b.String()
}

// round is the next of 1, 1.5, 2, 3, 5, 7.5, 10 … that is not less.
func round(x float64) float64 {
	for unit := 1.0; unit < 1e12; unit *= 10 {
		for _, n := range []float64{1, 1.5, 2, 3, 5, 7.5} {
			if n*unit >= x {
				return n * unit
			}
		}
	}
	return x
}

// parts are the tins, or DualPI2's queues.
func (v View) parts(s State) []string {
	if len(s.Out.Seconds) == 0 {
		return nil
	}
	now := s.Out.Seconds[len(s.Out.Seconds)-1]
	seconds := max(time.Duration(now.Span).Seconds(), 1)
	var lines []string
	for _, p := range now.Parts {
		if lines == nil {
			lines = []string{fmt.Sprintf("%-12s %10s %10s %10s %10s %10s", "queue", "packets/s", "Mbit/s", "delay ms",
				"drops/s", "marks/s")}
		}
		rest := fmt.Sprintf("%10s %10s %10s %10s", "-", figure(float64(p.Delay)/1e6), "-", "-")
		if p.Counts {
			rest = fmt.Sprintf("%10s %10s %10s %10s", figure(float64(p.Bytes*8)/1e6/seconds),
				figure(float64(p.Delay)/1e6), perSecond(p.Drops, seconds), perSecond(p.Marks, seconds))
		}
		lines = append(lines, fmt.Sprintf("%-12s %10s %s", p.Name, perSecond(p.Packets, seconds), rest))
	}
	return lines
}

// shares are the busiest clients of a bpf_shaper.
func shares(t Track) (lines []string) {
	const (
		maxRows = 5
		head    = "%-26s %10s %8s %10s %10s %7s %7s"
	)
	for i, c := range t.Clients {
		if i == 0 {
			lines = append(lines, fmt.Sprintf(head, "client", "Mbit/s", "share", "at most", "waits ms", "drops",
				"marks"))
		}
		if i == maxRows {
			return append(lines, fmt.Sprintf("… %d more: weir clients", len(t.Clients)-maxRows))
		}
		limit := "-"
		if c.Limit != 0 {
			limit = figure(float64(c.Limit) / 1e6)
		}
		lines = append(lines, fmt.Sprintf(head, c.Client, figure(float64(c.Rate)/1e6),
			fmt.Sprintf("%.0f %%", 100*float64(c.Share)), limit, figure(float64(c.Wait)/1e6), fmt.Sprint(c.Drops),
			fmt.Sprint(c.Marks)))
	}
	return lines
}

func (v View) incoming(s State) []string {
	if len(s.In.Seconds) == 0 {
		return nil
	}
	return text.Wrap("Incoming ("+s.In.Kind+"): ", "  ", traffic(s.In.Queue, s.In.Seconds[len(s.In.Seconds)-1]),
		v.Width)
}

// The columns of networks.
const (
	networkHead = "%-19s %5s %7s %7s %6s %6s %6s  %s"
	networkRow  = "%-19s %5d %7s %7s %6.2f %6s %6s  %s · %s"
)

// clients are the connections by network, in so many lines.
func (v View) clients(s State, lines int) []string {
	if lines < 1 {
		return nil
	}
	r := s.Clients
	networks := v.filtered(r.Networks)
	title := fmt.Sprintf("%s, %s", text.Counted(r.All.Connections, "connection"), text.Counted(len(r.Networks),
		"network"))
	switch {
	case s.ClientsWhy != "":
		return text.Wrap("", "  ", "Connections are not seen: "+s.ClientsWhy+".", v.Width)[:1]
	case s.ClientsAt.IsZero():
		return []string{"Connections: looking …"}
	case v.Filter != "":
		title += fmt.Sprintf(", %d with %q", len(networks), v.Filter)
	}
	title += fmt.Sprintf(", over %.0f s, by %s (RTT in ms, rates in Mbit/s)", max(r.Seconds, 1), orders()[v.Sort].name)
	all := []string{title, fmt.Sprintf(networkHead, "network", "conns", "floor", "added", "again%", "out", "in",
		"limited by · cc")}
	for _, n := range networks {
		all = append(all, row(n))
	}
	if len(all) > lines {
		more := len(all) - lines + 1
		all = append(all[:max(lines-1, 0)], fmt.Sprintf("… %d more", more))
	}
	return all
}

func row(n live.Network) string {
	floor, added := "-", "-"
	if n.RTT.N > 0 {
		floor, added = figure(n.Floor), figure(n.Added.P50)
	}
	return fmt.Sprintf(networkRow, n.Network, n.Connections, floor, added,
		100*n.Retransmitted, figure(n.Out), figure(n.In), cmp.Or(string(n.Limit()), "nothing sent"),
		strings.Join(slices.Sorted(maps.Keys(n.CC)), ", "))
}

// filtered are the networks that the filter lets through, in their order.
func (v View) filtered(all []live.Network) []live.Network {
	chosen := slices.DeleteFunc(slices.Clone(all), func(n live.Network) bool {
		return v.Filter != "" && !strings.Contains(strings.ToLower(row(n)), strings.ToLower(v.Filter))
	})
	slices.SortStableFunc(chosen, orders()[v.Sort].compare)
	return chosen
}

// senders says what the connections with bpf_bbr do.
func (v View) senders(s State) []string {
	if s.BBR.Connections == 0 {
		return nil
	}
	var parts []string
	for _, state := range slices.Sorted(maps.Keys(s.BBR.States)) {
		parts = append(parts, fmt.Sprintf("%d %s", s.BBR.States[state], state))
	}
	line := fmt.Sprintf("%s: %s: %s", bbr.Name, text.Counted(s.BBR.Connections, "connection"),
		strings.Join(parts, ", "))
	if s.BBR.OthersQueue > 0 {
		line += fmt.Sprintf("; others fill the queue of %d", s.BBR.OthersQueue)
	}
	return text.Wrap("", "  ", line+" (weir cc show)", v.Width)
}

// goal says how the host stands to its goal, and what the timer does.
func (v View) goal(s State) []string {
	if s.Goal.At.IsZero() || v.Words == nil {
		return nil
	}
	status := s.Goal.Status
	if passed := units.Duration(s.Now.Sub(s.Goal.At)); passed > 0 {
		status.RevertsIn = max(status.RevertsIn-passed, 0)
	}
	return text.Wrap("Goal: ", "  ", v.Words(status, s.Goal.Err), v.Width)
}

// findings are those that are there and those that went, so many at most.
func (v View) findings(s State, most int) []string {
	if s.Doctor.At.IsZero() {
		return []string{"Findings: looking …"}
	}
	var lines []string
	for _, f := range s.Findings {
		when, mark := "", f.Severity.Mark()+" "
		switch {
		case !f.Went.IsZero():
			when, mark = "went "+f.Went.Format(clock)+": ", "- "
		case !f.Came.IsZero():
			when = "came " + f.Came.Format(clock) + ": "
		}
		lines = append(lines, mark+when+cmp.Or(f.Plain, f.Title))
	}
	if len(lines) == 0 {
		lines = []string{"✓ Doctor finds nothing to do."}
	}
	if len(lines) > most {
		more := len(lines) - most + 1
		lines = append(lines[:most-1], fmt.Sprintf("  %d more: weir doctor", more))
	}
	if unseen := s.unseen(); unseen != "" {
		lines = append(lines, unseen)
	}
	return lines
}

func (v View) keys() string {
	if v.Typing {
		return "filter: " + v.Filter + "_   (enter keeps it, esc drops it)"
	}
	pause := "p pause"
	if v.Paused {
		pause = "p go on"
	}
	return "q quit · " + pause + " · s sort · / filter"
}
