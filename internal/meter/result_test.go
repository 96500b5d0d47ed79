// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/stats"
	"weir/internal/tcp"
)

// recorded is a link of 50 Mbit/s and 48 ms, on which downloads add 162 ms and uploads nothing; every 50th probe of the
// download is lost on its way back.
func recorded() *Recording {
	rec := &Recording{Target: "192.0.2.1:4747", Time: time.Unix(1_800_000_000, 0).UTC(), Local: "here", Probe: "udp",
		Interval: 10, Remote: Hello{Name: "there"}}
	flows := func(direction string, bytes int64, rtt int64, kernel bool) (all []Flow) {
		for range 4 {
			f := Flow{Direction: direction}
			for i := range 100 {
				n := bytes
				if i < 20 { // the ramp does not count
					n = 0
				}
				f.Bins = append(f.Bins, n)
				f.RTT = append(f.RTT, rtt)
			}
			if kernel {
				f.Kernel, f.CC, f.MinRTT, f.Sent, f.Again = true, "cubic", 48000, 1000, 10
				f.Elapsed, f.Busy = 10e6, 10e6
			}
			all = append(all, f)
		}
		return all
	}
	rec.Spans = []Span{{Name: Idle, From: 0, To: 5},
		{Name: Download, From: 5, To: 15, Local: flows(Download, 150_000, 0, false),
			Far: flows(Download, 0, 210_000, true)},
		{Name: Upload, From: 15, To: 25, Local: flows(Upload, 0, 48_000, true), Far: flows(Upload, 100_000, 0, false)}}
	for i := range 2500 {
		s := Sample{At: float64(i) / 100, RTT: 48 + float64(i%7)*0.01, Up: -5, Down: 53}
		if s.At >= 5 && s.At < 15 {
			s.RTT += 162
			s.Down += 162
			if i%50 == 0 {
				s = Sample{At: s.At, RTT: -1, Lost: LostDown}
			}
		}
		rec.Samples = append(rec.Samples, s)
	}
	return rec
}

// A sender that always has data under way fills no link if its program has nothing more to send and nothing waits: ssh
// is so, which its window bounds. If something waits, the link is full all the same.
func TestStarved(t *testing.T) {
	for _, c := range []struct {
		n           int
		queue, full bool
	}{{0, false, true}, {1, false, true}, {4, false, false}, {4, true, true}} {
		n, full := c.n, c.full
		rec := recorded()
		for i, s := range rec.Samples {
			if !c.queue && s.RTT > 0 {
				rec.Samples[i].RTT = 48
			}
		}
		for i := range rec.Spans {
			for j := range rec.Spans[i].Far[:min(n, len(rec.Spans[i].Far))] {
				rec.Spans[i].Far[j].Starved = true
			}
		}
		r := Summarize(rec)
		said := slices.Contains(r.Notes, "download: the link was not full: its program limited the server.")
		if s := r.Find(Download).Senders[0]; s.Full != full || said == full {
			t.Errorf("%+v: %+v %q", c, s, r.Notes)
		}
	}
}

func TestSummarize(t *testing.T) {
	r := Summarize(recorded())
	if r.Says != "Downloads add 162 ms to everything else." || len(r.Phases) != 3 || len(r.Notes) != 0 {
		t.Errorf("%s %d %q", r.Says, len(r.Phases), r.Notes)
	}
	d := r.Find(Download)
	closeTo := func(e stats.Estimate, want float64) bool {
		return math.Abs(e.Value-want) < 0.1 && e.Low <= e.Value && e.Value <= e.High && e.High-e.Low < 0.5
	}
	if d.Seconds != 8 || !closeTo(d.Added.P50, 162) || !closeTo(d.Added.P99, 162) ||
		!closeTo(d.Goodput[Download], 48) {
		t.Errorf("%+v %+v", d, d.Added)
	}
	if d.Sent != 800 || d.Lost != 16 || d.LostDown != 16 || d.Loss.Value != 0.02 || d.Down.P50 != 162 || d.Up.P50 != 0 {
		t.Errorf("%+v", d)
	}
	s := d.Senders[0]
	if !s.Kernel || !s.Full || s.Limit != tcp.Network || s.CC[0] != "cubic" || s.RTT.P50 != 210 || s.MinRTT != 48 ||
		s.Retransmitted != 0.01 || s.Flows != 4 {
		t.Errorf("%+v", s)
	}
	u := r.Find(Upload)
	if !closeTo(u.Added.P50, 0) || !closeTo(u.Goodput[Upload], 32) || u.Lost != 0 || u.Loss.High > 0.01 {
		t.Errorf("%+v", u)
	}
}

