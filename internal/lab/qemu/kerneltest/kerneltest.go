// SPDX-License-Identifier: Apache-2.0

// Package kerneltest runs a package's tests inside stock kernels: the test binary itself is the guest's whole user
// space. It is for tests alone, and knows nothing of what they test.
//
// A package has a TestMain that calls Main, and a test on the host that calls Run. Tests that only run in a guest begin
// with In.
package kerneltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/internal/lab/boot"
	"weir/internal/lab/qemu"
	"weir/internal/testkind"
)

// Series are the kernels to test on: the newest, or with Everything all that users have. One that the archive no longer
// has is skipped by name.
func Series() []string {
	if !Everything {
		return []string{qemu.Newest}
	}
	return []string{"6.17", "6.18", "7.2", "7.3"}
}

// pattern is in the guest's environment: the tests to run.
const pattern = "WEIR_TESTS"

// Main is a package's TestMain.
func Main(m *testing.M) {
	if os.Getenv(beside) != "" {
		os.Args = append(os.Args[:1], "-test.v", "-test.run="+os.Getenv(beside))
		os.Exit(m.Run())
	}
	if !qemu.Inside() {
		os.Exit(m.Run())
	}
	if _, err := qemu.Begin(); err != nil {
		fmt.Println(err)
		qemu.PowerOff()
	}
	_ = os.Chmod(Killat, 0o755) // if it is there
	os.Args = append(os.Args[:1], "-test.v", "-test.run="+os.Getenv(pattern))
	status := m.Run()
	others, _ := filepath.Glob(besideFolder + "*")
	for _, program := range others {
		tests, _ := os.ReadFile(program + besideTests)
		if len(tests) == 0 {
			continue // it is such a list itself
		}
		_ = os.Chmod(program, 0o755)
		other := exec.Command(program)
		other.Env = append(os.Environ(), beside+"="+string(tests))
		other.Stdout, other.Stderr = os.Stdout, os.Stderr
		if err := other.Run(); err != nil {
			fmt.Println(program, err)
			status = 1
		}
	}
	if said := complaints(); said != "" {
		fmt.Println("the kernel complains:\n" + said)
		status = 1
	}
	qemu.End(fmt.Append(nil, status))
}

// Killat is where a program that kills another one at a step is to be, for tests that want it (Options.Files).
const Killat = "/killat"

// Test binaries of other packages that run in the same boot are in a folder. Each is beside its pattern of tests, which
// is in its environment, too.
const (
	beside       = "WEIR_BESIDE"
	besideFolder = "/beside/"
	besideTests  = ".tests"
)

// In skips a test outside of a guest: Run starts it there.
func In(t *testing.T) {
	t.Helper()
	if !qemu.Inside() && os.Getenv(beside) == "" {
		t.Skip("skipped here: it runs inside a kernel, which another test of this package boots")
	}
}

// complaints are the lines of the kernel's log that speak of a bug in it, which no test may cause.
func complaints() string {
	log := make([]byte, 1<<20)
	n, err := unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, log)
	if err != nil {
		return err.Error()
	}
	var bad []string
	for line := range strings.Lines(string(log[:n])) {
		for _, sign := range []string{"WARNING:", "BUG:", "Oops", "Call Trace", "lockup", "refcount_t",
			"unregister_netdevice: waiting", "possible recursive"} {
			if strings.Contains(line, sign) {
				bad = append(bad, strings.TrimSpace(line))
			}
		}
	}
	return strings.Join(bad, "\n")
}

// Options of a run.
type Options struct {
	CPUs   int    // 0: one, whose time is exact
	Tests  string // a pattern as go test -run takes it
	Limit  time.Duration
	Series []string // nil: Series

	Seed      uint64            // of the guest's randomness; 0: 1
	OnLine    func(string)      // is given what the guest says, if it is not nil
	Reference bool              // the kernel has its own sch_dualpi2, if that has been built (make reference)
	Files     map[string]string // that the tests are to find: from, by where
	Beside    map[string]string // packages whose tests run after these, in the same boot: patterns, by the import path
}

// Run runs the guest's tests of this package on each kernel of o.Series, as subtests by the kernel's name.
func Run(t *testing.T, o Options) {
	t.Helper()
	testkind.Stock(t)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if o.Series == nil {
		o.Series = Series()
	}
	files := maps.Clone(o.Files)
	if files == nil {
		files = map[string]string{}
	}
	for path, tests := range o.Beside {
		name := besideFolder + strings.ReplaceAll(path, "/", "-")
		files[name] = build(t, "test", "-c", path)
		files[name+besideTests] = filepath.Join(t.TempDir(), "tests")
		if err := os.WriteFile(files[name+besideTests], []byte(tests), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, series := range o.Series {
		t.Run(series, func(t *testing.T) {
			kernel, err := qemu.Find(series)
			if errors.Is(err, qemu.ErrNoKernel) {
				t.Skipf("skipped, not passed: %v (make kernels)", err)
			}
			if err != nil {
				t.Fatal(err)
			}
			b := qemu.Boot{Kernel: kernel, Program: program, Env: []string{pattern + "=" + o.Tests},
				Stock: !o.Reference, CPUs: o.CPUs, Exact: o.CPUs < 2, Seed: max(o.Seed, 1), Limit: o.Limit,
				OnLine: func(line string) {
					t.Log(line)
					if o.OnLine != nil {
						o.OnLine(line)
					}
				}}
			if b.Limit == 0 {
				b.Limit = time.Hour // for a guest that hangs: this machine may be slow
			}
			for name, path := range files {
				body, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				b.Files = append(b.Files, boot.File{Name: name, Body: body})
			}
			reply, _, err := b.Run(context.WithoutCancel(t.Context()))
			switch {
			case errors.Is(err, qemu.ErrNoEmulator), errors.Is(err, qemu.ErrNoClock):
				t.Skipf("skipped, not passed: %v (scripts/need kernels)", err)
			case err != nil:
				t.Fatal(err)
			case !bytes.Equal(reply, []byte("0")):
				t.Errorf("tests inside linux %s failed", kernel.Release)
			}
		})
	}
}

// Build makes a program of this module for the guest, and gives where it is.
func Build(t *testing.T, path string) string { return build(t, "build", path) }

func build(t *testing.T, words ...string) string {
	t.Helper()
	path := words[len(words)-1]
	out := filepath.Join(t.TempDir(), filepath.Base(path))
	args := append(words[:len(words)-1:len(words)-1], "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", out,
		path)
	build := exec.Command("go", args...)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, said)
	}
	return out
}
