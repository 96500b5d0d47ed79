// SPDX-License-Identifier: Apache-2.0

package hosttest

import (
	"os"
	"strings"
	"testing"
)

// Golden compares a text with a file, which it writes first if update is set. It shows the lines that differ first.
func Golden(t *testing.T, file, got string, update bool) {
	t.Helper()
	if update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	a, b := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i] != b[i] {
			from := max(0, i-3)
			t.Fatalf("%s, line %d: is\n%s\nwant\n%s\n(go test -run %s -update writes it anew)", file, i+1,
				strings.Join(a[min(from, len(a)):min(i+3, len(a))], "\n"),
				strings.Join(b[min(from, len(b)):min(i+3, len(b))], "\n"), t.Name())
		}
	}
}
