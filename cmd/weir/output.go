// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"weir/internal/plan"
	"weir/internal/text"
	"weir/internal/units"
)

// Rules of output. What was asked for goes to stdout, what is wrong to stderr. Sentences fit 80 columns, tables 100;
// there are no colours. The subject stands at the left, old → new beside it, the reason after it or, where it does not
// fit, below. Quantities are written as tc does. JSON is the same values, whole.
const (
	narrow  = 80 // for sentences
	columns = 100
	subject = 24 // width of the first column
	reason  = 62 // where the third starts, if it fits
)

func printChange(w io.Writer, c plan.Change) {
	what := fmt.Sprintf("%s → %s", c.Old, c.New)
	if c.IsFile() {
		what = c.Verb()
	}
	line := padRight(text.Short(c.Target.String()), subject) + what
	if with := padRight(line, reason) + c.Reason; text.Width(with) <= columns {
		fmt.Fprintln(w, with)
		return
	}
	if text.Width(line) <= columns {
		fmt.Fprintln(w, line)
	} else {
		printText(w, text.Short(c.Target.String()), c.Old.String())
		printText(w, "", "→ "+c.New.String())
	}
	printText(w, "", c.Reason)
}

// printOwner says to whom the present value is due.
func printOwner(w io.Writer, c plan.Change) {
	if c.Owner != "" && !c.IsFile() {
		printText(w, "", "today: "+c.Owner)
	}
}

// printText prints text in the second column, over as many lines as it takes, and a label beside the first of them.
func printText(w io.Writer, label, s string) {
	printLines(w, text.Wrap(padRight(label, subject), padRight("", subject), strings.Join(strings.Fields(s), " "),
		columns))
}

// printWrapped prints text over as many lines as it takes, the first behind a mark and the others below its beginning.
// Text can come from anybody's files: what could move a terminal's cursor is shown as what it is not.
func printWrapped(w io.Writer, mark, s string) {
	printLines(w, text.Wrap(mark, strings.Repeat(" ", text.Width(mark)), text.OneLine(s), narrow))
}

func printLines(w io.Writer, lines []string) {
	for _, line := range lines {
		fmt.Fprintln(w, line)
	}
}

func printNotes(w io.Writer, notes []plan.Note) {
	for _, n := range notes {
		printText(w, text.Short(n.Subject), n.Text)
	}
}

// padRight fills a column; text that is wider gets two spaces to the next.
func padRight(s string, to int) string { return s + strings.Repeat(" ", max(to-text.Width(s), 2)) }

// seconds writes a time that a person waits for.
func seconds(d units.Duration) string {
	return fmt.Sprintf("%.0f s", math.Ceil(time.Duration(d).Seconds()))
}
