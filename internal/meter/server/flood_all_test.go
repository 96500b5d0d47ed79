// SPDX-License-Identifier: Apache-2.0

//go:build all

package server

// In make test-all: a thousand connections at once are let in or not by when they come.

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// It is the server of TestFlood, in a process of its own, so that its memory can be told.
func TestFloodServer(t *testing.T) {
	if os.Getenv("WEIR_TEST_FLOOD") == "" {
		t.Skip("skipped here: TestFlood runs it")
	}
	kept, err := Keep(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { io.Copy(io.Discard, os.Stdin); cancel() }()
	fmt.Printf("\nlistens %s\n", tcp.Addr())
	debug.SetMemoryLimit(MemoryLimit)
	limits := DefaultLimits()
	limits.Duration, limits.Rate = time.Hour, 100e6 // as long as a busy machine takes for the flood
	c := Config{Limits: limits, Certificate: kept.Certificate, Name: "here", Version: "test",
		Token: os.Getenv("WEIR_TEST_TOKEN")}
	if err := New(c).Serve(ctx, tcp, udp); err != nil {
		t.Error(err)
	}
}

// flooded starts that server. It gives its address, and what says how much memory it ever had, in kB.
func flooded(t *testing.T, token string) (addr string, peak func() int) {
	t.Helper()
	server := exec.Command(os.Args[0], "-test.run=^TestFloodServer$", "-test.v")
	server.Env = append(os.Environ(), "WEIR_TEST_FLOOD=1", "WEIR_TEST_TOKEN="+token)
	in, err := server.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); server.Wait() })
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if a, ok := strings.CutPrefix(lines.Text(), "listens "); ok {
			addr = a
			break
		}
	}
	if addr == "" {
		t.Fatal("the server does not say where it listens")
	}
	go func() { io.Copy(io.Discard, out) }()
	return addr, func() int {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", server.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(status), "VmHWM:")
		kb := 0
		fmt.Sscan(rest, &kb)
		return kb
	}
}

// from is a dialer of an address of loopback.
func from(host string) *net.Dialer {
	return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}, Timeout: 10 * time.Second}
}

