// SPDX-License-Identifier: Apache-2.0

package uml

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/internal/lab/boot"
	"weir/internal/testkind"
)

// In the guest this test binary is process 1, and does what WEIR_DO says.
func TestMain(m *testing.M) {
	if os.Getpid() != 1 || os.Getenv("WEIR_DO") == "" {
		os.Exit(m.Run())
	}
	switch os.Getenv("WEIR_DO") {
	case "panic":
		panic("something was nil")
	case "oom":
		var kept [][]byte
		for {
			page := make([]byte, 1<<20)
			for i := range page {
				page[i] = 1
			}
			kept = append(kept, page)
			_ = kept
		}
	case "hang":
		for {
		}
	case "sleep":
		_ = unix.Pause() // nothing will ever happen
	case "talk":
		fmt.Println("\x1b[31mred\x1b[0m and \x07 a bell")
	}
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

// Whatever happens inside ends in one error that says so, and leaves nothing behind.
func TestDisasters(t *testing.T) {
	testkind.Lab(t)
	kernel, err := Find()
	if err != nil {
		t.Skip("skipped, not passed: this needs the lab kernel (make lab-kernel)")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	initrd := filepath.Join(t.TempDir(), "initrd")
	f, err := os.Create(initrd)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(boot.WriteInitrd(f, self), f.Close()); err != nil {
		t.Fatal(err)
	}
	for what, want := range map[string]string{
		"panic":     "the guest's kernel panicked",
		"oom":       "the guest ran out of memory",
		"hang":      "no result after 1s of real time",
		"sleep":     "no result after 1s of real time",
		"talk":      "",
		"power off": "",
	} {
		t.Run(what, func(t *testing.T) {
			temporary := t.TempDir()
			folder := filepath.Join(temporary, "folder")
			if err := os.Mkdir(folder, 0o755); err != nil {
				t.Fatal(err)
			}
			limit := 10 * time.Minute // the machine may be slow, and the guest may not fail for it
			if what == "hang" || what == "sleep" {
				limit = time.Second
			}
			var said []string
			err := Boot{
				Kernel: kernel, Initrd: initrd, Folder: folder, CPU: -1, MemoryMiB: 128,
				Env: []string{"WEIR_DO=" + strings.ReplaceAll(what, " ", "_")}, Limit: limit,
				OnLine: func(line string) { said = append(said, line) },
			}.Run(context.Background())
			if want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
				t.Errorf("got %v, want %q", err, want)
			}
			if what == "panic" && !strings.Contains(err.Error(), "something was nil") {
				t.Errorf("the console's last lines are missing: %v", err)
			}
			if what == "talk" && !strings.Contains(strings.Join(said, "\n"), "[31mred[0m and  a bell") {
				t.Errorf("the console said %q", said)
			}
			if left, _ := os.ReadDir(temporary); len(left) != 1 { // the folder
				t.Errorf("left behind: %v", left)
			}
		})
	}
	t.Run("no kernel", func(t *testing.T) {
		err := Boot{Kernel: Kernel{Path: filepath.Join(t.TempDir(), "linux")}, Initrd: initrd, Folder: t.TempDir(),
			CPU: -1, MemoryMiB: 128, Limit: time.Second}.Run(context.Background())
		if err == nil || !strings.Contains(err.Error(), "no such file") {
			t.Errorf("got %v", err)
		}
	})
}
