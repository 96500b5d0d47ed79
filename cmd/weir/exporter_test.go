// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"net"
	"net/http"
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
	go func() { done <- serveMetrics(ctx, listener, registry) }()
	for _, c := range []struct {
		path, accept, kind, has string
		status                  int
	}{
		{"/metrics", "", "text/plain", "\nweir_test_info 0\n", 200},
		{"/metrics", "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited",
			"application/vnd.google.protobuf", "weir_test_info", 200},
		{"/", "", "text/html", `href="metrics"`, 200},
		{"/other", "", "text/plain", "not found", 404},
	} {
		request, err := http.NewRequest("GET", "http://"+listener.Addr().String()+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Accept", c.accept)
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
