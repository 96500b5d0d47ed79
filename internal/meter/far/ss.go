// SPDX-License-Identifier: Apache-2.0

package far

import (
	"bufio"
	"context"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"weir/internal/meter"
)

// kernel asks the far host's ss, over a connection of its own, again and again.
type kernel struct {
	*session
	mu    sync.Mutex
	flows map[int]*sender // of the phase, by the other end's port; nil before there is one
	began time.Time
}

// sender is what is known of a connection that sends to here.
type sender struct {
	meter.Flow
	first meter.TCPInfo
	empty int // looks at which its program had nothing to send, less those at which it had
}

const (
	endOfSS = "weir-measure-end"
	askSS   = `sh -c 'while read x; do ss -tin || exit 1; echo ` + endOfSS + `; done' 2>/dev/null`
	everySS = 500 * time.Millisecond
)

// startKernel gives nil where there is no ss.
func (h Host) startKernel(ctx context.Context) *kernel {
	const patience = 15 * time.Second // a busy host takes long to start anything
	s, err := h.start(ctx, askSS)
	if err != nil {
		return nil
	}
	k := &kernel{session: s}
	lines := bufio.NewScanner(io.Reader(s.stdout))
	first := make(chan bool, 1)
	go func() {
		for n := 0; ; n++ {
			if _, err := io.WriteString(s.stdin, "\n"); err != nil {
				break
			}
			seen, ok := readSS(lines)
			if !ok {
				break
			}
			k.add(seen)
			if n == 0 {
				first <- true
			}
			time.Sleep(everySS)
		}
		first <- false
	}()
	select {
	case ok := <-first:
		if ok {
			return k
		}
	case <-time.After(patience):
	}
	s.end()
	return nil
}

// begin forgets the flows of the phase before. The nil kernel knows nothing.
func (k *kernel) begin() {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.flows, k.began = map[int]*sender{}, time.Now()
}

func (k *kernel) add(seen map[int]ssInfo) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.flows == nil {
		return
	}
	for port, s := range seen {
		f := k.flows[port]
		if f == nil {
			f = &sender{Flow: meter.Flow{Direction: meter.Download, Kernel: true}, first: s.TCPInfo}
			k.flows[port] = f
		}
		f.Sample(s.TCPInfo, f.first, time.Since(k.began))
		if f.empty--; s.empty {
			f.empty += 2
		}
		f.Starved = f.empty > 0
	}
}

// flow is what is known of a connection's sender.
func (k *kernel) flow(port int) meter.Flow {
	if k != nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		if f := k.flows[port]; f != nil && port != 0 {
			return f.Flow
		}
	}
	return meter.Flow{Direction: meter.Download}
}

// ssInfo is what ss says of a connection.
type ssInfo struct {
	meter.TCPInfo
	empty bool // the program had nothing to send, though there was room
}

// readSS reads an answer up to its end: the connections by their other ends' ports.
func readSS(lines *bufio.Scanner) (map[int]ssInfo, bool) {
	all := map[int]ssInfo{}
	port := 0
	const most = 100_000
	for range most {
		if !lines.Scan() {
			return nil, false
		}
		line := lines.Text()
		switch {
		case strings.Contains(line, endOfSS):
			return all, true
		case strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t"):
			if port != 0 {
				all[port] = parseSS(line)
			}
			port = 0
		default:
			port = portOf(line)
		}
	}
	return nil, false
}

// portOf finds the other end's port in a line of ss: the state, two queues, the two ends.
func portOf(line string) int {
	f := strings.Fields(line)
	if len(f) < 5 {
		return 0
	}
	port, err := strconv.ParseUint(f[4][strings.LastIndex(f[4], ":")+1:], 10, 16)
	if err != nil {
		return 0
	}
	return int(port)
}

// parseSS reads the words of a connection (ss(8), option -i).
func parseSS(line string) (s ssInfo) {
	words := strings.Fields(line)
	for i, w := range words {
		name, value, pair := strings.Cut(w, ":")
		switch {
		case !pair && w == "ecn":
			s.ECN = true
		case !pair && w == "app_limited":
			s.empty = true
		// The congestion control stands before its first parameter, and after what was negotiated.
		case name == "wscale" || name == "rto":
			if s.CC == "" && i > 0 && !strings.Contains(words[i-1], ":") {
				s.CC = meter.CCName(words[i-1])
			}
		case name == "rtt":
			rtt, dev, _ := strings.Cut(value, "/")
			s.RTT, s.RTTVar = number(rtt, 1000), number(dev, 1000)
		case name == "minrtt":
			s.MinRTT = number(value, 1000)
		case name == "bytes_sent":
			s.BytesSent = number(value, 1)
		case name == "bytes_retrans":
			s.BytesRetrans = number(value, 1)
		case name == "busy":
			s.BusyTime = number(value, 1000)
		case name == "rwnd_limited":
			s.RWndLimited = number(value, 1000)
		case name == "sndbuf_limited":
			s.SndBufLimited = number(value, 1000)
		}
	}
	return s
}

// number reads "12.5ms(3%)" and such, times a scale; 0 where that is none, or absurd.
func number(s string, scale float64) int64 {
	end := strings.IndexFunc(s, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	if end >= 0 {
		s = s[:end]
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || v*scale > 1<<53 {
		return 0
	}
	return int64(v * scale)
}
