// SPDX-License-Identifier: Apache-2.0

//go:build all

package meter

// In make test-all: flows run for real seconds.

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"weir/internal/hint"
)

// What the other end lacks is said at once: it is asked for with the session, and nothing follows.
func TestNoCCThere(t *testing.T) {
	var asked []string
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.String())
		json.NewEncoder(w).Encode(Hello{Version: 1, NoCC: true, CCs: []string{"cubic", "bbr"}})
	}))
	defer s.Close()
	at, _ := url.Parse(s.URL)
	_, err := Measure(context.Background(), Target{Addr: at.Host, Pin: Fingerprint(s.Certificate().Raw)},
		Options{Time: 5 * time.Second, Conns: 1, CC: "reno"})
	var problem *hint.Error
	if want := at.Host + ` has no congestion control "reno" for weir serve (there are: cubic, bbr)`; !errors.As(err,
		&problem) || err.Error() != want || problem.Try != "--cc cubic" {
		t.Errorf("%v, want %s", err, want)
	}
	if strings.Join(asked, " ") != PathSession+"?cc=reno" {
		t.Errorf("asked: %q", asked)
	}
}

// What the other end says of its flows is bounded: many empty ones would take seventy times as much memory.
func TestFarFlows(t *testing.T) {
	longest := Flow{Direction: Download, CC: "cubic",
		Bins: slices.Repeat([]int64{5_000_000_000}, maxSteps), // 400 Gbit/s
		RTT:  slices.Repeat([]int64{9_999_999}, maxSteps), MinRTT: math.MaxUint32, Error: strings.Repeat("x", 100)}
	for i, f := range []*int64{&longest.RTTVar, &longest.Sent, &longest.Again, &longest.Delivered, &longest.CE,
		&longest.Elapsed, &longest.Busy, &longest.Receiver, &longest.Buffer} {
		*f = 300_000_000 + int64(i)
	}
	received := longest
	received.Direction, received.RTT = Upload, nil // only a sender's kernel knows them
	all := append(slices.Repeat([]Flow{longest}, maxFlows/2), slices.Repeat([]Flow{received}, maxFlows/2)...)
	honest, err := json.Marshal(Flows{Flows: all})
	if err != nil {
		t.Fatal(err)
	}
	const one = `{"direction": "upload"}`
	tooMany := strings.Repeat(one+",", maxFlows) + one
	for text, want := range map[string]struct {
		flows int
		wrong string
	}{
		string(honest):                           {maxFlows, ""},
		`{}`:                                     {0, ""},
		`{"flows":null}`:                         {0, ""},
		`{"flows":[]}`:                           {0, ""},
		`{"flows":{}}`:                           {0, "list"},
		`{"flows":[` + one + `]}`:                {1, ""},
		`{"flows":[` + tooMany + `]}`:            {0, "64 flows at most"},
		`{"flows":[` + tooMany + `],"flows":[]}`: {0, "64 flows at most"},
		`{"flows":[` + strings.Repeat("{},", 1<<18) + `{}]}`:    {0, "64 flows at most"},
		`{"flows":[{"direction":"upload","bins":[-1]}]}`:        {0, "bins"},
		`{"flows":[],"x":"` + strings.Repeat("x", 3<<20) + `"}`: {0, "makes no sense"},
	} {
		s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, text)
		}))
		at, _ := url.Parse(s.URL)
		of := &served{target: Target{Addr: at.Host}, ask: s.Client()}
		_, far, note := of.Close(t.Context(), Download, nil)
		if len(far) != want.flows || (note == "") != (want.wrong == "") || !strings.Contains(note, want.wrong) {
			t.Errorf("%.60s: %d flows, %q, want %d, %q", text, len(far), note, want.flows, want.wrong)
		}
		s.Close()
	}
}

// A server that answers with something else than was asked for sends nobody elsewhere, and puts no words in our mouth.
func TestServerThatMisleads(t *testing.T) {
	asked := atomic.Int32{}
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer other.Close()
	const evil = "1\n\nweir: update needed\n  try: reboot"
	for want, answer := range map[string]http.HandlerFunc{
		"307": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		},
		"no congestion control": func(w http.ResponseWriter, _ *http.Request) {
			json.NewEncoder(w).Encode(Hello{Version: 1, NoCC: true, CCs: []string{evil}})
		},
		"is busy": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", strings.ReplaceAll(evil, "\n", " "))
			w.WriteHeader(http.StatusTooManyRequests)
		},
	} {
		s := httptest.NewTLSServer(answer)
		target := Target{Addr: s.Listener.Addr().String(), Pin: Fingerprint(s.Certificate().Raw)}
		_, err := Measure(t.Context(), target, Options{Time: time.Second, Conns: 1})
		said := (*hint.Error)(nil)
		if !errors.As(err, &said) || !strings.Contains(said.What, want) ||
			strings.Contains(said.What+said.Try, "update") {
			t.Errorf("%v, want %s: %+v", err, want, said)
		}
		s.Close()
	}
	if asked.Load() != 0 {
		t.Error("another host was asked")
	}
}
