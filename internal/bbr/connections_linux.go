// SPDX-License-Identifier: Apache-2.0

package bbr

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"weir/internal/units"
)

// Connection is one that has bpf_bbr, and what that knows of it. Of another version than this program's only the first
// three fields are known, and of one that no Weir registered only the addresses.
type Connection struct {
	Local   netip.AddrPort `json:"local"`
	Remote  netip.AddrPort `json:"remote"`
	Version string         `json:"version,omitempty"`
	*Model  `json:",omitempty"`
}

// Model is what bpf_bbr goes by at a moment. Bounds are in packets; 0: there is none.
type Model struct {
	State       string         `json:"state"`        // of draft-ietf-ccwg-bbr, section 2.4
	Rate        units.Rate     `json:"rate"`         // bit/s that it goes by
	MaxRate     units.Rate     `json:"max_rate"`     // bit/s, the greatest delivery rate of the last two cycles
	Pacing      units.Rate     `json:"pacing"`       // bit/s that the kernel sends at now
	MinRTT      units.Duration `json:"min_rtt"`      // of the path
	SRTT        units.Duration `json:"srtt"`         // now
	MSS         uint32         `json:"mss"`          // bytes
	Cwnd        uint32         `json:"cwnd"`         // packets
	InFlight    uint32         `json:"in_flight"`    // packets
	LongBound   uint32         `json:"inflight_hi"`  // inflight_longterm
	ShortBound  uint32         `json:"inflight_lo"`  // inflight_shortterm
	QueueAim    float64        `json:"queue_aim"`    // packets of its own that it wants in the queue
	Loss        units.Share    `json:"loss"`         // of packets that are lost however gently it sends
	Marked      bool           `json:"marked"`       // a queue on the path has marked packets (ECN) lately
	OthersQueue bool           `json:"others_queue"` // others keep the queue full
}

// Connections reads those of the calling thread's network namespace that have bpf_bbr. It needs root, and loads a
// program for the time of the look. Where the kernel does not take that the error is a bpf.ErrNotSupported.
func Connections() (_ []Connection, err error) {
	spec, err := loadShow()
	if err != nil {
		return nil, err
	}
	_ = rlimit.RemoveMemlock() // kernels before 5.11 count maps as locked memory
	objects, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, explain(err)
	}
	defer objects.Close()
	iterator, err := link.AttachIter(link.IterOptions{Program: objects.Programs[showProgShow]})
	if err != nil {
		return nil, explain(err)
	}
	defer func() { err = errors.Join(err, iterator.Close()) }()
	sockets, err := iterator.Open()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, sockets.Close()) }()
	text, err := io.ReadAll(sockets)
	if err != nil {
		return nil, fmt.Errorf("the kernel's list of connections breaks off: %w", err)
	}
	return parse(text)
}

// parse reads records, one after another.
func parse(text []byte) (all []Connection, err error) {
	for r := bytes.NewReader(text); r.Len() > 0; {
		var x showShown
		if err := binary.Read(r, binary.NativeEndian, &x); err != nil {
			return nil, fmt.Errorf("a record of a connection is cut short: %w", err)
		}
		c, err := x.connection()
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// connection is what a record says.
func (x showShown) connection() (Connection, error) {
	address := func(bytes [16]byte, port uint16) netip.AddrPort {
		a := netip.AddrFrom16(bytes)
		if x.Family == unix.AF_INET {
			a = netip.AddrFrom4([4]byte(bytes[:4]))
		}
		return netip.AddrPortFrom(a.Unmap(), port)
	}
	c := Connection{Local: address(x.Local, x.LocalPort), Remote: address(x.Remote, x.RemotePort)}
	name, _, _ := bytes.Cut(x.Map[:], []byte{0})
	version, own := strings.CutPrefix(string(name), prefix)
	if !own {
		return c, nil
	}
	if c.Version = version; version != Version() {
		return c, nil
	}
	// by their numbers in bbr.h
	states := [...]string{"STARTUP", "DRAIN", "DOWN", "CRUISE", "REFILL", "UP", "PROBE_RTT"}
	if int(x.State) >= len(states) {
		return c, fmt.Errorf("a connection is in a state that there is not: %d", x.State)
	}
	rate := func(bytes uint64) units.Rate { return units.Rounded(float64(bytes) * 8) }
	us := func(us uint32) units.Duration { return units.Duration(us) * units.Duration(time.Microsecond) }
	bound := func(packets uint32) uint32 {
		if packets == math.MaxUint32 {
			return 0
		}
		return packets
	}
	share := func(of1024 uint16) units.Share { return units.Share(of1024) / 1024 }
	c.Model = &Model{State: states[x.State], Rate: rate(x.Rate), MaxRate: rate(x.Most), Pacing: rate(x.Pacing),
		MinRTT: us(x.MinRtt), SRTT: us(x.Srtt), MSS: x.Mss, Cwnd: x.Cwnd, InFlight: x.Flight,
		LongBound: bound(x.Hi), ShortBound: bound(x.Lo), QueueAim: float64(x.Queue) / 4,
		Loss: share(x.Tolerate), OthersQueue: x.Held != 0, Marked: x.Aim != math.MaxUint8}
	return c, nil
}
