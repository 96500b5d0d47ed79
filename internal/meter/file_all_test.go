// SPDX-License-Identifier: Apache-2.0

//go:build all

package meter

// In make test-all: a file is fetched for as long as it is told.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"weir/internal/hint"
)

// A file is found over redirects and fetched again and again; what is no file is named.
func TestFile(t *testing.T) {
	const size = 4 << 20
	block := make([]byte, size)
	mux := http.NewServeMux()
	mux.HandleFunc("/big", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(size))
		w.Write(block)
	})
	mux.HandleFunc("/small", func(w http.ResponseWriter, r *http.Request) { w.Write(block[:100]) })
	mux.Handle("/moved", http.RedirectHandler("/big?from=moved", http.StatusFound))
	mux.Handle("/round", http.RedirectHandler("/round", http.StatusFound))
	mux.Handle("/shell", http.RedirectHandler("/none';$(reboot)", http.StatusFound))
	mux.Handle("/plain", http.RedirectHandler("http://192.0.2.1/big", http.StatusFound))
	var server *httptest.Server
	mux.HandleFunc("/nq", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"version":1,"urls":{"large_https_download_url":"%[1]s/l","small_https_download_url":"%[1]s/s",
"https_upload_url":"%[1]s/u"}}`, server.URL)
	})
	server = httptest.NewUnstartedServer(mux)
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // a probe is a handshake of TCP alone
	server.StartTLS()
	defer server.Close()
	pin := Fingerprint(server.Certificate().Raw)
	ctx := context.Background()

	for path, want := range map[string]string{"/small": "has 100 bytes only", "/round": "leads on and on",
		"/plain": "which is not https", "/none": "404"} {
		if _, err := FindFile(ctx, server.URL+path, pin); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	// Where a server has led to is nothing that a shell would run.
	var problem *hint.Error
	_, err := FindFile(ctx, server.URL+"/shell", pin)
	if want := `curl -I '` + server.URL + `/none'\'';$(reboot)'`; !errors.As(err, &problem) || problem.Try != want {
		t.Errorf("%v, and to try %q; want %q", err, problem.Try, want)
	}
	if f, err := FindFile(ctx, server.URL+"/nq", pin); f != nil || err != nil {
		t.Errorf("the configuration of a responsiveness server is taken for a file: %v, %v", f, err)
	}
	f, err := FindFile(ctx, server.URL+"/moved", pin)
	if err != nil {
		t.Fatal(err)
	}
	if f.uri != "/big?from=moved" || f.bytes != size {
		t.Errorf("found %q of %d bytes", f.uri, f.bytes)
	}
	rec, err := MeasureFile(ctx, f, Options{Time: unhurried * 5 * time.Second, Conns: 2})
	if err != nil {
		t.Fatal(err)
	}
	r := Summarize(rec)
	p := r.Find(Download)
	if p == nil || p.Goodput[Download].Value <= 0 || r.Find(Upload) != nil || r.Find(Idle).RTT.N < 10 {
		t.Errorf("measured %+v", r.Phases)
	}
	if !strings.Contains(strings.Join(r.Notes, " "), "A larger one measures better") {
		t.Errorf("not said to be small: %v", r.Notes)
	}
}
