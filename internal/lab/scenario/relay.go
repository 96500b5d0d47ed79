// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"slices"
	"strings"
	"time"

	"weir/internal/units"
)

// relay is how the server passes on what clients and an origin send each other.
type relay struct {
	Kind string `toml:"kind" json:"kind"` // one of kinds; none: it passes nothing on
	// 1: origin and clients are both beyond the uplink; 2: the origin is behind eth1, which has no limit
	Cards int            `toml:"cards" json:"cards"`
	RTT   units.Duration `toml:"rtt" json:"rtt"` // base RTT to the origin
	// version of IP inside a tunnel, when it is not the path's
	IP int `toml:"ip" json:"ip,omitempty"`
	// packets that a tunnel's tun holds for its program
	TxQLen int `toml:"txqueuelen" json:"txqueuelen,omitempty"`
	// of that program's socket, when it sets one
	SndBuf units.Size        `toml:"sndbuf" json:"sndbuf,omitempty"`
	Sysctl map[string]string `toml:"sysctl" json:"sysctl,omitempty"` // the origin's
}

// How a relay passes on what it is sent.
const (
	route     = "route"     // as it is
	NAT       = "nat"       // with another address: clients call the relay, and the origin knows only it
	WireGuard = "wireguard" // clients come by WireGuard, in the kernel
	Tunnel    = "tunnel"    // by a tun and a program that sends what it reads there as UDP
	Proxy     = "proxy"     // a program ends each TCP connection and opens another
)

// kinds are all of those.
func kinds() []string { return []string{route, NAT, WireGuard, Tunnel, Proxy} }

// The legs of a path through a relay.
const (
	Through   = ""       // between client and origin
	ClientLeg = "client" // between client and relay, which is the other end
	OriginLeg = "origin" // between relay and origin, as what the relay fetches for itself
)

// legs are all of those.
func legs() []string { return []string{Through, ClientLeg, OriginLeg} }

// Tunnelled reports whether what is sent that way has other addresses inside than outside.
func Tunnelled(via string) bool { return via == WireGuard || via == Tunnel }

// Via is how a client reaches the origin.
func (s *Scenario) Via(client string) string {
	for _, c := range s.Client {
		if c.Name == client && c.Via != "" {
			return c.Via
		}
	}
	return s.Relay.Kind
}

// carries reports whether any client reaches the origin that way.
func (s *Scenario) carries(via string) bool {
	return slices.ContainsFunc(s.Client, func(c Client) bool { return s.Via(c.Name) == via })
}

// OneCard reports whether the server is a relay with both legs on one link.
func (s *Scenario) OneCard() bool { return s.Server.Relay && s.Relay.Cards == 1 }

// OnlyInward reports whether all flows go to the server, so that the queue to look at is the one on their way.
func (s *Scenario) OnlyInward() bool {
	return !s.OneCard() && len(s.Flow) > 0 &&
		!slices.ContainsFunc(s.Flow, func(f Flow) bool { return f.Direction != "up" })
}

// Base is the RTT of an idle exchange.
func (s *Scenario) Base(client, leg string) units.Duration {
	switch {
	case leg == OriginLeg:
		return s.Relay.RTT
	case leg == ClientLeg || !s.Server.Relay:
		return s.RTT(client)
	}
	return s.RTT(client) + s.Relay.RTT
}

// EndsAt reports whether a flow's connections end at the relay, by a proxy or for itself.
func (s *Scenario) EndsAt(flow string) bool {
	return slices.ContainsFunc(s.Flow, func(f Flow) bool {
		return f.Name == flow && (f.Leg != Through || s.Server.Relay && s.Via(f.Client) == Proxy)
	})
}

// usualTxQLen is a tun's own (drivers/net/tun.c, TUN_READQ_SIZE).
const usualTxQLen = 500

func (s *Scenario) fillInRelay() {
	r := &s.Relay
	if s.Server.Relay && r.Kind == "" {
		setDefault(&r.Kind, route)
		setDefault(&r.Cards, 2)
	}
	if r.Kind == "" {
		return
	}
	s.Server.Relay = true
	setDefault(&r.Cards, 1)
	setDefault(&r.IP, s.Path.IP)
	setDefault(&r.TxQLen, usualTxQLen)
}

