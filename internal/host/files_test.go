// SPDX-License-Identifier: Apache-2.0

package host

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"
)

// What is read can be written down and read again, whatever it is.
func TestFileText(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(os.WriteFile(at("text"), []byte("a\nb"), 0o640))
	check(os.WriteFile(at("empty"), nil, 0o600))
	check(os.WriteFile(at("binary"), []byte{0xff, 0, 'x'}, 0o644))
	check(os.WriteFile(at("long"), []byte(strings.Repeat("x", maxText+1)), 0o644))
	check(os.Symlink("text", at("link")))
	check(os.Mkdir(at("dir"), 0o755))
	check(unix.Mkfifo(at("pipe"), 0o644))
	check(os.Chmod(at("binary"), 0o4755|os.ModeSetuid))
	for name, want := range map[string]string{
		"text": "file 0640 ", "empty": "file 0600 ", "binary": "file 4755 ", "long": "other", "link": "link text",
		"dir": "other", "pipe": "other",
		"none": "none", "text/below": "none",
	} {
		f := ReadFile(at(name))
		if !strings.HasPrefix(f.String(), want) {
			t.Errorf("%s: %q", name, f)
		}
		if again, err := ParseFile(f.String()); err != nil || again.String() != f.String() || f.Kind != Other &&
			again != f {
			t.Errorf("%s: %v, %v", name, again, err)
		}
	}
}

func FuzzParseFile(f *testing.F) {
	for _, s := range []string{"none", "other", "link /x", "file 0644 0:0\ntext", "file 0644 1:2 base64\n/wB4",
		"file 0644 0:0", "file 9 0:0\n", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if file, err := ParseFile(s); err == nil && file.String() != s {
			t.Errorf("%q is read as %q", s, file)
		}
	})
}

// A journal says which files to write: it may name none but these.
func TestIsKeptFile(t *testing.T) {
	for name, want := range map[string]bool{
		GoalFile: true, SysctlFile: true, UnitFile: true, UnitLink: true, UdevFile: true,
		"/etc/init.d/weir": true, "/etc/runlevels/default/weir-follow": true, "/etc/init.d/ssh": false,
		"/etc/passwd": false, "": false, PackageUnit: false, "/etc/../etc/weir.toml": false, "/etc/weir.toml/": false,
	} {
		if IsKeptFile(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
}

func TestInit(t *testing.T) {
	dir, file := &fstest.MapFile{Mode: fs.ModeDir | 0o755}, &fstest.MapFile{Mode: 0o644}
	for want, root := range map[string]fstest.MapFS{
		Systemd: {"run/systemd/system": dir}, OpenRC: {"run/openrc/softlevel": file}, "": {"run/openrc": dir},
	} {
		if got := initOf(root); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for text, want := range map[string]string{
		FirstLine + "[Service]\nExecStart=/usr/bin/weir up --boot\n":                  "/usr/bin/weir",
		ScriptLine + FirstLine + "start() {\n\t/opt/weir up --boot >/dev/null # x\n}": "/opt/weir",
		"ExecStart=/usr/bin/weir up --boot\n":                                         "", // not Weir's
		FirstLine:                                                                     "",
	} {
		if got := startedProgram(text); got != want {
			t.Errorf("%q starts %q, want %q", text, got, want)
		}
	}
}

func TestRootOnly(t *testing.T) {
	for _, c := range []struct {
		mode     os.FileMode
		uid, gid uint32
		want     bool
	}{
		{0o755, 0, 0, true}, {0o755, 0, 1000, true}, {0o775 | os.ModeSetgid, 0, 50, true}, {0o775, 0, 0, true},
		{0o755, 1000, 0, false}, {0o775, 0, 1000, false}, {0o777, 0, 0, false}, {0o777 | os.ModeSticky, 0, 0, false},
	} {
		if rootOnly(c.mode, c.uid, c.gid) != c.want {
			t.Errorf("%v %d:%d: %v", c.mode, c.uid, c.gid, !c.want)
		}
	}
}
