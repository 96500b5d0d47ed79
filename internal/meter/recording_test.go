// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// What no test can have seen is refused, by the name of what is wrong.
func TestReadRecording(t *testing.T) {
	const span = `{"name": "download", "from": 1, "to": 2, "far": [{"direction": "download"`
	// more is one element more than may be.
	more := func(element string, most int) string { return strings.Repeat(element+",", most) + element }
	for text, wrong := range map[string]string{
		`{"interval": 50}`: "",
		`{"interval": 50, "samples": [{"at": 600, "rtt": -1}]}`:                 "",
		`{"interval": 50, "spans": [` + span + `, "bins": [1], "rtt": [1]}]}]}`: "",
		``:                    "unexpected end",
		`{}`:                  "interval",
		`{"interval": 0.9}`:   "interval",
		`{"interval": 10001}`: "interval",
		`{"interval": 50, "samples": [{"at": -1}]}`:                                           "samples[0]",
		`{"interval": 50, "samples": [{"at": 1}, {"at": 601}]}`:                               "samples[1]",
		`{"interval": 50, "samples": [{"rtt": 6e5}, {"rtt": 1e6}]}`:                           "samples[1]",
		`{"interval": 50, "samples": [{"rtt": -2}]}`:                                          "samples[0]",
		`{"interval": 50, "samples": [{"rtt": 1e-310}]}`:                                      "samples[0]",
		`{"interval": 50, "samples": [{"up": -1e9}]}`:                                         "samples[0]",
		`{"interval": 50, "samples": [{"down": 1e9}]}`:                                        "samples[0]",
		`{"interval": 50, "spans": [{"name": "idle"}, {"name": "idle"}]}`:                     "spans[1]",
		`{"interval": 50, "spans": [{"name": "idle", "passed": {"device": "x"}}]}`:            "passed",
		`{"interval": 50, "hop": {"address": "192.0.2.1"}}`:                                   "hop",
		`{"interval": 50, "spans": [{"name": "lunch"}]}`:                                      "spans[0]",
		`{"interval": 50, "spans": [{"name": "idle", "from": -1}]}`:                           "spans[0]",
		`{"interval": 50, "spans": [{"name": "idle", "to": 601}]}`:                            "spans[0]",
		`{"interval": 50, "spans": [{"name": "idle", "local": [{"direction": "sideways"}]}]}`: "direction",
		`{"interval": 50, "spans": [` + span + `, "bins": [-1]}]}]}`:                          "bins",
		`{"interval": 50, "spans": [` + span + `, "rtt": [600000001]}]}]}`:                    "times",
		`{"interval": 50, "spans": [` + span + `, "min_rtt": -1}]}]}`:                         "times",
		`{"interval": 50, "spans": [` + span + `, "busy": -1}]}]}`:                            "times",
		`{"interval": 50, "spans": [` + span + `, "sent": -1}]}]}`:                            "counters",
		// Too much of something:
		`{"interval": 50, "spans": [` + span + `, "bins": [` + more("0", maxSteps) + `]}]}]}`:  "steps",
		`{"interval": 50, "samples": [` + more("{}", maxSamples) + `]}`:                        "samples at most",
		`{"interval": 50, "spans": [{"name": "idle", "far": [` + more("{}", maxFlows) + `]}]}`: "flows at most",
		`{"interval": 50, "spans": [` + more("{}", maxSpans) + `]}`:                            "spans at most",
		strings.Repeat(" ", MaxRecording+1):                                                    "too long",
	} {
		_, err := ReadRecording([]byte(text))
		if (err == nil) != (wrong == "") || err != nil && !strings.Contains(err.Error(), wrong) {
			t.Errorf("%.100s: %v, and not %q", text, err, wrong)
		}
	}
}

// No text of the longest length takes much memory. Most of it is what growing lists leave behind, which is free again.
func TestReadRecordingMemory(t *testing.T) {
	const most = 128 << 20
	for _, part := range []string{`"samples": [%s]`, `"spans": [%s]`, `"paths": [%s]`, `"hop": {"pings": [%s]}`,
		`"notes": [%s]`, `"spans": [{"name": "idle", "local": [%s]}]`, `"spans": [{"name": "idle", "far": [%s]}]`,
		`"spans": [{"name": "idle", "far": [{"direction": "upload", "bins": [%s]}]}]`} {
		for _, element := range []string{"0", "{}", "null"} {
			n := (MaxRecording - 200) / (len(element) + 1)
			text := []byte(fmt.Sprintf(`{"interval": 50, `+part+`}`, strings.Repeat(element+",", n)+element))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			ReadRecording(text)
			runtime.ReadMemStats(&after)
			if took := after.TotalAlloc - before.TotalAlloc; took > most {
				t.Errorf("%.60s: %d MiB", text, took>>20)
			}
		}
	}
}

// Whatever a page sends, it is refused, or its result can be written and read again.
func FuzzReadRecording(f *testing.F) {
	rec := recorded()
	rec.Samples = rec.Samples[:200]
	text, _ := json.Marshal(rec)
	f.Add(text)
	f.Add([]byte(`{"interval": 50, "samples": [{"rtt": -1}], "spans": [{"name": "download", "from": 3, "to": 1}]}`))
	for _, rtt := range []string{"1e-310", "1e-6"} {
		f.Add([]byte(`{"interval": 50, "samples": [{"at": 1, "rtt": ` + rtt + `}, {"at": 2}],
			"spans": [{"name": "idle", "to": 4}]}`))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		rec, err := ReadRecording(text)
		if err != nil {
			return
		}
		said, err := json.Marshal(Summarize(rec))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ReadResult(said); err != nil {
			t.Error(err)
		}
	})
}
