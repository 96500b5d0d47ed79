// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"weir/internal/meter"
	"weir/internal/stats"
	"weir/internal/text"
)

// legend says what stands in the table.
const legend = "added: how much longer a round trip takes than on the idle link; of a hundred, 50, 90 or 99 take " +
	"less. In brackets: where 95 of 100 repeats would lie."

// printResult prints what was found: in a sentence, in a table, and whether the link was full.
func printResult(w io.Writer, r meter.Result) {
	printWrapped(w, "", strings.TrimSpace(r.Says+" "+r.Grade.Says()))
	const row = "%-10s %20s %17s %17s %17s %7s %6s\n"
	fmt.Fprintf(w, "\n"+row, "", "goodput", "added p50", "added p90", "added p99", "jitter", "lost")
	fmt.Fprintf(w, row, "", "Mbit/s", "ms", "ms", "ms", "ms", "%")
	for _, p := range r.Phases {
		if p.Name == meter.Idle {
			fmt.Fprintf(w, "%-10s %20s %17s\n", p.Name, "", "RTT "+figureText(p.RTT.P50))
			continue
		}
		added := [3]string{"-", "-", "-"}
		if p.Added != nil {
			added = [3]string{intervalText(p.Added.P50), intervalText(p.Added.P90), intervalText(p.Added.P99)}
		}
		jitter := "-"
		if p.Jitter != nil {
			jitter = figureText(p.Jitter.Value)
		}
		for i, direction := range []string{meter.Download, meter.Upload} {
			g, there := p.Goodput[direction]
			switch {
			case there && (i == 0 || p.Name != meter.Both):
				fmt.Fprintf(w, row, p.Name, intervalText(g), added[0], added[1], added[2], jitter,
					fmt.Sprintf("%.2f", 100*p.Loss.Value))
			case there:
				fmt.Fprintf(w, "%-10s %20s\n", "  and up", intervalText(g))
			}
		}
	}
	fmt.Fprintln(w)
	printWrapped(w, "", legend)
	for _, p := range r.Phases {
		if waits := r.Waits(p); waits != "" {
			printWrapped(w, p.Name+": ", waits)
		}
		for _, s := range p.Senders {
			name := p.Name
			if name == meter.Both {
				name += ", " + text.OneLine(s.Direction)
			}
			printWrapped(w, name+": ", senderText(s))
		}
		if p.Lost > 0 {
			printWrapped(w, p.Name+": ", lossText(p))
		}
	}
	if says := r.PathSays(); says != "" {
		printWrapped(w, "path: ", says)
	}
}

// lossText says how many probes were lost, and on which way. Only a weir serve tells the ways apart, by UDP, and only
// where a later probe was answered.
func lossText(p meter.Phase) string {
	says := fmt.Sprintf("%d of %d probes were lost", p.Lost, p.Sent)
	unknown := p.Lost - p.LostUp - p.LostDown
	if unknown == p.Lost {
		return says + ". On which way is not known."
	}
	says += fmt.Sprintf(": %d on the way there, %d on the way back.", p.LostUp, p.LostDown)
	if unknown > 0 {
		says += fmt.Sprintf(" Of %d the way is not known.", unknown)
	}
	return says
}

// intervalText writes a figure with what is not known of it.
func intervalText(e stats.Estimate) string { return meter.Ranged(e) }

// senderText says in a line what the senders' kernel knew.
func senderText(s meter.Sender) string {
	if !s.Kernel {
		return text.Counted(s.Flows, "flow") + "; the sender's kernel tells nothing."
	}
	words := []string{text.Counted(s.Flows, "flow"), cmp.Or(strings.Join(s.CC, ", "), "no congestion control named")}
	if s.ECN {
		words = append(words, fmt.Sprintf("ECN, %.2f %% marked", 100*s.Marked))
	} else {
		words = append(words, "no ECN")
	}
	words = append(words, fmt.Sprintf("the sender's RTT %s ms (least %s, p99 %s)", figureText(s.RTT.P50),
		figureText(s.MinRTT), figureText(s.RTT.P99)), fmt.Sprintf("%.2f %% sent again", 100*s.Retransmitted))
	if s.Full {
		words = append(words, "the link was full")
	}
	return text.OneLine(strings.Join(words, " · "))
}

// printMarkdown prints one result as a table in Markdown.
func printMarkdown(w io.Writer, r meter.Result) {
	printMeasured(w, cmp.Or(r.Remote, r.Target), meter.Compare(r, r))
}

// printMeasured prints the figures of one measurement of a host as a table in Markdown.
func printMeasured(w io.Writer, host string, rows []meter.Row) {
	fmt.Fprintf(w, "| %s | measured |\n|---|---:|\n", markdownCell(host))
	for _, row := range rows {
		fmt.Fprintf(w, "| %s | %s |\n", row.Figure, intervalText(row.After))
	}
	fmt.Fprintln(w)
}

// markdownCell is the name of the host that was measured, for a table in Markdown.
func markdownCell(host string) string { return strings.ReplaceAll(text.OneLine(host), "|", `\|`) }

// printComparison prints two results side by side.
func printComparison(w io.Writer, before, after meter.Result, markdown bool) {
	if !markdown {
		printBeforeAfter(w, before.Says, after.Says)
	}
	printRows(w, cmp.Or(after.Remote, after.Target), meter.Compare(before, after), markdown)
}

func printBeforeAfter(w io.Writer, before, after string) {
	fmt.Fprintf(w, "before:  %s\nafter:   %s\n\n", text.OneLine(before), after)
}

// printRows prints figures of a host before and after, as a table.
func printRows(w io.Writer, host string, rows []meter.Row, markdown bool) {
	if markdown {
		fmt.Fprintf(w, "| %s | before | after | factor |\n|---|---:|---:|---:|\n", markdownCell(host))
		for _, r := range rows {
			fmt.Fprintf(w, "| %s | %s | %s | %s |\n", r.Figure, intervalText(r.Before), intervalText(r.After),
				factorText(r))
		}
		fmt.Fprintln(w)
		return
	}
	fmt.Fprintf(w, "%-28s %24s %24s %12s\n", text.OneLine(host), "before", "after", "factor")
	for _, r := range rows {
		fmt.Fprintf(w, "%-28s %24s %24s %12s\n", r.Figure, intervalText(r.Before), intervalText(r.After), factorText(r))
	}
	fmt.Fprintln(w)
}

// factorText says how much changed, if that is more than chance.
func factorText(r meter.Row) string {
	if !r.Sure {
		return "no change seen"
	}
	return r.Factor()
}

// figureText writes a number with three digits, as far as they are known.
func figureText(v float64) string { return meter.Figure(v) }
