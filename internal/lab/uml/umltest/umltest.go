// SPDX-License-Identifier: Apache-2.0

// Package umltest runs a package's tests inside the lab kernel: as root, in a kernel that has every qdisc, where
// nothing can be broken.
//
// A package that wants it calls Main from its TestMain, and Run from a test that names the tests to run inside.
package umltest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/internal/lab/boot"
	"weir/internal/lab/uml"
	"weir/internal/testkind"
)

const (
	marker  = "WEIR_TEST" // in process 1's environment: the pattern of tests to run
	share   = "/host"
	outFile = "out.txt"
	okFile  = "ok"

	hangs = time.Hour // is how long a guest takes that hangs: this machine may have much else to do
)

// Inside reports whether this is the lab kernel.
func Inside() bool { return os.Getpid() == 1 && os.Getenv(marker) != "" }

// Main runs the package's tests; inside the lab kernel, those that Run has asked for, and then powers off.
func Main(m *testing.M) {
	if !Inside() {
		os.Exit(m.Run())
	}
	for _, fs := range [][2]string{{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"tmpfs", "/run"},
		{"tmpfs", "/tmp"}, {"hostfs", share}} {
		if err := os.MkdirAll(fs[1], 0o755); err != nil {
			fmt.Println(err)
		}
		if err := unix.Mount(fs[0], fs[1], fs[0], 0, ""); err != nil {
			fmt.Println("mount", fs[1], err)
		}
	}
	out, err := os.Create(filepath.Join(share, outFile))
	if err == nil {
		os.Stdout, os.Stderr = out, out
	}
	os.Args = []string{"test", "-test.v", "-test.run=" + os.Getenv(marker)}
	if m.Run() == 0 {
		_ = os.WriteFile(filepath.Join(share, okFile), nil, 0o644)
	}
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

// Run boots the lab kernel with this test binary as process 1 and these files. It runs the tests that match pattern
// there, and takes over their verdict. Without a lab kernel it skips, by name.
func Run(t *testing.T, pattern string, files ...boot.File) {
	t.Helper()
	testkind.Lab(t)
	if Inside() {
		t.Skip("skipped here: it boots the kernel that it would run in")
	}
	kernel, err := uml.Find()
	if err != nil {
		t.Skipf("skipped, not passed: %s needs the lab kernel (make lab-kernel)", pattern)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	initrd, err := os.Create(filepath.Join(dir, "initrd"))
	if err != nil {
		t.Fatal(err)
	}
	if err := boot.WriteInitrd(initrd, self, files...); err != nil {
		t.Fatal(err)
	}
	if err := initrd.Close(); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(dir, "share")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	cpu, release := boot.ReserveCPU()
	defer release()
	lab := uml.Boot{Kernel: kernel, Initrd: initrd.Name(), Folder: folder, Reply: outFile, Seed: 1, CPU: cpu,
		MemoryMiB: 1024, Env: []string{marker + "=" + pattern}, Limit: hangs}
	err = lab.Run(context.Background())
	text, _ := os.ReadFile(filepath.Join(folder, outFile))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if _, err := os.Stat(filepath.Join(folder, okFile)); err != nil {
		t.Fatalf("failed in the lab kernel:\n%s", text)
	}
	if !strings.Contains(string(text), "--- PASS") {
		t.Fatalf("no test matched %q in the lab kernel:\n%s", pattern, text)
	}
	t.Logf("in the lab kernel:\n%s", text)
}
