// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"weir/internal/hint"
	"weir/internal/host"
	"weir/internal/qdisc"
	"weir/internal/shaper"
	"weir/internal/units"
	"weir/internal/wire"
)

// Clients are rules for those whose weight or rate is their own, as qdisc.Clients has them. A client may also be a peer
// of a WireGuard tunnel, by its public key: then its addresses are those that the tunnel lets it have when it is
// planned.
type Clients string

// parseClients reads such rules, and writes them in one way: those with addresses first, each in its order.
func parseClients(text string) (Clients, error) {
	var addresses, peers []string
	for _, rule := range strings.Split(text, ",") {
		key, says, is := cutKey(rule)
		if !is {
			addresses = append(addresses, rule)
			continue
		}
		says, err := sayingsOf(says)
		if err != nil {
			return "", fmt.Errorf("peer %s: %w", key, err)
		}
		if slices.ContainsFunc(peers, func(p string) bool { return strings.HasPrefix(p, key) }) {
			return "", fmt.Errorf("peer %s is given twice", key)
		}
		peers = append(peers, key+"="+says)
	}
	slices.Sort(peers)
	if len(addresses) == 0 {
		return Clients(strings.Join(peers, ",")), nil
	}
	known, err := qdisc.ParseClients(strings.Join(addresses, ","))
	return Clients(strings.Join(append([]string{string(known)}, peers...), ",")), err
}

// cutKey parts a rule that begins with a public key of WireGuard's, which wg(8) writes in base64: 32 bytes, and so with
// one "=" at its end. The one between it and the rest is easily forgotten.
func cutKey(rule string) (key, says string, ok bool) {
	const bytes, length = 32, 44
	if len(rule) < length {
		return "", "", false
	}
	raw, err := base64.StdEncoding.DecodeString(rule[:length])
	return rule[:length], strings.TrimPrefix(rule[length:], "="), err == nil && len(raw) == bytes
}

// sayingsOf writes in one way what a rule says of its client.
func sayingsOf(says string) (string, error) {
	const anybody = "::/0="
	rule, err := qdisc.ParseClients(anybody + says)
	if err != nil {
		return "", fmt.Errorf("%q is no rate and no weight: write it like 20mbit or weight:2", says)
	}
	return strings.TrimPrefix(string(rule), anybody), nil
}

// of are the rules with the addresses that a link's peers have, and the keys of those that it has not.
func (c Clients) of(link host.Link) (rules qdisc.Clients, missing []string, err error) {
	var all []string
	for _, rule := range strings.Split(string(c), ",") {
		key, says, is := cutKey(rule)
		if !is {
			all = append(all, rule)
			continue
		}
		i := slices.IndexFunc(link.Peers, func(p host.Peer) bool { return p.Key == key })
		if i < 0 {
			missing = append(missing, key)
			continue
		}
		for _, prefix := range link.Peers[i].Allowed {
			all = append(all, prefix+"="+says)
		}
	}
	if len(all) == 0 || c == "" {
		return "", missing, nil
	}
	rules, err = qdisc.ParseClients(strings.Join(all, ","))
	return rules, missing, err
}

// perClient reports whether clients are to have rates or weights of their own, which CAKE has not.
func (g Goal) perClient() bool { return g.Client != "" || g.ClientDefault != 0 }

// clientRules are what a goal says of clients, on the device that it is for.
func (d *draft) clientRules() (qdisc.Clients, error) {
	rules, missing, err := d.Goal.Client.of(d.link)
	if err == nil && d.Goal.ClientDefault != 0 {
		rules, err = rules.Or(d.Goal.ClientDefault)
	}
	switch {
	case err != nil:
		return "", &hint.Error{What: d.link.Name + ": " + err.Error(), Usage: true}
	case len(missing) == 0:
	case d.link.Tunnel() != string(WireGuard):
		return "", &hint.Error{What: fmt.Sprintf("%s is no WireGuard tunnel, and has no peer %s", d.link.Name,
			missing[0]), Try: "--dev wg0, with the tunnel's device"}
	case !d.facts.Admin:
		return "", &hint.Error{What: fmt.Sprintf("which addresses the peers of %s have only root is told",
			d.link.Name), Try: "the same with sudo"}
	default: // it may be added later, and the others are not to wait for it
		d.Unavailable = &hint.Error{What: fmt.Sprintf("%s has no peer %s", d.link.Name, missing[0]),
			Try: "wg show " + d.link.Name + " allowed-ips"}
	}
	return rules, nil
}

// clientShaper is a bpf_shaper as all rules have it, with what keeps its times below.
func (d *draft) clientShaper(rate units.Rate, side string) (qdisc.Stack, error) {
	const (
		least   = 10_000 // packets: fq's own limit (net/sched/sch_fq.c, fq_init)
		room    = 0.2    // s of full packets: twice what the shaper lets any wait
		address = 128    // bits: a tunnel gives each peer one, where a provider gives each site a /64
	)
	f, q := d.framing(), qdisc.New[qdisc.BPFShaper]()
	q.Overhead, q.ATM, q.MPU, q.Raw = f.Overhead, f.ATM, f.MPU, f.Raw
	q.Rate, q.Side = rate, side
	rules, err := d.clientRules()
	if err != nil {
		return nil, err
	}
	q.Clients, q.Prefix6 = rules, max(q.Prefix6, rules.Longest6())
	if d.link.Tunnel() != "" {
		q.Prefix6 = address
	}
	limit := max(least, int(float64(rate)/8/wire.Frame*room))
	fq, err := qdisc.Parse(fmt.Sprintf("fq limit %d flow_limit %d", limit, limit))
	return qdisc.Stack{q, fq}, err
}

// clients plans a rate or a weight for each client.
func (d *draft) clients() error { return d.share("", "none: the choice is yours") }

// share plans a bpf_shaper, and says why.
func (d *draft) share(why, evidence string) error {
	side := "dsthost"
	if d.Goal.FairTo == "src" {
		side = "srchost"
	}
	stack, err := d.clientShaper(d.Goal.Rate, side)
	if err != nil {
		return err
	}
	if d.link.TxQueues > 1 {
		stack = slices.Insert(stack, 1, plainStack("mq")...)
	}
	how := "evenly"
	if d.Goal.perClient() {
		how = "by their weights, none above its own rate"
	}
	return d.root(stack, strings.TrimSpace(fmt.Sprintf("%s clients share %s %s; 99 %% of it is sent, so that packets "+
		"wait here", why, d.Goal.Rate, how)), evidence)
}

// incomingClients plans the same for what arrives, where a client is at the other end of it.
func (d *draft) incomingClients(rate units.Rate, reason string) error {
	side := "srchost"
	if d.Goal.FairTo == "src" {
		side = "dsthost"
	}
	stack, err := d.clientShaper(rate, side)
	if err != nil {
		return err
	}
	return d.ingress(qdisc.Arriving{Stack: stack}, reason+", by the same weights, and none above its own rate",
		ingressEvidence.String())
}

// Overwritten says which programs of others come after a bpf_shaper, and could let packets leave at other times.
func Overwritten(goals []Goal, f host.Facts) (notes []Note) {
	for _, g := range goals {
		link, _ := f.Link(g.Dev)
		root, _ := link.Tree.Root()
		if x, is := root.Stats.X.(shaper.Stats); is && x.After != "" {
			notes = append(notes, Note{Subject: g.Dev, Kind: Lack, Text: fmt.Sprintf("after %s comes another's "+
				"program (%s), which could give packets other times to leave at. weir down and weir up put "+
				"bpf_shaper last again", root.Kind, x.After)})
		}
	}
	return notes
}
