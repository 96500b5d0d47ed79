// SPDX-License-Identifier: Apache-2.0

//go:build all

package packaging

// In make test-all: packages are built, and installed in a copy of this machine.

import (
	"bytes"
	_ "embed"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"weir/internal/testkind"
)

func TestPackage(t *testing.T) {
	deb, said := build(t)
	epoch := strings.TrimSpace(output(t, "date", "-u", "-d", "@"+
		strings.TrimSpace(output(t, "git", "log", "-1", "--format=%ct")), "+%Y-%m-%d %H:%M"))

	t.Run("contents", func(t *testing.T) {
		t.Setenv("TZ", "UTC")
		got := map[string]string{}
		for l := range strings.Lines(output(t, "dpkg-deb", "-c", deb)) {
			fields := strings.Fields(l) // mode, owner, size, day, time, name
			if fields[1] != "root/root" || fields[3]+" "+fields[4] != epoch {
				t.Errorf("not root's, or not of %s: %s", epoch, l)
			}
			if fields[0] == "drwxr-xr-x" {
				continue
			}
			got[strings.TrimPrefix(fields[5], "./")] = fields[0]
		}
		for name, mode := range contents() {
			if got[name] != mode {
				t.Errorf("%s: %q, want %s", name, got[name], mode)
			}
			delete(got, name)
		}
		for _, name := range slices.Sorted(maps.Keys(got)) {
			t.Errorf("also in it: %s %s (a new command has a page? then it belongs into this test)", got[name], name)
		}
	})
	t.Run("control", func(t *testing.T) {
		for field, want := range map[string]string{
			"Package": "weir", "Architecture": "amd64", "Recommends": "iproute2", "Depends": "", "Section": "net",
			"Priority": "optional", "Version": `[0-9][0-9A-Za-z.+~]*-1`,
		} {
			if got := strings.TrimSpace(output(t, "dpkg-deb", "-f", deb, field)); !regexp.MustCompile("^" + want +
				"$").MatchString(got) {
				t.Errorf("%s: %q, want %s", field, got, want)
			}
		}
		if out, err := exec.Command("dpkg", "--validate-version",
			strings.TrimSpace(output(t, "dpkg-deb", "-f", deb, "Version"))).CombinedOutput(); err != nil {
			t.Errorf("%s", out)
		}
	})
	t.Run("lintian", func(t *testing.T) {
		needs(t, "lintian")
		if regexp.MustCompile(`(?m)^[EWX]: `).MatchString(said) {
			t.Error(said)
		}
	})
	root := t.TempDir()
	output(t, "dpkg-deb", "-x", deb, root)
	t.Run("manual", func(t *testing.T) {
		needs(t, "man")
		pages, _ := filepath.Glob(root + "/usr/share/man/man*/*")
		for _, page := range pages {
			cmd := exec.Command("man", "--warnings", "-E", "UTF-8", "-Tutf8", "-l", page)
			cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "MANWIDTH=80", "MAN_KEEP_STDERR=1")
			var text, warnings bytes.Buffer
			cmd.Stdout, cmd.Stderr = &text, &warnings
			if err := cmd.Run(); err != nil || warnings.Len() > 0 || text.Len() < 500 {
				t.Errorf("%s: %v, %d bytes %s", filepath.Base(page), err, text.Len(), &warnings)
			}
		}
	})
	t.Run("copyright", func(t *testing.T) {
		text, err := os.ReadFile(root + "/usr/share/doc/weir/copyright")
		if err != nil {
			t.Fatal(err)
		}
		for l := range strings.Lines(output(t, "../scripts/go", "version", "-m", root+"/usr/bin/weir")) {
			if f := strings.Fields(l); len(f) > 2 && f[0] == "dep" &&
				!bytes.Contains(text, []byte("\n"+f[1]+" "+f[2]+"\n")) {
				t.Errorf("without the terms of %s", f[1])
			}
		}
		// A module whose terms were not found would be a heading with nothing below it.
		if regexp.MustCompile(`\n=+\n[^\n]+\n\n(\n=|$)`).Match(text) {
			t.Error("a module without terms")
		}
	})
	t.Run("completions", func(t *testing.T) {
		needs(t, "bash")
		output(t, "bash", "-n", root+"/usr/share/bash-completion/completions/weir")
	})
	t.Run("generator is not shipped", func(t *testing.T) {
		if out, err := exec.Command(root+"/usr/bin/weir", "man", root).CombinedOutput(); err == nil {
			t.Errorf("weir man: %s", out)
		}
	})
	t.Run("lab", func(t *testing.T) { labPackage(t, filepath.Dir(deb)) })
	t.Run("lifecycle", func(t *testing.T) { runLifecycle(t, deb, "dpkg") })
	t.Run("role", func(t *testing.T) { runRole(t, deb, "apt-get") })
	t.Run("others", func(t *testing.T) { others(t, filepath.Dir(deb)) })
	t.Run("reproducible", func(t *testing.T) {
		again, _ := build(t, "UMASK=077", "TZ=Asia/Tokyo", "LC_ALL=C.UTF-8")
		files, err := os.ReadDir(filepath.Dir(deb))
		if err != nil || len(files) != 11 {
			t.Errorf("%d files: %v", len(files), err)
		}
		for _, file := range files {
			name := file.Name()
			a, errA := os.ReadFile(filepath.Join(filepath.Dir(deb), name))
			b, errB := os.ReadFile(filepath.Join(filepath.Dir(again), name))
			if errA != nil || errB != nil || !bytes.Equal(a, b) {
				t.Errorf("%s differs: %v %v", name, errA, errB)
			}
		}
	})
}

