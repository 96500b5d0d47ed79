// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// docs/findings.md has each code once, and no others.
func TestDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/findings.md")
	if err != nil {
		t.Fatal(err)
	}
	var written []Code
	for _, row := range regexp.MustCompile("(?m)^- `([^`]*)` (?:[✗!✓]| or )+ ").FindAllSubmatch(page, -1) {
		written = append(written, Code(row[1]))
	}
	kebab := regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	codes := Codes()
	for _, code := range codes {
		if !kebab.MatchString(string(code)) || !slices.Contains(written, code) {
			t.Errorf("docs/findings.md does not explain %q", code)
		}
	}
	for _, code := range written {
		if !slices.Contains(codes, code) {
			t.Errorf("docs/findings.md explains %q, which no check finds", code)
		}
	}
	slices.Sort(codes)
	if len(slices.Compact(codes)) != len(Codes()) || len(written) != len(codes) {
		t.Errorf("%d codes and %d rows: one is there twice", len(codes), len(written))
	}
}