// A person learns how a load feels, and on which way packets wait.
func TestWaits(t *testing.T) {
	const says = "286 round trips a minute, 1249 when idle."
	for want, change := range map[string]func(s *Sample, loaded bool){
		says + " The queue stands on the way back.": func(*Sample, bool) {},
		says + " The queue stands on the way there.": func(s *Sample, loaded bool) {
			if loaded {
				s.Up, s.Down = s.Up+162, s.Down-162
			}
		},
		says + " Queues stand both ways: 62.0 ms on the way there, and 100 ms on the way back.": func(s *Sample,
			loaded bool) {
			if loaded {
				s.Up, s.Down = s.Up+62, s.Down-62
			}
		},
		says: func(s *Sample, _ bool) { s.Up, s.Down = 0, 0 }, // a probe that cannot tell
	} {
		rec := recorded()
		for i := range rec.Samples {
			s := &rec.Samples[i]
			change(s, s.At >= 5 && s.At < 15 && s.RTT > 0)
		}
		r := Summarize(rec)
		if got := r.Waits(*r.Find(Download)); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
		if got := r.Waits(*r.Find(Upload)); got != "1249 round trips a minute, 1249 when idle." {
			t.Errorf("upload: %s", got)
		}
	}
}

// What makes a figure less than it seems is said.
func TestWarn(t *testing.T) {
	for want, change := range map[string]func(*Recording){
		"download: the link was not full: the receiver's window limited the server.": func(r *Recording) {
			for i := range r.Spans[1].Far {
				r.Spans[1].Far[i].Receiver = 5e6
			}
		},
		"upload: the kernel of this host does not say": func(r *Recording) { r.Spans[2].Local[0].Kernel = false },
		"upload: a browser cannot tell": func(r *Recording) {
			r.Spans[2].Local[0].Kernel, r.browser = false, true
		},
		"download: flows ended early (reset).":     func(r *Recording) { r.Spans[1].Far[2].Error = "reset" },
		"download: flows ended early (gone).":      func(r *Recording) { r.Spans[1].Local[0].Error = "gone" },
		"download: the server's own limit of 50.0": func(r *Recording) { r.Remote.Rate = 50e6 },
		"download: the server's own limit of 52.0": func(r *Recording) { // and not its program
			r.Remote.Rate = 52e6
			for i := range r.Spans[1].Far {
				r.Spans[1].Far[i].Busy = 1e6
			}
		},
		"download: downloads fell from 48.0 to 24.0 Mbit/s after 6 s, and stayed there.": func(r *Recording) {
			for i := range r.Spans[1].Local {
				for k := 60; k < 100; k++ {
					r.Spans[1].Local[i].Bins[k] = 75_000
				}
			}
		},
		"download: the link was not full: its program limited the server.": func(r *Recording) { // and no provider
			for i := range r.Spans[1].Local {
				r.Spans[1].Far[i].Busy = 1e6
				for k := 60; k < 100; k++ {
					r.Spans[1].Local[i].Bins[k] = 75_000
				}
			}
		},
		"idle: only 100 of 500 probes were sent.": func(r *Recording) { r.Samples = r.Samples[400:] },
	} {
		rec := recorded()
		change(rec)
		notes := strings.Join(Summarize(rec).Notes, "\n")
		if !strings.Contains(notes, want) ||
			strings.Contains(notes, "was not full") && (strings.Contains(notes, "fell") || rec.Remote.Rate > 0) {
			t.Errorf("%s\nin: %s", want, notes)
		}
	}
}

// What was ended early is not said to be slow, and of what never arrived nothing is said to have been its limit.
func TestWarnOfLittle(t *testing.T) {
	early := recorded()
	early.Spans, early.Samples = []Span{{Name: Idle, From: 0, To: 0.02}}, early.Samples[:1]
	refused := recorded()
	for i := range refused.Spans[1].Local {
		refused.Spans[1].Local[i].Bins = nil
		refused.Spans[1].Far[i].Busy = 1e6
	}
	for name, rec := range map[string]*Recording{"were sent": early, "the link was not full": refused} {
		if said := strings.Join(Summarize(rec).Notes, " "); strings.Contains(said, name) {
			t.Error(said)
		}
	}
}

