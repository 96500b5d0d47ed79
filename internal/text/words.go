// SPDX-License-Identifier: Apache-2.0

package text

import (
	"fmt"
	"strings"
	"unicode"
)

// Counted writes how many there are of what is named in the singular: "1 packet", "2 packets", "0 processes".
func Counted(n int, what string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(what, "s"):
		what += "es"
	default:
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// Short leaves out of a sysctl's name what goes without saying: net.ipv4.tcp_rmem is tcp_rmem. Any other name stays.
func Short(sysctl string) string {
	name := strings.TrimPrefix(sysctl, "net.")
	return strings.TrimPrefix(strings.TrimPrefix(name, "ipv4."), "core.")
}

// Bytes writes an amount of data as a person would, to three digits, in powers of 1000.
func Bytes(n float64) string {
	for _, u := range []struct {
		name string
		size float64
	}{{"PB", 1e15}, {"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}} {
		if n >= 0.9995*u.size {
			return fmt.Sprintf("%.3g %s", n/u.size, u.name)
		}
	}
	return fmt.Sprintf("%.0f bytes", n)
}

// OneLine is s with a question mark in place of each character that is not printed, line ends among them.
func OneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}

// Shell is a word as it is typed into a shell: in quotes, where it would mean something else without.
func Shell(word string) string {
	switch {
	case strings.ContainsAny(word, "\"$`\\!'"):
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	case word == "" || strings.ContainsAny(word, " \t\n|&;<>()*?[]#~{}"):
		return `"` + word + `"`
	}
	return word
}
