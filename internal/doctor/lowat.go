// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"strconv"

	"weir/internal/text"
)

// lowat is tcp_notsent_lowat in bytes; false where it is not set: unknown, or negative as a 32-bit number of old.
func (p *patient) lowat() (bytes int64, ok bool) {
	n, err := strconv.ParseInt(p.Sysctls[notsentLowat].Value, 10, 64)
	return n, err == nil && n >= 0
}

// checkNotSentLowat is about a socket that is fed in pieces that are too small.
func checkNotSentLowat(p *patient) []Finding {
	const useful, burst = 131072, 16384 // bytes: below the one nothing is gained, below the other BBR has no full burst
	now, ok := p.lowat()
	if !ok || now >= useful {
		return nil
	}
	f := Finding{
		Code: "lowat-too-small", Severity: Notable,
		Plain: "A setting costs this server CPU time for nothing: it makes programs send in small pieces.",
		Title: fmt.Sprintf("tcp_notsent_lowat %d costs wake-ups.", now),
		Seen:  fmt.Sprintf("%s = %d, %s.", notsentLowat, now, p.source(notsentLowat)),
		Why:   "Programs are woken for each small piece, and nothing is gained below 131072.",
		Try:   "weir up", Evidence: evidence{Scenario: "scenarios/seeds/notsent-lowat.toml"},
	}
	if now < burst && p.cc == "bbr" {
		f.Code, f.Severity, f.Title = "lowat-makes-bbr-queue", Harmful,
			fmt.Sprintf("tcp_notsent_lowat %d makes BBR queue.", now)
		f.Plain = "A setting makes downloads slow down everything else: they keep too much on the way."
		f.Why = "Fed in pieces below its burst size, BBR takes its own gaps for aggregated ACKs and keeps another " +
			"BDP in flight."
	}
	return []Finding{f}
}

// checkMPTCP is about listeners whose connections that setting does not reach.
func checkMPTCP(p *patient) []Finding {
	now, ok := p.lowat()
	if p.MPTCP == 0 || !ok || now >= 1<<31-1 {
		return nil
	}
	return []Finding{{
		Code: "lowat-without-mptcp", Severity: Notable,
		Plain: "Some programs do not follow a setting of this server, and keep more waiting than it allows.",
		Title: "MPTCP ignores tcp_notsent_lowat.",
		Seen: fmt.Sprintf("%s of MPTCP (/proc/net/protocols); %s = %d, %s.", text.Counted(p.MPTCP, "socket"),
			notsentLowat, now, p.source(notsentLowat)),
		Why: "What such a listener accepts keeps as much unsent as without the setting, also from clients of plain " +
			"TCP. Go programs listen by MPTCP since Go 1.24.",
		Remark:   "GODEBUG=multipathtcp=0 for that service, or net.mptcp.enabled=0 before it starts",
		Evidence: evidence{Scenario: proxyScenario},
	}}
}
