// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"weir/internal/lab/scenario"
	"weir/internal/traffic"
)

// Nets of a relay with one card, beside those of every topology: the origin's, and the one inside tunnels.
const (
	originNet = 2
	innerNet  = 8
)

// What tunnels leave of a link's MTU: WireGuard's own default, which has room for IPv6 outside (wg-quick(8)).
const tunnelMTU = 1420

// The names of tunnels' devices, at the server and at clients.
const (
	wgDevice  = "wg0"
	tunDevice = "tun0"
)

const (
	wgPort  = 51820
	tunPort = 7000
)

// innerVersion is the version of IP that connections through the relay are of.
func innerVersion(s scenario.Scenario) version { return version(s.Relay.IP) }

// versions are those that the relay and its origin speak: the path's and, if that is another, the one inside tunnels.
func versions(s scenario.Scenario) []version {
	return slices.Compact([]version{version(s.Path.IP), innerVersion(s)})
}

// layOrigin puts the origin beyond the uplink, behind the router that the clients are behind.
func (t *topology) layOrigin(job scenario.Job, router space) error {
	s := job.Scenario
	var err error
	if t.origin, err = t.space(); err != nil {
		return err
	}
	for i, v := range versions(s) {
		mine, gateway := v.addr(originNet, 0, 1), v.addr(originNet, 0, 254)
		near, beyond := v.addr(9, 0, 1), v.addr(9, 0, 2)
		if i == 0 {
			err = cable(router, "out0", gateway, 1, t.origin, scenario.Uplink, mine)
		} else {
			err = errors.Join(
				join(router, "out0", gateway, t.origin, scenario.Uplink, mine),
				join(t.provider, t.limiter, near, router, "in0", beyond),
				join(t.server, scenario.Uplink, v.addr(0, 0, 1), t.provider, doorUp, v.addr(0, 0, 254)),
				router.route("default", near), t.server.route("default", v.addr(0, 0, 254)),
				router.sysctl(v.forwarding()), t.provider.sysctl(v.forwarding()))
		}
		err = errors.Join(err, t.origin.route("default", gateway), t.provider.route(v.subnets(originNet), beyond))
		if slices.ContainsFunc(s.Client, func(c scenario.Client) bool { return s.Via(c.Name) != scenario.Proxy }) {
			err = errors.Join(err, t.server.sysctl(v.forwarding()))
		}
		if err != nil {
			return fmt.Errorf("origin: %w", err)
		}
	}
	t.source = []traffic.Host{{NetNS: t.origin.fd, Addr: innerVersion(s).addr(originNet, 0, 1)}}
	if s.Relay.RTT > 0 { // on the way to the origin: of a download, on that of the ACKs
		if err := router.qdisc("out0", fmt.Sprintf("netem limit 200000 delay %v", s.Relay.RTT)); err != nil {
			return err
		}
	}
	return errors.Join(t.origin.sysctl(roomyBuffers), t.origin.sysctl(s.Relay.Sysctl), segment(t.origin,
		scenario.Uplink))
}

// relay lets clients reach the origin by way of the server, each as it does.
func (t *topology) relay(job scenario.Job) error {
	s := job.Scenario
	for i := range s.Client {
		if err := segment(t.hosts[i], scenario.Uplink); err != nil {
			return err
		}
	}
	t.through = slices.Clone(t.clients)
	steps := []func() error{
		func() error { return t.masquerade(s) },
		func() error { return t.wireguard(s) },
		func() error { return t.userspace(s) },
		func() error { return t.proxy(s) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// clientsVia returns the clients that come by one way.
func clientsVia(s scenario.Scenario, via string) (clients []int) {
	for i, c := range s.Client {
		if s.Via(c.Name) == via {
			clients = append(clients, i)
		}
	}
	return clients
}

// ports are those of what goes through the relay from clients that come by one way.
func ports(s scenario.Scenario, via string) (all []int) {
	for i, f := range s.Flow {
		if f.Leg == scenario.Through && s.Via(f.Client) == via {
			all = append(all, flowPort(i))
		}
	}
	for i, p := range s.Probe {
		if p.Leg == scenario.Through && s.Via(p.Client) == via {
			all = append(all, probePort(s, i))
		}
	}
	return all
}

// masquerade gives what leaves by the uplink the server's address, and sends what comes for the ports of NAT's
// clients on to the origin.
func (t *topology) masquerade(s scenario.Scenario) error {
	uplink := make([]byte, unix.IFNAMSIZ)
	copy(uplink, scenario.Uplink)
	for _, v := range versions(s) {
		family, protocol := nftables.TableFamilyIPv4, uint32(unix.NFPROTO_IPV4)
		if v == 6 {
			family, protocol = nftables.TableFamilyIPv6, unix.NFPROTO_IPV6
		}
		c, err := nftables.New()
		if err != nil {
			return err
		}
		table := c.AddTable(&nftables.Table{Family: family, Name: "nat"})
		out := c.AddChain(&nftables.Chain{Name: "post", Table: table, Type: nftables.ChainTypeNAT,
			Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource})
		c.AddRule(&nftables.Rule{Table: table, Chain: out, Exprs: []expr.Any{
			&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: uplink},
			&expr.Masq{}}})
		if v == version(s.Path.IP) {
			in := c.AddChain(&nftables.Chain{Name: "pre", Table: table, Type: nftables.ChainTypeNAT,
				Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityNATDest})
			for _, port := range ports(s, scenario.NAT) {
				c.AddRule(&nftables.Rule{Table: table, Chain: in, Exprs: []expr.Any{
					&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},
					&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: uplink},
					&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
					&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{byte(port >> 8), byte(port)}},
					&expr.Immediate{Register: 1, Data: v.addr(originNet, 0, 1).AsSlice()},
					&expr.NAT{Type: expr.NATTypeDestNAT, Family: protocol, RegAddrMin: 1}}})
			}
		}
		if err := c.Flush(); err != nil {
			return fmt.Errorf("nftables: %w", err)
		}
	}
	return nil
}

