// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/internal/cli"
	"weir/internal/meter"
	"weir/internal/meter/far"
	"weir/internal/plan"
	"weir/internal/stats"
	"weir/internal/trial"
	"weir/internal/units"
)

// A try is kept for what is surely better, and not for chance, nor at the price of a load.
func TestJudge(t *testing.T) {
	row := func(kind meter.RowKind, before, after float64, sure bool) meter.Row {
		return meter.Row{Kind: kind, Before: stats.Estimate{Value: before}, After: stats.Estimate{Value: after},
			Sure: sure}
	}
	const added, goodput, download = meter.RowDelay, meter.RowGoodput, meter.RowTime
	for _, c := range []struct {
		name          string
		rows          []meter.Row
		better, worse bool
	}{
		{"nothing", nil, false, false},
		{"shorter", []meter.Row{row(added, 160, 1, true)}, true, false},
		{"shorter by chance", []meter.Row{row(added, 160, 100, false)}, false, false},
		{"longer", []meter.Row{row(added, 1, 160, true)}, false, true},
		{"shorter for what shaping costs", []meter.Row{row(added, 160, 1, true), row(goodput, 50, 47, true)}, true,
			false},
		{"shorter for half of the link", []meter.Row{row(added, 160, 1, true), row(goodput, 50, 25, true)}, true, true},
		{"a download that is surely faster", []meter.Row{row(download, 60, 3, true)}, true, false},
		{"a download that is faster by chance", []meter.Row{row(download, 60, 3, false)}, false, false},
		{"shorter for a download that takes a little longer", []meter.Row{row(added, 160, 1, true),
			row(download, 10, 10.5, true)}, true, false},
		{"shorter for a download that takes twice as long", []meter.Row{row(added, 160, 1, true),
			row(download, 10, 20, true)}, true, true},
		{"less jitter alone", []meter.Row{row(meter.RowOther, 9, 1, true)}, false, false},
	} {
		if better, worse := judge(c.rows); better != c.better || worse != c.worse {
			t.Errorf("%s: better %v, worse %v", c.name, better, worse)
		}
	}
}

// Hosts are tried in order, and the first that fails ends it. What was seen until then is told.
func TestTryEach(t *testing.T) {
	phase := func(name string, p90 float64) meter.Phase {
		return meter.Phase{Name: name, Added: &meter.Added{P90: stats.Estimate{Value: p90, Low: p90 * 0.9,
			High: p90 * 1.1}}}
	}
	hosts := []string{"a", "b|c", "d", "e"}
	for _, c := range []struct {
		name  string
		fails error
		state string
		want  string
	}{
		{"fails", errors.New("b|c cannot be reached\n by ssh"), unchanged,
			`| hostname | before | after | factor | state |
|---|---:|---:|---:|---|
| a | 160 ms | 2.00 ms | 0.01 × | kept |
| b\|c | 160 ms | – | – | failed, unchanged |
| d | – | – | – | untouched |
| e | – | – | – | untouched |
`},
		{"is put back", cli.ErrNo, putBack, `| hostname | before | after | factor | state |
|---|---:|---:|---:|---|
| a | 160 ms | 2.00 ms | 0.01 × | kept |
| b\|c | 160 ms | – | – | put back |
| d | – | – | – | untouched |
| e | – | – | – | untouched |
`},
	} {
		var seen []string
		rows, err := tryEach(context.Background(), hosts, func(_ context.Context, name string) (triedHost, error) {
			seen = append(seen, name)
			row := triedHost{Hostname: name, State: kept}
			row.before(sample{Result: meter.Result{Phases: []meter.Phase{phase("upload", 9), phase("download", 160)}}})
			if name == "b|c" {
				row.State = c.state
				return row, c.fails
			}
			row.after(sample{Result: meter.Result{Phases: []meter.Phase{phase("upload", 90), phase("download", 2)}}})
			return row, nil
		})
		if !errors.Is(err, c.fails) || strings.Join(seen, " ") != "a b|c" {
			t.Errorf("%s: %v, after %q", c.name, err, seen)
		}
		var b bytes.Buffer
		if err := (tryOptions{markdown: true}).showTried(&b, rows); err != nil || b.String() != c.want {
			t.Errorf("%s: %v\n%s", c.name, err, b.String())
		}
		b.Reset()
		if err := (tryOptions{json: true}).showTried(&b, rows); err != nil || !strings.Contains(b.String(),
			`"state": "untouched"`) || strings.Contains(b.String(), `"why": "b|c cannot be reached by ssh"`) !=
			(c.state == unchanged) {
			t.Errorf("%s: %v\n%s", c.name, err, b.String())
		}
	}
}

