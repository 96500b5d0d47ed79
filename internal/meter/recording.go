// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Bounds of a recording that comes from elsewhere. A test of the page takes 100 kB, and a twentieth of each count.
const (
	MostRecording = 2 << 20 // bytes of its JSON
	mostSeconds   = 600
	mostSamples   = 10_000
	mostSpans     = 4                  // idle, download, upload, both
	mostFlows     = 64                 // of a span and an end
	mostBytes     = 1e12               // of a flow's Step
	mostRTT       = 1000 * mostSeconds // ms
	leastRTT      = 1e-6               // ms, but for 0
)

// ReadRecording reads a Recording that somebody else has made, such as a page in a browser. What no test can have seen
// is an error, so that Summarize is quick and gives finite figures whatever is sent. Lists are read as far as they may
// be long, and no further.
func ReadRecording(b []byte) (*Recording, error) {
	if len(b) > MostRecording {
		return nil, errors.New("it is too long")
	}
	type rest Recording
	var said struct {
		rest
		Samples samples         `json:"samples"`
		Spans   spans           `json:"spans"`
		Paths   json.RawMessage `json:"paths"`
		Hop     json.RawMessage `json:"hop"`
		Notes   json.RawMessage `json:"notes"`
	}
	if err := json.Unmarshal(b, &said); err != nil {
		return nil, err
	}
	if len(said.Paths)+len(said.Hop)+len(said.Notes) > 0 {
		return nil, errors.New("paths, hop and notes: no browser has them")
	}
	rec := Recording(said.rest)
	rec.Samples, rec.Spans = said.Samples, said.Spans
	return &rec, rec.check()
}

type samples []Sample

func (s *samples) UnmarshalJSON(b []byte) (err error) {
	*s, err = few[Sample](b, mostSamples, "samples")
	return err
}

type spans []Span

func (s *spans) UnmarshalJSON(b []byte) (err error) {
	*s, err = few[Span](b, mostSpans, "spans")
	return err
}

func (rec *Recording) check() error {
	if !(rec.Interval >= 1 && rec.Interval <= 10_000) {
		return errors.New("interval: 1 to 10000 ms")
	}
	for i, s := range rec.Samples {
		if !within(s.At, 0, mostSeconds) || !within(s.RTT, -1, mostRTT) || s.RTT > 0 && s.RTT < leastRTT ||
			!within(s.Up, -mostRTT, mostRTT) ||
			!within(s.Down, -mostRTT, mostRTT) {
			return fmt.Errorf("samples[%d]: out of range", i)
		}
	}
	var names []string
	for i, s := range rec.Spans {
		if !slices.Contains([]string{Idle, Download, Upload, Both}, s.Name) || slices.Contains(names, s.Name) {
			return fmt.Errorf("spans[%d]: each of idle, download, upload and both once", i)
		}
		if s.Passed != nil {
			return fmt.Errorf("spans[%d].passed: no browser sees it", i)
		}
		names = append(names, s.Name)
		if !within(s.From, 0, mostSeconds) || !within(s.To, 0, mostSeconds) {
			return fmt.Errorf("spans[%d]: 0 to %d s", i, mostSeconds)
		}
	}
	return nil
}

func (f *Flow) check() error {
	if f.Direction != Download && f.Direction != Upload {
		return errors.New("a flow's direction is download or upload")
	}
	if len(f.Bins) > mostSteps || len(f.RTT) > mostSteps {
		return fmt.Errorf("a flow has %d steps at most", mostSteps)
	}
	for _, n := range f.Bins {
		if !within(float64(n), 0, mostBytes) {
			return errors.New("a flow's bins are out of range")
		}
	}
	for _, t := range append(slices.Clone(f.RTT), f.RTTVar, f.Elapsed, f.Busy, f.Receiver, f.Buffer) {
		if !within(float64(t), 0, 1e6*mostSeconds) {
			return errors.New("a flow's times are out of range")
		}
	}
	if !within(float64(f.MinRTT), 0, math.MaxUint32) { // which is a kernel's that has seen none
		return errors.New("a flow's times are out of range")
	}
	for _, n := range []int64{f.Sent, f.Again, f.Delivered, f.CE} {
		if !within(float64(n), 0, mostSteps*mostBytes) {
			return errors.New("a flow's counters are out of range")
		}
	}
	return nil
}

func within(v, least, most float64) bool { return v >= least && v <= most }
