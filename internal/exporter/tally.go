// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"cmp"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/internal/host"
	"weir/internal/tcp"
)

// Tally sums up connections when they are read, so that no scrape waits for it.
type Tally struct {
	rtt       *prometheus.HistogramVec
	observers map[key]prometheus.Observer
	known     map[string]bool    // congestion controls with a label of their own
	before    map[uint64]counted // by cookie
	at        time.Time
}

// counted is what a connection had counted at a look: of many, this little is kept.
type counted struct{ acked, busy, receiver, buffer uint64 }

// NewTally has seen nothing yet.
func NewTally() *Tally {
	return &Tally{observers: map[key]prometheus.Observer{}, known: map[string]bool{},
		rtt: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "weir_tcp_rtt_over_floor_seconds",
			Help: "Smoothed RTT of TCP connections above their own minimum, for each that was answered in 15 s.",
			// From what a queue kept short adds to a full buffer.
			Buckets:                     []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2},
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160,
			NativeHistogramMinResetDuration: time.Hour,
		}, []string{"device", "congestion_control"})}
}

// Add counts all, and observes those that were answered since the look before. Devices go by address. Where not
// all can be had, none are told.
func (t *Tally) Add(each func(func(host.Connection)) error, at time.Time, devices map[netip.Addr]string) (
	*Connections, error) {
	c := &Connections{map[key]int{}, map[tcp.Limit]int{}, t.rtt}
	now := make(map[uint64]counted, len(t.before))
	err := each(func(x host.Connection) {
		k := key{cmp.Or(devices[x.Local], "other"), t.control(x.CC)}
		c.count[k]++
		is := counted{x.Info.Bytes_acked, x.Info.Busy_time, x.Info.Rwnd_limited, x.Info.Sndbuf_limited}
		now[x.Cookie] = is
		was, seen := t.before[x.Cookie]
		if !seen {
			return
		}
		if is.acked > was.acked && x.Info.Min_rtt > 0 {
			t.observer(k).Observe(seconds(x.Info.Rtt - min(x.Info.Min_rtt, x.Info.Rtt)))
		}
		us := func(now, was uint64) time.Duration { return time.Duration(now-min(was, now)) * time.Microsecond }
		c.limits[tcp.LimitOf(at.Sub(t.at), us(is.busy, was.busy), us(is.receiver, was.receiver),
			us(is.buffer, was.buffer))]++
	})
	if err != nil {
		return nil, err
	}
	t.before, t.at = now, at
	return c, nil
}

// observer is a histogram, remembered: to look it up costs more than to observe.
func (t *Tally) observer(k key) prometheus.Observer {
	if t.observers[k] == nil {
		t.observers[k] = t.rtt.WithLabelValues(k.dev, k.cc)
	}
	return t.observers[k]
}

// control is the label of a congestion control.
func (t *Tally) control(name string) string {
	if !t.known[name] {
		if len(t.known) >= maxControls || name == "" {
			return "other"
		}
		t.known[name] = true
	}
	return name
}

func seconds(us uint32) float64 { return float64(us) / 1e6 }