// enter gives a client's end of a tunnel its address and sends what is for the origin into it.
func (t *topology) enter(s scenario.Scenario, i int, device string) error {
	v := innerVersion(s)
	t.through[i].Addr = v.addr(innerNet, 0, i+1)
	return errors.Join(t.hosts[i].bringUpTunnel(device, t.through[i].Addr),
		t.hosts[i].route(v.subnets(originNet), v.addr(innerNet, 0, 254)))
}

// bringUpTunnel brings an end of a tunnel up.
func (s space) bringUpTunnel(device string, addr netip.Addr) error {
	l, err := s.links.LinkByName(device)
	if err != nil {
		return err
	}
	return errors.Join(s.links.LinkSetMTU(l, tunnelMTU), s.links.LinkSetUp(l), s.address(l, addr))
}

func (t *topology) wireguard(s scenario.Scenario) error {
	clients := clientsVia(s, scenario.WireGuard)
	if len(clients) == 0 {
		return nil
	}
	own, err := wgtypes.GeneratePrivateKey()
	if err != nil {
		return err
	}
	var peers []wgtypes.PeerConfig
	for _, i := range clients {
		key, err := wgtypes.GeneratePrivateKey()
		if err != nil {
			return err
		}
		server := wgtypes.PeerConfig{PublicKey: own.PublicKey(),
			Endpoint: &net.UDPAddr{IP: t.addr(0, 0, 1).AsSlice(), Port: wgPort},
			AllowedIPs: []net.IPNet{{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)},
				{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}}}
		if err := errors.Join(t.hosts[i].wireguard(key, server), t.enter(s, i, wgDevice)); err != nil {
			return fmt.Errorf("WireGuard: %w", err)
		}
		address := t.through[i].Addr
		peers = append(peers,
			wgtypes.PeerConfig{PublicKey: key.PublicKey(), Endpoint: &net.UDPAddr{IP: t.clients[i].Addr.AsSlice(),
				Port: wgPort},
				AllowedIPs: []net.IPNet{
					{IP: address.AsSlice(), Mask: net.CIDRMask(address.BitLen(), address.BitLen())}}})
	}
	t.tunnel = wgDevice
	return errors.Join(t.server.wireguard(own, peers...),
		t.server.bringUpTunnel(wgDevice, innerVersion(s).addr(innerNet, 0, 254)))
}

func (s space) wireguard(key wgtypes.Key, peers ...wgtypes.PeerConfig) error {
	return s.in(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = wgDevice
		if err := s.links.LinkAdd(&netlink.Wireguard{LinkAttrs: attrs}); err != nil {
			return err
		}
		control, err := wgctrl.New()
		if err != nil {
			return err
		}
		defer control.Close()
		port := wgPort
		return control.ConfigureDevice(wgDevice, wgtypes.Config{PrivateKey: &key, ListenPort: &port, Peers: peers})
	})
}

// userspace makes tunnels whose packets a program carries: a tun at each end, and UDP between.
func (t *topology) userspace(s scenario.Scenario) error {
	clients := clientsVia(s, scenario.Tunnel)
	if len(clients) == 0 {
		return nil
	}
	v := innerVersion(s)
	own := netip.AddrPortFrom(t.addr(0, 0, 1), tunPort)
	var routes []string
	for _, i := range clients {
		client := netip.AddrPortFrom(t.clients[i].Addr, tunPort)
		if err := makeTun(t.hosts[i], s.Relay.TxQLen); err != nil {
			return fmt.Errorf("tunnel: %w", err)
		}
		// The client's end is not under test: its socket has room.
		if err := errors.Join(t.enter(s, i, tunDevice),
			t.helper(t.hosts[i], tunnelProgram, client.String(), strconv.Itoa(clientSndBuf),
				"*="+own.String())); err != nil {
			return fmt.Errorf("tunnel: %w", err)
		}
		routes = append(routes, t.through[i].Addr.String()+"="+client.String())
	}
	t.tunnel = tunDevice
	return errors.Join(makeTun(t.server, s.Relay.TxQLen), t.server.bringUpTunnel(tunDevice, v.addr(innerNet, 0, 254)),
		t.server.qdisc(tunDevice, s.Server.Qdisc),
		t.helper(t.server, tunnelProgram, append([]string{own.String(), strconv.Itoa(int(s.Relay.SndBuf))},
			routes...)...))
}

// proxy runs a program that ends its clients' connections and opens others to the origin.
func (t *topology) proxy(s scenario.Scenario) error {
	wanted := ports(s, scenario.Proxy)
	if len(wanted) == 0 {
		return nil
	}
	args := []string{t.addr(0, 0, 1).String(), version(s.Path.IP).addr(originNet, 0, 1).String()}
	for _, port := range wanted {
		args = append(args, strconv.Itoa(port))
	}
	return t.helper(t.server, proxyProgram, args...)
}