// Who interrupts leaves the rest as it is; a difference by chance is none; one host needs no table.
func TestTryEachEnds(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	rows, err := tryEach(ctx, []string{"a", "b"}, func(_ context.Context, name string) (triedHost, error) {
		stop()
		return triedHost{Hostname: name, State: planned, difference: difference{
			Before: &stats.Estimate{Value: 1, High: 2}, After: &stats.Estimate{Value: 1, High: 2}}}, nil
	})
	var b bytes.Buffer
	if shown := (tryOptions{}).showTried(&b, rows); err == nil || shown != nil {
		t.Errorf("%v, %v", err, shown)
	}
	want := "\nhostname      before       after          factor  state\n" +
		"a            1.00 ms     1.00 ms  no change seen  planned\n" +
		"b                  –           –               –  untouched\n"
	if b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
	b.Reset()
	if err := (tryOptions{}).showTried(&b, rows[:1]); err != nil || b.Len() > 0 {
		t.Errorf("%v: %q", err, b.String())
	}
}

// With --fetch the table has the downloads, too: a host that was not reached has none.
func TestTriedDownloads(t *testing.T) {
	took := func(seconds ...float64) sample {
		f := &meter.Fetches{Seconds: stats.Estimate{Value: seconds[1], Low: seconds[0], High: seconds[2]}}
		f.Fetches = make([]meter.Fetch, downloads)
		return sample{file: f}
	}
	faster := triedHost{Hostname: "a", State: kept}
	faster.before(took(58, 60, 64))
	faster.after(took(2, 3, 4))
	alike := triedHost{Hostname: "b", State: putBack}
	alike.before(took(2, 3, 4))
	alike.after(took(2, 3, 5))
	failed := triedHost{Hostname: "c", State: unchanged}
	failed.before(took(2, 3, 4))
	rows := []triedHost{faster, alike, failed, {Hostname: "d", State: untouched}}
	var b bytes.Buffer
	o := tryOptions{fetch: exampleFile, markdown: true}
	if err := o.showTried(&b, rows); err != nil {
		t.Fatal(err)
	}
	const want = `| hostname | before | after | factor | download before | after | factor | state |
|---|---:|---:|---:|---:|---:|---:|---|
| a | – | – | – | 60.0 s | 3.00 s | 0.05 × | kept |
| b | – | – | – | 3.00 s | 3.00 s | no change seen | put back |
| c | – | – | – | 3.00 s | – | – | failed, unchanged |
| d | – | – | – | – | – | – | untouched |
`
	if b.String() != want {
		t.Errorf("%s", b.String())
	}
}

// The URL of a file is one of each host that is tried.
func TestFileURL(t *testing.T) {
	for _, c := range []struct{ fetch, host, want string }{
		{"http://HOST/100M.bin", "root@vps", "http://vps/100M.bin"},
		{"https://HOST:8443/a", "root@2001:db8::1", "https://[2001:db8::1]:8443/a"},
		{"http://192.0.2.1/a", "vps", "http://192.0.2.1/a"},
		{"http://HOST/GHOST.bin?HOST", "a@b", "http://b/GHOST.bin?HOST"},
		{"http://www.HOST", "a@b", "http://www.b"},
		{"http://192.0.2.1/HOST", "a@b", "http://192.0.2.1/HOST"},
	} {
		if got := (tryOptions{fetch: c.fetch}).fileURL(c.host); got != c.want {
			t.Errorf("%s on %s: %s, want %s", c.fetch, c.host, got, c.want)
		}
	}
	for _, c := range []struct {
		fetch string
		hosts []string
	}{
		{"http://192.0.2.1/a", []string{"root@a", "root@b"}},
		{"http://192.0.2.1/HOST", []string{"root@a", "root@b"}},
		{"ftp://HOST/a", []string{"root@a"}},
		{"/100M.bin", []string{"root@a"}},
		{"http://me:secret@HOST/a", []string{"root@a"}},
	} {
		if err := (tryOptions{fetch: c.fetch}).checkFetch(c.hosts); err == nil {
			t.Errorf("%s of %q is taken", c.fetch, c.hosts)
		}
	}
	if err := (tryOptions{}).checkFetch([]string{"root@a", "root@b"}); err != nil {
		t.Error(err)
	}
}