// misuse does one of the things that nobody should do with a connection, and leaves it open.
func misuse(c net.Conn, i int) {
	c.SetDeadline(time.Now().Add(time.Second))
	switch i % 5 {
	case 0: // says nothing
	case 1:
		io.WriteString(c, strings.Repeat("A", 4000))
	case 2: // half of a TLS hello
		io.WriteString(c, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
	case 3: // headers that do not end
		s := tls.Client(c, &tls.Config{InsecureSkipVerify: true})
		io.WriteString(s, "GET /__down?bytes=1000000000 HTTP/1.1\r\nHost: x\r\nX: ")
		io.WriteString(s, strings.Repeat("x", 6000))
	case 4: // asks, and does not read the answer
		s := tls.Client(c, &tls.Config{InsecureSkipVerify: true})
		io.WriteString(s, "GET /__down?bytes=1000000000 HTTP/1.1\r\nHost: x\r\n\r\n")
	}
}

// Ten thousand connections from 250 hosts neither end a test that runs nor take much memory.
func TestFlood(t *testing.T) {
	addr, peak := flooded(t, "")
	get := func(host, path string) (*http.Response, error) {
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
			DialContext: from(host).DialContext}
		t.Cleanup(transport.CloseIdleConnections)
		return (&http.Client{Transport: transport}).Get("https://" + addr + path)
	}
	test, err := get("127.0.0.1", "/__down?bytes=10000000000")
	if err != nil {
		t.Fatal(err)
	}
	var arrived atomic.Int64
	ended := make(chan error, 1)
	go func() {
		for {
			n, err := test.Body.Read(make([]byte, chunk))
			if arrived.Add(int64(n)); err != nil {
				ended <- err
				return
			}
		}
	}()
	more := func() error { // waits until more has arrived
		for until := arrived.Load() + 1<<20; arrived.Load() < until; time.Sleep(10 * time.Millisecond) {
			if len(ended) > 0 {
				return <-ended
			}
		}
		return nil
	}
	if err := more(); err != nil {
		t.Fatal(err)
	}

	var mu sync.Mutex
	var open []net.Conn
	defer func() {
		for _, c := range open {
			c.Close()
		}
	}()
	var all sync.WaitGroup
	const at = 200
	for w := range at {
		all.Go(func() {
			for i := w; i < 10_000; i += at {
				c, err := from(fmt.Sprintf("127.0.1.%d", 1+i%250)).Dial("tcp", addr)
				if err != nil {
					continue // its backlog is full
				}
				misuse(c, i/250)
				mu.Lock()
				open = append(open, c)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	t.Logf("%d connections, %d kB", len(open), peak())
	if len(open) < 9000 {
		t.Errorf("only %d of 10000 connections were made", len(open))
	}
	again, err := get("127.0.0.1", "/__down?bytes=1000")
	if err != nil {
		t.Errorf("whoever tests gets no further connection: %v", err)
	} else {
		again.Body.Close()
	}
	if err := more(); err != nil {
		t.Errorf("the test that ran ended: %v", err)
	}
	test.Body.Close()
	if kb := peak(); kb == 0 || kb > 64<<10 {
		t.Errorf("%d kB of memory", kb)
	}
}

// Four hosts, or a thousand, hold every connection that they get and come again at once, each in another way; and
// somebody with the token uploads as much as fits. Whoever else has the token gets a place all the same, and the memory
// stays below 60 % of what the unit allows.
func TestCrowd(t *testing.T) {
	for name, host := range map[string]func(i int) string{
		"4 hosts":       func(i int) string { return fmt.Sprintf("127.1.0.%d", 1+i%4) },
		"1000 hosts":    func(i int) string { return fmt.Sprintf("127.1.%d.%d", i%4, 1+i/4%250) },
		"1000 networks": func(i int) string { return fmt.Sprintf("127.%d.%d.1", 1+i%4, 1+i/4%250) },
	} {
		t.Run(name, func(t *testing.T) { crowd(t, host) })
	}
}

func crowd(t *testing.T, host func(i int) string) {
	const token, tries, crowded, unit = "of-the-test", 20, 400, 256 << 10 // kB
	addr, peak := flooded(t, token)
	url := "https://" + addr + "/t/" + token
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	var came atomic.Int64
	crowdIsThere := make(chan struct{})
	for w := range crowded {
		all.Go(func() {
			for i := w; ctx.Err() == nil; i += crowded {
				c, err := from(host(i)).Dial("tcp", addr)
				if err != nil {
					continue
				}
				if came.Add(1) == 2*crowded {
					close(crowdIsThere)
				}
				end := context.AfterFunc(ctx, func() { c.Close() })
				if way := i / 7; way%6 == 5 {
					hoard(c)
				} else {
					misuse(c, way)
				}
				io.Copy(io.Discard, io.LimitReader(c, 1<<10)) // until it is thrown out
				end()
				c.Close()
			}
		})
	}
	for range 80 {
		all.Go(func() {
			transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
				ForceAttemptHTTP2: true, DialContext: from("127.0.0.2").DialContext}
			defer transport.CloseIdleConnections()
			post, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/slurp", zeros{})
			if err != nil {
				panic(err)
			}
			if answer, err := (&http.Client{Transport: transport}).Do(post); err == nil {
				answer.Body.Close()
			}
		})
	}
	<-crowdIsThere
	most := 0 // attempts
	for try := range tries {
		for attempts := 0; ; attempts++ {
			transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
				DialContext: from("127.0.0.1").DialContext}
			answer, err := (&http.Client{Transport: transport}).Get(url + "/backend/empty.php")
			if err == nil {
				answer.Body.Close()
			}
			transport.CloseIdleConnections()
			if err == nil && answer.StatusCode == http.StatusOK {
				most = max(most, attempts+1)
				break
			}
			if attempts == 1000 {
				t.Fatalf("try %d: %v", try, err)
			}
		}
	}
	t.Logf("%d connections, a place at attempt %d at most, %d kB", came.Load(), most, peak())
	if kb := peak(); kb == 0 || kb > unit*6/10 {
		t.Errorf("%d kB of memory", kb)
	}
}

// hoard asks for as much over HTTP/2 as a connection may, with long headers, and takes no answer.
func hoard(c net.Conn) {
	s := tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	io.WriteString(s, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	h := h2{s}
	h.send(frameSettings, 0, 0, []byte{0, 4, 0, 0, 0, 0}) // streams begin with a window of 0
	const get, https, authority, path = 0x82, 0x87, 0x41, 0x44
	const page = "/page.js" // for everybody, and more than fits into a buffer
	block := append([]byte{get, https, authority, 1, 'x', path, byte(len(page))}, page...)
	for i := range 180 {
		block = append(block, 0, 4, 'x', byte('a'+i%26), byte('a'+i/26), 'y', 20)
		block = append(block, "01234567890123456789"...)
	}
	for i := range uint32(32) {
		h.send(frameHeaders, endStream|endHeaders, 1+2*i, block)
	}
}
