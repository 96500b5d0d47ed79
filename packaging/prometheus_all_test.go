// SPDX-License-Identifier: Apache-2.0

//go:build all

package packaging

// In make test-all: Prometheus and its checker are run.

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// ofPrometheus is where a program of Prometheus's is.
func ofPrometheus(t *testing.T, program string) string {
	t.Helper()
	needs(t, "dpkg-deb", "apt-get")
	path, err := exec.Command("../scripts/promtool").Output()
	if err != nil {
		t.Fatalf("scripts/promtool: %v", err)
	}
	return filepath.Join(filepath.Dir(string(path)), program)
}

// promtool is Prometheus's own checker.
func promtool(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	cmd := exec.Command(ofPrometheus(t, "promtool"), args...)
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
	panels, variables := dashboard(t)
	if len(panels) < 10 {
		t.Fatalf("%d expressions in the dashboard", len(panels))
	}
	for _, expr := range slices.Concat(exprs, panels, variables) {
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

const dashboardFile = "prometheus/weir.dashboard.json"

// dashboard is the expressions of the dashboard's panels, and of its variables.
func dashboard(t *testing.T) (exprs, variables []string) {
	t.Helper()
	text, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	type source struct{ Type, UID string }
	chosen := source{"prometheus", "${source}"}
	var d struct {
		Panels []struct {
			ID         int
			Title      string
			GridPos    struct{ X, Y, W, H int }
			Datasource source
			Targets    []struct {
				Expr       string
				Datasource source
			}
		}
		Templating struct {
			List []struct {
				Name, Type string
				Datasource source
				Query      any
			}
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
			if target.Datasource != chosen || p.Datasource != chosen {
				t.Errorf("%q does not ask the Prometheus that was chosen", p.Title)
			}
			exprs = append(exprs, target.Expr)
		}
	}
	for _, v := range d.Templating.List {
		if q, ok := v.Query.(map[string]any); ok && v.Datasource == chosen {
			expr, _ := q["query"].(string)
			variables = append(variables, expr)
		} else if v.Name != "source" || v.Type != "datasource" || v.Query != "prometheus" {
			t.Errorf("the variable %s neither asks the Prometheus that was chosen nor chooses it", v.Name)
		}
	}
	return exprs, variables
}

// asGrafana is an expression as Grafana sends it, where all hosts and devices are chosen: for labels that are there.
func asGrafana(t *testing.T, expr string) string {
	expr = strings.NewReplacer("$__rate_interval", "1m", "$instance", ".+", "$device", ".+").Replace(expr)
	if strings.Contains(expr, "$") {
		t.Errorf("an unknown variable: %s", expr)
	}
	return expr
}

// The dashboard is as Grafana's schema wants it. Where it is not, the checker says so.
func TestDashboardSchema(t *testing.T) {
	check := filepath.Join(t.TempDir(), "dashboard")
	output(t, "../scripts/go", "-C", "tools", "vet", "./dashboard")
	output(t, "../scripts/go", "-C", "tools", "build", "-o", check, "./dashboard")
	output(t, check, dashboardFile)
	text, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]string{
		{`"templating"`, `"template"`},
		{`"schemaVersion": 39`, `"schemaVersion": "39"`},
		{`"type": "timeseries"`, `"type": "timeline"`},
		{`"gridPos"`, `"grid"`},
		{`"w": 12`, `"w": 25`},
		{`"graphMode": "none"`, `"graphMode": true`},
		{`"legend"`, `"legends"`},
		{`"unit"`, `"units"`},
		{`"fillOpacity"`, `"opacity"`},
		{`"legendFormat"`, `"legendformat"`},
		{`"instant": true`, `"instant": "true"`},
	} {
		broken := strings.Replace(string(text), c[0], c[1], 1)
		file := filepath.Join(t.TempDir(), "broken.json")
		if err := os.WriteFile(file, []byte(broken), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(check, file).CombinedOutput()
		if exit := (*exec.ExitError)(nil); broken == string(text) || !errors.As(err, &exit) || exit.ExitCode() != 1 {
			t.Errorf("%s instead of %s: %v\n%s", c[1], c[0], err, out)
		}
	}
}

// A real Prometheus has something for each panel and each variable, on a host that has everything.
func TestDashboardShows(t *testing.T) {
	const scrape = "1s"
	var scrapes atomic.Int64
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		counter := regexp.MustCompile(`(?m)^(\w+_(?:total|bucket|sum|count)\{.*\}) (\S+)$`)
		n := scrapes.Add(1) // and all counters count on
		fmt.Fprint(w, counter.ReplaceAllStringFunc(told(t), func(line string) string {
			m := counter.FindStringSubmatch(line)
			v, _ := strconv.ParseFloat(m[2], 64)
			return fmt.Sprint(m[1], " ", v*float64(n))
		}))
	}))
	defer host.Close()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free.Close()
	rules, err := filepath.Abs("prometheus/weir.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := fmt.Sprintf("global: {scrape_interval: %[1]s, evaluation_interval: %[1]s}\nrule_files: [%[2]s]\n"+
		"scrape_configs: [{job_name: weir, static_configs: [{targets: [%[3]q]}]}]\n",
		scrape, rules, host.Listener.Addr())
	if err := os.WriteFile(dir+"/prometheus.yml", []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	server := exec.Command(ofPrometheus(t, "prometheus"), "--config.file="+dir+"/prometheus.yml",
		"--storage.tsdb.path="+dir+"/data", "--web.listen-address="+free.Addr().String())
	server.Stderr = &log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		server.Process.Kill()
		server.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	}()
	ask := func(path string, query url.Values) string {
		answer, err := http.Get("http://" + free.Addr().String() + path + "?" + query.Encode())
		if err != nil {
			return err.Error()
		}
		defer answer.Body.Close()
		text, _ := io.ReadAll(answer.Body)
		return string(text)
	}
	panels, variables := dashboard(t)
	eventually := func(what string, has *regexp.Regexp, ask func() string) {
		var told string
		for range 60 {
			if told = ask(); has.MatchString(told) {
				return
			}
			time.Sleep(time.Second)
		}
		t.Errorf("%s: %s", what, told)
	}
	for _, expr := range panels {
		number := regexp.MustCompile(`"value":\[[0-9.]+,"[0-9.e+-]+"\]`)
		eventually(expr, number, func() string {
			return ask("/api/v1/query", url.Values{"query": {asGrafana(t, expr)}})
		})
	}
	for _, v := range variables {
		m := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`).FindStringSubmatch(v)
		if m == nil {
			t.Fatalf("no values of a label: %s", v)
		}
		eventually(v, regexp.MustCompile(`"data":\["`), func() string {
			return ask("/api/v1/label/"+m[2]+"/values", url.Values{"match[]": {asGrafana(t, m[1])}})
		})
	}
}

// The exporter's units are well-formed, and the service may do little: at most 1.5 of 10 points of exposure.
func TestExporterUnits(t *testing.T) {
	secure(t, "weir-exporter", "./weir-exporter.service", "./weir-exporter.socket")
}
