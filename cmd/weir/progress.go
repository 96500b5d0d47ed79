// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"time"
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
		fmt.Fprintf(p.w, "\r\x1b[K%s", oneRow(p.w, line()))
		return
	}
	fmt.Fprintln(p.w, line())
}

func (p *progress) clear() {
	if p.shown && p.terminal {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
