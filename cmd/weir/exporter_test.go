// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Prometheus gets text, or protobuf where it asks for that; and whoever is curious, a link.
func TestServeMetrics(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "weir_test_info", Help: "A test."}))
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- serveMetrics(ctx, listener, registry, "") }()
	for _, c := range []struct {
		path, accept, kind, has, host string
		status                        int
	}{
		{"/metrics", "", "text/plain", "\nweir_test_info 0\n", "", 200},
		{"/metrics", "", "text/plain", "\nweir_test_info 0\n", "localhost:9", 200},
		{"/metrics", "", "text/plain", "ask for localhost", "rebound.example:4749", 421},
		{"/metrics", "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited",
			"application/vnd.google.protobuf", "weir_test_info", "", 200},
		{"/", "", "text/html", `href="metrics"`, "", 200},
		{"/other", "", "text/plain", "not found", "", 404},
	} {
		request, err := http.NewRequest("GET", "http://"+listener.Addr().String()+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Accept", c.accept)
		request.Host = cmp.Or(c.host, request.Host)
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		if answer.StatusCode != c.status || !strings.HasPrefix(answer.Header.Get("Content-Type"), c.kind) ||
			!strings.Contains(string(body), c.has) {
			t.Errorf("%s: %s %s %q", c.path, answer.Status, answer.Header.Get("Content-Type"), body)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// With a web config only who has the password is told anything, and only by TLS.
func TestServeMetricsByTLS(t *testing.T) {
	lender := httptest.NewTLSServer(nil) // of a certificate
	defer lender.Close()
	dir := t.TempDir()
	key, err := x509.MarshalPKCS8PrivateKey(lender.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	pair := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: lender.Certificate().Raw})
	pair = append(pair, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})...)
	web := filepath.Join(dir, "web.yml")
	for name, text := range map[string]string{
		filepath.Join(dir, "pair.pem"): string(pair),
		web: "tls_server_config: {cert_file: pair.pem, key_file: pair.pem}\n" + // the hash is of "told"
			"basic_auth_users: {prometheus: $2a$04$i9.hzZ/UXsiKDiEq7fRfVOfO9.6ZNhl9l9whu9juXZFyVTQwSnry.}\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- serveMetrics(ctx, listener, prometheus.NewRegistry(), web) }()
	for _, c := range []struct {
		scheme, password string
		status           int
	}{{"https", "told", 200}, {"https", "guessed", 401}, {"https", "", 401}, {"http", "told", 400}} {
		request, err := http.NewRequest("GET", c.scheme+"://"+listener.Addr().String()+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.password != "" {
			request.SetBasicAuth("prometheus", c.password)
		}
		answer, err := lender.Client().Do(request)
		if err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		answer.Body.Close()
		if answer.StatusCode != c.status {
			t.Errorf("%s, password %q: %s", c.scheme, c.password, answer.Status)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