func (s *Scenario) checkRelay() *problem {
	r := s.Relay
	at := func(k string) []string { return []string{"relay", k} }
	if !s.Server.Relay {
		switch {
		case r.RTT != 0 || r.Cards != 0 || r.IP != 0 || r.TxQLen != 0 || r.SndBuf != 0 || len(r.Sysctl) > 0:
			return errAt(`kind = "nat", or another of `+strings.Join(kinds(), ", "), []string{"relay"},
				"the relay has no kind")
		}
		for _, c := range s.Client {
			if c.Via != "" {
				return errAt("[relay] with a kind", []string{"client", c.Name, "via"}, "client %q: via %q, and "+
					"there is no relay", c.Name, c.Via)
			}
		}
		return s.checkLegs()
	}
	switch {
	case !slices.Contains(kinds(), r.Kind):
		return errAt("one of "+strings.Join(kinds(), ", "), at("kind"), "relay: kind %q is not known", r.Kind)
	case r.Cards != 1 && r.Cards != 2:
		return errAt("1: one for all; 2: another for the origin", at("cards"), "relay: cards = %d", r.Cards)
	case r.Cards == 2 && s.carries(Proxy):
		return errAt("cards = 1", at("cards"), "relay: the lab's proxy is on one card")
	case time.Duration(r.RTT) > maxRTT:
		return errAt("", at("rtt"), "rtt %v is absurd (0s to 10s)", r.RTT)
	case r.Cards == 2 && r.RTT != 0:
		return errAt("cards = 1", at("rtt"), "relay: an origin behind a card of its own is next to the relay, and "+
			"has no RTT")
	case r.IP != 4 && r.IP != 6:
		return errAt("4 or 6", at("ip"), "there is no version %d of IP", r.IP)
	case r.TxQLen < 1 || r.TxQLen > 100_000:
		return errAt("", at("txqueuelen"), "txqueuelen = %d is out of range (1 to 100000)", r.TxQLen)
	case s.Server.GRO && r.Cards == 1:
		return errAt("cards = 2", []string{"server", "gro"}, "gro is about what comes by a card of its own")
	}
	for _, c := range s.Client {
		via := s.Via(c.Name)
		where := []string{"client", c.Name, "via"}
		if c.Via == "" {
			where = at("kind")
		}
		switch {
		case !slices.Contains(kinds(), via):
			return errAt("one of "+strings.Join(kinds(), ", "), where, "client %q: via %q is not known", c.Name, via)
		case r.Cards == 1 && via == route:
			return errAt(`"nat"`, where, "client %q: over one card the provider would route past the relay", c.Name)
		case r.Cards == 2 && Tunnelled(via):
			return errAt("cards = 1", where, "client %q: the lab's tunnels are on one card", c.Name)
		case r.IP != s.Path.IP && !Tunnelled(via):
			return errAt("leave it out", at("ip"), "relay: another version of IP inside is for tunnels, and "+
				"client %q comes by %s", c.Name, via)
		}
	}
	if p := s.checkLegs(); p != nil {
		return p
	}
	return checkSysctls(r.Sysctl, at("sysctl"))
}

// checkLegs finds traffic that could not go where it is to go.
func (s *Scenario) checkLegs() *problem {
	check := func(section, name, leg, client string, clientDials, udp bool) *problem {
		at := func(k string) []string { return []string{section, name, k} }
		via := s.Via(client)
		switch {
		case !slices.Contains(legs(), leg):
			return errAt(`"client" or "origin": between it and the relay alone`, at("leg"), "%s %q: leg %q is not "+
				"known", section, name, leg)
		case leg != Through && !s.OneCard():
			return errAt("[relay] with a kind and one card", at("leg"), "%s %q: leg %q is of a relay with one card",
				section, name, leg)
		case leg == Through && s.OneCard() && !clientDials:
			return errAt(`dial = "client"`, at("dial"), "%s %q: through %s nobody can call a client", section, name,
				via)
		case leg == Through && via == Proxy && udp:
			return errAt(`kind = "ssh", or leg = "client"`, at("kind"), "%s %q: a proxy carries TCP alone", section,
				name)
		}
		return nil
	}
	for _, f := range s.Flow {
		if p := check("flow", f.Name, f.Leg, f.Client, f.Dial == "client", false); p != nil {
			return p
		}
	}
	for _, p := range s.Probe {
		kind := p.Does()
		if bad := check("probe", p.Name, p.Leg, p.Client, !kind.OneWay, !kind.TCP); bad != nil {
			return bad
		}
	}
	return nil
}
