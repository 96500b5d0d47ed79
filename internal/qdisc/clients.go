// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"weir/internal/shaper"
	"weir/internal/units"
)

// Clients are rules for clients of a bpf_shaper whose weight or rate is their own, in the one way that ParseClients
// writes them.
type Clients string

// ParseClients reads rules with commas between them, each a prefix or an address, "=", and a rate that each client in
// it may not exceed, "weight:" and a number, or both with a slash between them:
// 10.8.0.7=20mbit,10.8.0.0/24=weight:2,fd00::/48=5mbit/weight:3. Of several prefixes that a client is in the longest
// counts.
func ParseClients(text string) (Clients, error) {
	list, err := Clients(text).rules()
	return clientsOf(list), err
}

// Or is c with a rate for each client whose rule has none, and for those without a rule.
func (c Clients) Or(rate units.Rate) (Clients, error) {
	list, err := c.rules()
	for _, everybody := range []string{"0.0.0.0/0", "::/0"} {
		prefix := netip.MustParsePrefix(everybody)
		if !slices.ContainsFunc(list, func(c shaper.Client) bool { return c.Prefix == prefix }) {
			list = append(list, shaper.Client{Prefix: prefix, Weight: 1})
		}
	}
	for i := range list {
		if list[i].Rate == 0 {
			list[i].Rate = rate
		}
	}
	return clientsOf(list), err
}

// Longest6 is how many bits the longest of its IPv6 prefixes has; 0 where there is none.
func (c Clients) Longest6() (bits uint8) {
	list, _ := c.rules()
	for _, client := range list {
		if client.Prefix.Addr().Is6() {
			bits = max(bits, uint8(client.Prefix.Bits()))
		}
	}
	return bits
}

func (c Clients) rules() (list []shaper.Client, err error) {
	if c == "" {
		return nil, nil
	}
	for _, rule := range strings.Split(string(c), ",") {
		client, err := clientOf(rule)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(list, func(c shaper.Client) bool { return c.Prefix == client.Prefix }) {
			return nil, fmt.Errorf("client %s is given twice", nameOf(client.Prefix))
		}
		list = append(list, client)
	}
	return list, nil
}

func clientOf(rule string) (client shaper.Client, err error) {
	name, says, found := strings.Cut(rule, "=")
	if !found || says == "" {
		return client, fmt.Errorf("%q is no client: write it like 10.8.0.7=20mbit or 10.8.0.0/24=weight:2", rule)
	}
	client.Weight = 1
	if client.Prefix, err = prefixOf(name); err != nil {
		return client, err
	}
	for _, word := range strings.Split(says, "/") {
		weight, isWeight := strings.CutPrefix(word, "weight:")
		if !isWeight {
			if client.Rate, err = parseRate(word); err != nil {
				return client, fmt.Errorf("client %s: %w", name, err)
			}
			continue
		}
		n, err := strconv.ParseUint(weight, 10, 32)
		if err != nil || n < 1 || n > shaper.MaxWeight {
			return client, fmt.Errorf("client %s: weight %q is not one of 1 to %d", name, weight, shaper.MaxWeight)
		}
		client.Weight = uint32(n)
	}
	return client, nil
}

func prefixOf(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil || p.Addr().Is4In6():
		return p, fmt.Errorf("%q is no address, nor a prefix like 10.8.0.0/24", text)
	case p != p.Masked():
		return p, fmt.Errorf("%s has bits beyond its length: write %s", text, p.Masked())
	}
	return p, nil
}

// nameOf is a prefix, or the address that it is.
func nameOf(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

func clientsOf(list []shaper.Client) Clients {
	list = slices.SortedFunc(slices.Values(list), func(a, b shaper.Client) int { return a.Prefix.Compare(b.Prefix) })
	var rules []string
	for _, c := range list {
		var says []string
		if c.Rate != 0 {
			says = append(says, c.Rate.String())
		}
		if c.Weight != 1 || c.Rate == 0 {
			says = append(says, fmt.Sprintf("weight:%d", c.Weight))
		}
		rules = append(rules, nameOf(c.Prefix)+"="+strings.Join(says, "/"))
	}
	return Clients(strings.Join(rules, ","))
}
