// SPDX-License-Identifier: Apache-2.0

package text

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestWrap(t *testing.T) {
	for _, c := range []struct {
		first, rest, text string
		want              []string
	}{
		{"", "", "", []string{""}},
		{"", "", "one two", []string{"one two"}},
		{"", "", "one two three", []string{"one two", "three"}},
		{"! ", "  ", "one two", []string{"! one two"}},
		{"! ", "  ", "one two three", []string{"! one two", "  three"}},
		{"", "  ", "one two three", []string{"one two", "  three"}},
		{"", "", "one  two", []string{"one  two"}},
		{"", "", "one two  three", []string{"one two", "three"}},
		{"", "", "one two ", []string{"one two"}},
		{"", "", "0123456789", []string{"0123456789"}},
		{"", "", "0123456789ab", []string{"0123456789", "ab"}},
		{"! ", "  ", "ääääääääöö", []string{"! ääääääää", "  öö"}},
		{"label   ", "  ", "one two", []string{"label", "  one two"}},
		{"longer than all  ", "  ", "one", []string{"longer than all", "  one"}},
		{"\x1b[1m! \x1b[0m", "  ", "one two three", []string{"\x1b[1m! \x1b[0mone two", "  three"}},
	} {
		if got := Wrap(c.first, c.rest, c.text, 10); !slices.Equal(got, c.want) {
			t.Errorf("%q, %q: %q, want %q", c.first, c.text, got, c.want)
		}
	}
}

// No line is too long, no character of a word is lost, and the end comes.
func FuzzWrap(f *testing.F) {
	f.Add("✗ ", "A title  seen and "+strings.Repeat("ä", 250)+" end", 100)
	f.Add("", "x", 0)
	f.Add("a label that is wide  ", "one", 9)
	f.Fuzz(func(t *testing.T, mark, s string, columns int) {
		if !utf8.ValidString(mark+s) || strings.ContainsAny(mark+s, "\n\x1b") || columns > 1000 {
			return
		}
		rest := strings.Repeat(" ", min(Width(mark), 8))
		lines := Wrap(mark, rest, s, columns)
		for _, l := range lines[1:] {
			if Width(l) > max(columns, Width(rest)+1) {
				t.Errorf("%d columns: %q", Width(l), l)
			}
		}
		bare := func(s string) string { return strings.ReplaceAll(s, " ", "") }
		if got := strings.Join(lines, ""); bare(got) != bare(mark+s) {
			t.Errorf("%q became %q", mark+s, lines)
		}
	})
}

func TestWords(t *testing.T) {
	for want, got := range map[string]string{
		"0 packets": Counted(0, "packet"), "1 packet": Counted(1, "packet"), "2 packets": Counted(2, "packet"),
		"1 process": Counted(1, "process"), "3 processes": Counted(3, "process"),

		"tcp_rmem": Short("net.ipv4.tcp_rmem"), "rmem_max": Short("net.core.rmem_max"),
		"mptcp.enabled": Short("net.mptcp.enabled"), "eth0": Short("eth0"),
		"ipv6.conf.all.forwarding": Short("net.ipv6.conf.all.forwarding"),

		"0 bytes": Bytes(0), "999 bytes": Bytes(999), "1 kB": Bytes(1000), "999 MB": Bytes(999_400_000),
		"1 GB": Bytes(999_900_000), "28.7 MB": Bytes(28_687_500), "5 PB": Bytes(5e15),

		"a?b ?[2J?": OneLine("a\nb \x1b[2J\u202e"), "ünï → 9": OneLine("ünï → 9"),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
