// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"weir/internal/lab/scenario"
	"weir/internal/units"
)

var watchSession = flag.String("watch", "", "write the session of docs/watch.md to this file")

// TestWatch has weir watch look on while the bottleneck goes from this host to the provider and comes back. The
// document's session is of the same run.
func TestWatch(t *testing.T) {
	r := runner(t)
	s, err := scenario.Load("../../scenarios/programs/watch.toml")
	if err != nil {
		t.Fatal(err)
	}
	report := run(t, r, s)
	programs := map[string][]string{}
	for _, p := range report.Points[0].Cells[0].Runs[0].Programs {
		programs[p.Program] = p.Output
	}
	document, err := os.ReadFile("../../docs/watch.md")
	if err != nil {
		t.Fatal(err)
	}
	var section bytes.Buffer
	fmt.Fprintf(&section, "%s\n\n", s.About)
	session(t, &section, programs["session"])
	for _, c := range []struct{ program, title, verdict, goal string }{
		{"here", "At 10 s: the bottleneck is here", "Yes: packets waited here at ", "The goal is in force."},
		{"away", "At 25 s: it is at the provider", "No: connections wait, and packets waited here at ",
			"The goal is in force, but the queue is elsewhere."},
		{"back", "At 40 s: it is here again, and what stood at the provider goes slowly",
			"Yes: packets waited here at ", "The goal is in force, but the queue is elsewhere."},
		{"application", "At 55 s: the application is the limit", "No: the queue here drains. ",
			"The goal is in force."},
	} {
		screen := strings.Join(programs[c.program], "\n")
		for _, want := range []string{"\nIs the bottleneck here?  " + c.verdict, "\nGoal: " + c.goal + "\n"} {
			if !strings.Contains(screen, want) {
				t.Errorf("%s: no %q in\n%s", c.title, want, screen)
			}
			if !bytes.Contains(document, []byte(want)) {
				t.Errorf("docs/watch.md has no %q (scripts/watch-session)", want)
			}
		}
		fmt.Fprintf(&section, "### %s\n\n```text\n%s\n```\n\n", c.title, screen)
	}
	if *watchSession != "" {
		if err := os.WriteFile(*watchSession, section.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// session is what weir watch --json has told, each third second.
func session(t *testing.T, w *bytes.Buffer, lines []string) {
	fmt.Fprintf(w, "| second | sends Mbit/s | packets wait here ms | connections wait ms | the bottleneck is here |\n"+
		"|--:|--:|--:|--:|---|\n")
	seen := map[string]bool{}
	for i, text := range lines {
		var line struct {
			Bottleneck struct{ Here string }
			Outgoing   struct {
				Waits units.Duration
				Last  struct {
					Bytes float64
					Span  units.Duration
				}
			}
			Connections struct {
				All struct{ Added struct{ P50 float64 } }
			}
		}
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("line %d: %v: %s", i+1, err, text)
		}
		seen[line.Bottleneck.Here] = true
		if last := line.Outgoing.Last; i%3 == 0 && i > 0 {
			fmt.Fprintf(w, "| %d | %.1f | %.1f | %.1f | %s |\n", i, last.Bytes*8/1e6/time.Duration(last.Span).Seconds(),
				time.Duration(line.Outgoing.Waits).Seconds()*1e3, line.Connections.All.Added.P50, line.Bottleneck.Here)
		}
	}
	fmt.Fprintln(w)
	if len(lines) < 50 || !seen["yes"] || !seen["no"] {
		t.Errorf("%d lines, and verdicts %v", len(lines), seen)
	}
}
