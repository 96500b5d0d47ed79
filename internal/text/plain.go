// SPDX-License-Identifier: Apache-2.0

// Package text readies text to be shown: it wraps lines, counts things, and shortens names. It also makes text of
// unknown origin safe. The names of devices, processes, files and scenarios are their owners' choice, and may hold what
// a terminal takes for a command.
//
// It knows nothing of hosts, plans or measurements, and writes to no file by itself.
package text

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Plain is s with each control character but newline and tab as JSON would escape it (\u001b). So is each that turns
// the direction of writing. Each byte that is not UTF-8 is as Go would escape it (\x9b).
func Plain(s string) string {
	if strings.IndexFunc(s, hidden) < 0 && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case hidden(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteString(s[:size])
		}
		s = s[size:]
	}
	return b.String()
}

func hidden(r rune) bool {
	return r != '\n' && r != '\t' && (unicode.Is(unicode.Cc, r) || unicode.Is(unicode.Bidi_Control, r))
}

// Writer passes on what is written to it as Plain has it. JSON means the same afterwards.
type Writer struct {
	To io.Writer
	// what sets a terminal's colours (ECMA-48, SGR) goes through: for text that is known to hold nothing else
	Colours bool
	rest    []byte
	err     error
}

var colour = regexp.MustCompile("\x1b\\[[0-9]*m")

// Write takes all of p, whatever becomes of it. Once one has failed, nothing more is written.
func (w *Writer) Write(p []byte) (int, error) {
	all := append(w.rest, p...)
	whole := len(all)
	for i := 1; i < utf8.UTFMax && i <= len(all); i++ { // a character may come in two parts
		if at := len(all) - i; utf8.RuneStart(all[at]) {
			if !utf8.FullRune(all[at:]) {
				whole = at
			}
			break
		}
	}
	s := string(all[:whole])
	w.rest = append([]byte(nil), all[whole:]...)
	w.put(s)
	return len(p), w.err
}

func (w *Writer) put(s string) {
	from := 0
	var b strings.Builder
	if w.Colours {
		for _, at := range colour.FindAllStringIndex(s, -1) {
			b.WriteString(Plain(s[from:at[0]]) + s[at[0]:at[1]])
			from = at[1]
		}
	}
	b.WriteString(Plain(s[from:]))
	if w.err == nil && b.Len() > 0 {
		_, w.err = io.WriteString(w.To, b.String())
	}
}

// Close writes what is left of a character that was never whole, and gives the first error that there was. It closes
// nothing.
func (w *Writer) Close() error {
	w.put(string(w.rest))
	w.rest = nil
	return w.err
}
