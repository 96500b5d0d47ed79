// SPDX-License-Identifier: Apache-2.0

//go:build all

package server

// In make test-all: a browser is run.

import (
	"strings"
	"testing"

	"weir/internal/meter"
	"weir/internal/units"
)

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
			linked := b.script(`document.getElementById("result").innerText`)
			if !strings.Contains(linked, result.Says) || !strings.Contains(linked, "From a link") {
				t.Errorf("the link shows %s", linked)
			}
			b.goTo("https://" + r.addr + "/??#r=bm8gcmVzdWx0")
			says := b.script(`document.getElementById("problem").innerText`)
			if !strings.Contains(says, "copied whole") {
				t.Errorf("a broken link: %q", says)
			}
		})
	}
}
