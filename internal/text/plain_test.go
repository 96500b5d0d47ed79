// SPDX-License-Identifier: Apache-2.0

package text

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// What a terminal, a log or a page would take for more than text never reaches it, however it is cut up on the way.
func TestPlain(t *testing.T) {
	for raw, want := range map[string]string{
		"eth0\tup\n":              "eth0\tup\n",
		"ünï → 9 · 日本":            "ünï → 9 · 日本",
		"e\x1b[31mX":              `e\u001b[31mX`,
		"\x1b]0;title\a":          `\u001b]0;title\u0007`,
		"one\rtwo\b\x00\x7f":      `one\u000dtwo\u0008\u0000\u007f`,
		"\u009b31m":               `\u009b31m`,
		"\x9b31m":                 `\x9b31m`,
		"txt.\u202eexe\u2066\n":   `txt.\u202eexe\u2066` + "\n",
		"cut off \xe2\x86":        `cut off \xe2\x86`,
		"\ufffd is a replacement": "\ufffd is a replacement",
	} {
		if got := Plain(raw); got != want {
			t.Errorf("%q: got %q, want %q", raw, got, want)
		}
		for size := 1; size <= len(raw); size++ {
			var b strings.Builder
			w := Writer{To: &b}
			for rest := raw; rest != ""; rest = rest[min(size, len(rest)):] {
				if n, err := w.Write([]byte(rest[:min(size, len(rest))])); err != nil || n != min(size, len(rest)) {
					t.Fatalf("%d, %v", n, err)
				}
			}
			if err := w.Close(); err != nil || b.String() != want {
				t.Errorf("%q, %d bytes at a time: got %q, want %q", raw, size, b.String(), want)
			}
		}
	}
}

func TestColours(t *testing.T) {
	var b strings.Builder
	w := Writer{To: &b, Colours: true}
	w.Write([]byte("\x1b[1mbold\x1b[0m \x1b[2J\x1b]0;t\a"))
	if want := "\x1b[1mbold\x1b[0m " + `\u001b[2J\u001b]0;t\u0007`; w.Close() != nil || b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}

// JSON is the same value afterwards.
func TestJSON(t *testing.T) {
	const name = "e\x1b[31m\u009b\x7f\u202e\"\n"
	var b strings.Builder
	w := Writer{To: &b}
	if err := json.NewEncoder(&w).Encode(name); err != nil {
		t.Fatal(err)
	}
	var back string
	if err := json.Unmarshal([]byte(b.String()), &back); err != nil || back != name {
		t.Errorf("%q came back as %q: %v", name, back, err)
	}
}

type full struct{ writes int }

var errFull = errors.New("full")

func (f *full) Write([]byte) (int, error) { f.writes++; return 0, errFull }

func TestFull(t *testing.T) {
	f := &full{}
	w := Writer{To: f}
	w.Write([]byte("a"))
	w.Write([]byte("b"))
	if err := w.Close(); !errors.Is(err, errFull) || f.writes != 1 {
		t.Errorf("%v after %d writes", err, f.writes)
	}
}
