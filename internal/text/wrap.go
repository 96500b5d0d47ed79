// SPDX-License-Identifier: Apache-2.0

package text

import (
	"strings"
	"unicode/utf8"
)

// Wrap breaks s at spaces into lines of at most so many columns: the first begins with first, each other with rest. Two
// or more spaces stay where no line ends. A word that fits no line is cut, so that no line is longer.
func Wrap(first, rest, s string, columns int) []string {
	columns = max(columns, Width(rest)+1)
	var lines []string
	line, bare := first, true
	flush := func() {
		lines = append(lines, strings.TrimRight(line, " "))
		line = rest
	}
	for _, word := range words(s) {
		// Beside a long label the first word goes below it.
		below := bare && Width(rest) < Width(line)
		if (!bare || below) && Width(line)+Width(word) > columns {
			flush()
			word = strings.TrimLeft(word, " ")
		}
		for Width(word) > columns-Width(rest) && Width(line)+Width(word) > columns {
			at := cut(word, columns-Width(line))
			line += word[:at]
			word = word[at:]
			flush()
		}
		line += word
		bare = false
	}
	return append(lines, strings.TrimRight(line, " "))
}

// words are the words of s, each with the spaces before it.
func words(s string) (all []string) {
	start, inSpace := 0, true
	for i, r := range s {
		if r == ' ' && !inSpace {
			all = append(all, s[start:i])
			start = i
		}
		inSpace = r == ' '
	}
	return append(all, s[start:])
}

// cut is the length in bytes of the first characters of a word that fill so many columns: one at least.
func cut(word string, columns int) int {
	n := 0
	for i := range word {
		if n >= max(columns, 1) {
			return i
		}
		n++
	}
	return len(word)
}

// Width is how many columns s takes: one for each character, none for what sets colours.
func Width(s string) int {
	if strings.ContainsRune(s, '\x1b') {
		s = colour.ReplaceAllString(s, "")
	}
	return utf8.RuneCountInString(s)
}
