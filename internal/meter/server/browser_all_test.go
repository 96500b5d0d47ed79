// SPDX-License-Identifier: Apache-2.0

//go:build all

package server

// In make test-all: browsers are run.

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"
)

// browser is a real one without a window, told what to do over its debugging port: Chromium by the DevTools protocol,
// Firefox by WebDriver BiDi.
type browser struct {
	t      *testing.T
	socket *websocket.Conn
	n      int
	bidi   bool
	target string // Chromium's session, Firefox's context
}

// startBrowser starts one of a name; it ends with the test. Nothing but the machine itself is reached: a proxy that is
// not there stands before everything else.
func startBrowser(t *testing.T, name string) *browser {
	t.Helper()
	tool(t, name)
	dir := t.TempDir()
	args := []string{"--headless", "--remote-debugging-port=0"}
	ready := regexp.MustCompile(`DevTools listening on (ws://\S+)`)
	b := &browser{t: t, bidi: name != "chromium"}
	if b.bidi {
		args = append(args, "--profile", dir, "--no-remote")
		ready = regexp.MustCompile(`WebDriver BiDi listening on (ws://\S+)`)
		preferences := `user_pref("network.proxy.type", 1); user_pref("network.proxy.ssl", "127.0.0.1");
user_pref("network.proxy.ssl_port", 9); user_pref("network.proxy.http", "127.0.0.1");
user_pref("network.proxy.http_port", 9); user_pref("network.proxy.no_proxies_on", "127.0.0.1");`
		if err := os.WriteFile(filepath.Join(dir, "user.js"), []byte(preferences), 0o600); err != nil {
			t.Fatal(err)
		}
	} else {
		args = append(args, "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage",
			"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-quic",
			"--ignore-certificate-errors", "--proxy-server=127.0.0.1:9", "--user-data-dir="+dir)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "HOME="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // its helpers end with it
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		cmd.Wait()
	})
	lines := bufio.NewScanner(said)
	var at, all string
	for at == "" && lines.Scan() {
		all += lines.Text() + "\n"
		if m := ready.FindStringSubmatch(lines.Text()); m != nil {
			at = m[1]
		}
	}
	if at == "" {
		t.Fatalf("%s has not started:\n%s", name, all)
	}
	go func() { // so that it never waits for somebody to read
		for lines.Scan() {
		}
	}()
	if b.bidi {
		at += "/session"
	}
	if b.socket, _, err = websocket.Dial(ctx, at, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.socket.CloseNow() })
	b.socket.SetReadLimit(64 << 20)
	b.open(ctx)
	return b
}

type object = map[string]any

// open makes a tab.
func (b *browser) open(ctx context.Context) {
	b.t.Helper()
	var made struct {
		Contexts  []struct{ Context string }
		TargetID  string `json:"targetId"`
		SessionID string `json:"sessionId"`
	}
	if b.bidi {
		b.call(ctx, "session.new", object{"capabilities": object{"alwaysMatch": object{"acceptInsecureCerts": true}}}, nil)
		b.call(ctx, "browsingContext.getTree", object{}, &made)
		b.target = made.Contexts[0].Context
		return
	}
	b.call(ctx, "Target.createTarget", object{"url": "about:blank"}, &made)
	b.call(ctx, "Target.attachToTarget", object{"targetId": made.TargetID, "flatten": true}, &made)
	b.target = made.SessionID
}

// call does a command, and reads its result.
func (b *browser) call(ctx context.Context, method string, params object, result any) {
	b.t.Helper()
	if err := b.ask(ctx, method, params, result); err != nil {
		b.t.Fatal(err)
	}
}

// ask is call, with an error for what the browser refuses, as it does while it goes to another page.
func (b *browser) ask(ctx context.Context, method string, params object, result any) error {
	b.t.Helper()
	b.n++
	command := object{"id": b.n, "method": method, "params": params}
	if !b.bidi && b.target != "" {
		command["sessionId"] = b.target
	}
	if err := wsjson.Write(ctx, b.socket, command); err != nil {
		b.t.Fatal(method, err)
	}
	for {
		var answer struct {
			ID     int
			Result json.RawMessage
			Error  json.RawMessage
		}
		if err := wsjson.Read(ctx, b.socket, &answer); err != nil {
			b.t.Fatal(method, err)
		}
		if answer.ID != b.n { // an event
			continue
		}
		if answer.Error != nil {
			return fmt.Errorf("%s: %s", method, answer.Error)
		}
		if result != nil {
			if err := json.Unmarshal(answer.Result, result); err != nil {
				b.t.Fatal(method, err)
			}
		}
		return nil
	}
}

func (b *browser) goTo(url string) {
	b.t.Helper()
	ctx := context.Background()
	if b.bidi {
		b.call(ctx, "browsingContext.navigate", object{"context": b.target, "url": url, "wait": "complete"}, nil)
		return
	}
	b.call(ctx, "Page.navigate", object{"url": url}, nil)
	b.await(`document.readyState === "complete" && location.href !== "about:blank"`)
}

// script evaluates an expression in the page; it gives the text that this is.
func (b *browser) script(expression string) string {
	b.t.Helper()
	text, err := b.try(expression)
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return text
}

func (b *browser) try(expression string) (string, error) {
	b.t.Helper()
	expression = "String(" + expression + ")"
	ctx := context.Background()
	if b.bidi {
		var said struct {
			Result           struct{ Value string }
			ExceptionDetails struct{ Text string }
		}
		if err := b.ask(ctx, "script.evaluate", object{"expression": expression, "awaitPromise": true,
			"target": object{"context": b.target}}, &said); err != nil {
			return "", err
		}
		if said.ExceptionDetails.Text != "" {
			return "", errors.New(said.ExceptionDetails.Text)
		}
		return said.Result.Value, nil
	}
	var said struct {
		Result           struct{ Value string }
		ExceptionDetails *struct{ Exception struct{ Description string } }
	}
	if err := b.ask(ctx, "Runtime.evaluate", object{"expression": expression, "awaitPromise": true,
		"returnByValue": true}, &said); err != nil {
		return "", err
	}
	if said.ExceptionDetails != nil {
		return "", errors.New(said.ExceptionDetails.Exception.Description)
	}
	return said.Result.Value, nil
}

// await waits until an expression is true; the browser's own time limit ends it.
func (b *browser) await(expression string) {
	b.t.Helper()
	for range 1000 {
		if text, err := b.try(expression); err == nil && text == "true" {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	b.t.Fatalf("never: %s; the page says %s", expression, b.script("document.body.innerText"))
}

// screenshot writes what is to be seen, for who wants to look: WEIR_LOOK=folder.
func (b *browser) screenshot(name string, width int) {
	b.t.Helper()
	dir := os.Getenv("WEIR_LOOK")
	if dir == "" || b.bidi {
		return
	}
	var shot struct{ Data []byte }
	ctx := context.Background()
	b.call(ctx, "Emulation.setDeviceMetricsOverride", object{"width": width, "height": 1100, "deviceScaleFactor": 1,
		"mobile": width < 500}, nil)
	b.call(ctx, "Page.captureScreenshot", object{"format": "png"}, &shot)
	if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-%d.png", name, width)), shot.Data, 0o600); err != nil {
		b.t.Fatal(err)
	}
}
