// SPDX-License-Identifier: Apache-2.0

//go:build all

package main

// In make test-all: it is another boot of a stock kernel. Its one CPU counts time by instructions.

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"weir/internal/bench"
	"weir/internal/lab/qemu/kerneltest"
	"weir/internal/units"
)

// What queues carry, on a stock kernel under emulation, as root and as nobody.
func TestBench(t *testing.T) {
	kerneltest.Run(t, kerneltest.Options{Tests: "^TestInBench"})
}

// benchAs runs weir doctor --bench as a user.
func benchAs(uid uint32, args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", append([]string{"doctor", "--bench"}, args...)...)
	cmd.Args[0] = "weir"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	return cmd
}

func TestInBench(t *testing.T) {
	kerneltest.In(t)
	for _, uid := range []uint32{0, 65534} { // nobody makes a user namespace besides
		before := leftBehind(t)
		var out, errs bytes.Buffer
		cmd := benchAs(uid, "--json")
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil {
			t.Fatalf("uid %d: %v\n%s%s", uid, err, out.String(), errs.String())
		}
		var r bench.Report
		if err := json.Unmarshal(out.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		rates := map[string]units.Rate{}
		for _, x := range r.Results {
			t.Logf("%-30s %-60s %8.0f packets/s %s %s", x.Name, x.Queue, x.Packets, x.Rate, x.Lacks)
			rates[x.Name] = x.Rate
			if x.Lacks != "" {
				t.Errorf("uid %d: %s was not measured: %s", uid, x.Name, x.Lacks)
			}
		}
		if one := rates["one CAKE"]; one == 0 || r.OneCake > one || r.OneCake < one*9/10 {
			t.Errorf("uid %d: of %s a plan is told %s", uid, one, r.OneCake)
		}
		if after := leftBehind(t); after != before {
			t.Errorf("uid %d: left behind:\n%s\nbefore:\n%s", uid, after, before)
		}
	}
	if err := os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0); err != nil {
		t.Fatal(err)
	}
	out, err := benchAs(65534).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "a network namespace needs root here\n  try: sudo weir doctor") {
		t.Errorf("%v\n%s", err, out)
	}
}

// Killed at any time, it leaves no process, no device and no namespace.
func TestInBenchKilled(t *testing.T) {
	kerneltest.In(t)
	before := leftBehind(t)
	for after := 10 * time.Millisecond; after < 2*time.Second; after *= 3 {
		cmd := benchAs(0)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(after)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		cmd.Wait()
		deadline := time.Now().Add(10 * time.Second)
		for leftBehind(t) != before && time.Now().Before(deadline) {
			time.Sleep(20 * time.Millisecond)
		}
		if now := leftBehind(t); now != before {
			t.Fatalf("killed after %s, it left:\n%s\nbefore:\n%s", after, now, before)
		}
	}
}

// leftBehind are the devices here, the processes of this program, and the namespaces that processes are in.
func leftBehind(t *testing.T) string {
	t.Helper()
	var all []string
	links, err := netlink.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		all = append(all, "device "+l.Attrs().Name)
	}
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range lines {
		if text, _ := os.ReadFile(name); bytes.HasPrefix(text, []byte("weir\x00")) {
			all = append(all, "process "+strings.ReplaceAll(string(text), "\x00", " "))
		}
	}
	return strings.Join(all, "\n")
}
