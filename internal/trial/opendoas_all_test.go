// SPDX-License-Identifier: Apache-2.0

//go:build all && linux

package trial

// In make test-all: a real doas is run.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"weir/internal/meter/far"
)

// Debian's doas, with users and a configuration of its own. The work is in TestOpendoasInside.
func TestOpendoas(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped, not passed: a namespace needs root")
	}
	for _, program := range []string{"doas", "script", "setpriv", "setsid"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("skipped, not passed: this needs %s (scripts/need test)", program)
		}
	}
	dir, err := os.MkdirTemp("", "weir-doas") // which others may enter
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	c := exec.Command(os.Args[0], "-test.run=^TestOpendoasInside$", "-test.v")
	c.Env = append(os.Environ(), "WEIR_TEST_DOAS="+dir)
	c.SysProcAttr = &unix.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	out, err := c.CombinedOutput()
	if t.Logf("%s", out); err != nil {
		t.Error(err)
	}
}

// secretHash is of the password "it's secret", by openssl passwd -6.
const secretHash = "$6$weirweir$ljTjLX/VkI0klgofCIqZ2yIasbqhjNGA84RYIsqjiaT6sRXhdlZeGqCdOxOFZiQugmGML7hcBXeikKRDSRCmZ."

func TestOpendoasInside(t *testing.T) {
	dir := os.Getenv("WEIR_TEST_DOAS")
	if dir == "" {
		t.Skip("skipped here: TestOpendoas runs it")
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	etc := filepath.Join(dir, "etc")
	out, err := exec.Command("cp", "-a", "/etc", etc).CombinedOutput()
	if err != nil {
		t.Fatalf("%s", out)
	}
	write := func(name, text string, mode os.FileMode) {
		check(os.WriteFile(filepath.Join(dir, name), []byte(text), mode))
	}
	const root, me = "root:x:0:0::/root:/bin/sh\n", "me:x:54321:54321::/tmp:/bin/sh\n"
	write("etc/passwd", root+me, 0o644)
	write("etc/group", "root:x:0:\nme:x:54321:\n", 0o644)
	write("etc/shadow", "root:*:19000:0:99999:7:::\nme:"+secretHash+":19000:0:99999:7:::\n", 0o600)
	check(unix.Mount(etc, "/etc", "", unix.MS_BIND, ""))
	// An ssh that logs in here, as that user, with a terminal or without. It has no sudo.
	check(os.Chmod(dir, 0o755))
	check(os.Mkdir(dir+"/bin", 0o755))
	for _, name := range []string{"sh", "cat", "id", "uname", "mktemp", "chmod", "rm", "sha256sum", "true", "test"} {
		path, err := exec.LookPath(name)
		check(err)
		check(os.Symlink(path, dir+"/bin/"+name))
	}
	doas, err := exec.LookPath("doas")
	check(err)
	check(os.Symlink(doas, dir+"/bin/doas"))
	write("ssh", "#!/bin/sh\nmode=$1\nwhile [ \"$1\" != -- ]; do shift; done\ncd /\n"+
		"as='setpriv --reuid 54321 --regid 54321 --init-groups env PATH="+dir+"/bin SHELL=/bin/sh TMPDIR=/tmp'\n"+
		"export SSH_CONNECTION='192.0.2.9 50001 192.0.2.1 22'\n"+
		"case $mode in\n-tt) printf %s \"$3\" >"+dir+"/command; exec script -qefc \"$as sh "+dir+
		"/command\" /dev/null;;\n*) exec setsid -w $as sh -c \"$3\";;\nesac\n", 0o755)
	host := far.Host{Name: "me@there", Program: dir + "/ssh"}
	ctx := context.Background()
	for _, c := range []struct{ conf, err, root string }{
		{"permit nopass me\n", "", "doas -n"},
		{"permit me\n", "", "doas"},
		{"permit persist me\n", "", "doas"},
		{"permit me\npermit nopass me cmd true\n", "", "doas"}, // what is run is another
		{"permit nopass me cmd true\n", "doas permits it nothing", ""},
		{"permit me\npermit nopass me cmd true\n", "", "doas"}, // what is run is another
		{"permit nopass me cmd true\n", "doas permits it nothing", ""},
		{"deny me\n", "doas permits it nothing", ""},
		{"", "doas permits it nothing", ""},
	} {
		os.Remove("/etc/doas.conf")
		if c.conf != "" {
			write("etc/doas.conf", c.conf, 0o600)
		}
		m, err := Open(ctx, host)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q: %v", c.conf, err)
			}
			continue
		}
		if err != nil || strings.Join(m.root, " ") != c.root {
			t.Errorf("%q: %v, %+v", c.conf, err, m)
			continue
		}
		if m.Password = "wrong"; m.WantsPassword() {
			const want = "doas on me@there lets nobody in with that password: doas: " +
				"Authentication failed"
			if err := m.Allowed(ctx); fmt.Sprint(err) != want {
				t.Errorf("%q, a wrong password: %v", c.conf, err)
			}
		}
		m.Password = "it's secret"
		check(m.Allowed(ctx))
		check(m.Copy(ctx, []byte("#!/bin/sh\nid -u; for a; do echo \"<$a>\"; done; [ -t 0 ] || echo none; "+
			"echo 'weir: no' >&2; echo '  try: more' >&2; exit ${#1}\n")))
		for _, words := range [][]string{{"", "it's"}, {"four"}} {
			out, err := m.Weir(ctx, words...)
			var failed *far.Failed
			if errors.As(err, &failed) && failed.Status == 4 && failed.Said == "no (try: more)" {
				out += "failed\n"
			} else if err != nil {
				t.Errorf("%q: %v", c.conf, err)
			}
			want := map[string]string{"": "0\n<>\n<it's>\nnone\n", "four": "0\n<four>\nnone\nfailed\n"}[words[0]]
			if out != want {
				t.Errorf("%q: %q", c.conf, out)
			}
		}
		if left, _ := filepath.Glob(m.dir + "/said*"); len(left) > 0 {
			t.Errorf("%q: %q are left", c.conf, left)
		}
		check(m.Remove(ctx))
	}
}
