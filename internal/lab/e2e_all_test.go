// SPDX-License-Identifier: Apache-2.0

//go:build all

package lab_test

// In make test-all: they boot stock kernels, end programs by signals in real time, or take minutes.

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/internal/bbr"
	"weir/internal/lab"
	"weir/internal/lab/qemu"
	"weir/internal/lab/scenario"
	"weir/internal/units"
)

// The same rules on links that no scenario names.
func TestOtherLinks(t *testing.T) {
	r := runner(t)
	for _, link := range []struct {
		mbit, ms, flows int
		queue           string
	}{
		{10, 5, 4, "fifo"}, {10, 200, 1, "policer"}, {25, 20, 8, "fifo"}, {33, 90, 2, "policer"}, {75, 120, 4, "fifo"},
		{100, 10, 3, "policer"},
		{150, 60, 4, "fifo"}, {200, 167, 4, "fifo"}, {333, 30, 6, "policer"}, {500, 5, 4, "fifo"},
		{500, 200, 8, "fifo"},
	} {
		t.Run(fmt.Sprintf("%dmbit %dms %d %s", link.mbit, link.ms, link.flows, link.queue), func(t *testing.T) {
			s := load(t, strings.NewReplacer("50mbit", fmt.Sprintf("%dmbit", link.mbit), "48.3ms",
				fmt.Sprintf("%dms", link.ms),
				`name = "downloads"`, fmt.Sprintf("name = \"downloads\"\ncount = %d", link.flows),
				"[provider]", fmt.Sprintf("[provider]\nqueue = %q", link.queue)).Replace(calm))
			report := run(t, r, s)
			p := &report.Points[0]
			c := &p.Cells[0]
			packet := 1514 * 8 / (float64(link.mbit) * 1e3) // ms
			p50, p99 := metric(t, p, c, "added.p50"), metric(t, p, c, "added.p99")
			if most := max(fastestP50, otherP50*packet); p50 > most {
				t.Errorf("added latency %.3f ms at p50; want ≤ %.3f", p50, most)
			}
			if most := max(fastestP99, otherP99*packet); p99 > most {
				t.Errorf("added latency %.3f ms at p99; want ≤ %.3f", p99, most)
			}
			if q := c.Runs[0].Provider; q.Drops+q.DropsBefore != 0 {
				t.Errorf("the provider dropped %d, and %d in the warm-up", q.Drops, q.DropsBefore)
			}
			for _, f := range c.Runs[0].Flows {
				if f.SndbufLimited > 0.01 {
					t.Errorf("a flow is limited by its send buffer for %.1f %% of the time", 100*f.SndbufLimited)
				}
			}
			used, least := metric(t, p, c, "utilisation"), shapedTo-100*echoMbit/float64(link.mbit)-dips
			if used < least {
				t.Errorf("goodput is %.2f %% of what the link can carry; want ≥ %.2f", used, least)
			}
			t.Logf("%.2f %%, +%.3f ms p50, +%.3f ms p99", used, p50, p99)
		})
	}
}

// What a path holds takes none of the lab's memory for TCP from its connections. With the kernel's own limit this one
// carried nothing at all for ten seconds. With room it carries 544 Mbit/s, and BBR is still on its way up.
func TestLongFastPathThatLoses(t *testing.T) {
	r := runner(t)
	s := load(t, strings.NewReplacer("50mbit", "1gbit", `"48.3ms"`, `"400ms"`+"\nloss = \"0.3%\"", `warmup = "5s"`,
		`warmup = "15s"`, "weir = {}", `weir = { cc = "bbr" }`).Replace(calm))
	report := run(t, r, s)
	p := &report.Points[0]
	if got := metric(t, p, &p.Cells[0], "goodput"); got < 300 {
		t.Errorf("goodput is %.0f Mbit/s", got)
	}
	if held := p.Cells[0].Runs[0]; held.TCPPressed || held.TCPPages < 1e4 {
		t.Errorf("TCP held %d pages; pressed %v", held.TCPPages, held.TCPPressed)
	}
}

