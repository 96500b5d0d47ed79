// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	"weir/internal/hint"
	"weir/internal/stats"
)

// Fetches are downloads of one file, one after the other, each over a connection of its own: what a person sees who
// downloads it. Of the estimates the value is the median, and the interval all that was measured.
type Fetches struct {
	Version   int            `json:"version"`
	Target    string         `json:"target"`
	Time      time.Time      `json:"time"`
	Bytes     int64          `json:"bytes"` // of the file
	Says      string         `json:"says"`
	Fetches   []Fetch        `json:"fetches"`
	Seconds   stats.Estimate `json:"seconds"`   // from dialling to the last byte
	Speed     stats.Estimate `json:"speed"`     // Mbit/s, over that time
	Handshake stats.Estimate `json:"handshake"` // ms
}

// Fetch is one of them.
type Fetch struct {
	Seconds   float64 `json:"seconds"`
	Bytes     int64   `json:"bytes"`
	Handshake float64 `json:"handshake"` // of TCP, in ms
	// packets that came before one that should have come earlier, by this host's kernel: what was lost, or overtaken
	Early *uint32 `json:"early,omitempty"`
}

// FetchVersion is that of Fetches as JSON.
const FetchVersion = 1

// stall is for how long a server may send nothing.
const stall = 30 * time.Second

// FetchFile downloads a file so often. Progress is told how many were done.
func FetchFile(ctx context.Context, f *File, times int, progress func(done int, elapsed time.Duration)) (*Fetches,
	error) {
	began := time.Now()
	all := &Fetches{Version: FetchVersion, Target: f.url(), Time: began.UTC().Truncate(time.Second)}
	for range times {
		one, err := f.fetch(ctx, func() { progress(len(all.Fetches), time.Since(began)) })
		if err != nil {
			return all, err
		}
		all.Fetches = append(all.Fetches, one)
		all.sumUp()
	}
	return all, nil
}

// fetch downloads it once.
func (f *File) fetch(ctx context.Context, progress func()) (one Fetch, err error) {
	type dialled struct {
		conn net.Conn
		took time.Duration
	}
	connected := make(chan dialled, 1) // the transport dials on its own, and may end after who asked it
	t := f.target.transport()
	defer t.CloseIdleConnections()
	began := time.Now()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		start := time.Now()
		c, err := f.target.dial(ctx, "", 0)
		if err == nil {
			connected <- dialled{c, time.Since(start)}
		}
		return c, err
	}
	t.DialContext = dial
	t.DialTLSContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return f.target.startTLS(ctx, c, "http/1.1")
	}
	t.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{} // HTTP/1.1: one connection, one file
	body, err := f.get(ctx, newHTTPClient(t, 0))
	if err != nil {
		return one, err
	}
	defer body.Close()
	reached := <-connected
	one.Handshake = reached.took.Seconds() * 1e3
	buffer := make([]byte, 256<<10)
	for {
		reached.conn.SetReadDeadline(time.Now().Add(stall))
		n, err := body.Read(buffer)
		one.Bytes += int64(n)
		if early, ok := receivedEarly(reached.conn); ok { // now: at its end the connection may be closed
			one.Early = &early
		}
		progress()
		if err == io.EOF {
			break
		}
		if err != nil {
			return one, hint.New(fmt.Sprintf("%s broke off after %d bytes: %v", f.url(), one.Bytes, withoutURL(err)),
				"again, once the server answers")
		}
	}
	one.Seconds = time.Since(began).Seconds()
	return one, nil
}

// sumUp takes the medians and the ranges.
func (f *Fetches) sumUp() {
	estimate := func(read func(Fetch) float64) stats.Estimate {
		var values []float64
		for _, x := range f.Fetches {
			values = append(values, read(x))
		}
		return stats.Estimate{Value: stats.Median(values), Low: slices.Min(values), High: slices.Max(values)}
	}
	f.Bytes = f.Fetches[len(f.Fetches)-1].Bytes
	f.Seconds = estimate(func(x Fetch) float64 { return x.Seconds })
	f.Speed = estimate(func(x Fetch) float64 { return float64(x.Bytes) * 8 / 1e6 / max(x.Seconds, 1e-9) })
	f.Handshake = estimate(func(x Fetch) float64 { return x.Handshake })
	f.Says = fmt.Sprintf("%d downloads of %s took %s s in the median: %s Mbit/s.", len(f.Fetches),
		megabytes(f.Bytes), Figure(f.Seconds.Value), Figure(f.Speed.Value))
}

func megabytes(n int64) string { return fmt.Sprintf("%.3g MB", float64(n)/1e6) }

// CompareFetches sets two of them side by side. They differ for sure where no download of the one was as any of the
// other: of four each that is chance in 2 of 70 cases.
func CompareFetches(before, after *Fetches) []Row {
	const enough = 4
	comparable := min(len(before.Fetches), len(after.Fetches)) >= enough
	row := func(kind RowKind, figure string, a, b stats.Estimate) Row {
		sure := comparable && (a.High < b.Low || b.High < a.Low)
		return Row{Figure: figure, Kind: kind, Before: a, After: b, Sure: sure}
	}
	return []Row{row(RowTime, "download, s", before.Seconds, after.Seconds),
		row(RowOther, "download, Mbit/s", before.Speed, after.Speed),
		row(RowOther, "handshake, ms", before.Handshake, after.Handshake)}
}

// ReadFetches reads what was written as JSON.
func ReadFetches(text []byte) (*Fetches, error) {
	var f Fetches
	switch err := json.Unmarshal(text, &f); {
	case err != nil:
		return nil, err
	case f.Version != FetchVersion:
		return nil, fmt.Errorf("its version is %d, and not %d", f.Version, FetchVersion)
	case len(f.Fetches) == 0:
		return nil, errors.New("it has no download: weir measure --fetches wrote it?")
	}
	return &f, nil
}
