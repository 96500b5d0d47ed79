// SPDX-License-Identifier: Apache-2.0

//go:build all

package qemu

// In make test-all: it boots stock kernels, again and again.

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/testkind"

	"golang.org/x/sys/unix"
)

// seen is what the guest of TestBoot tells.
type seen struct {
	Job     string
	Release string
	Modules int
	Random  []byte
	Boot    time.Duration // from the kernel's start, in its time
	Said    string
	Polls   bool // until process 1 keeps the CPU busy
}

// In the guest this test binary is process 1, and does what WEIR_DO says.
func TestMain(m *testing.M) {
	if !Inside() {
		os.Exit(m.Run())
	}
	job, err := Begin()
	if err != nil {
		fmt.Println(err)
		PowerOff()
	}
	switch os.Getenv("WEIR_DO") {
	case "panic":
		panic("something was nil")
	case "hang":
		for {
		}
	case "silence":
		PowerOff()
	}
	var since unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &since)
	s := seen{Job: string(job), Random: make([]byte, 16), Boot: time.Duration(since.Nano()),
		Said: os.Getenv("WEIR_SAY")}
	_, _ = rand.Read(s.Random)
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	s.Release = strings.TrimSpace(string(release))
	modules, _ := os.ReadFile("/proc/modules")
	s.Modules = bytes.Count(modules, []byte("\n"))
	log := make([]byte, 1<<20)
	n, _ := unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, log)
	s.Polls = bytes.Contains(log[:max(n, 0)], []byte("using polling idle threads"))
	fmt.Println("\x1b[31mred\x1b[0m")
	reply, _ := json.Marshal(s)
	End(reply)
}

func booted(t *testing.T) Boot {
	t.Helper()
	testkind.Stock(t)
	kernel, err := Find("newest")
	if err != nil {
		t.Skip("skipped, not passed: this needs a stock kernel (make kernels)")
	}
	if _, err := exec.LookPath(emulator); err != nil {
		t.Skip("skipped, not passed: this needs " + emulator + " (scripts/need kernels)")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", t.TempDir())
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		t.Fatal(err)
	}
	cpu := 0
	for !allowed.IsSet(cpu) {
		cpu++
	}
	return Boot{Kernel: kernel, Program: self, Job: []byte(`{"a":1}`), Env: []string{"WEIR_SAY=two words"}, Exact: true,
		Seed: 1, CPU: cpu, Limit: 20 * time.Minute}
}

// A job goes in and a reply comes out; the same seed gives the same reply, another seed other random numbers.
func TestBoot(t *testing.T) {
	b := booted(t)
	var said []string
	b.OnLine = func(line string) { said = append(said, line) }
	var replies [3][]byte
	for i, seed := range []uint64{1, 1, 2} {
		b.Seed = seed
		began := time.Now()
		reply, console, err := b.Run(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%.1f s: %s", time.Since(began).Seconds(), reply)
		if !slices.Contains(console, "[31mred[0m") || !slices.Contains(said, "[31mred[0m") {
			t.Errorf("the console said %q", console)
		}
		replies[i] = reply
	}
	var one, other seen
	if err := json.Unmarshal(replies[0], &one); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(replies[2], &other); err != nil {
		t.Fatal(err)
	}
	names, err := b.Kernel.modules()
	if err != nil {
		t.Fatal(err)
	}
	if one.Job != `{"a":1}` || one.Release != b.Kernel.Release || one.Modules != len(names) || one.Said != "two words" {
		t.Errorf("the guest saw %+v", one)
	}
	if !one.Polls {
		t.Error("the guest's CPU halts while it boots, and so its time depends on the host's")
	}
	if !bytes.Equal(replies[0], replies[1]) {
		t.Errorf("two runs with one seed:\n%s\n%s", replies[0], replies[1])
	}
	if bytes.Equal(one.Random, other.Random) {
		t.Error("two seeds give the same random numbers")
	}
	left(t)
}

// Every kernel that is there boots, with all of its modules.
func TestSeries(t *testing.T) {
	b := booted(t)
	kernels, err := kernels()
	if err != nil {
		t.Fatal(err)
	}
	b.Exact, b.CPU, b.CPUs = false, -1, 2
	for _, k := range kernels {
		t.Run(k.Release, func(t *testing.T) {
			b.Kernel = k
			reply, _, err := b.Run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var s seen
			if err := json.Unmarshal(reply, &s); err != nil || s.Release != k.Release {
				t.Errorf("the guest saw %s, %v", reply, err)
			}
		})
	}
	left(t)
}

// Whatever happens inside ends in one error that says so.
func TestDisasters(t *testing.T) {
	b := booted(t)
	for what, want := range map[string]string{
		"panic":   "the guest's kernel panicked",
		"hang":    "no result after 15s of real time",
		"silence": "the guest ended without a result",
	} {
		t.Run(what, func(t *testing.T) {
			b := b
			b.Env = []string{"WEIR_DO=" + what}
			if what == "hang" {
				b.Limit = 15 * time.Second
			}
			_, _, err := b.Run(context.Background())
			if err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
			if what == "panic" && !strings.Contains(fmt.Sprint(err), "something was nil") {
				t.Errorf("the console's last lines are missing: %v", err)
			}
		})
	}
	left(t)
}

func left(t *testing.T) {
	t.Helper()
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "weir-qemu-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
