// SPDX-License-Identifier: Apache-2.0

//go:build all

package packaging

// In make test-all: another system's tools are run.

import (
	_ "embed"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// others looks at what is no .deb, in a directory where there is one of each.
func others(t *testing.T, dir string) {
	one := func(t *testing.T, pattern string) string {
		t.Helper()
		found, _ := filepath.Glob(filepath.Join(dir, pattern))
		if len(found) != 1 {
			t.Fatalf("%s: %v", pattern, found)
		}
		return found[0]
	}
	t.Run("rpm", func(t *testing.T) {
		needs(t, "rpm")
		file := one(t, "weir-[0-9]*-1.x86_64.rpm")
		const listed = `[%{FILEMODES:perms} %{FILEUSERNAME}:%{FILEGROUPNAME} %{FILENAMES}\n]`
		compare(t, output(t, "rpm", "-qp", "--qf", listed, file), elsewhere("usr/lib/systemd/system"))
		if got := output(t, "rpm", "-qp", "--qf", "%{NAME} %{ARCH} %{LICENSE} %{BUILDHOST}", file); got !=
			"weir x86_64 Apache-2.0 localhost" {
			t.Error(got)
		}
		if got := output(t, "rpm", "-qp", "--requires", file); got != "" {
			t.Errorf("it needs %s", got) // the program is static
		}
		t.Run("lifecycle", func(t *testing.T) { runLifecycle(t, file, "rpm", "rpmlint") })
		t.Run("role", func(t *testing.T) { runRole(t, file, "dnf") })
	})
	t.Run("pacman", func(t *testing.T) {
		needs(t, "bsdtar")
		file := one(t, "weir-[0-9]*-1-x86_64.pkg.tar.zst")
		compare(t, archived(t, file), elsewhere("usr/lib/systemd/system"))
		has(t, output(t, "bsdtar", "-xOf", file, ".PKGINFO"), "pkgname = weir", "arch = x86_64",
			"license = Apache-2.0", `pkgver = [0-9][0-9a-z.]*-1`)
		t.Run("lifecycle", func(t *testing.T) { runLifecycle(t, file, "pacman") })
		t.Run("role", func(t *testing.T) { runRole(t, file, "pacman") })
	})
	t.Run("apk", func(t *testing.T) {
		needs(t, "bsdtar")
		file := one(t, "weir-[0-9]*-r1.x86_64.apk")
		compare(t, archived(t, file), elsewhere("etc/init.d"))
		has(t, output(t, "bsdtar", "-xOf", file, ".PKGINFO"), "pkgname = weir", "arch = x86_64",
			"license = Apache-2.0", `pkgver = [0-9]+(\.[0-9]+)*(_(rc|git)[0-9]+)*-r1`) // apk-package(5)
		script := filepath.Join(t.TempDir(), "script")
		if err := os.WriteFile(script, []byte(output(t, "bsdtar", "-xOf", file, ".pre-deinstall")), 0o600); err != nil {
			t.Fatal(err)
		}
		output(t, "sh", "-n", script)
		t.Run("lifecycle", func(t *testing.T) { needsAPK(t); runLifecycle(t, file) })
		t.Run("role", func(t *testing.T) { needsAPK(t); runRole(t, file) })
		t.Run("openrc", func(t *testing.T) { onOpenRC(t, file, filepath.Join(dir, "weir-linux-amd64")) })
	})
}

// needsAPK wants a static apk, which WEIR_APK names: no package but Alpine's has it, so it is built from its source
// (results/distributions.md).
func needsAPK(t *testing.T) {
	t.Helper()
	if os.Getenv("WEIR_APK") == "" {
		t.Skip("skipped, not passed: there is no apk (WEIR_APK, results/distributions.md)")
	}
}

//go:embed openrc_test.sh
var underOpenRC string

// onOpenRC has a goal kept and put back where OpenRC starts the services, by the package and by the program alone: in
// a Debian without systemd, which is no Alpine, but has its OpenRC.
func onOpenRC(t *testing.T, files ...string) {
	if os.Geteuid() != 0 {
		t.Skip("skipped, not passed: another root needs root")
	}
	needs(t, "mmdebstrap", "unshare", "mount", "ip", "tc", "bash")
	dir := t.TempDir()
	tree, first := filepath.Join(dir, "tree"), filepath.Join(dir, "openrc-init")
	output(t, "mmdebstrap", "--quiet", "--variant=essential", "--include=openrc", "bookworm", tree)
	output(t, "cp", "/bin/bash", first) // who asks for the name of process 1 is told this
	for _, file := range files {
		root := filepath.Join(dir, filepath.Base(file))
		output(t, "cp", "-a", tree, root)
		said := output(t, "unshare", "--mount", "--net", "--pid", "--fork", first, "-c", underOpenRC, "openrc", root,
			file)
		fmt.Fprintln(t.Output(), said)
	}
}

// elsewhere is what is in the package of a distribution that is not Debian's, by where its init looks.
func elsewhere(services string) map[string]string {
	files := contents()
	maps.DeleteFunc(files, func(name, _ string) bool {
		return strings.Contains(name, "lintian") || strings.Contains(name, "changelog") ||
			strings.HasPrefix(name, "usr/lib/systemd/") && services != "usr/lib/systemd/system"
	})
	move := func(from, to string) { files[to] = files[from]; delete(files, from) }
	move("usr/share/doc/weir/copyright", "usr/share/licenses/weir/copyright")
	move("usr/share/zsh/vendor-completions/_weir", "usr/share/zsh/site-functions/_weir")
	if services == "etc/init.d" {
		files["etc/init.d/weir"], files["etc/init.d/weir-follow"] = "-rwxr-xr-x", "-rwxr-xr-x"
	}
	return files
}

// archived lists a tar of root's as compare wants it.
func archived(t *testing.T, file string) string {
	t.Helper()
	var list strings.Builder
	for l := range strings.Lines(output(t, "bsdtar", "--numeric-owner", "-tvf", file)) {
		f := strings.Fields(l) // mode, links, user, group, size, month, day, time, name
		if name := f[len(f)-1]; f[0][0] != 'd' && !strings.HasPrefix(name, ".") {
			list.WriteString(f[0] + " " + f[2] + ":" + f[3] + " " + name + "\n")
		}
	}
	return list.String()
}

func compare(t *testing.T, list string, want map[string]string) {
	t.Helper()
	for l := range strings.Lines(list) {
		f := strings.Fields(l)
		name := strings.TrimPrefix(f[2], "/")
		if f[1] != "0:0" && f[1] != "root:root" {
			t.Errorf("not root's: %s", l)
		}
		if want[name] != f[0] {
			t.Errorf("%s is %s, want %q", name, f[0], want[name])
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("not in it: %s", slices.Sorted(maps.Keys(want)))
	}
}

func has(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !regexp.MustCompile("(?m)^" + line + "$").MatchString(text) {
			t.Errorf("no %q in\n%s", line, text)
		}
	}
}

// The scripts that end in putback are whole only where scripts/dist has put them together.
func TestRemovalScripts(t *testing.T) {
	for _, name := range []string{"deb/prerm", "preremove"} {
		head, errHead := os.ReadFile(name)
		tail, errTail := os.ReadFile("putback")
		if errHead != nil || errTail != nil {
			t.Fatal(errHead, errTail)
		}
		script := filepath.Join(t.TempDir(), "script")
		if err := os.WriteFile(script, append(head, tail...), 0o600); err != nil {
			t.Fatal(err)
		}
		output(t, "sh", "-n", script)
	}
}
