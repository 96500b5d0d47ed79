// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/internal/hint"
	"weir/internal/meter"
)

// What another host says never reaches the terminal as it is.
func TestHostileServer(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		w.Write([]byte("\x1b[31mred\x07\nline"))
	}))
	defer s.Close()
	var out, errs bytes.Buffer
	status := run([]string{"measure", strings.TrimPrefix(s.URL, "https://"), "--pin",
		meter.Fingerprint(s.Certificate().Raw)}, &out, &errs)
	if said := errs.String(); status != 1 || !strings.Contains(said, "red") || strings.ContainsAny(said, "\x1b\x07") ||
		out.Len() > 0 || strings.Count(said, "\n") > 2 {
		t.Errorf("%d, %q, %q", status, said, out.String())
	}
}

// Ctrl-C before the first probe is no fault of the other host's.
func TestEarly(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, target := range []string{"127.0.0.1:9", "https://127.0.0.1:9", "https://127.0.0.1:9/file",
		"iperf3://127.0.0.1:9"} {
		err := measureTarget(ctx, newMeasureCommand(), target, measureOptions{time: 25 * time.Second, conns: 4})
		if !errors.Is(err, errEarly) {
			t.Errorf("%s: %v", target, err)
		}
	}
}

func TestSSHName(t *testing.T) {
	for target, want := range map[string]string{"me@a": "me@a", "ssh://a": "a", "ssh://me@a": "me@a",
		"ssh://me@a:2222": "ssh://me@a:2222", "a": ""} {
		if got, ssh := sshName(target); ssh != (want != "") || ssh && got != want {
			t.Errorf("%s: %s, %v", target, got, ssh)
		}
	}
}

// An address is one of a host and a port, or wrong usage.
func TestCompleteAddress(t *testing.T) {
	for target, want := range map[string]string{"a": "a:4747", "a:1": "a:1", "192.0.2.1": "192.0.2.1:4747",
		"2001:db8::1": "[2001:db8::1]:4747", "[2001:db8::1]": "[2001:db8::1]:4747",
		"[2001:db8::1]:1": "[2001:db8::1]:1",
		"fe80::1%eth0":    "[fe80::1%eth0]:4747", "": "", "a/b": "", "a b": "", "a:0": "", "a:65536": "", "a:-1": "",
		"a:https": "", "a:": "", "[2001:db8::1": "", "2001:db8::1]": "", "[::1]:x": "", "[::1]]": ""} {
		got, err := completeAddress(target, "", "4747")
		if _, isUsage := hint.Of(err); got != want || (err != nil) != (want == "") || err != nil && !isUsage {
			t.Errorf("%q: %q, %v; want %q", target, got, err, want)
		}
	}
	_, err := completeAddress("a:8099/f", "", "4747")
	if wrong := (*hint.Error)(nil); !errors.As(err, &wrong) || wrong.Try != "http://a:8099/f" {
		t.Errorf("a file's URL without its scheme: %+v", wrong)
	}
	for target, fine := range map[string]bool{"https://a:99999/": false, "https://a:0/f": false,
		"https://a:443/": true} {
		if err := meter.CheckURL(target); (err == nil) != fine {
			t.Errorf("%s: %v", target, err)
		}
	}
}