// Whatever ends a run, it ends in one error and leaves nothing behind.
func TestFailures(t *testing.T) {
	r := runner(t)
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	t.Run("hang", func(t *testing.T) {
		slow := *r
		slow.Limit = 300 * time.Millisecond
		_, err := slow.Run(context.Background(), []string{"test"},
			[]scenario.Scenario{load(t, strings.Replace(calm, `"10s"`, `"600s"`, 1))})
		if err == nil || !strings.Contains(err.Error(), "no result after 300ms of real time") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("interrupted", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		begun := *r
		begun.Progress = func(lab.Progress) { cancel() } // the first boot has been started
		_, err := begun.Run(ctx, []string{"test"}, []scenario.Scenario{load(t,
			strings.Replace(calm, `"10s"`, `"600s"`, 1))})
		if err != context.Canceled {
			t.Errorf("got %v", err)
		}
	})
	t.Run("program that is none", func(t *testing.T) {
		broken := *r
		broken.Program = filepath.Join(t.TempDir(), "init")
		os.WriteFile(broken.Program, []byte("not a program"), 0o755)
		_, err := broken.Run(context.Background(), []string{"test"},
			[]scenario.Scenario{load(t, strings.Replace(calm, "weir = {}", `qdisc = "cake"`, 1))})
		if err == nil || !strings.Contains(err.Error(), "the guest's kernel panicked") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("candidate that the server refuses", func(t *testing.T) {
		_, err := r.Run(context.Background(), []string{"test"},
			[]scenario.Scenario{load(t, calm+"[candidate.sysctl]\n\"net.ipv4.no_such_thing\" = \"1\"\n")})
		if err == nil || !strings.Contains(err.Error(), "net.ipv4.no_such_thing") {
			t.Errorf("got %v", err)
		}
	})
	endless := filepath.Join(t.TempDir(), "long.toml")
	os.WriteFile(endless, []byte(strings.Replace(calm, `"10s"`, `"600s"`, 1)), 0o600)
	program := func(t *testing.T, signal os.Signal) (string, *os.ProcessState) {
		t.Helper()
		command := exec.Command(r.Program, "run", endless)
		var said bytes.Buffer
		command.Stderr = &said
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond)
		command.Process.Signal(signal)
		command.Wait()
		return said.String(), command.ProcessState
	}
	for name, signal := range map[string]os.Signal{"^C": os.Interrupt, "^\\": syscall.SIGQUIT} {
		t.Run(name, func(t *testing.T) {
			said, state := program(t, signal)
			if state.ExitCode() != 1 || !strings.Contains(said, "weir-lab: interrupted; nothing was left behind") {
				t.Errorf("%v: %s", state, said)
			}
		})
	}
	t.Run("interrupted after a point", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		single := *r
		single.Parallel = 1
		single.Progress = func(p lab.Progress) {
			if p.Done == 1 {
				cancel()
			}
		}
		s := load(t, strings.NewReplacer(`"5s"`, `"0s"`, `"10s"`, `"100ms"`).Replace(calm)+
			"[[sweep]]\nkey = \"duration\"\nvalues = [\"100ms\", \"600s\"]\n")
		reports, err := single.Run(ctx, []string{"test"}, []scenario.Scenario{s})
		if err != context.Canceled || len(reports) != 1 || len(reports[0].Points) != 1 ||
			reports[0].Points[0].Values[0] != "100ms" || reports[0].Points[0].Cells[0].Words == "" {
			t.Errorf("%v: %+v", err, reports)
		}
	})
	if left, _ := os.ReadDir(temporary); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	program(t, os.Kill) // nobody can tidy up files after that, but no process stays
	left := orphans(t)
	for range 600 { // they have been killed, and a busy machine lets them die when it can
		if len(left) == 0 {
			break
		}
		time.Sleep(100 * time.Millisecond)
		left = orphans(t)
	}
	if len(left) > 0 {
		t.Errorf("processes left behind: %v", left)
	}
	// What nobody could tidy up is tidied up by the next run.
	if left, _ := os.ReadDir(temporary); len(left) != 1 {
		t.Errorf("after SIGKILL there is %v, and not just the folder of that run", left)
	}
	run(t, r, load(t, strings.NewReplacer(`"5s"`, `"0s"`, `"10s"`, `"100ms"`).Replace(calm)))
	if left, _ := os.ReadDir(temporary); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// orphans lists user-mode Linux's processes whose parent is gone. (Those of other tests, at the same time, have
// theirs.)
func orphans(t *testing.T) (left []string) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(stats) == 0 {
		t.Fatal("no processes in /proc", err)
	}
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		name, rest, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		if (strings.HasSuffix(name, "(linux") || strings.HasSuffix(name, "(uml-userspace")) && len(fields) > 1 &&
			fields[1] == "1" && fields[0] != "Z" {
			left = append(left, string(text))
		}
	}
	return left
}

