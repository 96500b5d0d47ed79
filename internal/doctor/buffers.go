// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"time"

	"weir/internal/text"
	"weir/internal/units"
)

// sizes are the three values of tcp_rmem or tcp_wmem, in bytes.
type sizes struct{ least, start, most uint64 }

func (s sizes) String() string { return fmt.Sprintf("%d %d %d", s.least, s.start, s.most) }

// sizes are those of one of the two; none where it cannot be read.
func (p *patient) sizes(sysctl string) (s sizes) {
	if _, err := fmt.Sscan(p.Sysctls[sysctl].Value, &s.least, &s.start, &s.most); err != nil {
		return sizes{}
	}
	return s
}

// checkBuffers is about what connections' buffers start with, and what they may grow to.
func checkBuffers(p *patient) (found []Finding) {
	for _, b := range []struct {
		sysctl string
		kernel uint64 // its start, in bytes: Documentation/networking/ip-sysctl.rst
		room   string
	}{
		{tcpRmem, 131072, "window"},
		{tcpWmem, 16384, "room for what it sends"},
	} {
		now := p.sizes(b.sysctl)
		if now == (sizes{}) {
			continue
		}
		if now.start < b.kernel {
			found = append(found, p.smallDefault(b.sysctl, now, b.kernel, b.room))
		}
		found = append(found, p.smallMaximum(b.sysctl, now)...)
	}
	return found
}

// smallDefault is about a default below the kernel's own.
func (p *patient) smallDefault(sysctl string, now sizes, kernel uint64, room string) Finding {
	part := fmt.Sprintf("%.0f %%", 100*float64(now.start)/float64(kernel))
	if now.start > 0 && kernel%now.start == 0 {
		part = fmt.Sprintf("1/%d", kernel/now.start)
	}
	return Finding{
		Code: "buffer-default-lowered", Severity: Notable,
		Plain: fmt.Sprintf("New connections start slowly: a setting gives them %s of the usual %s.", part, room),
		Title: fmt.Sprintf("%s default is %d (kernel: %d).", text.Short(sysctl), now.start, kernel),
		Seen:  fmt.Sprintf("%s = %s, %s.", sysctl, now, p.source(sysctl)),
		Why:   fmt.Sprintf("Every new connection starts with %s of the usual %s.", part, room),
		Try:   "weir up",
	}
}

// smallMaximum is about a maximum below what the path holds. Half of a buffer at most is payload in flight.
func (p *patient) smallMaximum(sysctl string, now sizes) []Finding {
	rate, rtt := p.enforced(), p.deep.Sockets.RTT
	bdp := float64(rate) / 8 * time.Duration(rtt).Seconds()
	if bdp <= float64(now.most)/2 {
		return nil
	}
	f := Finding{
		Code: "buffer-maximum-low", Severity: Notable,
		Plain: "One connection alone cannot use the whole line: a setting keeps its buffer too small.",
		Title: text.Short(sysctl) + " maximum is below what the path holds.",
		Seen: fmt.Sprintf("%s = %s, %s; %s × %s (nine in ten connections are nearer) is %.1f MiB, and half of a "+
			"buffer is payload.", sysctl, now, p.source(sysctl), rate, millis(rtt), bdp/(1<<20)),
		Why:      "One connection alone cannot fill the path.",
		Evidence: evidence{Scenario: "scenarios/long-fast-link.toml"},
	}
	f.Try, f.Remark = p.plannedBuffer(
		fmt.Sprintf("weir plan --rate %s --rtt %s", rate, rtt.Round(units.Duration(time.Millisecond))), sysctl)
	return []Finding{f}
}

// plannedBuffer is planned, of a plan that sizes buffers: those can be made larger on any kernel.
func (p *patient) plannedBuffer(try, sysctl string) (toTry, instead string) {
	if p.canShape() {
		return try, "sizes the buffers for a path"
	}
	return "", "set the third number of " + sysctl + " to twice the path's rate × RTT, in bytes"
}
