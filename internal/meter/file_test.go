// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// A name is looked up once: a resolver behind the full link would be part of every round trip.
func TestOneAddress(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/nq" {
			w.Header().Set("Content-Length", "100000000")
			return
		}
		at := "https://" + r.Host
		json.NewEncoder(w).Encode(nqConfig{1, map[string]string{"small_download_url": at + "/s",
			"large_download_url": at + "/l", "upload_url": at + "/u"}})
	}))
	defer s.Close()
	want := s.Listener.Addr().String()
	_, port, _ := net.SplitHostPort(want)
	at, pin := "https://localhost:"+port, Fingerprint(s.Certificate().Raw)
	f, err := FindFile(t.Context(), at+"/file", pin)
	if err != nil || f.target.portAddr("") != want {
		t.Errorf("%+v, %v", f, err)
	}
	if to, _, _, _, err := responsive(t.Context(), at+"/nq", pin); err != nil || to.portAddr("") != want {
		t.Errorf("%+v, %v", to, err)
	}
	if _, err := FindFile(t.Context(), "https://me:secret@localhost:"+port+"/file", pin); err == nil ||
		strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
}

// Who ends a measurement need not wait for a server that does not answer.
func TestStartEnds(t *testing.T) {
	never := make(chan struct{})
	s := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-never }))
	defer s.Close()
	defer close(never)
	to := Target{Addr: s.Listener.Addr().String(), Pin: Fingerprint(s.Certificate().Raw)}
	for name, start := range map[string]func(context.Context, string) (*Bulk, error){
		"served": (&served{target: to}).start,
		"file":   (&fetching{File: File{target: to, scheme: "https", uri: "/x"}, conns: 1}).start,
	} {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, cancel)
		if _, err := start(ctx, Download); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
