// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"weir/internal/hint"
	"weir/internal/host"
	"weir/internal/qdisc"
)

// Uplink is the device at which all passes that a host sends by its default route, and why that is another than the
// route's: a queue at a bridge is met by nothing that goes from port to port, and what a tunnel sends is larger below
// it. It is an error if a person has to choose.
func Uplink(f host.Facts) (dev, why string, err error) {
	dev = f.Uplink
	for seen := []string{}; !slices.Contains(seen, dev); {
		seen = append(seen, dev)
		below, because, err := deviceBelow(f, dev)
		if err != nil {
			return "", "", err
		}
		if below == dev {
			break
		}
		dev, why = below, strings.TrimPrefix(why+"; "+because, "; ")
	}
	return dev, why, nil
}

// WayOut is Uplink, or the default route's own device where a person has to choose.
func WayOut(f host.Facts) string {
	if dev, _, err := Uplink(f); err == nil {
		return dev
	}
	return f.Uplink
}

// deviceBelow is the device by which all leaves that goes by another; the same if that is it.
func deviceBelow(f host.Facts, name string) (dev, why string, err error) {
	link, there := f.Link(name)
	choose := func(what string, names []string) error {
		return &hint.Error{What: what, Try: "--dev, one of: " + strings.Join(names, ", ")}
	}
	switch {
	case !there:
	case link.Kind == "bridge":
		ports := slices.DeleteFunc(outwardPorts(f), func(l host.Link) bool { return l.Master != name })
		switch len(ports) {
		case 0:
		case 1:
			return ports[0].Name, fmt.Sprintf("%s is a bridge: what goes from port to port does not pass its "+
				"queue, and all that leaves passes %s",
				name, ports[0].Name), nil
		default:
			return "", "", choose(fmt.Sprintf("%s is a bridge of several cards, and what goes from port to port "+
				"does not pass its queue", name), namesOf(ports))
		}
	case link.Kind == "openvswitch":
		return "", "", choose(name+" is a port of Open vSwitch, which does not say by which card it leaves",
			namesOf(outwardLinks(f)))
	case link.Kind == "vlan" || link.Kind == "macvlan" || link.Kind == "ipvlan":
		parent, seen := f.Link(link.Parent)
		shared := slices.ContainsFunc(f.Links, func(l host.Link) bool {
			return l.Parent == link.Parent &&
				l.Name != name && l.Up
		})
		if seen && (shared || slices.ContainsFunc(parent.Addrs, isAssigned) || parent.Master != "") {
			return parent.Name, fmt.Sprintf("%s shares %s with others", name, parent.Name), nil
		}
	case tunnelKind(link) != "":
		switch cards := carriers(f, link); len(cards) {
		case 0:
		case 1:
			return cards[0].Name, fmt.Sprintf("%s is a tunnel, whose packets leave by %s", name, cards[0].Name), nil
		default:
			return "", "", choose(name+" is a tunnel, and its packets may leave by several cards", namesOf(cards))
		}
	}
	return name, "", nil
}

// carriers are the devices by which a tunnel's packets may leave. Where the kernel does not say by which, a default
// route that is no tunnel's leads there.
func carriers(f host.Facts, tunnel host.Link) (links []host.Link) {
	if parent, seen := f.Link(tunnel.Parent); seen {
		return []host.Link{parent}
	}
	for _, ipv6 := range []bool{false, true} {
		route := slices.IndexFunc(f.Defaults, func(r host.DefaultRoute) bool {
			l, there := f.Link(r.Dev)
			return there && r.IPv6 == ipv6 && r.Table == 0 && tunnelKind(l) == "" && !l.Loopback
		})
		if route >= 0 {
			l, _ := f.Link(f.Defaults[route].Dev)
			links = append(links, l)
		}
	}
	if len(links) == 2 && links[0].Name == links[1].Name || len(links) == 1 {
		return links[:1]
	}
	return slices.DeleteFunc(outwardLinks(f), func(l host.Link) bool { return len(l.Addrs) == 0 })
}

// Leaving are the devices that what leaves by one passes: that first, then those to which filters lead most of it, and
// what is below it, such as the ports of a bridge. Where it may be one of several, only those are listed in which
// something waits or was dropped lately.
func Leaving(f host.Facts, dev string) (links []host.Link) {
	link, there := f.Link(dev)
	if !there {
		return nil
	}
	links = []host.Link{link}
	for i := 0; i < len(links); i++ {
		for _, l := range slices.Concat(ledOut(f, links[i]), lowerDevices(f, links[i])) {
			if !slices.ContainsFunc(links, func(known host.Link) bool { return known.Name == l.Name }) {
				links = append(links, l)
			}
		}
	}
	return links
}

// ledOut are the devices to which filters lead what leaves by one, as far as half as much has passed there.
func ledOut(f host.Facts, link host.Link) (links []host.Link) {
	stats := func(l host.Link) qdisc.Stats {
		root, _ := l.Tree.Root()
		return root.Stats
	}
	for _, name := range link.LedOut {
		l, there := f.Link(name)
		here, to := stats(link), stats(l)
		passed, led := here.Bytes, to.Bytes
		if here.Recent.Bytes > 0 || to.Recent.Bytes > 0 {
			passed, led = here.Recent.Bytes, to.Recent.Bytes
		}
		if there && 2*led >= passed {
			links = append(links, l)
		}
	}
	return links
}

