// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"time"
	"weir/internal/stats"
)

// CSV writes all samples: when each was sent, in which phase, and what became of it.
func CSV(w io.Writer, rec *Recording) error {
	if _, err := fmt.Fprintln(w, "seconds,phase,rtt_ms,up_ms,down_ms,lost"); err != nil {
		return err
	}
	for _, s := range rec.Samples {
		phase := ""
		for _, p := range rec.Spans {
			if s.At >= p.From && s.At < p.To {
				phase = p.Name
			}
		}
		times := ",,"
		if s.RTT >= 0 {
			times = fmt.Sprintf("%.3f,%.3f,%.3f", s.RTT, s.Up, s.Down)
		}
		if _, err := fmt.Fprintf(w, "%.3f,%s,%s,%s\n", s.At, phase, times, s.Lost); err != nil {
			return err
		}
	}
	return nil
}

// flentFile is flent's data format, version 4 (github.com/tohojo/flent, doc/data-format.rst).
type flentFile struct {
	Version  int                     `json:"version"`
	X        []float64               `json:"x_values"`
	Results  map[string][]*float64   `json:"results"`
	Raw      map[string][]flentPoint `json:"raw_values"`
	Metadata map[string]any          `json:"metadata"`
}

type flentPoint struct {
	T   float64 `json:"t"`
	Val float64 `json:"val"`
}

// Flent writes a file that flent draws, as of its test rrul: goodput and the probe's RTT over the whole time.
func Flent(w io.Writer, rec *Recording) error {
	const step = 0.2 // seconds
	end := 0.0
	for _, s := range rec.Spans {
		end = max(end, s.To)
	}
	n := int(end / step)
	f := flentFile{Version: 4, X: make([]float64, n), Results: map[string][]*float64{}, Raw: map[string][]flentPoint{}}
	for i := range f.X {
		f.X[i] = math.Round(float64(i)*step*10) / 10
	}
	start := float64(rec.Time.Unix())
	units := map[string]any{}
	put := func(name, unit string, values []*float64) {
		f.Results[name] = values
		units[name] = map[string]any{"UNITS": unit}
		f.Raw[name] = []flentPoint{}
		for i, v := range values {
			if v != nil {
				f.Raw[name] = append(f.Raw[name], flentPoint{start + f.X[i], *v})
			}
		}
	}
	delays := make([][]float64, n)
	for _, s := range rec.Samples {
		if i := int(s.At / step); s.RTT >= 0 && i >= 0 && i < n {
			delays[i] = append(delays[i], s.RTT)
		}
	}
	pings := make([]*float64, n)
	for i, d := range delays {
		if len(d) > 0 {
			v := stats.NewDist(d).Mean
			pings[i] = &v
		}
	}
	put("Ping (ms) UDP BE", "ms", pings)
	put("Ping (ms) avg", "ms", pings)
	all := make([]*float64, n)
	for _, direction := range []string{Download, Upload} {
		values := goodputOver(rec, direction, n, step)
		for i, v := range values {
			if v != nil {
				sum := *v
				if all[i] != nil {
					sum += *all[i]
				}
				all[i] = &sum
			}
		}
		for _, kind := range []string{"BE", "avg", "sum"} {
			put("TCP "+direction+" "+kind, "Mbits/s", values)
		}
	}
	put("TCP totals", "Mbits/s", all)
	at := rec.Time.Format("2006-01-02T15:04:05.000000Z")
	f.Metadata = map[string]any{"NAME": "rrul", "TITLE": "weir measure",
		"HOST": rec.Target, "HOSTS": []string{rec.Target},
		"LOCAL_HOST": rec.Local, "LENGTH": int(end), "TOTAL_LENGTH": int(end), "STEP_SIZE": step, "TIME": at, "T0": at,
		"FLENT_VERSION": "weir", "IP_VERSION": 4, "SERIES_META": units, "NOTE": strings.Join(rec.Notes, " ")}
	zip := gzip.NewWriter(w)
	zip.ModTime = time.Time{}
	if err := json.NewEncoder(zip).Encode(f); err != nil {
		return err
	}
	return zip.Close()
}

// goodputOver is a direction's goodput in steps, in Mbit/s; nil while there was no flow.
func goodputOver(rec *Recording, direction string, n int, step float64) []*float64 {
	values := make([]*float64, n)
	for _, s := range rec.Spans {
		flows := s.Local
		if direction == Upload {
			flows = s.Far
		}
		for i, bytes := range binsOf(flowsOf(flows, direction), 0, math.MaxInt32) {
			at := int((s.From+float64(i)*Step.Seconds())/step + 1e-9) // 0.1 is none of a computer's numbers
			if at < 0 || at >= n {
				continue
			}
			if values[at] == nil {
				values[at] = new(float64)
			}
			*values[at] += bytes * 8 / 1e6 / step
		}
	}
	return values
}

// RowKind is what a row of a comparison compares, for who has to decide by it.
type RowKind int

const (
	RowOther   RowKind = iota // jitter or loss
	RowDelay                  // ms that load adds: less is better
	RowGoodput                // Mbit/s: more is better
	RowTime                   // s that a download takes: less is better
)

// Row is a figure before and after.
type Row struct {
	Figure        string // for people: phase, what was measured, unit
	Kind          RowKind
	Before, After stats.Estimate
	Sure          bool // the two differ by more than what is not known of them
}

// Compare sets two results side by side: what both have.
func Compare(before, after Result) (rows []Row) {
	for _, a := range after.Phases {
		b := before.Find(a.Name)
		if b == nil {
			continue
		}
		add := func(kind RowKind, figure string, x, y *stats.Estimate) {
			if x != nil && y != nil {
				rows = append(rows, Row{a.Name + ": " + figure, kind, *x, *y, x.Apart(*y)})
			}
		}
		for _, direction := range []string{Download, Upload} {
			x, there := b.Goodput[direction]
			y, also := a.Goodput[direction]
			if there && also {
				add(RowGoodput, direction+", Mbit/s", &x, &y)
			}
		}
		if a.Added != nil && b.Added != nil {
			add(RowDelay, "added p50, ms", &b.Added.P50, &a.Added.P50)
			add(RowDelay, "added p90, ms", &b.Added.P90, &a.Added.P90)
			add(RowDelay, "added p99, ms", &b.Added.P99, &a.Added.P99)
		}
		add(RowOther, "jitter, ms", b.Jitter, a.Jitter)
		x, y := percent(b.Loss), percent(a.Loss)
		add(RowOther, "lost, %", &x, &y)
	}
	return rows
}

func percent(e stats.Estimate) stats.Estimate {
	return stats.Estimate{Value: 100 * e.Value, Low: 100 * e.Low, High: 100 * e.High}
}

// Factor is after by before, in words; "" where that says nothing.
func (r Row) Factor() string {
	if r.Before.Value <= 0 || r.After.Value < 0 {
		return ""
	}
	return Figure(r.After.Value/r.Before.Value) + " ×"
}

// ReadResult reads what weir measure --json wrote.
func ReadResult(b []byte) (r Result, err error) {
	if err := json.Unmarshal(b, &r); err != nil {
		return r, err
	}
	if r.Version != ResultVersion {
		return r, fmt.Errorf("its version is %d, and not %d", r.Version, ResultVersion)
	}
	return r, nil
}
