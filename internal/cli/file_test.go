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
	at := func(name string) string { return filepath.Join(dir, name) }
	put := func(name string) {
		t.Helper()
		if err := Writable(at(name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := WriteFile(at(name), []byte("new")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	holds := func(name, want string) {
		t.Helper()
		if b, err := os.ReadFile(at(name)); err != nil || string(b) != want {
			t.Errorf("%s holds %q: %v", name, b, err)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(at("old"), []byte("longer than before"), 0o600))
	must(os.Link(at("old"), at("other")))
	must(os.Symlink("old", at("link")))
	must(os.Symlink("made", at("dangling")))
	must(os.Symlink("/dev/full", at("full")))
	put("fresh")
	holds("fresh", "new")
	put("link")
	put("dangling")
	for _, name := range []string{"old", "other", "made"} {
		holds(name, "new")
	}
	if info, err := os.Stat(at("old")); err != nil || info.Mode() != 0o600 {
		t.Errorf("its mode is %v now", info.Mode())
	}
	for _, name := range []string{"link", "dangling", "full"} {
		if name == "full" {
			if err := WriteFile(at(name), []byte("new")); !errors.Is(err, unix.ENOSPC) ||
				!strings.HasPrefix(err.Error(), at(name)+" cannot be written: ") {
				t.Errorf("/dev/full: %v", err)
			}
		}
		if info, err := os.Lstat(at(name)); err != nil || info.Mode()&os.ModeSymlink == 0 {
			t.Errorf("%s is no link any more", name)
		}
	}
	for _, name := range []string{"", "none/report.html", "old/report.html"} {
		if Writable(at(name)) == nil {
			t.Errorf("%q is said to be writable", name)
		}
	}
	left, err := os.ReadDir(dir)
	must(err)
	if len(left) != 7 {
		t.Errorf("there are %v", left)
	}
}
