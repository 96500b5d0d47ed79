// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A token comes from an option, a file or the environment, and a server's cannot be guessed.
func TestFindToken(t *testing.T) {
	const long, other = "0123456789abcdef", "fedcba9876543210"
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	kept, empty := file("kept", long+"\n"), file("empty", "\n")
	for name, c := range map[string]struct {
		word, file, variable string
		want, problem        string
	}{
		"none":              {},
		"an option":         {word: long, variable: other, want: long},
		"a file":            {file: kept, variable: other, want: long},
		"the environment":   {variable: other, want: other},
		"both":              {word: long, file: kept, problem: "exclude each other"},
		"no file":           {file: filepath.Join(dir, "nothing"), problem: "no such file"},
		"an empty file":     {file: empty, problem: "has no token"},
		"no word of a URL":  {word: "a/b", problem: "--token: such a word cannot stand in a URL"},
		"nor in a variable": {variable: "a/b", problem: "WEIR_TOKEN: such a word cannot stand in a URL"},
		"nor one in a file": {file: file("slash", long+"/"),
			problem: "--token-file: such a word cannot stand in a URL"},
		"too short": {word: "secret", problem: "6 characters can be guessed: it must have 16"},
	} {
		t.Setenv(tokenVariable, c.variable)
		got, err := findToken(c.word, c.file)
		if err == nil {
			err = checkLength(got)
		}
		if c.problem == "" && (got != c.want || err != nil) || !strings.Contains(fmt.Sprint(err), c.problem) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// A token's file is read once, as it may be a pipe; and by who needs a token.
func TestTokenIsReadOnce(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	w.WriteString("0123456789abcdef\n")
	w.Close()
	o := measureOptions{time: 25 * time.Second, conns: 4, tokenFile: fmt.Sprintf("/dev/fd/%d", r.Fd())}
	err = measureTarget(t.Context(), newMeasureCommand(), "127.0.0.1:1", o)
	if !strings.Contains(fmt.Sprint(err), "connection refused") {
		t.Error(err)
	}
	t.Setenv(tokenVariable, "a/b")
	o.tokenFile = ""
	if err := o.check(); err != nil {
		t.Errorf("a token that is not needed: %v", err)
	}
}

// Several peers have a token each, and none is told another's.
func TestFindTokens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte("of-a-file"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(tokenVariable, "of-all")
	for name, c := range map[string]struct {
		o      calibrateOptions
		served int
		want   string
	}{
		"one peer":      {served: 1, want: "[of-all] <nil>"},
		"two peers":     {served: 2, want: "[] <nil>"},
		"their options": {o: calibrateOptions{tokens: []string{"a", "b"}}, served: 2, want: "[a b] <nil>"},
		"a file each": {o: calibrateOptions{tokenFiles: []string{path, path}}, served: 2,
			want: "[of-a-file of-a-file] <nil>"},
	} {
		tokens, err := c.o.findTokens(c.served)
		if got := fmt.Sprint(tokens, err); got != c.want {
			t.Errorf("%s: %s", name, got)
		}
	}
	if _, err := (calibrateOptions{tokens: []string{"a"}, tokenFiles: []string{path}}).findTokens(2); err == nil {
		t.Error("an option and a file are taken together")
	}
}
