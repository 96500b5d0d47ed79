// SPDX-License-Identifier: Apache-2.0

package text

import (
	"slices"
	"strings"
)

// Nearest is the known word that somebody probably meant: the only one that begins so, as tc takes it, or else the one
// that is fewest slips away, two at most. Of a word of five letters or fewer two would leave little, and so it is one.
// It is "" where none is near.
func Nearest(word string, known []string) string {
	begins := func(k string) bool { return word != "" && strings.HasPrefix(k, word) }
	if i := slices.IndexFunc(known, begins); i >= 0 && !slices.ContainsFunc(known[i+1:], begins) {
		return known[i]
	}
	best, distance := "", 3
	for _, k := range known {
		if len(word) > 2*len(k) {
			continue
		}
		d, short := edits(word, k), min(len(k), len(word)) <= 5
		if Mistyped(word, k) {
			d = 1
		}
		if d < distance && d < min(len(k), len(word)) && (d <= 1 || !short) {
			best, distance = k, d
		}
	}
	return best
}

// Mistyped reports whether a word is another one with a single slip: a letter too many, too few or wrong, or letters
// in another order.
func Mistyped(word, meant string) bool {
	sorted := func(s string) string { b := []byte(s); slices.Sort(b); return string(b) }
	return edits(word, meant) <= 1 || sorted(word) == sorted(meant)
}

// edits is the Levenshtein distance: how many letters one would have to change.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := diagonal
			if a[i-1] != b[j-1] {
				cost++
			}
			diagonal = row[j]
			row[j] = min(cost, row[j]+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}
