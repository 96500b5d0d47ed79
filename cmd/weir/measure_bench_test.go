// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"weir/internal/meter"
)

// load is what a program carried, and what it cost: both ends' CPU time.
type load struct {
	best map[string]float64 // by direction, Mbit/s
	bits float64
	cpu  time.Duration
}

func (l *load) add(direction string, mbit, bits float64) {
	if l.best == nil {
		l.best = map[string]float64{}
	}
	l.best[direction] = max(l.best[direction], mbit)
	l.bits += bits
}

func (l *load) spent(all ...*exec.Cmd) {
	for _, c := range all {
		l.cpu += c.ProcessState.UserTime() + c.ProcessState.SystemTime()
	}
}

// BenchmarkLoads runs iperf3 and weir measure in turn on loopback, four connections each: the fastest of three runs by
// direction, as a share of iperf3's, and CPU time for a gigabit, of both ends together.
func BenchmarkLoads(b *testing.B) {
	if _, err := exec.LookPath("iperf3"); err != nil {
		b.Skip("skipped, not passed: this needs iperf3 (scripts/need test)")
	}
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	b.Setenv("WEIR_NETNS", "/proc/self/ns/net") // this one
	weir := filepath.Join(b.TempDir(), "weir")
	if err := os.Symlink(self, weir); err != nil {
		b.Fatal(err)
	}
	var iperf, tls, plain load
	for b.Loop() {
		for range 3 {
			for _, err := range []error{iperf.iperf3(meter.Download, "-R"), iperf.iperf3(meter.Upload),
				tls.weir(weir, b.TempDir()), plain.weir(weir, b.TempDir(), "--plain")} {
				if err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	perGbit := func(l load) float64 { return float64(l.cpu.Milliseconds()) / (l.bits / 1e9) }
	b.ReportMetric(perGbit(iperf), "iperf3-cpu-ms/Gbit")
	for name, l := range map[string]load{"tls": tls, "plain": plain} {
		b.ReportMetric(perGbit(l), name+"-cpu-ms/Gbit")
		for direction, mbit := range l.best {
			b.ReportMetric(mbit/iperf.best[direction], name+"-"+direction+"/iperf3")
		}
	}
}

func (l *load) iperf3(direction string, args ...string) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	server := exec.Command("iperf3", "-s", "-B", "127.0.0.1", "-p", port, "--one-off", "--forceflush")
	out, err := server.StdoutPipe()
	if err == nil {
		err = server.Start()
	}
	if err != nil {
		return err
	}
	defer server.Process.Kill()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if bytes.Contains(lines.Bytes(), []byte("listening")) {
			break
		}
	}
	client := exec.Command("iperf3", append([]string{"-c", "127.0.0.1", "-p", port, "-P", "4", "-t", "5", "-J"},
		args...)...)
	said, err := client.Output()
	if err != nil {
		return fmt.Errorf("iperf3: %w: %.300s", err, said)
	}
	go func() { // what it still prints
		for b := make([]byte, 4096); ; {
			if _, err := out.Read(b); err != nil {
				return
			}
		}
	}()
	if err := server.Wait(); err != nil {
		return err
	}
	var r struct {
		End struct {
			Received struct {
				Rate  float64 `json:"bits_per_second"`
				Bytes float64 `json:"bytes"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	if err := json.Unmarshal(said, &r); err != nil {
		return err
	}
	l.add(direction, r.End.Received.Rate/1e6, 8*r.End.Received.Bytes)
	l.spent(server, client)
	return nil
}

// weir measures to a server of its own.
func (l *load) weir(program, state string, args ...string) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	at := "127.0.0.1:" + port
	server := exec.Command(program, "serve", "--listen", at, "--state", state, "--bytes", "1000gb")
	out, err := server.StdoutPipe()
	if err == nil {
		err = server.Start()
	}
	if err != nil {
		return err
	}
	defer server.Process.Kill()
	pin := ""
	for lines := bufio.NewScanner(out); pin == "" && lines.Scan(); {
		pin = regexp.MustCompile(`sha256:[0-9a-f]+`).FindString(lines.Text())
	}
	all := append([]string{"measure", at, "--pin", pin, "--time", "13s", "--json"}, args...)
	client := exec.Command(program, all...)
	said, err := client.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	if err != nil {
		return err
	}
	server.Process.Signal(os.Interrupt)
	go func() {
		for b := make([]byte, 4096); ; {
			if _, err := out.Read(b); err != nil {
				return
			}
		}
	}()
	if err := server.Wait(); err != nil {
		return err
	}
	r, err := meter.ReadResult(said)
	if err != nil {
		return err
	}
	for _, s := range r.Recording.Spans {
		receivers, bytes := s.Local, int64(0)
		if s.Name == meter.Upload {
			receivers = s.Far
		}
		for _, f := range receivers {
			for _, n := range f.Bins {
				bytes += n
			}
		}
		if p := r.Find(s.Name); s.Name != meter.Idle {
			l.add(s.Name, p.Goodput[s.Name].Value, 8*float64(bytes))
		}
	}
	l.spent(server, client)
	return nil
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}
