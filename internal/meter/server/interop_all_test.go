// SPDX-License-Identifier: Apache-2.0

//go:build all

package server

// In make test-all: other people's clients are run.

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"weir/internal/meter/irtt"
	"weir/internal/testkind"
	"weir/internal/units"
)

// Independent clients, as Debian has them.

func tool(t *testing.T, name string) {
	t.Helper()
	testkind.Program(t)
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("skipped, not passed: %v (scripts/need test)", err)
	}
}

func TestIrtt(t *testing.T) {
	tool(t, "irtt")
	for _, key := range []string{"", "secret"} {
		r := start(t, func(c *Config) { c.Token = key })
		out := filepath.Join(t.TempDir(), "out.json")
		args := []string{"client", "-i", "20ms", "-d", "400ms", "-q", "-o", out, "-l", "200"}
		if key != "" {
			args = append(args, fmt.Sprintf("--hmac=0x%x", irtt.Key(key)))
		}
		if text, err := exec.Command("irtt", append(args, r.udp)...).CombinedOutput(); err != nil {
			t.Fatalf("key %q: %v\n%s", key, err, text)
		}
		text, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		var said struct {
			Stats struct {
				RTT         struct{ N int }
				SendDelay   struct{ N int } `json:"send_delay"`
				Received    int             `json:"packets_received"`
				ServerCount int             `json:"server_packets_received"`
				Upstream    float64         `json:"upstream_loss_percent"`
			}
		}
		if err := json.Unmarshal(text, &said); err != nil {
			t.Fatal(err)
		}
		if s := said.Stats; s.RTT.N < 1 || s.Received < 1 || s.ServerCount < 1 || s.SendDelay.N != s.RTT.N {
			t.Errorf("key %q: %+v", key, s)
		}
	}
}

func TestCurl(t *testing.T) {
	tool(t, "curl")
	r := start(t, nil)
	file := filepath.Join(t.TempDir(), "upload")
	if err := os.WriteFile(file, make([]byte, 500_000), 0o600); err != nil {
		t.Fatal(err)
	}
	for flag, version := range map[string]string{"--http1.1": "1.1", "--http2": "2"} {
		for path, want := range map[string]string{"/small": "200 1 0", "/__down?bytes=1000000": "200 1000000 0"} {
			out, err := exec.Command("curl", "-sk", flag, "-o", "/dev/null", "-w",
				"%{http_version} %{response_code} %{size_download} %{size_upload}", "https://"+r.addr+path).Output()
			if string(out) != version+" "+want || err != nil {
				t.Errorf("curl %s %s: %s, %v", flag, path, out, err)
			}
		}
		// Of a file curl tells the length first, and so counts nothing else.
		out, err := exec.Command("curl", "-sk", flag, "-T", file, "-X", "POST", "-w",
			"%{http_version} %{response_code} %{size_upload}", "https://"+r.addr+"/slurp").Output()
		if want := version + " 200 500000"; string(out) != want || err != nil {
			t.Errorf("curl %s upload: %s, %v", flag, out, err)
		}
	}
}

func TestH2load(t *testing.T) {
	tool(t, "h2load")
	r := start(t, nil)
	_, port, _ := net.SplitHostPort(r.addr)
	out, err := exec.Command("h2load", "-n", "200", "-c", "4", "-m", "8",
		fmt.Sprintf("https://127.0.0.1:%s/small", port)).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "200 succeeded, 0 failed") {
		t.Errorf("%v\n%s", err, out)
	}
}

// The clients that web pages have, in a page of another origin, as who embeds them has it.
func TestBrowserClients(t *testing.T) {
	tool(t, "npm")
	out, err := exec.Command("../../../scripts/npm-clients").Output()
	if err != nil {
		t.Skipf("skipped, not passed: npm's clients cannot be had: %v (scripts/npm-clients)", err)
	}
	folder := strings.TrimSpace(string(out))
	for _, c := range []struct {
		name, files, page string
		good              func(result string) bool
	}{
		{"ndt7", "m-lab-ndt7-0.1.4/src", `<script src=ndt7.js></script><script>
			const seen = {}, server = location.hash.slice(1)
			ndt7.test({userAcceptedDataPolicy: true, server, downloadworkerfile: "ndt7-download-worker.js",
				uploadworkerfile: "ndt7-upload-worker.js"}, {
				downloadComplete: d => seen.down = d, uploadComplete: d => seen.up = d, error: e => seen.error = String(e),
			}).then(code => { seen.code = code; document.title = JSON.stringify(seen) })
			</script>`, ndt7Good},
		{"cloudflare", "cloudflare-speedtest-1.14.1/dist", `<script type=module>
			import SpeedTest from "./speedtest.js"
			const server = "https://" + location.hash.slice(1)
			const test = new SpeedTest({autoStart: false, downloadApiUrl: server + "/__down",
				uploadApiUrl: server + "/__up", logAimApiUrl: null, measurements: [{type: "latency", numPackets: 5},
					{type: "download", bytes: 1e6, count: 3}, {type: "upload", bytes: 1e6, count: 3}]})
			test.onFinish = r => document.title = JSON.stringify(r.getSummary())
			test.onError = e => document.title = JSON.stringify({error: String(e)})
			test.play()
			</script>`, cloudflareGood},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := start(t, func(c *Config) { c.Token, c.Rate = "secret", units.Rate(40e6) })
			mux := http.NewServeMux()
			mux.Handle("/", http.FileServer(http.Dir(filepath.Join(folder, c.files))))
			mux.HandleFunc("/page", func(w http.ResponseWriter, _ *http.Request) {
				fmt.Fprintf(w, "<!doctype html><meta charset=utf-8><title></title>%s", c.page)
			})
			pages := httptest.NewServer(mux)
			defer pages.Close()
			b := startBrowser(t, "chromium")
			// On a machine that has other things to do a browser may get too little of its CPU to hear from the server.
			for attempt := range 3 {
				b.goTo(fmt.Sprintf("%s/page?%d#%s/t/secret", pages.URL, attempt, r.addr))
				b.await(`document.title !== ""`)
				result := b.script("document.title")
				if c.good(result) {
					return
				}
				t.Log(result)
			}
			t.Error("no attempt was whole")
		})
	}
}

// ndt7Good reports whether M-Lab's client has measured both ways, and has heard from the server's kernel.
func ndt7Good(result string) bool {
	type seen struct {
		LastClientMeasurement struct{ MeanClientMbps float64 }
		LastServerMeasurement struct{ TCPInfo struct{ MinRTT float64 } }
	}
	var all struct {
		Code     int
		Down, Up seen
	}
	good := func(s seen) bool {
		mbps := s.LastClientMeasurement.MeanClientMbps
		return mbps > 1 && mbps < 80 && s.LastServerMeasurement.TCPInfo.MinRTT > 0
	}
	return json.Unmarshal([]byte(result), &all) == nil && all.Code == 0 && good(all.Down) && good(all.Up)
}

// cloudflareGood reports whether Cloudflare's client has measured both ways, and round trips.
func cloudflareGood(result string) bool {
	var all struct{ Download, Upload, Latency float64 }
	return json.Unmarshal([]byte(result), &all) == nil && all.Download > 1e6 && all.Upload > 1e6 && all.Latency > 0
}
