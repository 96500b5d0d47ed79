// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"weir/internal/text"
)

// checkCongestionControl says what the connections use.
func checkCongestionControl(p *patient) []Finding {
	s := p.deep.Sockets
	if !s.Read || p.cc == "" {
		return nil
	}
	fine := func(title, seen string) []Finding {
		return []Finding{{Code: "congestion-control", Severity: Fine, Title: title, Seen: seen}}
	}
	same, all := s.Congestion[p.cc], text.Counted(s.Total, "connection")
	switch {
	case s.Total == 0:
		return fine(p.cc+", and no connections.", fmt.Sprintf("%s = %s.", congestionControl, p.cc))
	case same == s.Total && p.cc == "bbr" && queueOf(p.link) != "fq":
		return fine("bbr: "+all+".",
			"All use the present default. It does without fq: TCP has paced itself since Linux 4.13.")
	case same == s.Total:
		return fine(p.cc+": "+all+".", "All use the present default.")
	}
	var others []string
	for name, n := range s.Congestion {
		if name != p.cc {
			others = append(others, fmt.Sprintf("%d %s", n, name))
		}
	}
	slices.Sort(others)
	title := fmt.Sprintf("%d of %s use %s.", same, all, p.cc)
	seen := "The others: " + cmp.Or(strings.Join(others, ", "), "not known") + "."
	if _, set := p.deep.AtBoot(congestionControl); !set && !p.surelySet(congestionControl, p.cc) {
		return fine(title, seen+" Their programs chose.")
	}
	return []Finding{{
		Code: "congestion-control-mixed", Severity: Notable,
		Plain:  "A setting has not reached all connections: only " + title,
		Title:  title,
		Seen:   seen,
		Why:    "They were open before it became the default, or their programs chose; they keep what they have.",
		Remark: "restart the services that hold them, if that matters",
	}}
}
