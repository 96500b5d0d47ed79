// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
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
	var problem *Problem
	if want := at.Host + ` has no congestion control "reno" for weir serve (there are: cubic, bbr)`; !errors.As(err,
		&problem) || err.Error() != want || problem.Try != "--cc cubic" {
		t.Errorf("%v, want %s", err, want)
	}
	if strings.Join(asked, " ") != PathSession+"?cc=reno" {
		t.Errorf("asked: %q", asked)
	}
}
