// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"bytes"
	"io"
	"strings"
	"sync"
)

// lastLines of the console go into an error: those before the first that means the end, and as many after it, which a
// trace may fill.
const lastLines = 12

// Failure is a boot without a result.
type Failure struct {
	What    string
	Console []string // the last lines
}

func (f *Failure) Error() string {
	if len(f.Console) == 0 {
		return f.What
	}
	return f.What + "; the console's last lines:\n    " + strings.Join(f.Console, "\n    ")
}

// Console takes what the guest's console says, keeps the last lines, and knows a bad end when it reads one.
type Console struct {
	OnLine func(line string) // each line; may be nil

	mu    sync.Mutex
	part  []byte
	lines []string
	bad   string // what ended it
	after int    // lines kept since then
}

var _ io.Writer = (*Console)(nil)

func (c *Console) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.part = append(c.part, b...)
	for {
		line, rest, whole := bytes.Cut(c.part, []byte("\n"))
		if !whole {
			return len(b), nil
		}
		c.part = bytes.Clone(rest)
		c.line(printable(line))
	}
}

func (c *Console) line(s string) {
	if s == "" {
		return
	}
	if c.OnLine != nil {
		c.OnLine(s)
	}
	switch {
	case c.bad == "":
		c.lines = append(c.lines, s)
		if len(c.lines) > lastLines {
			c.lines = c.lines[1:]
		}
		c.bad = diagnosis(s)
	case c.after < lastLines:
		c.lines = append(c.lines, s)
		c.after++
	}
}

// diagnosis is what a line of the console means, if it means the end.
func diagnosis(line string) string {
	for _, d := range []struct{ sign, means string }{
		{"Out of memory: Killed", "the guest ran out of memory"},
		{"System is deadlocked on memory", "the guest ran out of memory"},
		{"Kernel panic - not syncing", "the guest's kernel panicked"},
		{"BUG: ", "the guest's kernel has hit a bug"},
	} {
		if strings.Contains(line, d.sign) {
			return d.means
		}
	}
	return ""
}

// Last returns the last lines, the one that was not ended included.
func (c *Console) Last() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.part) > 0 {
		return append(c.lines, printable(c.part))
	}
	return c.lines
}

// Disaster says how it ended badly, if it did.
func (c *Console) Disaster() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bad
}

// printable keeps a guest from writing to our terminal's controls.
func printable(b []byte) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == 0xfffd {
			return -1
		}
		return r
	}, string(b))
}
