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
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/hint"
	"weir/internal/stats"
)

// webServer has a file of 2 MiB, others that lead elsewhere, and one that breaks off. It counts connections.
func webServer(t *testing.T) (at string, connections *atomic.Int64) {
	connections = &atomic.Int64{}
	file := make([]byte, 2<<20)
	mux := http.NewServeMux()
	mux.HandleFunc("/file", func(w http.ResponseWriter, _ *http.Request) { w.Write(file) })
	mux.Handle("/moved", http.RedirectHandler("/file", http.StatusFound))
	mux.Handle("/elsewhere", http.RedirectHandler("ftp://example.com/file", http.StatusFound))
	mux.HandleFunc("/small", func(w http.ResponseWriter, _ *http.Request) { w.Write(file[:9]) })
	mux.HandleFunc("/broken", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "3000000")
		w.Write(file)
	})
	s := httptest.NewUnstartedServer(mux)
	s.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		connections.Add(1)
		return ctx
	}
	s.Start()
	t.Cleanup(s.Close)
	return s.URL, connections
}

// A file of a plain web server is downloaded so often, each time over a connection of its own.
func TestFetchFile(t *testing.T) {
	at, connections := webServer(t)
	ctx := context.Background()
	for _, name := range []string{"/file", "/moved"} {
		f, err := FindFile(ctx, at+name, "")
		if err != nil {
			t.Fatal(err)
		}
		before := connections.Load()
		found, err := FetchFile(ctx, f, 3, func(int, time.Duration) {})
		if err != nil {
			t.Fatal(err)
		}
		if n := connections.Load() - before; n != 3 || len(found.Fetches) != 3 || found.Bytes != 2<<20 ||
			found.Target != at+"/file" {
			t.Errorf("%d connections, %+v", n, found)
		}
		for _, x := range found.Fetches {
			if x.Seconds <= 0 || x.Handshake <= 0 || x.Bytes != 2<<20 {
				t.Errorf("%+v", x)
			}
		}
		if e := found.Speed; e.Low <= 0 || e.Value < e.Low || e.High < e.Value {
			t.Errorf("speed %+v", e)
		}
		text, err := json.Marshal(found)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := ReadFetches(text); err != nil || again.Says != found.Says {
			t.Errorf("%+v, %v", again, err)
		}
	}
}

// What is no file that can be downloaded is said in a line, with what to try.
func TestNoFetch(t *testing.T) {
	at, _ := webServer(t)
	for url, want := range map[string]string{
		at + "/small":            "has 9 bytes only",
		at + "/elsewhere":        "is not http",
		at + "/gone":             "404",
		"ftp://example.com/file": "ftp is neither http nor https",
	} {
		_, err := FindFile(context.Background(), url, "")
		var problem *hint.Error
		if !errors.As(err, &problem) || !strings.Contains(err.Error(), want) || problem.Try == "" {
			t.Errorf("%s: %v, which does not say %q and what to try", url, err, want)
		}
	}
	f, err := FindFile(context.Background(), at+"/broken", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := FetchFile(context.Background(), f, 2, func(int, time.Duration) {}); err == nil ||
		!strings.Contains(err.Error(), "broke off") {
		t.Errorf("a file that breaks off: %v", err)
	}
}

func TestCompareFetches(t *testing.T) {
	of := func(seconds ...float64) *Fetches {
		f := &Fetches{}
		for _, s := range seconds {
			f.Fetches = append(f.Fetches, Fetch{Seconds: s, Bytes: 1e6, Handshake: 10})
		}
		f.sumUp()
		return f
	}
	rows := CompareFetches(of(4, 5, 5, 9), of(1, 2, 2, 3))
	if r := rows[0]; !r.Sure || r.Before != (stats.Estimate{Value: 5, Low: 4, High: 9}) || r.Factor() != "0.40 ×" {
		t.Errorf("%+v", r)
	}
	if rows[2].Sure || CompareFetches(of(9), of(1))[0].Sure || CompareFetches(of(4, 5), of(3, 4.5))[0].Sure {
		t.Error("what overlaps is taken for a change")
	}
	for _, text := range []string{"", "{}", `{"version": 1}`, `{"version": 2, "fetches": [{}]}`} {
		if _, err := ReadFetches([]byte(text)); err == nil {
			t.Errorf("%q is read", text)
		}
	}
}