// Without a measurement to compare with, a table has no columns of one. Of both directions at once it says which is
// whose.
func TestMeasureShow(t *testing.T) {
	flow := func(direction string) meter.Flow {
		return meter.Flow{Direction: direction, Bins: []int64{1, 2, 3}}
	}
	rec := &meter.Recording{Target: "a|b", Interval: 10, Spans: []meter.Span{{Name: meter.Idle, To: 2},
		{Name: meter.Both, From: 2, To: 9, Local: []meter.Flow{flow(meter.Download), flow(meter.Upload)},
			Far: []meter.Flow{flow(meter.Download), flow(meter.Upload)}}}}
	for i := range 900 {
		rec.Samples = append(rec.Samples, meter.Sample{At: float64(i) / 100, RTT: 48 + float64(i%7)})
	}
	r := meter.Summarize(rec)
	show := func(o measureOptions) string {
		var b bytes.Buffer
		if err := o.show(&b, r, nil); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	table := show(measureOptions{markdown: true})
	if !strings.HasPrefix(table, "| a\\|b | measured |\n|---|---:|\n| idle: jitter, ms |") ||
		strings.Contains(table, "before") || strings.Contains(table, "no change seen") {
		t.Error(table)
	}
	for _, direction := range []string{meter.Download, meter.Upload} {
		if text := show(measureOptions{}); !strings.Contains(text, "\nboth, "+direction+": 1 flow") {
			t.Errorf("nothing says which is the %s: %s", direction, text)
		}
	}
}

// Where nobody knows on which way probes were lost, no way is named.
func TestMeasureShowsLosses(t *testing.T) {
	for want, p := range map[string]meter.Phase{
		"3 of 9 probes were lost: 1 on the way there, 2 on the way back.": {Lost: 3, LostUp: 1, LostDown: 2},
		"3 of 9 probes were lost. On which way is not known.":             {Lost: 3},
		"3 of 9 probes were lost: 1 on the way there, 0 on the way back. Of 2 the way is not known.": {Lost: 3,
			LostUp: 1},
	} {
		p.Sent = 9
		if got := lossText(p); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// All files that were asked for are written.
func TestMeasureFiles(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	r := meter.Summarize(&meter.Recording{Target: "there", Spans: []meter.Span{{Name: meter.Idle, To: 1}},
		Samples: []meter.Sample{{RTT: 48}}})
	o := measureOptions{csv: at("a.csv"), flent: at("a.flent.gz"), html: at("a.html")}
	for _, before := range []*meter.Result{nil, &r} {
		if err := o.write(r, before); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{"a.csv": "0.000,idle,48.000", "a.flent.gz": "\x1f\x8b",
			"a.html": "idle round trip"} {
			b, err := os.ReadFile(at(name))
			if err != nil || !strings.Contains(string(b), want) || os.Remove(at(name)) != nil {
				t.Errorf("%s: %v, %.200s", name, err, b)
			}
		}
	}
}

// Whatever is in a file to compare with, it is no result, or stands beside one: in lines of text and in a page.
func FuzzBefore(f *testing.F) {
	rec := &meter.Recording{Target: "there", Interval: 10, Spans: []meter.Span{{Name: meter.Idle, To: 2},
		{Name: meter.Download, From: 2, To: 9,
			Local: []meter.Flow{{Direction: meter.Download, Bins: []int64{1, 2, 3}}}}}}
	for i := range 900 {
		rec.Samples = append(rec.Samples, meter.Sample{At: float64(i) / 100, RTT: 48 + float64(i%7)})
	}
	now := meter.Summarize(rec)
	few := now
	few.Recording = nil
	text, err := json.Marshal(few)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"version":1,"says":"\u001b[2J\n",` +
		`"phases":[{"name":"download","goodput":{"download":{"value":1e308,` +
		`"low":-1e308,"high":1e308}},"added":{"p50":{"value":-1}},"jitter":{},"loss":{"value":5}}]}`))
	f.Add([]byte(`{"version":1,"recording":{"samples":[{"at":-1e308,"rtt":1e308},{"at":1e308}],` +
		`"spans":[{"name":"idle"},` +
		`{"name":"download","from":1e308,"to":-1,"local":[{"direction":"download","bins":[-9223372036854775808]}]}]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		before, err := meter.ReadResult(text)
		if err != nil {
			return
		}
		for _, markdown := range []bool{false, true} {
			var out bytes.Buffer
			printComparison(&out, before, now, markdown)
			if strings.ContainsFunc(out.String(), func(r rune) bool { return r < ' ' && r != '\n' || r == '\x7f' }) {
				t.Errorf("%q", out.String())
			}
		}
		o := measureOptions{html: filepath.Join(t.TempDir(), "x.html")}
		if err := o.write(now, &before); err != nil {
			t.Error(err)
		}
	})
}
