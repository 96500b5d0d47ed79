// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"time"

	"weir/internal/lab"
)

// progress shows on stderr how far a run is: one line that rewrites itself on a terminal, a line every ten seconds
// elsewhere. What takes less than two seconds shows nothing.
type progress struct {
	w        io.Writer
	terminal bool
	last     time.Duration
	shown    bool
}

func newProgress(w io.Writer) *progress { return &progress{w: beneath(w), terminal: isTerminal(w)} }

// say shows a line, which holds nothing that others have named, if it is time for one.
func (p *progress) say(elapsed time.Duration, line func() string) {
	every := 10 * time.Second
	if p.terminal {
		every = 200 * time.Millisecond
	}
	if elapsed < 2*time.Second || elapsed-p.last < every {
		return
	}
	p.last, p.shown = elapsed, true
	if p.terminal {
		fmt.Fprintf(p.w, "\r\x1b[K%s", line())
		return
	}
	fmt.Fprintln(p.w, line())
}

// show is say for a run of the lab.
func (p *progress) show(run lab.Progress) {
	p.say(run.Elapsed, func() string {
		line := fmt.Sprintf("run %d of %d · %v of %v virtual · %v", min(run.Done+1, run.Runs), run.Runs,
			run.Virtual.Round(time.Second), run.VirtualAll.Round(time.Second), run.Elapsed.Round(time.Second))
		if left := run.Left(); left > 0 {
			line += fmt.Sprintf(", about %v left", left.Round(time.Second))
		}
		return line
	})
}

func (p *progress) clear() {
	if p.shown && p.terminal {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