// The file comes from a web server, as often as is said; what is none is refused.
func TestTryDownloads(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/file" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Length", fmt.Sprint(1<<20))
		w.Write(make([]byte, 1<<20))
	}))
	defer web.Close()
	a := &attempt{tryOptions: tryOptions{fetch: strings.Replace(web.URL, "127.0.0.1", hostWord, 1) + "/file"},
		host: far.Host{Name: "root@127.0.0.1"}, errs: io.Discard}
	file, err := a.download(t.Context(), "before")
	if err != nil || len(file.Fetches) != downloads || file.Bytes != 1<<20 {
		t.Errorf("%+v: %v", file, err)
	}
	a.fetch += ".gone"
	if _, err := a.download(t.Context(), "before"); err == nil || !strings.Contains(err.Error(), "404") {
		t.Error(err)
	}
	a.fetch = ""
	if file, err := a.download(t.Context(), "before"); file != nil || err != nil {
		t.Error(file, err)
	}
}

// there is a try of this very machine, by an ssh that is none, with a script that stands for the copy of weir.
func there(t *testing.T, weir string) *attempt {
	t.Helper()
	dir := t.TempDir()
	for name, body := range map[string]string{"uname": "echo Linux x86_64", "id": "echo 0", "install": "exit 1",
		"ssh": "while [ \"$1\" != -- ]; do shift; done; PATH=" + dir + ":$PATH TMPDIR=" + dir + " exec sh -c \"$3\""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	a := &attempt{w: io.Discard, errs: io.Discard, goal: plan.Goal{Rate: 50e6},
		host: far.Host{Name: "me@there", Program: filepath.Join(dir, "ssh")}}
	var err error
	if a.machine, err = trial.Open(t.Context(), a.host); err != nil {
		t.Fatal(err)
	}
	if weir == "" {
		return a
	}
	if err := a.machine.Copy(t.Context(), []byte("#!/bin/sh\n"+weir+"\n")); err != nil {
		t.Fatal(err)
	}
	return a
}

// Whoever ends it is told where the host could not be put back, and what does that.
func TestTryNotPutBack(t *testing.T) {
	for state, want := range map[string]string{leftToTimer: "the timer does it by itself",
		untilReboot: "stays until a reboot"} {
		// There is no copy there that could do it.
		_, err := tryEach(t.Context(), []string{"me@there"}, func(ctx context.Context, name string) (triedHost, error) {
			a := there(t, "")
			a.State = state
			return a.triedHost, a.revert(ctx, fmt.Errorf("%s: %w", name, context.Canceled))
		})
		if err == nil || !strings.Contains(err.Error(), "interrupted\n") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", state, err)
		}
	}
}

// standsAs is a weir there that says how it stands, and writes down what it was asked.
func standsAs(asked, first, then, up string) string {
	return `echo "$@" >>` + asked + `; case $1 in status) [ $(grep -c status ` + asked + `) = 1 ] && echo '` + first +
		`' || echo '` + then + `';; up) ` + up + `;; confirm) echo '` + then + `';; esac`
}

// What is tried there is under a timer, which nobody has to reach the host for. It is taken down if it is the try's
// own.
func TestTryUnderTimer(t *testing.T) {
	const ups = "status --json\nup --json --runtime --timeout 1m0s --rate 50mbit\nstatus --json\n"
	for then, want := range map[string]string{
		`{"up": true, "unconfirmed": true, "goal": {"dev": "eth0", "rate": "50mbit"}}`: ups + "down\n",
		`{"up": false, "goal": {}}`: ups + "down\n",
		`{"up": true, "unconfirmed": true, "goal": {"dev": "eth0", "rate": "20mbit"}}`: ups,
		`{"up": true, "goal": {"dev": "eth0", "rate": "50mbit"}}`:                      ups,
	} {
		asked := filepath.Join(t.TempDir(), "asked")
		a := there(t, standsAs(asked, `{"up": false}`, then, "exit 1"))
		if err := a.change(t.Context(), sample{}); err == nil {
			t.Errorf("%s: what failed there is no error", then)
		}
		if got, err := os.ReadFile(asked); err != nil || string(got) != want {
			t.Errorf("%s: %q, want %q; %v", then, got, want, err)
		}
		if left := want == ups; (a.State == overtaken) != left || (a.State == putBack) == left {
			t.Errorf("%s: %s", then, a.State)
		}
	}
}

