// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// documented are the codes that docs/findings.md explains, in its order.
func documented(t *testing.T) (codes []Code) {
	t.Helper()
	page, err := os.ReadFile("../../docs/findings.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range regexp.MustCompile("(?m)^- `([^`]*)` (?:[✗!✓]| or )+ ").FindAllSubmatch(page, -1) {
		codes = append(codes, Code(row[1]))
	}
	return codes
}

// docs/findings.md has each code that stands in a check, once, and no others.
func TestDocumented(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	in := map[Code]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, code := range regexp.MustCompile("Code\\b[^\"`\n]*\"([^\"]+)\"").FindAllSubmatch(text, -1) {
			in[Code(code[1])] = true
		}
	}
	written := map[Code]bool{}
	for _, code := range documented(t) {
		if !regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`).MatchString(string(code)) || written[code] {
			t.Errorf("docs/findings.md explains %q twice, or it is no code", code)
		}
		written[code] = true
	}
	for code := range in {
		if !written[code] {
			t.Errorf("docs/findings.md does not explain %q", code)
		}
	}
	for code := range written {
		if !in[code] {
			t.Errorf("docs/findings.md explains %q, which no check finds", code)
		}
	}
}
