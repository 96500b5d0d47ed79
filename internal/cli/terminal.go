// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"io"
	"os"

	"golang.org/x/term"

	"weir/internal/text"
)

// Columns is how wide tables are that no terminal says the width for.
const Columns = 100

// PrintJSON writes v as indented JSON.
func PrintJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// IsTerminal reports whether w is a terminal, beneath what keeps text plain. One that can move no cursor (TERM=dumb, as
// within an editor) is none.
func IsTerminal(w io.Writer) bool {
	f, ok := Beneath(w).(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
}

// Width returns how many columns a terminal has; elsewhere it is what text is written for.
func Width(w io.Writer) int {
	if f, ok := Beneath(w).(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return Columns
}

// OneRow returns a line, cut to one row of a terminal: what rewrites itself could not take back the next row.
func OneRow(w io.Writer, line string) string {
	shown := []rune(line)
	if most := Width(w); len(shown) > most {
		shown = append(shown[:most-1], '…')
	}
	return string(shown)
}

// Beneath returns where a text.Writer writes to: for a terminal's own commands.
func Beneath(w io.Writer) io.Writer {
	if plain, ok := w.(*text.Writer); ok {
		return plain.To
	}
	return w
}
