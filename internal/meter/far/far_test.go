// SPDX-License-Identifier: Apache-2.0

package far

import (
	"bufio"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/internal/meter"
)

// fake is an ssh that runs the command here. Body comes first.
func fake(t *testing.T, body string) Host {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ssh")
	script := "#!/bin/sh\n" + body + `
while [ "$1" != -- ]; do shift; done
[ "$2" = me@there ] || exit 9
SSH_CONNECTION="192.0.2.9 50001 192.0.2.1 22" exec sh -c "$3"
`
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return Host{Name: "me@there", Program: path}
}

func TestMeasure(t *testing.T) {
	for name, body := range map[string]string{"plain": "", "banner": "echo Welcome; printf 'no end of line: '"} {
		rec, err := Measure(context.Background(), fake(t, body), meter.Options{Time: 3 * time.Second, Conns: 2})
		if err != nil {
			t.Fatal(err)
		}
		answered := 0
		for _, s := range rec.Samples {
			if s.RTT >= 0 {
				answered++
			}
		}
		if rec.Probe != "ssh" || answered == 0 || len(rec.Spans) != 3 {
			t.Errorf("%s: %s, %d of %d keys, %d spans", name, rec.Probe, answered, len(rec.Samples), len(rec.Spans))
		}
		r := meter.Summarize(rec)
		for _, direction := range []string{meter.Download, meter.Upload} {
			if p := r.Find(direction); p == nil || p.Goodput[direction].Value <= 0 || len(p.Senders) != 1 {
				t.Errorf("%s: %s: %+v", name, direction, p)
			}
		}
	}
}

// What ssh says last is what is wrong.
func TestRefusals(t *testing.T) {
	for body, want := range map[string]string{
		"echo noise >&2; echo 'me@there: Permission denied (publickey).' >&2; exit 255": "(publickey).",
		"exit 0":                        "runs no command",
		"head -c 70000 /dev/zero; exit": "runs no command",
	} {
		_, err := Measure(context.Background(), fake(t, body), meter.Options{Time: time.Second, Conns: 1})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for _, name := range []string{"", "-oProxyCommand=x", "a b", "a\nb"} {
		if _, err := Measure(context.Background(), Host{Name: name}, meter.Options{}); err == nil {
			t.Errorf("%q is taken", name)
		}
	}
	none := Host{Name: "me@there", Program: "/nothing/ssh"}
	if _, err := Measure(context.Background(), none, meter.Options{}); err == nil {
		t.Error("no ssh, and no error")
	}
}

func TestArgs(t *testing.T) {
	for interactive, want := range map[bool]bool{true: false, false: true} {
		args := strings.Join(Host{Name: "me@there", Interactive: interactive}.args("cat"), " ")
		if strings.Contains(args, "BatchMode=yes") != want || !strings.HasSuffix(args, " -- me@there cat") ||
			!strings.Contains(args, "Compression=no") || !strings.Contains(args, "ControlPath=none") {
			t.Error(args)
		}
	}
}

var ssOutput = strings.ReplaceAll(`State Recv-Q Send-Q Local Address:Port Peer Address:Port Process
ESTAB 0 36 192.0.2.1:22 192.0.2.9:50001
\t ts sack ecn ecnseen cubic wscale:7,7 rto:251 rtt:50.31/1.2 ato:40 mss:1448 cwnd:10 bytes_sent:12345 bytes_retrans:1448 busy:220ms rwnd_limited:20ms(9.1%) minrtt:48.2
ESTAB 0 0 [2001:db8::1]:22 [2001:db8::9]:50002
\t bbr rto:204 rtt:0.1/0.05 bbr:(bw:1Mbps,mrtt:0.1) app_limited minrtt:0.05
garbage
`, `\t`, "\t") + endOfSS + "\n"

func TestSS(t *testing.T) {
	all, ok := readSS(bufio.NewScanner(strings.NewReader(ssOutput)))
	if !ok || len(all) != 2 {
		t.Fatalf("%v %v", all, ok)
	}
	if want := (ssInfo{TCPInfo: meter.TCPInfo{CC: "cubic", ECN: true, RTT: 50310, RTTVar: 1200, MinRTT: 48200,
		BytesSent: 12345, BytesRetrans: 1448, BusyTime: 220000, RWndLimited: 20000}}); all[50001] != want {
		t.Errorf("%+v, want %+v", all[50001], want)
	}
	if want := (ssInfo{meter.TCPInfo{CC: "bbr", RTT: 100, RTTVar: 50, MinRTT: 50}, true}); all[50002] != want {
		t.Errorf("%+v, want %+v", all[50002], want)
	}
}

func FuzzSS(f *testing.F) {
	f.Add(ssOutput)
	f.Add("ESTAB 0 0 a:1 b:99999\n\t rtt:-1/NaN busy:1e300ms wscale:\n" + endOfSS)
	f.Fuzz(func(t *testing.T, text string) {
		all, _ := readSS(bufio.NewScanner(strings.NewReader(text)))
		for port, s := range all {
			if port <= 0 || port > 65535 || s.RTT < 0 || s.BusyTime < 0 || s.BytesSent < 0 ||
				strings.ContainsAny(s.CC, "\x1b\n ") {
				t.Errorf("%d: %+v", port, s)
			}
		}
	})
}

// A name is one that ssh takes for a name. A port belongs into a URI.
func TestCheck(t *testing.T) {
	for name, fine := range map[string]bool{"a": true, "me@a": true, "me@2001:db8::1": true, "ssh://me@a:2222": true,
		"ssh://me@[2001:db8::1]:2222": true, "": false, "@a": false, "me@": false, "me@a:2222": false, "a b": false,
		"-oProxyCommand=x": false, "ssh://": false, "ssh://-x": false, "me@-x": false, "https://a": false,
		"u@$(id)": false, "$(id)@a": false, "a;id": false, "a|id": false, "`id`": false, "a&id": false, "a\x07": false,
		"u@a\\b": false, "ssh://a$HOME": false, "a'b": false, `a"b`: false, "{a,b}": false, "a>b": false,
		`DOMAIN\me@a`: true, "me@fe80::1%eth0": true, "me+x@a_b.example": true} {
		if err := Check(name); (err == nil) != fine {
			t.Errorf("%q: %v", name, err)
		}
	}
	for name, want := range map[string]bool{"me@a:99999": true, "ssh://me@a:0": true, "ssh://[2001:db8::1]:70000": true,
		"a:65536": true, "me@a:2222": false, "me@2001:db8::1": false, "a:b": false, "ssh://a": false, "me@a:": false} {
		if got := outOfRange(name[strings.LastIndexAny(name, "@/")+1:]); got != want || got && Check(name) == nil {
			t.Errorf("%q is out of range: %v", name, got)
		}
	}
}

// Who ends it need not wait for an ssh that does not answer.
func TestStartEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	h := fake(t, "echo begun >&2; exec sleep 60")
	time.AfterFunc(100*time.Millisecond, cancel)
	if _, err := h.start(ctx, "cat"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// An sshd refuses some of many that log in at once.
func TestLoginsAtOnce(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	h := fake(t, "echo in >>"+log+"; sleep 0.1; echo out >>"+log)
	flows, err := newTransport(h, 8).Open(t.Context(), meter.Both)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range flows {
		b.End()
	}
	said, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	now, most := 0, 0
	for _, w := range strings.Fields(string(said)) {
		if now--; w == "in" {
			now += 2
		}
		most = max(most, now)
	}
	if most > maxAtOnce || strings.Count(string(said), "in") != 16 {
		t.Errorf("%d of 16 at once", most)
	}
}
