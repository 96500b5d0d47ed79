// SPDX-License-Identifier: Apache-2.0

package server

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Independent clients, as Debian has them.

func tool(t *testing.T, name string) {
	t.Helper()
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
			args = append(args, "--hmac="+key)
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
