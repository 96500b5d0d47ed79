// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A file that a person names is written where it is, whatever it is, and what cannot be written leaves nothing.
func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	put := func(name string) {
		t.Helper()
		if err := Writable(path(name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := WriteFile(path(name), []byte("new")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	holds := func(name, want string) {
		t.Helper()
		if b, err := os.ReadFile(path(name)); err != nil || string(b) != want {
			t.Errorf("%s holds %q: %v", name, b, err)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(path("old"), []byte("longer than before"), 0o600))
	must(os.Link(path("old"), path("other")))
	must(os.Symlink("old", path("link")))
	must(os.Symlink("made", path("dangling")))
	must(os.Symlink("/dev/full", path("full")))
	put("fresh")
	holds("fresh", "new")
	put("link")
	put("dangling")
	for _, name := range []string{"old", "other", "made"} {
		holds(name, "new")
	}
	if info, err := os.Stat(path("old")); err != nil || info.Mode() != 0o600 {
		t.Errorf("its mode is %v now", info.Mode())
	}
	for _, name := range []string{"link", "dangling", "full"} {
		if name == "full" {
			if err := WriteFile(path(name), []byte("new")); !errors.Is(err, unix.ENOSPC) ||
				!strings.HasPrefix(err.Error(), path(name)+" cannot be written: ") {
				t.Errorf("/dev/full: %v", err)
			}
		}
		if info, err := os.Lstat(path(name)); err != nil || info.Mode()&os.ModeSymlink == 0 {
			t.Errorf("%s is no link any more", name)
		}
	}
	for _, name := range []string{"", "none/report.html", "old/report.html"} {
		if Writable(path(name)) == nil {
			t.Errorf("%q is said to be writable", name)
		}
	}
	left, err := os.ReadDir(dir)
	must(err)
	if len(left) != 7 {
		t.Errorf("there are %v", left)
	}
}
