// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"strings"
)

// Passed are the bytes that went in and out by this host's device, whoever they are of.
type Passed struct {
	Device string `json:"device"`
	In     uint64 `json:"in"`
	Out    uint64 `json:"out"`
}

// deviceTo is the device by which packets leave to an address; "" where that is not known, and of what never leaves.
func deviceTo(addr string) string {
	c, err := net.Dial("udp", addr) // nothing is sent
	if err != nil {
		return ""
	}
	defer c.Close()
	from, ok := c.LocalAddr().(*net.UDPAddr)
	if !ok || from.IP.IsLoopback() {
		return ""
	}
	devices, _ := net.Interfaces()
	for _, d := range devices {
		all, _ := d.Addrs()
		for _, a := range all {
			if own, ok := a.(*net.IPNet); ok && own.IP.Equal(from.IP) {
				return d.Name
			}
		}
	}
	return ""
}

// readPassed is what a device has counted; nil where nobody counts, as elsewhere than on Linux.
func readPassed(device string) *Passed {
	if device == "" {
		return nil
	}
	text, err := os.ReadFile("/proc/thread-self/net/dev")
	if err != nil {
		return nil
	}
	return parsePassed(text, device)
}

// parsePassed reads /proc/net/dev: a device, and its counters, eight in and eight out.
func parsePassed(text []byte, device string) *Passed {
	for line := range bytes.Lines(text) {
		name, rest, ok := strings.Cut(strings.TrimSpace(string(line)), ":")
		if !ok || name != device {
			continue
		}
		p := &Passed{Device: device}
		var skip uint64
		if n, _ := fmt.Sscan(rest, &p.In, &skip, &skip, &skip, &skip, &skip, &skip, &skip, &p.Out); n == 9 {
			return p
		}
	}
	return nil
}

// since is what has passed since a look before; nil where either is not known.
func (p *Passed) since(before *Passed) *Passed {
	if p == nil || before == nil || p.In < before.In || p.Out < before.Out {
		return nil
	}
	return &Passed{p.Device, p.In - before.In, p.Out - before.Out}
}

// otherTraffic is what passed besides the measurement, in Mbit/s in and out; 0 where it is too little to be sure.
// Headers and acknowledgements are the measurement's, and so is what its sender sent again.
func (s Span) otherTraffic() (more [2]float64) {
	const least, headers, answers, probes = 2.0, 1.1, 0.05, 1.0
	seconds := s.To - s.From
	if s.Passed == nil || seconds < least {
		return more
	}
	down, up := 0.0, 0.0 // bytes of payload
	for _, n := range s.arrived(Download) {
		down += n
	}
	for _, n := range s.arrived(Upload) {
		up += n
	}
	sent, told := 0.0, true
	for _, f := range flowsOf(s.Local, Upload) {
		sent += float64(f.Sent)
		told = told && f.Kernel
	}
	mbit := func(bytes uint64, own float64) float64 {
		if more := (float64(bytes) - own) * 8 / 1e6 / seconds; more > probes {
			return more
		}
		return 0
	}
	more[0] = mbit(s.Passed.In, headers*down+answers*up)
	if told { // else nobody knows what was sent again
		more[1] = mbit(s.Passed.Out, headers*max(up, sent)+answers*down)
	}
	return more
}
