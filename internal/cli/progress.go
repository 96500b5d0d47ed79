// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"time"
)

// Progress shows on stderr how far a run is: one line that rewrites itself on a terminal, a line every ten seconds
// elsewhere. What takes less than two seconds shows nothing.
type Progress struct {
	w        io.Writer
	terminal bool
	last     time.Duration
	shown    bool
}

// NewProgress returns a Progress that writes to w, beneath what keeps text plain.
func NewProgress(w io.Writer) *Progress { return &Progress{w: Beneath(w), terminal: IsTerminal(w)} }

// Say shows a line, which holds nothing that others have named, if it is time for one.
func (p *Progress) Say(elapsed time.Duration, line func() string) {
	every := 10 * time.Second
	if p.terminal {
		every = 200 * time.Millisecond
	}
	if elapsed < 2*time.Second || elapsed-p.last < every {
		return
	}
	p.last, p.shown = elapsed, true
	if p.terminal {
		fmt.Fprintf(p.w, "\r\x1b[K%s", OneRow(p.w, line()))
		return
	}
	fmt.Fprintln(p.w, line())
}

// Clear takes the line away from a terminal.
func (p *Progress) Clear() {
	if p.shown && p.terminal {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}

// Until says on w what goes on, and for how long it has, until work returns. That runs on the calling thread, which may
// have a network namespace of its own.
func Until[T any](w io.Writer, doing string, work func() (T, error)) (T, error) {
	p, begin := NewProgress(w), time.Now()
	done, silent := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(silent)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				elapsed := time.Since(begin)
				p.Say(elapsed, func() string { return fmt.Sprintf("%s · %v", doing, elapsed.Round(time.Second)) })
			}
		}
	}()
	defer p.Clear()
	defer func() { close(done); <-silent }()
	return work()
}
