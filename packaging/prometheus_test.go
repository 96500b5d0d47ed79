// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// promtool is Prometheus's own checker.
func promtool(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	needs(t, "dpkg-deb", "apt-get")
	path, err := exec.Command("../scripts/promtool").Output()
	if err != nil {
		t.Fatalf("scripts/promtool: %v", err)
	}
	cmd := exec.Command(strings.TrimSpace(string(path)), args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// told is what the exporter tells of a host that has everything.
func told(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../internal/exporter/testdata/metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Prometheus takes the metrics, and each rule fires where it should.
func TestPrometheus(t *testing.T) {
	promtool(t, told(t), "check", "metrics")
	promtool(t, "", "check", "rules", "prometheus/weir.rules.yml")
	promtool(t, "", "test", "rules", "prometheus/weir.rules.test.yml")
}

// What the rules and the dashboard ask for is told.
func TestPrometheusNames(t *testing.T) {
	rules, err := os.ReadFile("prometheus/weir.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)`).FindAllStringSubmatch(told(t), -1) {
		known[m[1]] = true
		if m[2] == "histogram" {
			known[m[1]+"_bucket"] = true
		}
	}
	for _, m := range regexp.MustCompile(`record: (\S+)`).FindAllStringSubmatch(string(rules), -1) {
		known[m[1]] = true
	}
	name := regexp.MustCompile(`(\w+:)?weir_\w+(:\w+)?`)
	exprs := regexp.MustCompile(`(?m)expr: \|?((?:.*\n(?:          .*\n)*))`).FindAllString(string(rules), -1)
	if len(exprs) < 9 {
		t.Fatalf("%d expressions in the rules", len(exprs))
	}
	panels := dashboard(t)
	if len(panels) < 10 {
		t.Fatalf("%d expressions in the dashboard", len(panels))
	}
	for _, expr := range append(exprs, panels...) {
		names := name.FindAllString(expr, -1)
		if len(names) == 0 {
			t.Errorf("it asks for nothing of Weir: %s", expr)
		}
		for _, n := range names {
			if !known[n] {
				t.Errorf("nobody tells %s, which is asked for in %s", n, expr)
			}
		}
	}
}

// dashboard is the expressions of the dashboard.
func dashboard(t *testing.T) (exprs []string) {
	t.Helper()
	text, err := os.ReadFile("prometheus/weir.dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		UID    string
		Panels []struct {
			ID      int
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	taken := map[[2]int]string{}
	ids := map[int]bool{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.Title == "" || len(p.Targets) == 0 {
			t.Errorf("panel %d has no title, nothing to show, or another's number", p.ID)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x > 23 {
					t.Fatalf("%q lies on %q, or outside", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		for _, target := range p.Targets {
			exprs = append(exprs, target.Expr)
		}
	}
	return exprs
}

// Prometheus can read each of the dashboard's expressions.
func TestDashboard(t *testing.T) {
	var rules strings.Builder
	rules.WriteString("groups:\n- name: dashboard\n  rules:\n")
	for i, expr := range dashboard(t) {
		expr = strings.NewReplacer("$__rate_interval", "1m", "$instance", ".*", "$device", ".*").Replace(expr)
		if strings.Contains(expr, "$") {
			t.Errorf("an unknown variable: %s", expr)
		}
		fmt.Fprintf(&rules, "  - record: panel:weir:%d\n    expr: %q\n", i, expr)
	}
	file := filepath.Join(t.TempDir(), "rules.yml")
	if err := os.WriteFile(file, []byte(rules.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "", "check", "rules", file)
}

// The exporter's units are well-formed, and the service may do little: at most 1.5 of 10 points of exposure.
func TestExporterUnits(t *testing.T) {
	secure(t, "weir-exporter", "./weir-exporter.service", "./weir-exporter.socket")
}