// Minutes go by before the change: what somebody has brought up there meanwhile is not replaced.
func TestTryNotFree(t *testing.T) {
	asked := filepath.Join(t.TempDir(), "asked")
	a := there(t, standsAs(asked, `{"up": true, "goal": {"rate": "20mbit"}}`, "", ""))
	if err := a.change(t.Context(), sample{}); err == nil || !strings.Contains(err.Error(), "in hand already") {
		t.Error(err)
	}
	if got, err := os.ReadFile(asked); err != nil || string(got) != "status --json\n" {
		t.Errorf("%q, %v", got, err)
	}
}

// What somebody there has taken down is not brought up again without a timer, and what somebody else has brought up is
// not confirmed.
func TestTryKept(t *testing.T) {
	const own = `{"up": true, "unconfirmed": true, "goal": {"dev": "eth0", "rate": "50mbit", "runtime": true}}`
	for _, c := range []struct{ stands, asked, state, err string }{
		{own, "status --json\nconfirm --json\n", untilReboot, "not yet over a reboot"}, // install fails
		{`{"up": false, "goal": {}}`, "status --json\n", putBack, "has taken it down"},
		{`{"up": true, "unconfirmed": true, "goal": {"dev": "eth0", "rate": "20mbit"}}`,
			"status --json\nstatus --json\n", overtaken, "somebody else has changed me@there"},
	} {
		asked := filepath.Join(t.TempDir(), "asked")
		a := there(t, standsAs(asked, c.stands, c.stands, ""))
		a.State = leftToTimer
		a.up = upAnswer{Goal: plan.Goal{Dev: "eth0", Rate: 50e6, Runtime: true}, RevertsIn: units.Duration(time.Minute)}
		if err := a.keep(t.Context()); err == nil || !strings.Contains(err.Error(), c.err) || a.State != c.state {
			t.Errorf("%s: %v, %s", c.stands, err, a.State)
		}
		if got, err := os.ReadFile(asked); err != nil || string(got) != c.asked {
			t.Errorf("%s: %q, %v", c.stands, got, err)
		}
	}
}

// A copy that fails leaves nothing there.
func TestTryCopyFails(t *testing.T) {
	dir := t.TempDir()
	for name, body := range map[string]string{"uname": "echo Linux x86_64", "id": "echo 0", "sha256sum": "exit 1",
		"shasum": "exit 1", "ssh": "while [ \"$1\" != -- ]; do shift; done; PATH=" + dir + ":$PATH TMPDIR=" + dir +
			" exec sh -c \"$3\""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(dir, "weir")
	if err := os.WriteFile(program, []byte("\x7fELF"), 0o755); err != nil {
		t.Fatal(err)
	}
	a := &attempt{tryOptions: tryOptions{program: program}, w: io.Discard, errs: io.Discard,
		host: far.Host{Name: "me@there", Program: filepath.Join(dir, "ssh")}}
	if err := a.run(t.Context()); err == nil || !strings.Contains(err.Error(), "could not be copied") {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "weir-try.*")); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

// Whoever ends it at a question has said no. What is typed then is not read here, for ssh may ask for a password.
func TestAskInterrupted(t *testing.T) {
	in, typed, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	a := &attempt{terminal: true, in: in, w: io.Discard}
	for said, want := range map[string]bool{"y\n": true, " YES \n": true, "n\n": false, "\n": false} {
		typed.WriteString(said)
		if a.ask(t.Context(), "Keep it? ") != want {
			t.Errorf("%q is taken for %v", said, !want)
		}
	}
	ctx, interrupt := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, interrupt)
	if a.ask(ctx, "Keep it? ") {
		t.Error("an interrupt is taken for yes")
	}
	typed.WriteString("secret\n")
	typed.Close()
	if left, err := io.ReadAll(in); err != nil || string(left) != "secret\n" {
		t.Errorf("ssh would read %q, %v", left, err)
	}
}

// Where a read cannot be ended, as of a Windows console, an interrupt ends the question all the same.
func TestAskInterruptedWithoutFile(t *testing.T) {
	in, typed := io.Pipe()
	a := &attempt{terminal: true, in: in, w: io.Discard}
	go io.WriteString(typed, "y\n")
	if !a.ask(t.Context(), "Keep it? ") {
		t.Error("a yes is not heard")
	}
	ctx, interrupt := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, interrupt)
	if a.ask(ctx, "Keep it? ") {
		t.Error("an interrupt is taken for yes")
	}
	typed.Close()
}
