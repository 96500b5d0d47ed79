// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// Bounds of a recording that comes from elsewhere. A test of the page takes 100 kB, and a twentieth of each count.
const (
	MostRecording = 2 << 20 // bytes of its JSON
	mostSeconds   = 600
	mostSamples   = 10_000
	mostFlows     = 64                 // of a span and an end
	mostBytes     = 1e12               // of a flow's Step
	mostRTT       = 1000 * mostSeconds // ms
)

// ReadRecording reads a Recording that somebody else has made, such as a page in a browser. What no test can have seen
// is an error, so that Summarize is quick and gives finite figures whatever is sent.
func ReadRecording(b []byte) (*Recording, error) {
	if len(b) > MostRecording {
		return nil, errors.New("it is too long")
	}
	rec := &Recording{}
	if err := json.Unmarshal(b, rec); err != nil {
		return nil, err
	}
	return rec, rec.check()
}

func (rec *Recording) check() error {
	if !(rec.Interval >= 1 && rec.Interval <= 10_000) {
		return errors.New("interval: 1 to 10000 ms")
	}
	if len(rec.Paths) > 0 {
		return errors.New("paths: no browser sees them")
	}
	if rec.Hop != nil {
		return errors.New("hop: no browser sees it")
	}
	if len(rec.Samples) > mostSamples {
		return fmt.Errorf("samples: %d at most", mostSamples)
	}
	for i, s := range rec.Samples {
		if !within(s.At, 0, mostSeconds) || !within(s.RTT, -1, mostRTT) || !within(s.Up, -mostRTT, mostRTT) ||
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
		for _, flows := range [][]Flow{s.Local, s.Far} {
			if len(flows) > mostFlows {
				return fmt.Errorf("spans[%d]: %d flows at most", i, mostFlows)
			}
			for _, f := range flows {
				if err := f.check(); err != nil {
					return fmt.Errorf("spans[%d]: %w", i, err)
				}
			}
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
	for _, t := range append(slices.Clone(f.RTT), f.MinRTT, f.RTTVar, f.Elapsed, f.Busy, f.Receiver, f.Buffer) {
		if !within(float64(t), 0, 1e6*mostSeconds) {
			return errors.New("a flow's times are out of range")
		}
	}
	for _, n := range []int64{f.Sent, f.Again, f.Delivered, f.CE} {
		if !within(float64(n), 0, mostSteps*mostBytes) {
			return errors.New("a flow's counters are out of range")
		}
	}
	return nil
}

func within(v, least, most float64) bool { return v >= least && v <= most }
