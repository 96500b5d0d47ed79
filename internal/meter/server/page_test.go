// SPDX-License-Identifier: Apache-2.0

package server

import (
	"encoding/json"
	"io/fs"
	"strings"
	"testing"

	"weir/internal/meter"
	"weir/internal/units"
)

// A page that measures is small, and asks nobody else for anything.
func TestPageIsSmall(t *testing.T) {
	const most = 60_000 // bytes
	all := 0
	fs.WalkDir(pageFiles, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(pageFiles, name)
		if err != nil {
			return err
		}
		all += len(text)
		for _, elsewhere := range []string{"http://", "https://", "@import", "url("} {
			outside := strings.ReplaceAll(string(text), "http://www.w3.org/2000/svg", "") // a name, not an address
			if strings.Contains(outside, elsewhere) {
				t.Errorf("%s names something elsewhere: %s", name, elsewhere)
			}
		}
		return nil
	})
	if all == 0 || all > most {
		t.Errorf("the page has %d bytes, of %d at most", all, most)
	}
}

// In real browsers the page measures both ways, and shows what the result has that it gives away as JSON.
func TestPageMeasures(t *testing.T) {
	for _, name := range []string{"chromium", "firefox-esr"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, func(c *Config) { c.Token, c.Rate = "secret", units.Rate(40e6) })
			b := startBrowser(t, name)
			b.goTo("https://" + r.addr + "/")
			b.script(`document.getElementById("start").click()`)
			b.await(`document.getElementById("ask").hidden === false`)
			b.screenshot("token", 800)
			b.script(`document.getElementById("token").value = "secret"`)
			b.script(`document.querySelector("#ask button").click()`)
			b.await(`location.pathname === "/t/secret/" && document.readyState === "complete"`)
			// Its recording finds no room at first.
			b.script(`(window.real = window.fetch, window.refused = 0, window.fetch = (to, how) =>
				window.refused > 0 || !String(to).includes("summary") ? window.real(to, how) : (window.refused++,
					Promise.resolve(new Response("", { status: 429, headers: { "Retry-After": "1" } }))))`)
			b.script(`document.getElementById("start").click()`)
			b.await(`document.body.dataset.state !== undefined`)
			b.screenshot("done", 800)
			b.screenshot("done", 400)
			if problem := b.script(`document.getElementById("problem").innerText`); problem != "" {
				t.Fatal(problem)
			}
			if refused := b.script(`window.refused`); refused != "1" {
				t.Errorf("its recording was refused %s times", refused)
			}
			shown := b.script(`document.getElementById("result").innerText`)
			// What is saved is caught on its way to the disk.
			b.script(`(window.saved = null, URL.createObjectURL = (blob) => (blob.text().then((t) => window.saved = t),
				"blob:none"), document.getElementById("save").click())`)
			b.await(`window.saved !== null`)
			result, err := meter.ReadResult([]byte(b.script(`window.saved`)))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(shown, result.Says) {
				t.Errorf("%q is not shown: %s", result.Says, shown)
			}
			for _, phase := range []string{meter.Idle, meter.Download, meter.Upload} {
				p := result.Find(phase)
				if p == nil || p.RTT.N == 0 {
					t.Fatalf("%s: no round trips", phase)
				}
				if phase == meter.Idle {
					continue
				}
				if p.Goodput[phase].Value <= 0 { // on a busy machine too few probes may go out for more
					t.Errorf("%s: %+v", phase, p)
				} else if want := meter.Figure(p.Goodput[phase].Value); !strings.Contains(shown, want) {
					t.Errorf("%s: no %s is shown: %s", phase, want, shown)
				}
			}
			if senders := result.Find(meter.Download).Senders; len(senders) != 1 || !senders[0].Kernel ||
				senders[0].RTT.N == 0 || len(senders[0].CC) == 0 {
				t.Errorf("the server's kernel is not heard: %+v", senders)
			}
			// The link shows the same to somebody who has no token.
			b.script(`document.getElementById("link").click()`)
			b.await(`document.getElementById("kept").textContent !== "saved"`)
			hash := b.script(`location.hash`)
			b.goTo("https://" + r.addr + "/?" + hash)
			if again := b.script(`document.getElementById("result").innerText`); !strings.Contains(again, result.Says) ||
				!strings.Contains(again, "From a link") {
				t.Errorf("the link shows %s", again)
			}
			b.goTo("https://" + r.addr + "/??#r=bm8gcmVzdWx0")
			if says := b.script(`document.getElementById("problem").innerText`); !strings.Contains(says, "copied whole") {
				t.Errorf("a broken link: %q", says)
			}
		})
	}
}

// What a page sends is summed up once, and nothing but a recording is.
func TestSummary(t *testing.T) {
	r := start(t, nil)
	var hello meter.Hello
	session := func() string {
		_, text := r.do(t, r.h2, "POST", meter.PathSession, nil, 1e4)
		if err := json.Unmarshal(text, &hello); err != nil {
			t.Fatal(err)
		}
		return meter.PathSummary + "?session=" + hello.Session
	}
	good := `{"interval": 50, "samples": [{"at": 1, "rtt": 20}], "spans": [{"name": "idle", "from": 0, "to": 4}]}`
	at := session()
	answer, text := r.do(t, r.h2, "POST", at, strings.NewReader(good), 1e5)
	if result, err := meter.ReadResult(text); answer.StatusCode != 200 || err != nil || result.Find(meter.Idle) == nil {
		t.Errorf("%s: %s, %v", answer.Status, text, err)
	}
	for _, c := range []struct {
		at, body string
		status   int
	}{
		{at, good, 409},
		{meter.PathSummary + "?session=none", good, 404},
		{session(), `{"interval": 0}`, 400},
		{session(), `{`, 400},
		{session(), strings.Repeat(" ", meter.MostRecording+1), 413},
	} {
		if answer, text := r.do(t, r.h1, "POST", c.at, strings.NewReader(c.body), 1e5); answer.StatusCode != c.status {
			t.Errorf("%.40s: %s, and not %d: %s", c.body, answer.Status, c.status, text)
		}
	}
	// While as many come as may be, another is to come again, and may.
	for range mostRecordings {
		r.server.sessions.read("127.0.0.1", mostRecordings)
	}
	at = session()
	if answer, _ := r.do(t, r.h2, "POST", at, strings.NewReader(good), 1e5); answer.StatusCode != 429 {
		t.Errorf("too many at once: %s", answer.Status)
	}
	r.server.sessions.hasRead("127.0.0.1")
	if answer, text := r.do(t, r.h2, "POST", at, strings.NewReader(good), 1e5); answer.StatusCode != 200 {
		t.Errorf("again: %s %s", answer.Status, text)
	}
}
