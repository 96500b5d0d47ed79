// SPDX-License-Identifier: Apache-2.0

//go:build all

package lab_test

// In make test-all: it takes minutes.

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"weir/internal/change"
	"weir/internal/lab/scenario"
	"weir/internal/units"
)

var watchSession = flag.String("watch", "", "write the session of results/watch.md to this file")

// moment is a look with weir watch --once, and what that has to say.
type moment struct {
	program, title string
	wants          []string
}

// TestWatch has weir watch look on while the bottleneck goes from this host to the provider and comes back, without a
// follower and with one. The document's sessions are of the same runs.
func TestWatch(t *testing.T) {
	const verdict, goal = "\nIs the bottleneck here?  ", "\nGoal: "
	var section bytes.Buffer
	watched(t, &section, "watch", session, []moment{
		{"here", "At 10 s: the bottleneck is here",
			[]string{verdict + "Yes: packets waited here at ", goal + "in force.\n"}},
		{"away", "At 25 s: it is at the provider",
			[]string{verdict + "No: connections wait, and packets waited here at ",
				goal + "in force, but the queue is elsewhere.\n"}},
		{"back", "At 40 s: it is here again, and what stood at the provider goes slowly",
			[]string{verdict + "Yes: packets waited here at ",
				goal + "in force, but the queue is elsewhere.\n"}},
		{"application", "At 55 s: the application is the limit",
			[]string{verdict + "No: the queue here drains. ", goal + "in force.\n"}},
	})
	fmt.Fprintf(&section, "### With a follower\n\n")
	const within = "mbit now, of 9.975mbit to 99.75mbit"
	watched(t, &section, "watch-follow", sessionFollowed, []moment{
		{"fallen", "At 16 s: the rate has fallen", []string{"\nFollowed:  ", within,
			" s ago, from 49.875mbit: packets waited ", verdict + "Yes"}},
		{"rises", "At 36 s: it rises", []string{"\nFollowed:  ", within, " s ago, from "}},
		{"risen", "At 50 s: it has risen", []string{"\nFollowed:  ", within, " s ago, from ", verdict + "Yes"}},
		{"died", "At 59 s: the follower has died", []string{
			"\nThe follower does not run: the rate stays ", "\nTo start it:  weir follow\n"}},
	})
	if *watchSession != "" {
		if err := os.WriteFile(*watchSession, section.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// watched runs a scenario, writes what weir watch has shown in it, and looks for what that has to say: there, and in
// the document.
func watched(t *testing.T, w *bytes.Buffer, name string, table func(*testing.T, *bytes.Buffer, []string),
	moments []moment) {
	r := runner(t)
	s, err := scenario.Load("../../scenarios/programs/" + name + ".toml")
	if err != nil {
		t.Fatal(err)
	}
	programs := map[string][]string{}
	for _, p := range run(t, r, s).Points[0].Cells[0].Runs[0].Programs {
		programs[p.Program] = p.Output
	}
	document, err := os.ReadFile("../../results/watch.md")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(w, "%s\n\n", s.About)
	table(t, w, programs["session"])
	for _, m := range moments {
		screen := strings.Join(programs[m.program], "\n") + "\n"
		for _, want := range m.wants {
			if !strings.Contains(screen, want) {
				t.Errorf("%s: no %q in\n%s", m.title, want, screen)
			}
			if !bytes.Contains(document, []byte(want)) {
				t.Errorf("results/watch.md has no %q (scripts/watch-session)", want)
			}
		}
		fmt.Fprintf(w, "### %s\n\n```text\n%s```\n\n", m.title, screen)
	}
}

// told is what a line of weir watch --json tells, of which these tests look at some.
type told struct {
	Bottleneck struct{ Here string }
	Outgoing   struct {
		Rate  units.Rate
		Waits units.Duration
		Last  struct {
			Bytes float64
			Span  units.Duration
		}
	}
	Connections struct {
		All struct{ Added struct{ P50 float64 } }
	}
	Status change.Status
}

// sent is what left in the second, in Mbit/s.
func (l told) sent() float64 {
	return l.Outgoing.Last.Bytes * 8 / 1e6 / time.Duration(l.Outgoing.Last.Span).Seconds()
}

// lines are what was told, each second.
func lines(t *testing.T, all []string, each func(second int, l told)) {
	for i, text := range all {
		var line told
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("line %d: %v: %s", i+1, err, text)
		}
		each(i, line)
	}
}

// session is what weir watch --json has told, each third second.
func session(t *testing.T, w *bytes.Buffer, all []string) {
	fmt.Fprintf(w, "| second | sends Mbit/s | packets wait here ms | connections wait ms | the bottleneck is here |\n"+
		"|--:|--:|--:|--:|---|\n")
	seen := map[string]bool{}
	lines(t, all, func(second int, l told) {
		seen[l.Bottleneck.Here] = true
		if second%3 > 0 || second == 0 {
			return
		}
		fmt.Fprintf(w, "| %d | %.1f | %.1f | %.1f | %s |\n", second, l.sent(),
			time.Duration(l.Outgoing.Waits).Seconds()*1e3, l.Connections.All.Added.P50, l.Bottleneck.Here)
	})
	fmt.Fprintln(w)
	if len(all) < 50 || !seen["yes"] || !seen["no"] {
		t.Errorf("%d lines, and verdicts %v", len(all), seen)
	}
}

// sessionFollowed is the same with what the follower told.
func sessionFollowed(t *testing.T, w *bytes.Buffer, all []string) {
	fmt.Fprintf(w, "| second | shaped to Mbit/s | sends Mbit/s | packets wait here ms | connections wait ms | "+
		"the follower |\n|--:|--:|--:|--:|--:|---|\n")
	least, last, seen := math.Inf(1), 0., map[string]bool{}
	lines(t, all, func(second int, l told) {
		if len(l.Status.Followed) != 1 {
			t.Fatalf("second %d: followed are %+v", second, l.Status.Followed)
		}
		f, rate, says := l.Status.Followed[0], float64(l.Outgoing.Rate)/1e6, "does not run"
		switch {
		case f.Running && f.Last != nil:
			if f.Last.To > f.Last.From {
				seen["raised"] = true
			} else {
				seen["lowered"] = true
			}
			fallthrough
		case f.Running:
			says = f.Tries
		}
		seen[says] = true
		if f.Rate != l.Outgoing.Rate {
			t.Errorf("second %d: %s is followed, and shaped to %s", second, f.Rate, l.Outgoing.Rate)
		}
		if least, last = min(least, rate), rate; second%3 > 0 || second == 0 {
			return
		}
		fmt.Fprintf(w, "| %d | %.1f | %.1f | %.1f | %.1f | %s |\n", second, rate, l.sent(),
			time.Duration(l.Outgoing.Waits).Seconds()*1e3, l.Connections.All.Added.P50, says)
	})
	fmt.Fprintln(w)
	if least > 30 || last < 48.5 || last > 50 || !seen["lowered"] || !seen["raised"] || !seen["does not run"] ||
		!seen[""] || len(seen) < 5 {
		t.Errorf("the rate fell to %.1f and rose to %.1f; it told %v", least, last, seen)
	}
}
