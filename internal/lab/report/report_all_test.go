// SPDX-License-Identifier: Apache-2.0

//go:build all

package report

// In make test-all: a browser is run.

import (
	"bytes"
	"fmt"
	"image"
	_ "image/png"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"weir/internal/lab/scenario"
)

// The page opens in a browser without a network: its pictures are there, in light and in dark, its numbers are those
// of the JSON, and the arrow keys show values.
func TestHTMLInABrowser(t *testing.T) {
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("skipped, not passed: chromium is not installed (make deps)")
	}
	var b bytes.Buffer
	if err := HTML(&b, sample(), [][]scenario.File{nil}); err != nil {
		t.Fatal(err)
	}
	refers := regexp.MustCompile(`(?i)src=|href="[^#]|url\(|@import|<script[^>]|fetch|XMLHttp|import\(`)
	if found := refers.FindString(b.String()); found != "" {
		t.Errorf("the page refers to something: %s", found)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "r.html")
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	chromium := func(args ...string) []byte {
		t.Helper()
		command := exec.Command(browser, append([]string{"--headless", "--no-sandbox", "--disable-gpu",
			"--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
			"--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
			"--user-data-dir=" + filepath.Join(dir, "profile")},
			append(args, "file://"+file)...)...)
		out, err := command.Output()
		if err != nil {
			t.Fatalf("chromium: %v", err)
		}
		return out
	}
	dom := string(chromium("--dump-dom"))
	cells := regexp.MustCompile(`<td>([^<]*)</td>`).FindAllStringSubmatch(dom, -1)
	shown := map[string]bool{}
	for _, c := range cells {
		first, _, _ := strings.Cut(c[1], " ")
		shown[first] = true
	}
	for _, want := range numbers(t, sample()) {
		if !shown[want] {
			t.Errorf("no cell shows %s", want)
		}
	}
	if n := strings.Count(dom, "<svg"); n != 2*5 {
		t.Errorf("%d pictures, want 10", n)
	}
	hasBasics(t, dom)
	if err := os.WriteFile(file, append(b.Bytes(), pressKeys...), 0o600); err != nil {
		t.Fatal(err)
	}
	// Weir's round trip 26 hundredths of 20 s after the start, of which each second sample is drawn: 52.42 ms + 3 ms ×
	// sin(259 / 40).
	if read := string(chromium("--dump-dom")); !strings.Contains(read, "<b>5.20 s</b>") ||
		!strings.Contains(read, "</i>Weir: 53.0 ms</span>") {
		t.Errorf("the arrow keys show no values: %s",
			regexp.MustCompile(`(?s)<div class="tip".*?</div>`).FindString(read))
	}
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(dom, "A <b>title</b>") {
		t.Error("a scenario's text is taken for HTML")
	}
	for scheme, want := range map[string]struct {
		setting int
		paper   [3]uint8
		lines   [][3]uint8 // the first three candidates' colours, as report.html.tmpl has them
	}{
		"light": {1, [3]uint8{0xfc, 0xfc, 0xfa}, [][3]uint8{{0xc2, 0x41, 0x0c}, {0xa1, 0x62, 0x07},
			{0x7e, 0x22, 0xce}}},
		"dark": {0, [3]uint8{0x14, 0x17, 0x1a}, [][3]uint8{{0xfb, 0x92, 0x3c}, {0xfa, 0xcc, 0x15},
			{0xc0, 0x84, 0xfc}}},
	} {
		shot := filepath.Join(dir, scheme+".png")
		chromium("--window-size=1300,2400", fmt.Sprintf("--blink-settings=preferredColorScheme=%d", want.setting),
			"--screenshot="+shot)
		f, err := os.Open(shot)
		if err != nil {
			t.Fatal(err)
		}
		img, _, err := image.Decode(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		count := map[[3]uint8]int{}
		for y := img.Bounds().Min.Y; y < img.Bounds().Max.Y; y++ {
			for x := img.Bounds().Min.X; x < img.Bounds().Max.X; x++ {
				r, g, b, _ := img.At(x, y).RGBA()
				count[[3]uint8{uint8(r >> 8), uint8(g >> 8), uint8(b >> 8)}]++
			}
		}
		if n := count[[3]uint8{}]; n > 0 {
			t.Errorf("%s: %d black pixels: something has not been given the page's colours", scheme, n)
		}
		if r, g, b, _ := img.At(2, 2).RGBA(); [3]uint8{uint8(r >> 8), uint8(g >> 8), uint8(b >> 8)} != want.paper {
			t.Errorf("%s: the paper has the colour %x %x %x", scheme, r>>8, g>>8, b>>8)
		}
		for i, colour := range want.lines {
			// Four keys of 13 × 13 a candidate; whatever is more has been drawn.
			if n := count[colour]; n < 4*13*13+300 {
				t.Errorf("%s: candidate %d's colour covers %d pixels: its lines are missing", scheme, i, n)
			}
		}
	}
}

// pressKeys moves over the first picture as a keyboard does.
const pressKeys = `<script>
for (let i = 0; i < 26; i++)
  document.querySelector(".chart").dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowRight"}));
</script>`

// hasBasics looks for what keyboards and screen readers need.
func hasBasics(t *testing.T, dom string) {
	t.Helper()
	tables, charts := strings.Count(dom, "<table"), strings.Count(dom, `<svg`)
	for what, want := range map[string]int{
		"<main>": 1, "<caption>": tables, `<div class="scroll" tabindex="0" role="region" aria-label`: tables,
		`role="img" aria-labelledby="chart-`: charts, "<title id=": charts, "<desc id=": charts,
		`<div class="chart" tabindex="0"`: charts, "<figcaption>": charts,
	} {
		if n := strings.Count(dom, what); n != want || n == 0 {
			t.Errorf("%d of %s, want %d", n, what, want)
		}
	}
	ids := map[string]bool{}
	for _, m := range regexp.MustCompile(` id="([^"]*)"`).FindAllStringSubmatch(dom, -1) {
		if ids[m[1]] {
			t.Errorf("two things are called %s", m[1])
		}
		ids[m[1]] = true
	}
	for _, m := range regexp.MustCompile(` aria-labelledby="([^"]*)"`).FindAllStringSubmatch(dom, -1) {
		for _, id := range strings.Fields(m[1]) {
			if !ids[id] {
				t.Errorf("nothing is called %s", id)
			}
		}
	}
}