// A burst that a provider lets pass is not taken for its rate; what merely varies is no fall.
func TestFindFall(t *testing.T) {
	load := func(seconds ...float64) (bins []float64) {
		for _, mbit := range seconds {
			for range 10 {
				bins = append(bins, mbit*1e6/8/10)
			}
		}
		return bins
	}
	for name, c := range map[string]struct {
		bins              []float64
		before, after, at float64
	}{
		"a burst":                  {load(20, 90, 100, 98, 102, 70, 49, 51, 50), 100, 50, 5},
		"steady":                   {load(20, 90, 50, 49, 51, 50, 49, 50, 50), 0, 0, 0},
		"a fall within the ramp":   {load(100, 100, 50, 50, 50, 50, 50), 0, 0, 0},
		"a dip":                    {load(50, 50, 50, 50, 20, 20, 50, 50), 0, 0, 0},
		"a fall by a little":       {load(50, 50, 50, 50, 50, 44, 44, 44), 0, 0, 0},
		"for the last second only": {load(50, 50, 50, 50, 50, 50, 50, 20), 0, 0, 0},
		"too short":                {load(100, 100, 100, 50, 50), 0, 0, 0},
		"nothing":                  {nil, 0, 0, 0},
	} {
		before, after, at, ok := findFall(c.bins)
		if ok != (c.at != 0) ||
			ok && (math.Abs(before-c.before) > 1e-9 || math.Abs(after-c.after) > 1e-9 || at != c.at) {
			t.Errorf("%s: %v to %v at %v, %v", name, before, after, at, ok)
		}
	}
}

// A wait is judged by its median, and nothing is judged that is not known.
func TestGrade(t *testing.T) {
	for rtt, want := range map[float64]Grade{49: good, 77: good, 79: fair, 247: fair, 249: bad} { // of 48 when idle
		rec := recorded()
		for i := range rec.Samples {
			if rec.Samples[i].RTT > 100 {
				rec.Samples[i].RTT = rtt
			}
		}
		if got := Summarize(rec).Grade; got != want || got.Says() == "" {
			t.Errorf("%v ms: %q, want %q", rtt, got, want)
		}
	}
	if got := (Result{}).grade(); got != "" || got.Says() != "" {
		t.Errorf("%q of nothing", got)
	}
}

func TestSays(t *testing.T) {
	calm := recorded()
	for i := range calm.Samples {
		calm.Samples[i].RTT = 48
	}
	if got := Summarize(calm).Says; got != "Neither downloads nor uploads make anything else wait (less than 1 ms)." {
		t.Error(got)
	}
	rare := recorded()
	for i := range rare.Samples {
		rare.Samples[i].RTT = 48
		if i%20 == 0 {
			rare.Samples[i].RTT = 148
		}
	}
	const want = "Downloads add less than 5 ms to everything else in the median, and 100 ms at p99."
	if got := Summarize(rare).Says; got != want {
		t.Error(got)
	}
	still := recorded()
	still.Spans[1].Local = nil
	still.Samples = slices.DeleteFunc(still.Samples, func(s Sample) bool {
		return s.At >= still.Spans[1].From && s.At < still.Spans[1].To
	})
	if got := Summarize(still); got.Find(Download).Added != nil || !strings.Contains(got.Notes[0], "no data arrived") ||
		got.Silent() != Download || strings.Contains(strings.Join(got.Notes, " "), "This host is busy") {
		t.Errorf("%+v", got)
	}
	if silent := Summarize(recorded()).Silent(); silent != "" {
		t.Errorf("%s is said to be silent", silent)
	}
	for _, s := range Summarize(still).Find(Download).Senders {
		if s.Full {
			t.Error("the link was full, and no data arrived")
		}
	}
	early := recorded()
	early.Spans = early.Spans[:1]
	if got := Summarize(early).Says; !strings.HasPrefix(got, "The idle round trip is 48.0 ms.") {
		t.Error(got)
	}
	if got := Summarize(&Recording{}).Says; got != "No probe was answered." {
		t.Error(got)
	}
}

func TestCompare(t *testing.T) {
	before := Summarize(recorded())
	calm := recorded()
	for i := range calm.Samples {
		calm.Samples[i].RTT = 48.5 + float64(i%7)*0.01
	}
	text, err := json.Marshal(before)
	if err != nil {
		t.Fatal(err)
	}
	before, err = ReadResult(text)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]Row{}
	for _, r := range Compare(before, Summarize(calm)) {
		found[r.Figure] = r
	}
	if r := found["download: added p50, ms"]; !r.Sure || r.Factor() != "0.00 ×" || math.Abs(r.Before.Value-162) > 0.1 {
		t.Errorf("%+v", r)
	}
	if r := found["download: download, Mbit/s"]; r.Sure || r.Before != r.After {
		t.Errorf("%+v", r)
	}
	// In the table and in the sentences a loss is in percent. A share would be 0.00 where one in 300 is lost.
	if r, loss := found["download: lost, %"], before.Find(Download).Loss; r.Before.Value != 100*loss.Value ||
		r.Before.High != 100*loss.High || loss.Value <= 0 {
		t.Errorf("%+v, and the share is %+v", r, loss)
	}
	if _, err := ReadResult([]byte(`{"version":2}`)); err == nil {
		t.Error("version 2 is read")
	}
}

