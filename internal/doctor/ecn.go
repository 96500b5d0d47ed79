// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"

	"weir/internal/text"
)

// checkECN is about a setting that contradicts what the host does.
func checkECN(p *patient) []Finding {
	const fix, kernels = "sysctl -w net.ipv4.tcp_ecn=2", "the kernel's default"
	now, s := p.Sysctls[tcpECN].Value, p.deep.Sockets
	seen := fmt.Sprintf("%s = %s, %s", tcpECN, now, p.source(tcpECN))
	marks := p.enforced() != 0 && p.traits().Marks
	switch {
	case now == "1" && p.cc == "bbr":
		return []Finding{{
			Code: "ecn-with-bbr", Severity: Notable,
			Plain: "Two settings work against each other: ECN asks for signals that BBR then ignores.",
			Title: "ECN is asked for, and BBR does not listen.",
			Seen:  seen + "; congestion control bbr.",
			Why:   "BBR takes no notice of marks: a queue that marks it instead of dropping has no hold on it.",
			Try:   fix, Remark: kernels, Evidence: evidence{Scenario: "scenarios/seeds/dualpi2.toml"},
		}}
	case now == "1" && s.Read && s.Total > 0 && s.Dialled() == 0 && !p.Forwards():
		return []Finding{{
			Code: "ecn-without-effect", Severity: Notable,
			Plain:    "A setting makes no difference on this server: tcp_ecn = 1.",
			Title:    "tcp_ecn 1 changes nothing here.",
			Seen:     fmt.Sprintf("%s; all %s were opened by others.", seen, text.Counted(s.Total, "connection")),
			Why:      "Connections that are accepted get ECN when the client asks, with 1 as with 2.",
			Remark:   "nothing; 2, the kernel's default, does the same here",
			Evidence: evidence{Scenario: "scenarios/seeds/ecn.toml"},
		}}
	case now == "0" && marks && p.cc != "bbr":
		return []Finding{{
			Code: "ecn-refused", Severity: Notable,
			Plain: "Packets are dropped here that need not be: a setting refuses ECN.",
			Title: "ECN is refused, and the queue here could mark.",
			Seen:  fmt.Sprintf("%s; %s on %s marks what asks for it.", seen, p.queueName(), p.holder.Name),
			Why:   "What could be marked is dropped and sent again.",
			Try:   fix, Remark: kernels, Evidence: evidence{Scenario: "scenarios/seeds/ecn.toml"},
		}}
	}
	return nil
}
