// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"slices"
	"strings"
	"time"

	"weir/internal/units"
)

// ProbeKind is what a kind of probe does.
type ProbeKind struct {
	Name   string
	TCP    bool // on a connection, with a reply of its own size; else datagrams, which have an ECN field
	OneWay bool // from the server, at a rate
	Waits  bool // for each answer, before it asks again

	interval    time.Duration
	size, reply units.Size
}

// probeKinds is the table of all of them. How each is driven follows from its row.
func probeKinds() []ProbeKind {
	return []ProbeKind{
		{Name: "udp", interval: 10 * time.Millisecond, size: 64},
		{Name: "ssh", TCP: true, interval: 50 * time.Millisecond, size: 48, reply: 96},
		{Name: "request", TCP: true, Waits: true, interval: 100 * time.Millisecond, size: 300, reply: 10 << 10},
		{Name: "stream", OneWay: true, size: 1200},
	}
}

func (p *Probe) kind() (ProbeKind, bool) {
	all := probeKinds()
	i := slices.IndexFunc(all, func(k ProbeKind) bool { return k.Name == p.Kind })
	if i < 0 {
		return ProbeKind{}, false
	}
	return all[i], true
}

// Does is what a probe's kind does. The probe has been checked.
func (p *Probe) Does() ProbeKind {
	kind, _ := p.kind()
	return kind
}

func (k ProbeKind) fillIn(p *Probe) {
	setDefault(&p.Size, k.size)
	setDefault(&p.Interval, units.Duration(k.interval))
	setDefault(&p.Reply, k.reply)
	if k.OneWay && p.Rate != 0 {
		p.Interval = units.Duration(float64(p.Size) * 8 / float64(p.Rate) * 1e9)
	}
}

func probeNames() []string {
	return names(probeKinds(), func(k ProbeKind) string { return k.Name })
}

func (s *Scenario) checkProbe(p Probe) *problem {
	at := func(k string) []string { return []string{"probe", p.Name, k} }
	kind, known := p.kind()
	datagram := units.Size(s.Path.room() - 8) // without UDP's header
	switch {
	case !known:
		return errAt("one of "+strings.Join(probeNames(), ", "), at("kind"), "probe %q: kind %q", p.Name, p.Kind)
	case !s.hasClient(p.Client):
		return errAt("clients: "+s.clientNames(), at("client"), "probe %q: no client is called %q", p.Name, p.Client)
	case p.ECN != "" && p.ECN.Bits() == 0:
		return errAt("ect0, ect1 or ce", at("ecn"), "probe %q: ecn %q", p.Name, p.ECN)
	case p.ECN != "" && kind.TCP:
		return errAt("", at("ecn"), "probe %q: the ECN field of kind %s is TCP's", p.Name, p.Kind)
	case !kind.OneWay && p.Rate != 0:
		return errAt("an interval", at("rate"), "probe %q: a rate is for kind stream", p.Name)
	case !kind.TCP && p.Reply != 0:
		return errAt("", at("reply"), "probe %q: kind %s has no reply of its own size", p.Name, p.Kind)
	case kind.OneWay && p.Rate == 0 && p.Interval == 0:
		return errAt("", at("rate"), "probe %q: a stream needs a rate", p.Name)
	case p.CC != "" && !kind.TCP:
		return errAt("of ssh and request", at("cc"), "probe %q: a %s has no congestion control", p.Name, p.Kind)
	case p.CC != "" && !slices.Contains(congestionControls(), p.CC):
		return errAt("known: "+strings.Join(congestionControls(), " "), at("cc"),
			"probe %q: unknown congestion control %q", p.Name, p.CC)
	case p.Interval < units.Duration(10*time.Microsecond):
		return errAt("", at("interval"), "probe %q: interval %v is too short (10us at least)", p.Name, p.Interval)
	case p.Size < 8 || p.Size > 65000 || !kind.TCP && p.Size > datagram:
		return errAt("", at("size"), "probe %q: size %v is out of range (8b to one packet)", p.Name, p.Size)
	case kind.TCP && (p.Reply < 1 || p.Reply > 1<<30):
		return errAt("", at("reply"), "probe %q: reply %v is out of range (1b to 1gb)", p.Name, p.Reply)
	}
	return nil
}