// labPackage looks at weir-lab: it has the kernel, says where that is from, and needs the weir that its guests run.
func labPackage(t *testing.T, dir string) {
	debs, _ := filepath.Glob(dir + "/weir-lab_*_amd64.deb")
	if len(debs) != 1 {
		t.Fatalf("packages: %v", debs)
	}
	version := strings.TrimSpace(output(t, "dpkg-deb", "-f", debs[0], "Version"))
	for field, want := range map[string]string{"Package": "weir-lab", "Architecture": "amd64",
		"Depends": "weir (= " + version + ")"} {
		if got := strings.TrimSpace(output(t, "dpkg-deb", "-f", debs[0], field)); got != want {
			t.Errorf("%s: %q, want %s", field, got, want)
		}
	}
	root := t.TempDir()
	output(t, "dpkg-deb", "-x", debs[0], root)
	for _, name := range []string{"usr/share/man/man1/weir-lab-run.1.gz", "usr/share/man/man1/weir-lab-merge.1.gz",
		"usr/share/doc/weir-lab/scenarios/narrow-link.toml", "usr/share/bash-completion/completions/weir-lab"} {
		if info, err := os.Stat(filepath.Join(root, name)); err != nil || info.Mode() != 0o644 {
			t.Errorf("%s: %v", name, err)
		}
	}
	recipe, err := os.ReadFile(root + "/usr/lib/weir-lab/recipe")
	terms, errTerms := os.ReadFile(root + "/usr/share/doc/weir-lab/copyright")
	if err != nil || errTerms != nil || !strings.Contains(string(terms), "recipe "+strings.TrimSpace(string(recipe))) {
		t.Errorf("its terms do not name the kernel's recipe %s: %v %v", recipe, err, errTerms)
	}
	if got := output(t, root+"/usr/lib/weir-lab/linux", "--version"); !strings.HasPrefix(strings.TrimSpace(got), "7.") {
		t.Errorf("the kernel says that it is %q", got)
	}
}

//go:embed copy_test.sh
var copied string

//go:embed lifecycle_test.sh
var lifecycle string

//go:embed role_test.sh
var role string

// runLifecycle has the package installed, brought up, upgraded while in force, removed and purged.
func runLifecycle(t *testing.T, file string, tools ...string) {
	onCopy(t, lifecycle, file, "rpmlintrc", append(tools, "ip", "tc")...)
}

// runRole has the package installed by the role of the Ansible collection, with the package manager of its kind.
func runRole(t *testing.T, file string, tools ...string) {
	needsAnsible(t, append(tools, "ansible-playbook", "ansible-galaxy")...)
	dir := t.TempDir()
	output(t, "ansible-galaxy", "collection", "build", "--output-path", dir, "../ansible")
	onCopy(t, role, file, dir+"/weir-net-1.0.0.tar.gz")
}

// onCopy runs a script for a package and one more file on a copy of this machine, which has a network of its own.
func onCopy(t *testing.T, script, file, other string, tools ...string) {
	if os.Geteuid() != 0 {
		t.Skip("skipped, not passed: installing needs root")
	}
	needs(t, append(tools, "unshare", "mount", "bash")...)
	if fs, err := os.ReadFile("/proc/filesystems"); err != nil || !strings.Contains(string(fs), "\toverlay\n") {
		t.Skip("skipped, not passed: this kernel has no overlay file system")
	}
	cmd := exec.Command("unshare", "--mount", "--net", "--pid", "--fork", "bash", "-c", copied+script, "copy", file,
		t.TempDir(), other)
	out, err := cmd.CombinedOutput()
	fmt.Fprintf(t.Output(), "%s", out)
	if err != nil {
		t.Error(err)
	}
}

// build makes the package for amd64 as make dist does, and gives its path and what was printed.
func build(t *testing.T, environment ...string) (deb, said string) {
	t.Helper()
	needs(t, "git", "gzip", "dpkg-deb")
	if out, err := exec.Command("../scripts/go", "tool", "-modfile=tools/go.mod", "nfpm",
		"--version").CombinedOutput(); err != nil {
		t.Logf("%s", out)
		t.Skipf("skipped, not passed: nfpm cannot be had: %v (make dist)", err)
	}
	if err := exec.Command("git", "rev-parse", "HEAD").Run(); err != nil {
		t.Skip("skipped, not passed: no commit to make a package of")
	}
	dir := t.TempDir()
	cmd := exec.Command("sh", "-c", `umask "${UMASK:-022}"; exec ../scripts/dist "$0" amd64 darwin/arm64`, dir)
	cmd.Env = append(os.Environ(), environment...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("scripts/dist: %v\n%s", err, out)
	}
	debs, _ := filepath.Glob(dir + "/weir_*_amd64.deb")
	if len(debs) != 1 {
		t.Fatalf("packages: %v\n%s", debs, out)
	}
	return debs[0], string(out)
}

func needs(t *testing.T, tools ...string) {
	t.Helper()
	testkind.Program(t)
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("skipped, not passed: %v (scripts/need dist)", err)
		}
	}
}
