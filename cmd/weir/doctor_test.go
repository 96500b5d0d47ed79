// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rogpeppe/go-internal/txtar"

	"weir/internal/doctor"
	"weir/internal/host"
	"weir/internal/journal"
	"weir/internal/text"
)

// Prepared hosts. Each archive in testdata/hosts is one: files of it, with "-> target" for a symbolic link; "runtime",
// the sysctls that are not the kernel's own; "kernel", which may read "6.12.48 without dualpi2"; "facts.json", what
// only a kernel could tell; and "want", what doctor prints about it. What is not in it is as on a fresh Debian.
var update = flag.Bool("update", false, "write what is printed into testdata")

func TestHosts(t *testing.T) {
	files, err := filepath.Glob("testdata/hosts/*.txtar")
	if err != nil || len(files) < 8 {
		t.Skipf("skipped, not passed: no prepared hosts here: %v", err) // as in the lab kernel
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			facts, want := preparedHost(t, archive)
			findings := doctor.Diagnose(facts)
			var out bytes.Buffer
			printDiagnosis(&out, facts, findings)
			fits(t, out.String(), narrow)
			printSettings(&out, facts)
			fits(t, out.String(), columns)
			if *update {
				want.Data = out.Bytes()
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if out.String() != string(want.Data) {
				t.Errorf("doctor prints\n%s\nwant\n%s", out.String(), want.Data)
			}
			if harmful := strings.Contains("\n"+out.String(), "\n✗ "); harmful != (allWell(findings) != nil) {
				t.Errorf("harmful: %v, exit status: %v", harmful, allWell(findings))
			}
			// The facts are one value, also on paper.
			if _, err := json.Marshal(facts); err != nil {
				t.Error(err)
			}
		})
	}
}

// A run of the lab is named only to those who have the lab.
func TestEvidence(t *testing.T) {
	lab, none := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(lab, "weir-lab"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	var shown, said, bare doctor.Finding
	shown.Evidence.Scenario, said.Evidence.Doc = "scenarios/ingress.toml", "udev(7), of NAME"
	for _, test := range []struct {
		finding  doctor.Finding
		programs string
		want     string
	}{
		{shown, lab, "(see: weir-lab run scenarios/ingress.toml)"}, {shown, none, ""},
		{said, lab, "(udev(7), of NAME)"}, {said, none, "(udev(7), of NAME)"}, {bare, lab, ""},
	} {
		if got := evidenceOf(test.finding, test.programs); got != test.want {
			t.Errorf("%+v: %q, want %q", test.finding.Evidence, got, test.want)
		}
	}
}

// fits reports whether no line is wider.
func fits(t *testing.T, s string, columns int) {
	t.Helper()
	for l := range strings.Lines(s) {
		if text.Width(strings.TrimSuffix(l, "\n")) > columns {
			t.Errorf("%d columns: %s", text.Width(l)-1, l)
		}
	}
}

func preparedHost(t *testing.T, archive *txtar.Archive) (host.Facts, *txtar.File) {
	t.Helper()
	runtime := map[string]string{
		"net.core.default_qdisc": "fq_codel", "net.core.rmem_max": "212992", "net.core.wmem_max": "212992",
		"net.core.somaxconn":  "4096",
		"net.ipv4.ip_forward": "0", "net.ipv4.tcp_congestion_control": "cubic", "net.ipv4.tcp_ecn": "2",
		"net.ipv4.tcp_fastopen":        "1",
		"net.ipv4.tcp_max_syn_backlog": "512", "net.ipv4.tcp_notsent_lowat": "4294967295", "net.ipv4.tcp_recovery": "1",
		"net.ipv4.tcp_rmem": "4096\t131072\t6291456", "net.ipv4.tcp_wmem": "4096\t16384\t4194304",
		"net.ipv6.conf.all.forwarding": "0",
		"net.mptcp.enabled":            "1", "net.ipv4.tcp_available_congestion_control": "reno cubic",
	}
	kernel, modules := "6.12.48+deb13-amd64", []string{"cake", "codel", "dualpi2", "fq", "fq_codel", "fq_pie", "htb",
		"netem", "pie", "prio", "sfq", "tbf"}
	root := fstest.MapFS{
		"proc/meminfo": diagnosis("MemTotal: 4194304 kB\n"),
		"proc/modules": diagnosis("tcp_diag 16384 0 - Live 0x0\n"),
	}
	var given host.Facts
	var want *txtar.File
	for i, f := range archive.Files {
		switch f.Name {
		case "want":
			want = &archive.Files[i]
		case "facts.json":
			if err := json.Unmarshal(f.Data, &given); err != nil {
				t.Fatal(err)
			}
		case "kernel":
			words := strings.Fields(string(f.Data))
			kernel = words[0]
			for _, lacks := range words[min(2, len(words)):] {
				modules = strings.Fields(strings.ReplaceAll(" "+strings.Join(modules, " ")+" ", " "+lacks+" ", " "))
			}
		case "runtime":
			for l := range strings.Lines(string(f.Data)) {
				if name, value, ok := strings.Cut(l, "="); ok {
					runtime[strings.TrimSpace(name)] = strings.TrimSpace(value)
				}
			}
		default:
			if target, ok := strings.CutPrefix(string(f.Data), "-> "); ok {
				root[f.Name] = &fstest.MapFile{Data: []byte(strings.TrimSpace(target)), Mode: fs.ModeSymlink | 0o777}
			} else {
				root[f.Name] = diagnosis(string(f.Data))
			}
		}
	}
	if want == nil {
		t.Fatal("the archive has no want")
	}
	for name, value := range runtime {
		root[strings.TrimPrefix(host.SysctlPath(name), "/")] = diagnosis(value + "\n")
	}
	var dep strings.Builder
	for _, m := range modules {
		dep.WriteString("kernel/net/sched/sch_" + m + ".ko.xz:\n")
	}
	dep.WriteString("kernel/net/ipv4/tcp_bbr.ko.xz:\nkernel/net/ipv4/tcp_diag.ko.xz:\n")
	root["lib/modules/"+kernel+"/modules.dep"] = diagnosis(dep.String())

	facts := host.ReadFiles(root, kernel)
	journal.AddWriter(&facts)
	facts.Links, facts.Uplink = given.Links, given.Uplink
	if given.Deep != nil {
		facts.Deep.Sockets = given.Deep.Sockets
	}
	return facts, want
}

func diagnosis(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s), Mode: 0o755} }

// What comes from files of others cannot move a terminal's cursor, and no word is too long for the page.
func TestHostileText(t *testing.T) {
	var out bytes.Buffer
	printWrapped(&out, "✗ ", "A \x1b[2Jtitle  seen\nand "+strings.Repeat("ä", 250)+" \u202e end")
	fits(t, out.String(), narrow)
	if s := out.String(); strings.ContainsAny(s, "\x1b\u202e") || !strings.HasPrefix(s, "✗ A ?[2Jtitle  seen?and") ||
		!strings.HasSuffix(s, " ? end\n") {
		t.Errorf("%q", s)
	}
}