// ledNotes say of filters that lead what leaves by a device to others, what that means for a queue at its root.
func ledNotes(f host.Facts, link host.Link) (notes []Note) {
	for _, name := range link.LedOut {
		to, there := f.Link(name)
		switch {
		case !there:
		case to.Kind != "ifb": // of which alone all comes back
			notes = append(notes, warning(link.Name, "filters lead what leaves, or some of it, to %s: that does not "+
				"pass %s's queue. For that one, too:  weir plan --dev %s --rate …", name, link.Name, name))
		case to.Tree.Rate() != 0:
			notes = append(notes, warning(link.Name, "filters lead what leaves, or some of it, through %s first, "+
				"which lets %s pass. They stay as they are", name, to.Tree.Rate()))
		}
	}
	return notes
}

// lowerDevices are the devices right below one.
func lowerDevices(f host.Facts, link host.Link) (links []host.Link) {
	port := func(l host.Link) bool { return l.Master == link.Name && l.Up }
	filtered := func(links []host.Link, is func(host.Link) bool) []host.Link {
		return slices.DeleteFunc(slices.Clone(links), func(l host.Link) bool { return !is(l) })
	}
	switch {
	case tunnelKind(link) != "":
		links = carriers(f, link)
	case link.Kind == "bridge":
		if links = filtered(outwardPorts(f), port); len(links) == 0 {
			links = filtered(f.Links, port)
		}
	case link.Kind == "openvswitch": // a port of no kernel's bridge: the cards have the datapath for a master
		links = filtered(outwardPorts(f), func(l host.Link) bool {
			master, _ := f.Link(l.Master)
			return master.Kind == link.Kind
		})
	case link.Kind == "bond" || link.Kind == "team": // all of them carry it
		return filtered(f.Links, port)
	default:
		links = filtered(f.Links, func(l host.Link) bool { return l.Name == link.Parent })
	}
	if len(links) < 2 {
		return links
	}
	return filtered(links, func(l host.Link) bool {
		root, _ := l.Tree.Root()
		return root.Stats.Backlog > 0 || root.Stats.Recent.Drops > 0
	})
}

// isAssigned reports whether an address is one that somebody has given a device: the kernel gives each that is up a
// link-local one of IPv6 by itself.
func isAssigned(addr string) bool {
	prefix, err := netip.ParsePrefix(addr)
	return err != nil || !prefix.Addr().Is6() || !prefix.Addr().IsLinkLocalUnicast()
}

// Passing returns of each link, by its index, whether what leaves by it may pass a device. What leaves by another card,
// or a bridge to containers, does not. Of a tunnel that is not known, so it may.
func Passing(links []host.Link, dev string) map[int]bool {
	kinds := []string{"", "bond", "team", "vlan", "macvlan", "ipvlan", "bridge", "veth"}
	may := map[int]bool{}
	for _, l := range links {
		may[l.Index] = !slices.Contains(kinds, l.Kind) || mayPass(links, l, dev, nil)
	}
	return may
}

// mayPass leaves out links that were asked before.
func mayPass(links []host.Link, l host.Link, dev string, before []string) bool {
	if l.Name == dev || l.Kind == "openvswitch" || tunnelKind(l) != "" {
		return true
	}
	before = append(before, l.Name)
	return slices.ContainsFunc(links, func(below host.Link) bool {
		return (below.Name == l.Parent || below.Master == l.Name) && !slices.Contains(before, below.Name) &&
			mayPass(links, below, dev, before)
	})
}

// outwardLinks are the links by which a host can be left, as they have addresses: cards, what is made of them, and
// bridges.
func outwardLinks(f host.Facts) (links []host.Link) {
	for _, l := range f.Links {
		if l.Up && !l.Loopback && l.Master == "" && slices.Contains([]string{"", "bond", "team", "vlan", "bridge"},
			l.Kind) &&
			(l.Kind != "bridge" || slices.ContainsFunc(outwardPorts(f),
				func(p host.Link) bool { return p.Master == l.Name })) {
			links = append(links, l)
		}
	}
	return links
}

// outwardPorts are those ports of bridges that lead to cards, and not to guests.
func outwardPorts(f host.Facts) (links []host.Link) {
	for _, l := range f.Links {
		if l.Up && l.Master != "" && slices.Contains([]string{"", "bond", "team", "vlan"}, l.Kind) {
			links = append(links, l)
		}
	}
	return links
}

func namesOf(links []host.Link) (names []string) {
	for _, l := range links {
		names = append(names, l.Name)
	}
	return names
}

// OtherUplinks says of each other device with a default route that this plan leaves it as it is.
func OtherUplinks(f host.Facts, planned ...string) (notes []Note) {
	for _, r := range f.Defaults {
		of := f
		of.Uplink = r.Dev
		dev, _, err := Uplink(of)
		if err != nil || slices.Contains(planned, dev) || slices.Contains(planned, r.Dev) ||
			slices.ContainsFunc(notes, func(n Note) bool { return n.Subject == r.Dev }) {
			continue
		}
		notes = append(notes, warning(r.Dev, "has a default route, too (%s): what leaves by it is left as it is; "+
			"for that one, too:  weir up --dev %s --rate …", r, dev))
	}
	return notes
}
