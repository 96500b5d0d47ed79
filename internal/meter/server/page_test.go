// SPDX-License-Identifier: Apache-2.0

package server

import (
	"encoding/json"
	"io/fs"
	"strings"
	"testing"

	"weir/internal/meter"
)

// A page that measures is small, and asks nobody else for anything.
func TestPageIsSmall(t *testing.T) {
	const most = 60_000 // bytes
	all := 0
	fs.WalkDir(pageFiles, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(pageFiles, name)
		if err != nil {
			return err
		}
		all += len(text)
		for _, elsewhere := range []string{"http://", "https://", "@import", "url("} {
			outside := strings.ReplaceAll(string(text), "http://www.w3.org/2000/svg", "") // a name, not an address
			if strings.Contains(outside, elsewhere) {
				t.Errorf("%s names something elsewhere: %s", name, elsewhere)
			}
		}
		return nil
	})
	if all == 0 || all > most {
		t.Errorf("the page has %d bytes, of %d at most", all, most)
	}
}

// What a page sends is summed up once, and nothing but a recording is.
func TestSummary(t *testing.T) {
	r := start(t, nil)
	var hello meter.Hello
	session := func() string {
		_, text := r.do(t, r.h2, "POST", meter.PathSession, nil, 1e4)
		if err := json.Unmarshal(text, &hello); err != nil {
			t.Fatal(err)
		}
		return meter.PathSummary + "?session=" + hello.Session
	}
	good := `{"interval": 50, "samples": [{"at": 1, "rtt": 20}], "spans": [{"name": "idle", "from": 0, "to": 4}]}`
	at := session()
	answer, text := r.do(t, r.h2, "POST", at, strings.NewReader(good), 1e5)
	if result, err := meter.ReadResult(text); answer.StatusCode != 200 || err != nil || result.Find(meter.Idle) == nil {
		t.Errorf("%s: %s, %v", answer.Status, text, err)
	}
	for _, c := range []struct {
		at, body string
		status   int
	}{
		{at, good, 409},
		{meter.PathSummary + "?session=none", good, 404},
		{session(), `{"interval": 0}`, 400},
		{session(), `{`, 400},
		{session(), strings.Repeat(" ", meter.MaxRecording+1), 413},
	} {
		if answer, text := r.do(t, r.h1, "POST", c.at, strings.NewReader(c.body), 1e5); answer.StatusCode != c.status {
			t.Errorf("%.40s: %s, and not %d: %s", c.body, answer.Status, c.status, text)
		}
	}
	// While as many come as may be, another is to come again, and may.
	for range maxRecordings {
		r.server.sessions.read("127.0.0.1", maxRecordings)
	}
	at = session()
	if answer, _ := r.do(t, r.h2, "POST", at, strings.NewReader(good), 1e5); answer.StatusCode != 429 {
		t.Errorf("too many at once: %s", answer.Status)
	}
	r.server.sessions.hasRead("127.0.0.1")
	if answer, text := r.do(t, r.h2, "POST", at, strings.NewReader(good), 1e5); answer.StatusCode != 200 {
		t.Errorf("again: %s %s", answer.Status, text)
	}
}
