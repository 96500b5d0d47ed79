// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/meter/far"
)

// fake is an ssh that runs the command here, with these programs first in the path.
func fake(t *testing.T, programs map[string]string) far.Host {
	t.Helper()
	dir := t.TempDir()
	for name, body := range programs {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	ssh := filepath.Join(dir, "fake-ssh")
	script := "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\nPATH=" + dir + ":$PATH TMPDIR=" + dir +
		" SSH_CONNECTION='192.0.2.9 50001 192.0.2.1 22' exec sh -c \"$3\"\n"
	if err := os.WriteFile(ssh, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return far.Host{Name: "me@there", Program: ssh}
}

func TestOpen(t *testing.T) {
	const linux = `[ "$1" = -sm ] && echo Linux x86_64`
	sudo := map[bool]string{true: `[ "$1" = -n ] && shift; exec "$@"`,
		false: `[ "$1" = -n ] && exit 1; shift 3; read p; exec "$@"`}
	for name, c := range map[string]struct {
		programs map[string]string
		arch     string
		root     string
		problem  string
	}{
		"root": {map[string]string{"uname": linux, "id": "echo 0"}, "amd64", "", ""},
		"sudo": {map[string]string{"uname": linux, "id": "echo 1000", "sudo": sudo[true]}, "amd64",
			"sudo -n", ""},
		"sudo, a password": {map[string]string{"uname": linux, "id": "echo 1000", "sudo": sudo[false]}, "amd64",
			"sudo -S -p ''", ""},
		"arm": {map[string]string{"uname": "echo Linux aarch64", "id": "echo 0"}, "arm64", "", ""},
		"a Mac": {map[string]string{"uname": "echo Darwin arm64", "id": "echo 0"}, "", "",
			"weir runs on Linux"},
		"a lie": {map[string]string{"uname": "printf 'Linux \\033[31mx86_64\\n'", "id": "echo 0"}, "", "",
			`\x1b[31m`},
		"says nothing": {map[string]string{"uname": "exit 0", "id": "exit 0"}, "", "", "does not say what it is"},
	} {
		m, err := Open(context.Background(), fake(t, c.programs))
		switch {
		case c.problem != "":
			if err == nil || !strings.Contains(err.Error(), c.problem) {
				t.Errorf("%s: %v, want %s", name, err, c.problem)
			}
		case err != nil:
			t.Errorf("%s: %v", name, err)
		case m.Arch != c.arch || strings.Join(m.root, " ") != c.root:
			t.Errorf("%s: %s, %q", name, m.Arch, m.root)
		}
	}
}

func TestAsRoot(t *testing.T) {
	for name, want := range map[string]string{"a": "root@a", "me@a": "root@a", "ssh://me@a:22": "ssh://root@a:22"} {
		if got := asRoot(name); got != want {
			t.Errorf("%s: %s, and not %s", name, got, want)
		}
	}
}

// What doas says without a password reports whether one is of use.
func TestDoas(t *testing.T) {
	bin := t.TempDir() // without sudo
	if err := os.Symlink("/bin/sh", filepath.Join(bin, "sh")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	const never = "me@there: the user is not root, and doas permits it nothing"
	for _, c := range []struct{ doas, err, root string }{
		{`[ "$1" = -n ] && shift; exec "$@"`, "<nil>", "doas -n"},
		{"echo 'doas: Authentication required' >&2; exit 1", "<nil>", "doas"}, // opendoas; OpenBSD's: Authorization
		{"echo 'doas: Operation not permitted' >&2; exit 1", never, ""},
		{"echo 'doas: doas is not enabled, /etc/doas.conf: No such file or directory' >&2; exit 1", never, ""},
	} {
		host := fake(t, map[string]string{"uname": "echo Linux x86_64", "id": "echo 1000", "doas": c.doas, "true": ""})
		m, err := Open(context.Background(), host)
		if fmt.Sprint(err) != c.err || err == nil && (strings.Join(m.root, " ") != c.root ||
			m.WantsPassword() != (c.root == "doas") || m.By() != "doas") {
			t.Errorf("%s: %v, %+v", c.doas, err, m)
		}
	}
}

// A wrong password is found before anything is copied.
func TestAllowed(t *testing.T) {
	host := fake(t, map[string]string{"uname": "echo Linux x86_64", "id": "echo 1000",
		"sudo": `[ "$1" = -n ] && exit 1; shift 3; read p; [ "$p" = right ] && exec "$@"; echo "sudo: 1 incorrect ` +
			`password attempt" >&2; exit 1`})
	m, err := Open(context.Background(), host)
	if err != nil {
		t.Fatal(err)
	}
	for password, want := range map[string]string{"right": "<nil>",
		"wrong": "sudo on me@there lets nobody in with that password: sudo: 1 incorrect password attempt"} {
		m.Password = password
		if err := m.Allowed(context.Background()); fmt.Sprint(err) != want {
			t.Errorf("%s: %v", password, err)
		}
	}
}

// What is copied is what is run, as root, and nothing of it stays.
func TestCopy(t *testing.T) {
	host := fake(t, map[string]string{"uname": "echo Linux x86_64", "id": "echo 1000",
		"sudo": `[ "$1" = -n ] && exit 1; shift 3; read p; echo "$p:"; exec "$@"`})
	ctx := context.Background()
	m, err := Open(ctx, host)
	if err != nil {
		t.Fatal(err)
	}
	m.Password = "it's secret"
	program := []byte("#!/bin/sh\nfor a; do echo \"<$a>\"; done\n[ \"$1\" = fail ] && { echo 'weir: no' >&2; echo " +
		"'  try: more' >&2; exit 3; }\nexit 0\n")
	if err := m.Copy(ctx, program); err != nil {
		t.Fatal(err)
	}
	dir := m.dir
	out, err := m.Weir(ctx, "up", "--qdisc", "htb rate 1mbit | fq_codel", "it's; rm -rf $HOME")
	if want := "it's secret:\n<up>\n<--qdisc>\n<htb rate 1mbit | fq_codel>\n<it's; rm -rf $HOME>\n"; out != want ||
		err != nil {
		t.Errorf("%q, %v", out, err)
	}
	if _, err := m.Weir(ctx, "fail"); err == nil || err.Error() != "no (try: more)" {
		t.Errorf("%v", err)
	}
	if err := m.Remove(ctx); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s: %v", dir, err)
	}
}

// What an earlier trial has left is taken away, unless that may still go on.
func TestLeftFolders(t *testing.T) {
	host := fake(t, map[string]string{"uname": "echo Linux x86_64"})
	base := filepath.Dir(host.Program)
	old := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, name := range []string{"weir-try.oldABCDE", "weir-try.newABCDE", "weir-try.longer.name", "another"} {
		if err := os.MkdirAll(filepath.Join(base, name, "in"), 0o700); err != nil {
			t.Fatal(err)
		}
		if name == "weir-try.newABCDE" {
			continue
		}
		if err := os.Chtimes(filepath.Join(base, name), old, old); err != nil {
			t.Fatal(err)
		}
	}
	m, err := Open(t.Context(), host)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Copy(t.Context(), []byte("#!/bin/sh\n")); err != nil {
		t.Fatal(err)
	}
	if want := []string{base + "/weir-try.oldABCDE"}; !slices.Equal(m.Left, want) || m.Folder() == "" {
		t.Errorf("it has taken away %v, and is in %s", m.Left, m.Folder())
	}
	for name, there := range map[string]bool{"weir-try.oldABCDE": false, "weir-try.newABCDE": true,
		"weir-try.longer.name": true, "another": true} {
		if _, err := os.Stat(filepath.Join(base, name)); (err == nil) != there {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A machine that changes what it was sent, or names a folder that is none of ours, is not believed.
func TestHostileMachine(t *testing.T) {
	for name, programs := range map[string]map[string]string{
		"another sum":    {"sha256sum": "echo 0000"},
		"another folder": {"mktemp": "d=$(/usr/bin/mktemp -d); echo \"$d/x; reboot\""},
		"no folder":      {"mktemp": "exit 1"},
	} {
		programs["uname"], programs["id"] = "echo Linux x86_64", "echo 0"
		m, err := Open(context.Background(), fake(t, programs))
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Copy(context.Background(), []byte("#!/bin/sh\n")); err == nil {
			t.Errorf("%s: nothing is wrong", name)
		}
	}
}
