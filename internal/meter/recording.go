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
	MaxRecording = 2 << 20 // bytes of its JSON
	maxSeconds   = 600
	maxSamples   = 10_000
	maxSpans     = 4                 // idle, download, upload, both
	maxFlows     = 64                // of a span and an end
	maxBytes     = 1e12              // of a flow's Step
	maxRTT       = 1000 * maxSeconds // ms
	minRTT       = 1e-6              // ms, but for 0
)

// ReadRecording reads a Recording that somebody else has made, such as a page in a browser. What no test can have seen
// is an error, so that Summarize is quick and gives finite figures whatever is sent. Lists are read as far as they may
// be long, and no further.
func ReadRecording(b []byte) (*Recording, error) {
	if len(b) > MaxRecording {
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
	rec.Samples, rec.Spans, rec.browser = said.Samples, said.Spans, true
	return &rec, rec.check()
}

type samples []Sample

func (s *samples) UnmarshalJSON(b []byte) (err error) {
	*s, err = readList[Sample](b, maxSamples, "samples")
	return err
}

type spans []Span

func (s *spans) UnmarshalJSON(b []byte) (err error) {
	*s, err = readList[Span](b, maxSpans, "spans")
	return err
}

func (rec *Recording) check() error {
	if !(rec.Interval >= 1 && rec.Interval <= 10_000) {
		return errors.New("interval: 1 to 10000 ms")
	}
	for i, s := range rec.Samples {
		if !inRange(s.At, 0, maxSeconds) || !inRange(s.RTT, -1, maxRTT) || s.RTT > 0 && s.RTT < minRTT ||
			!inRange(s.Up, -maxRTT, maxRTT) ||
			!inRange(s.Down, -maxRTT, maxRTT) {
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
		if !inRange(s.From, 0, maxSeconds) || !inRange(s.To, 0, maxSeconds) {
			return fmt.Errorf("spans[%d]: 0 to %d s", i, maxSeconds)
		}
	}
	return nil
}

func (f *Flow) check() error {
	if f.Direction != Download && f.Direction != Upload {
		return errors.New("a flow's direction is download or upload")
	}
	if len(f.Bins) > maxSteps || len(f.RTT) > maxSteps {
		return fmt.Errorf("a flow has %d steps at most", maxSteps)
	}
	for _, n := range f.Bins {
		if !inRange(float64(n), 0, maxBytes) {
			return errors.New("a flow's bins are out of range")
		}
	}
	for _, t := range append(slices.Clone(f.RTT), f.RTTVar, f.Elapsed, f.Busy, f.Receiver, f.Buffer) {
		if !inRange(float64(t), 0, 1e6*maxSeconds) {
			return errors.New("a flow's times are out of range")
		}
	}
	if !inRange(float64(f.MinRTT), 0, math.MaxUint32) { // which is a kernel's that has seen none
		return errors.New("a flow's times are out of range")
	}
	for _, n := range []int64{f.Sent, f.Again, f.Delivered, f.CE} {
		if !inRange(float64(n), 0, maxSteps*maxBytes) {
			return errors.New("a flow's counters are out of range")
		}
	}
	return nil
}

func inRange(v, least, most float64) bool { return v >= least && v <= most }
