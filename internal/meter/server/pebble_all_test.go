// SPDX-License-Identifier: Apache-2.0

//go:build all

package server

// In make test-all: a real ACME server is run.

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/acme"
)

// Pebble is Let's Encrypt's own authority for tests. It checks signatures, refuses some nonces, as a busy
// authority may, and asks for the proof where the DNS says.
func TestPebble(t *testing.T) {
	const name = "speed.example.org"
	dir := t.TempDir()
	d := NewDomain(name, filepath.Join(dir, "acme"), "")
	r := start(t, func(c *Config) { c.Domain = d })
	_, port, _ := net.SplitHostPort(r.addr)
	authority, asked, dns, managed := free(t), free(t), free(t), free(t)
	// Its own https is that of a server here: nobody vouches for it either.
	kept, err := Keep(dir)
	if err != nil {
		t.Fatal(err)
	}
	config, _ := json.Marshal(map[string]any{"pebble": map[string]any{
		"listenAddress": authority, "managementListenAddress": asked, "tlsPort": json.Number(port), "httpPort": 1,
		"certificate": filepath.Join(dir, certificateFile), "privateKey": filepath.Join(dir, keyFile),
		"retryAfter": map[string]int{"authz": 1, "order": 1}}})
	if err := os.WriteFile(filepath.Join(dir, "config.json"), config, 0o600); err != nil {
		t.Fatal(err)
	}
	background(t, "pebble-challtestsrv", "-dnsserver", dns, "-management", managed, "-defaultIPv4", "127.0.0.1",
		"-defaultIPv6", "", "-http01", "", "-https01", "", "-tlsalpn01", "", "-doh", "")
	background(t, "pebble", "-config", filepath.Join(dir, "config.json"), "-dnsserver", dns)

	trusted := x509.NewCertPool()
	leaf, _ := x509.ParseCertificate(kept.Certificate.Certificate[0])
	trusted.AddCert(leaf)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted,
		ServerName: leaf.DNSNames[0]}}}
	defer client.CloseIdleConnections()
	d.manager.Client = &acme.Client{DirectoryURL: "https://" + authority + "/dir", HTTPClient: client}
	root := waitFor(t, client, "https://"+asked+"/roots/0")
	waitFor(t, client, "https://"+authority+"/dir")
	if err := d.Obtain(context.Background()); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(root) {
		t.Fatalf("its root is %q", root)
	}
	c, err := tls.Dial("tcp", r.addr, &tls.Config{ServerName: name, RootCAs: roots})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()

	// A name that leads nowhere is refused in words.
	elsewhere := NewDomain("nobody.example.org", filepath.Join(dir, "other"), "")
	elsewhere.manager.Client = d.manager.Client
	err = elsewhere.Obtain(context.Background())
	if err == nil || !strings.Contains(err.Error(), "did not reach this program at port 443") {
		t.Errorf("a name that is not this server's: %v", err)
	}
}

// free is an address of loopback whose port nobody has, for TCP and for UDP.
func free(t *testing.T) string {
	t.Helper()
	for range 20 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if u, err := net.ListenPacket("udp", l.Addr().String()); err == nil {
			u.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no port is free for both")
	return ""
}

// background runs one of the tools of packaging/tools until the test ends.
func background(t *testing.T, program string, args ...string) {
	t.Helper()
	out, err := exec.Command("../../../scripts/go", "tool", "-modfile=../../../packaging/tools/go.mod", "-n",
		program).Output()
	if err != nil {
		t.Skipf("skipped, not passed: %s cannot be had: %v (packaging/tools/go.mod)", program, err)
	}
	c := exec.Command(strings.TrimSpace(string(out)), args...)
	c.Env = append(os.Environ(), "PEBBLE_VA_NOSLEEP=1")
	said := &strings.Builder{}
	c.Stdout, c.Stderr = said, said
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
		if t.Failed() {
			t.Log(program, said)
		}
	})
}

// waitFor asks until a server that has just started answers.
func waitFor(t *testing.T, c *http.Client, url string) []byte {
	t.Helper()
	err := fmt.Errorf("nobody was asked")
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		var answer *http.Response
		if answer, err = c.Get(url); err == nil {
			body, _ := io.ReadAll(answer.Body)
			answer.Body.Close()
			return body
		}
	}
	t.Fatal(err)
	return nil
}