// A stock Debian kernel under emulation says what the lab kernel says, and says it again, bit for bit.
func TestEngines(t *testing.T) {
	r := runner(t)
	stock, err := qemu.Find("newest")
	if err != nil {
		t.Skipf("skipped, not passed: %s needs a stock kernel (make kernels)", t.Name())
	}
	r.Engines[scenario.QEMU] = qemu.Engine{Kernel: stock}
	s := load(t, strings.Replace(calm, `duration = "10s"`, `duration = "5s"`, 1)+`
[[candidate]]
name = "unshaped"
[[sweep]]
key = "engine"
values = ["uml", "qemu"]
`)
	report := run(t, r, s)
	for i := range report.Points[0].Cells {
		lab, stock := &report.Points[0].Cells[i], &report.Points[1].Cells[i]
		for _, name := range []string{"goodput", "rtt.p50"} {
			want, got := metric(t, &report.Points[0], lab, name), metric(t, &report.Points[1], stock, name)
			t.Logf("%s: %s %.3f on %s, %.3f on %s", lab.Candidate, name, want, lab.Runs[0].Kernel, got,
				stock.Runs[0].Kernel)
			if math.Abs(got-want) > 0.02*want {
				t.Errorf("%s: %s is %v on the lab kernel, %v on a stock one", lab.Candidate, name, want, got)
			}
		}
	}
	// Each gives the same to the byte every time, whatever else the host does.
	repeated := run(t, r, s)
	for i, engine := range []string{"uml", "qemu"} {
		first, err := json.Marshal(report.Points[i])
		if err != nil {
			t.Fatal(err)
		}
		second, err := json.Marshal(repeated.Points[i])
		if err != nil {
			t.Fatal(err)
		}
		if at := same(first, second); at < len(first) || len(first) != len(second) {
			t.Errorf("%s: two runs with one seed are different, first here:\n%s\n%s", engine, around(first, at),
				around(second, at))
		}
	}
}

// The congestion control that the lab's kernel has built in and the BPF that a stock one gets are one: over the
// founding link they do the same. The emulated CPU takes time for each packet, which moves the queue by a ms or two;
// bbr would have 62 ms of it there, and cubic 164.
func TestControlOnEngines(t *testing.T) {
	r := runner(t)
	stock, err := qemu.Find("newest")
	if err != nil {
		t.Skipf("skipped, not passed: %s needs a stock kernel (make kernels)", t.Name())
	}
	r.Engines[scenario.QEMU] = qemu.Engine{Kernel: stock}
	measured := map[string]map[string]float64{}
	for _, engine := range []string{scenario.UML, scenario.QEMU} {
		s, err := scenario.Load("../../scenarios/cc/base.toml")
		if err != nil {
			t.Fatal(err)
		}
		s.Seeds, s.Warmup, s.Duration = 1, units.Duration(5*time.Second), units.Duration(10*time.Second)
		s.Candidate = s.Candidate[len(s.Candidate)-1:]
		if err := s.SetEngine(engine); err != nil || s.Candidate[0].Name != bbr.Name {
			t.Fatal(s.Candidate[0].Name, err)
		}
		report := run(t, r, s)
		measured[engine] = map[string]float64{}
		for _, name := range []string{"goodput", "added.p50"} {
			measured[engine][name] = metric(t, &report.Points[0], &report.Points[0].Cells[0], name)
		}
	}
	t.Log(measured)
	for name, near := range map[string]float64{"goodput": 1.5, "added.p50": 3} { // Mbit/s, ms
		if want, got := measured[scenario.UML][name], measured[scenario.QEMU][name]; math.Abs(got-want) > near {
			t.Errorf("%s: %v in the lab's kernel, %v in a stock one", name, want, got)
		}
	}
}
