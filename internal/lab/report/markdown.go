// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
	"strings"

	"weir/internal/lab/verdict"
	"weir/internal/text"
)

// Markdown writes the tables for a document. command is what a reader types to get the same numbers.
func Markdown(w io.Writer, reports []verdict.Report, command string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Made by `%s`.\n", command)
	var verdicts []verdict.Verdict
	for i := range reports {
		verdicts = append(verdicts, reports[i].Claims...)
	}
	claims(&b, verdicts)
	for i := range reports {
		r := &reports[i]
		fmt.Fprintf(&b, "\n## %s\n\n", plain(r.Title))
		if r.About != "" {
			fmt.Fprintf(&b, "%s\n\n", plain(r.About))
		}
		fmt.Fprintf(&b, "%s.\n", basis(r))
		last := ""
		for k, t := range tables(r) {
			s := setting(r.Points[k].Scenario)
			if t.label != "" {
				fmt.Fprintf(&b, "\n**%s**\n", plain(t.label))
			}
			if s != last {
				fmt.Fprintf(&b, "\n%s\n", plain(s))
				last = s
			}
			b.WriteString("\n|  |")
			rule := "\n|---|"
			for _, m := range t.columns {
				fmt.Fprintf(&b, " %s |", column(m))
				rule += "--:|"
			}
			b.WriteString(rule + "\n")
			for _, row := range t.rows {
				fmt.Fprintf(&b, "| %s | %s |\n", plain(row.candidate), strings.Join(row.cells, " | "))
			}
			b.WriteString("\n")
			for _, row := range t.rows {
				if row.words != "" {
					fmt.Fprintf(&b, "- %s: %s\n", plain(row.candidate), plain(row.words))
				}
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func claims(b *strings.Builder, verdicts []verdict.Verdict) {
	if len(verdicts) == 0 {
		return
	}
	count := map[string]int{}
	for _, v := range verdicts {
		count[v.Verdict]++
	}
	fmt.Fprintf(b, "\n## Claims\n\n%s: %d %s, %d %s, %d %s.\n", text.Counted(len(verdicts), "claim"),
		count[verdict.Reproduced], verdict.Reproduced, count[verdict.OnlyWhen],
		strings.TrimSuffix(verdict.OnlyWhen, " when")+" sometimes",
		count[verdict.NotReproduced], verdict.NotReproduced)
	b.WriteString("\n| claim | expected | measured | verdict |\n|---|---|---|---|\n")
	for _, v := range verdicts {
		verdict := "**" + v.Verdict + "**"
		if v.Holds != "" {
			verdict += " " + v.Holds
		}
		if v.Note != "" {
			verdict += ". " + v.Note
		}
		fmt.Fprintf(b, "| %s: “%s” | %s: %s | %s | %s |\n", plain(v.Source), plain(v.Says),
			plain(claimText(v.Claim)), plain(v.Expect), plain(measuredText(v)), plain(verdict))
	}
}

// plain keeps a name from a scenario from being taken for Markdown's table syntax or HTML.
func plain(s string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", ">", "&gt;", "\n", " ").Replace(s)
}