func TestCSV(t *testing.T) {
	var b bytes.Buffer
	if err := CSV(&b, recorded()); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")
	if len(lines) != 2502 || lines[2] != "0.010,idle,48.010,-5.000,53.000," || lines[501] != "5.000,download,,,,down" {
		t.Errorf("%d lines: %s, %s", len(lines), lines[2], lines[501])
	}
}

func TestFlent(t *testing.T) {
	var b bytes.Buffer
	if err := Flent(&b, recorded()); err != nil {
		t.Fatal(err)
	}
	zip, err := gzip.NewReader(&b)
	if err != nil {
		t.Fatal(err)
	}
	var f flentFile
	if err := json.NewDecoder(zip).Decode(&f); err != nil {
		t.Fatal(err)
	}
	if f.Version != 4 || len(f.X) != 125 || f.X[124] != 24.8 || len(f.Results) != 9 {
		t.Errorf("%d, %d values to %v, %d series", f.Version, len(f.X), f.X[124], len(f.Results))
	}
	for name, values := range f.Results {
		if len(values) != len(f.X) {
			t.Errorf("%s: %d values", name, len(values))
		}
	}
	down := f.Results["TCP download sum"]
	if down[10] != nil || down[50] == nil || math.Abs(*down[50]-48) > 0.1 || *f.Results["Ping (ms) avg"][50] < 200 {
		t.Errorf("%v %v", down[10], down[50])
	}
}

// Whatever a server says it saw, the result can be written.
func FuzzFlows(f *testing.F) {
	text, _ := json.Marshal(Flows{recorded().Spans[1].Far[:1]})
	f.Add(text)
	f.Add([]byte(`{"flows":[{"direction":"upload","bins":[-9223372036854775808],"rtt":[-1],` +
		`"sent":-5,"elapsed":-1,"kernel":true}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var flows Flows
		if json.Unmarshal(text, &flows) != nil {
			return
		}
		rec := recorded()
		rec.Samples = rec.Samples[:600]
		rec.Spans[1].Far, rec.Spans[2].Far = flows.Flows, flows.Flows
		if _, err := json.Marshal(Summarize(rec)); err != nil {
			t.Error(err)
		}
		var b bytes.Buffer
		if err := Flent(&b, rec); err != nil {
			t.Error(err)
		}
	})
}

func TestFingerprint(t *testing.T) {
	want := Fingerprint([]byte("x"))
	colons := "SHA256:"
	for i, c := range strings.TrimPrefix(want, "sha256:") {
		if i > 0 && i%2 == 0 {
			colons += ":"
		}
		colons += strings.ToUpper(string(c))
	}
	for _, s := range []string{want, colons} {
		if got, err := ParseFingerprint(s); got != want || err != nil {
			t.Errorf("%s: %s, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "sha256:", "sha256:12", strings.TrimPrefix(want, "sha256:"), "sha1:" + want[7:]} {
		if _, err := ParseFingerprint(s); err == nil {
			t.Errorf("%q is taken", s)
		}
	}
}

// Probes go out at random times around their interval, and who is late leaves some out.
func TestLater(t *testing.T) {
	const interval = 10 * time.Millisecond
	begin := time.Unix(0, 0)
	due, least, most := begin, interval, time.Duration(0)
	const probes = 10_000
	for range probes {
		next := nextProbe(due, due, interval)
		least, most = min(least, next.Sub(due)), max(most, next.Sub(due))
		due = next
	}
	if mean := due.Sub(begin) / probes; least < interval*3/4 || most >= interval*5/4 || least > interval*4/5 ||
		most < interval*6/5 || mean < interval*99/100 || mean > interval*101/100 {
		t.Errorf("%v to %v, on average %v", least, most, mean)
	}
	if late := due.Add(time.Second); nextProbe(due, late, interval) != late {
		t.Error("what is late by a second is not left out")
	}
}

// A step that only some flows have is none of less goodput. A flow that ended early is.
func TestWhole(t *testing.T) {
	flow := func(steps int) Flow {
		f := Flow{Direction: Download, Bins: make([]int64, steps)}
		for i := range f.Bins {
			f.Bins[i] = 125_000 // 10 Mbit/s
		}
		return f
	}
	for _, c := range []struct {
		lengths []int
		want    float64
	}{{[]int{95, 95}, 20}, {[]int{95, 94}, 20}, {[]int{93, 96}, 20}, {[]int{20, 95}, 10}} {
		s := Span{Name: Download, From: 3, To: 12.51}
		for _, n := range c.lengths {
			s.Local = append(s.Local, flow(n))
		}
		var p Phase
		if p.flows(s, rampUp); math.Abs(p.Goodput[Download].Value-c.want) > 1e-9 {
			t.Errorf("%v steps: %v Mbit/s, want %v", c.lengths, p.Goodput[Download].Value, c.want)
		}
	}
}
