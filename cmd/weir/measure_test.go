// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"weir/internal/meter"
)

// What another host says never reaches the terminal as it is.
func TestHostileServer(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		w.Write([]byte("\x1b[31mred\x07\nline"))
	}))
	defer s.Close()
	var out, errs bytes.Buffer
	status := run([]string{"measure", strings.TrimPrefix(s.URL, "https://"), "--pin",
		meter.Fingerprint(s.Certificate().Raw)}, &out, &errs)
	if said := errs.String(); status != 1 || !strings.Contains(said, "red") || strings.ContainsAny(said, "\x1b\x07") ||
		out.Len() > 0 || strings.Count(said, "\n") > 2 {
		t.Errorf("%d, %q, %q", status, said, out.String())
	}
}
