// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"weir/internal/change"
	"weir/internal/plan"
	"weir/internal/units"
)

// Rules of output. What was asked for goes to stdout, what is wrong to stderr. Lines fit 100 columns; there are no
// colours. The subject stands at the left, old → new beside it, the reason after it or, where it does not fit, below.
// Quantities are written as tc does. JSON is the same values, whole.
const (
	columns = 100
	subject = 24 // width of the first column
	reason  = 62 // where the third starts, if it fits
)

func printChange(w io.Writer, c plan.Change) {
	what := fmt.Sprintf("%s → %s", c.Old, c.New)
	if c.File != "" {
		what = c.Verb()
	}
	line := pad(shortName(c.Target), subject) + what
	if with := pad(line, reason) + c.Reason; width(with) <= columns {
		fmt.Fprintln(w, with)
		return
	}
	if width(line) <= columns {
		fmt.Fprintln(w, line)
	} else {
		printText(w, shortName(c.Target), c.Old)
		printText(w, "", "→ "+c.New)
	}
	printText(w, "", c.Reason)
}

// printOwner says to whom the present value is due.
func printOwner(w io.Writer, c plan.Change) {
	if c.Owner != "" && c.File == "" {
		printText(w, "", "today: "+c.Owner)
	}
}

// printText prints text in the second column, over as many lines as it takes, and a label beside the first of them.
func printText(w io.Writer, label, text string) {
	line := pad(label, subject)
	for _, word := range strings.Fields(text) {
		if width(line)+width(word) > columns && strings.TrimSpace(line) != "" {
			fmt.Fprintln(w, strings.TrimRight(line, " "))
			line = pad("", subject)
		}
		line += word + " "
	}
	fmt.Fprintln(w, strings.TrimRight(line, " "))
}

func printNotes(w io.Writer, notes []plan.Note) {
	for _, n := range notes {
		printText(w, shortName(plan.Target{Sysctl: n.Subject}), n.Text)
	}
}

// shortName leaves out of a sysctl's name what goes without saying.
func shortName(t plan.Target) string {
	name := strings.TrimPrefix(t.String(), "net.")
	return strings.TrimPrefix(strings.TrimPrefix(name, "ipv4."), "core.")
}

func width(s string) int { return utf8.RuneCountInString(s) }

// pad fills a column; text that is wider gets two spaces to the next.
func pad(s string, to int) string { return s + strings.Repeat(" ", max(to-width(s), 2)) }

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// seconds writes a time that a person waits for.
func seconds(d units.Duration) string {
	return fmt.Sprintf("%.0f s", math.Ceil(time.Duration(d).Seconds()))
}

// failed is the error of an outcome in which not all is in force.
func failed(out change.Outcome, try string) error {
	if len(out.Failed) == 0 {
		return nil
	}
	var which []string
	for _, f := range out.Failed {
		name := shortName(f.Target) + " = " + f.New
		if f.File != "" {
			name = f.File
		}
		which = append(which, name+": "+f.Error)
	}
	return &plan.Refusal{What: fmt.Sprintf("%s not in force: %s", counted(len(which), "change"),
		strings.Join(which, "; ")), Try: try}
}
