// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestKernels(t *testing.T) {
	dir := t.TempDir()
	if all, err := kernelsIn(filepath.Join(dir, "none")); err != nil || len(all) != 0 {
		t.Errorf("without a cache: %v, %v", all, err)
	}
	for _, release := range []string{"7.2.12+deb13-cloud-amd64", "6.18.15+deb13-cloud-amd64", "7.2.9+deb13-cloud-amd64",
		"7.10.1+deb13-cloud-amd64", "work.x", "empty"} {
		if err := os.MkdirAll(filepath.Join(dir, release), 0o755); err != nil {
			t.Fatal(err)
		}
		if release != "empty" {
			if err := os.WriteFile(filepath.Join(dir, release, "vmlinuz"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	// The link to the newest is not another kernel.
	if err := os.Symlink("7.10.1+deb13-cloud-amd64", filepath.Join(dir, "newest")); err != nil {
		t.Fatal(err)
	}
	all, err := kernelsIn(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, k := range all {
		got = append(got, strings.TrimSuffix(k.Release, "+deb13-cloud-amd64"))
	}
	if want := []string{"6.18.15", "7.2.9", "7.2.12", "7.10.1"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for series, want := range map[string]string{"newest": "7.10.1", "7.2": "7.2.12", "7.10": "7.10.1",
		"6.18": "6.18.15", "7.1": "", "6.1": ""} {
		k, err := find(all, series)
		if want == "" && !errors.Is(err, ErrNoKernel) || want != "" && k.Release != want+"+deb13-cloud-amd64" {
			t.Errorf("%s: got %v, %v", series, k, err)
		}
	}
	if _, err := find(nil, "newest"); !errors.Is(err, ErrNoKernel) {
		t.Errorf("got %v", err)
	}
}

func TestUnsigned(t *testing.T) {
	const end = "~Module signature appended~\n"
	signed := "ELF…" + "SIG" + "12345678\x00\x00\x00\x03" + end
	for module, want := range map[string]string{signed: "ELF…", "ELF…": "ELF…", end: end, "x\xff\xff\xff\xff" +
		end: "x\xff\xff\xff\xff" + end, "12345678\xff\xff\xff\xff" + end: "12345678\xff\xff\xff\xff" + end} {
		if got := string(unsigned([]byte(module))); got != want {
			t.Errorf("%q: got %q, want %q", module, got, want)
		}
	}
}

func TestFrame(t *testing.T) {
	for _, reply := range []string{"", "{}", "5\n\x00\xff"} {
		if got, err := unframe(frame([]byte(reply))); err != nil || string(got) != reply {
			t.Errorf("%q: got %q, %v", reply, got, err)
		}
	}
	for _, bad := range []string{"", "x\n", "3\nab", "1\nab"} {
		if got, err := unframe([]byte(bad)); err == nil {
			t.Errorf("%q: got %q", bad, got)
		}
	}
}

func TestCommandLine(t *testing.T) {
	line := Boot{Exact: true, Seed: 7, Env: []string{"A=1", "B=two words"}}.commandLine()
	for _, want := range []string{"rdinit=/init", "WEIR_SEED=7", `A="1"`, `B="two words"`} {
		if !strings.Contains(line, want) {
			t.Errorf("%s is not in %s", want, line)
		}
	}
	for _, bad := range []Boot{{Exact: true, CPUs: 2}, {Env: []string{`A="`}}, {Env: []string{"A"}},
		{Env: []string{"a.b=1"}}, {Env: []string{"A=" + strings.Repeat("x", 2000)}}} {
		bad.Limit = time.Second
		if _, _, err := bad.Run(t.Context()); err == nil {
			t.Errorf("%v was not refused", bad)
		}
	}
}
