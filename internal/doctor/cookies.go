// SPDX-License-Identifier: Apache-2.0

package doctor

import "fmt"

// checkSYNCookies is about connections that start without what a handshake tells.
func checkSYNCookies(p *patient) []Finding {
	s := p.deep.SYN
	many := s.CookiesGood > 0 && s.CookiesGood*100 >= s.Accepted
	if p.cc != "bbr" || !many && !s.Proxy {
		return nil
	}
	seen := fmt.Sprintf("%d of %d connections came by a SYN cookie since the boot (/proc/net/netstat).", s.CookiesGood,
		s.Accepted)
	if s.Proxy {
		seen += " Netfilter's SYN proxy is loaded."
	}
	return []Finding{{
		Code: "bbr-with-syn-cookies", Severity: Notable,
		Plain: "Some new connections start without knowing how far the other end is, which BBR needs.",
		Title: "SYN cookies or a SYN proxy, with BBR.",
		Seen:  seen,
		Why:   "BBR's first round trips rest on the handshake's RTT, which such a connection lacks.",
		Try:   "weir plan --cc cubic", Remark: "or a longer net.ipv4.tcp_max_syn_backlog",
		Evidence: evidence{Doc: "not measured: what the authors of a published recipe met in production"},
	}}
}
