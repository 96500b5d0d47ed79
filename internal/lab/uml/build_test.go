// SPDX-License-Identifier: Apache-2.0

package uml

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Where there is no source to build from, one line says so, and another what to give it.
func TestBuildRefusals(t *testing.T) {
	if os.Getpid() == 1 {
		t.Skip("skipped here: a guest has no shell")
	}
	bin := t.TempDir()
	for _, tool := range []string{"bash", "dirname", "cat", "grep", "sha256sum", "cut", "mkdir", "mktemp", "rm", "tar",
		"sed", "paste", "sort", "head", "awk", "ls", "tail", "basename", "printf", "true"} {
		path, err := exec.LookPath(tool)
		if err != nil {
			t.Skipf("skipped, not passed: %v", err)
		}
		if err := os.Symlink(path, filepath.Join(bin, tool)); err != nil {
			t.Fatal(err)
		}
	}
	write := func(path, text string, mode os.FileMode) string {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, tool := range []string{"gcc", "make", "flex", "bison", "bc", "xz", "perl", "flock", "dpkg-deb"} {
		write(filepath.Join(bin, tool), "#!"+bin+"/true\n", 0o755)
	}
	old, empty := t.TempDir(), t.TempDir()
	text := write(filepath.Join(t.TempDir(), "text"), "text", 0o644)
	write(filepath.Join(old, "Makefile"), "VERSION = 6\nPATCHLEVEL = 1\nSUBLEVEL = 5\n", 0o644)
	const sourceHint = "  try: LINUX=/path/to/linux-6.17.tar.xz make lab-kernel"
	for _, c := range []struct{ linux, origin, has, says, try string }{
		{linux: "/nonexistent", says: "LINUX=/nonexistent: no such file or folder", try: sourceHint},
		{linux: text, says: "is no tarball of a kernel", try: sourceHint},
		{linux: empty, says: "is no kernel's source", try: sourceHint},
		{linux: old, says: "is of 6.1.5, and the lab takes 6.17 or later", try: sourceHint},
		{origin: "Fedora", says: "this machine's apt names no mirror of Debian or Ubuntu", try: sourceHint},
		{origin: "Ubuntu", has: "linux-source-6.8.0 - x", says: "this Ubuntu has no linux-source of 6.17 or later",
			try: sourceHint},
		{origin: "Ubuntu", has: "linux-source-6.17.0 - x", says: "download failed"},
	} {
		write(filepath.Join(bin, "apt-get"), fmt.Sprintf("#!%s/bash\n"+
			"[ \"$1\" != indextargets ] && exit 1; echo 'http://x noble %s'\n", bin, c.origin), 0o755)
		write(filepath.Join(bin, "apt-cache"), fmt.Sprintf("#!%s/bash\n"+
			"case \"$*\" in *show*) echo 'Version: 6.17.0-9.9' ;; *) echo '%s' ;; esac\n", bin, c.has), 0o755)
		command := exec.Command(filepath.Join(bin, "bash"), "kernel/build")
		command.Env = []string{"PATH=" + bin, "XDG_CACHE_HOME=" + t.TempDir(), "LINUX=" + c.linux}
		out, err := command.CombinedOutput()
		if err == nil || !strings.Contains(string(out), c.says+"\n"+c.try) {
			t.Errorf("LINUX=%s, apt of %s: %v, %s", c.linux, c.origin, err, out)
		}
	}
}
