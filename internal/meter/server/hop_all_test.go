// SPDX-License-Identifier: Apache-2.0

//go:build all && linux

package server

// In make test-all: a hop answers within real time, in namespaces of this host.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/internal/meter"
)

// TestHopClient is no test of its own, but the client of TestHop in a namespace.
func TestHopClient(t *testing.T) {
	addr := os.Getenv("WEIR_TEST_HOP")
	if addr == "" {
		t.Skip("skipped here: only TestHop runs it")
	}
	const nobody = 65534
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(nobody), syscall.Setuid(nobody)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	json.NewEncoder(os.Stdout).Encode(meter.AskHop(ctx, addr, time.Now())())
}

// hop is what a client without privileges finds.
func (b between) hop(t *testing.T, addr string) (seen *meter.HopSeen) {
	t.Helper()
	var out bytes.Buffer
	inside(t, b.client, func() error {
		c := exec.Command(os.Args[0], "-test.run=^TestHopClient$")
		c.Env = append(os.Environ(), "WEIR_TEST_HOP="+addr)
		c.Stdout, c.Stderr = &out, os.Stderr
		return c.Run()
	})
	if err := json.NewDecoder(&out).Decode(&seen); err != nil {
		t.Fatal(err)
	}
	return seen
}

// The first router on the way is found and answers, by either protocol. Where there is none, or where the host does not
// let its users ask, nothing is known and nothing fails.
func TestHop(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped, not passed: network namespaces need root")
	}
	b := newBetween(t)
	at, err := netlink.NewHandleAt(b.router)
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	client, err := netlink.NewHandleAt(b.client)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	// A home's router of IPv6 is known by an address of the link, and may be that of IPv4, too.
	near, err := at.LinkByName("to-client")
	if err != nil {
		t.Fatal(err)
	}
	up, err := client.LinkByName("up0")
	if err != nil {
		t.Fatal(err)
	}
	local := net.ParseIP("fe80::1")
	if err := at.AddrAdd(near, &netlink.Addr{IPNet: &net.IPNet{IP: local, Mask: net.CIDRMask(64, 128)},
		Flags: unix.IFA_F_NODAD}); err != nil {
		t.Fatal(err)
	}
	for _, r := range []netlink.Route{
		{Dst: prefix("2001:db8:3::/64"), Gw: local, LinkIndex: up.Attrs().Index},
		{Dst: prefix("203.0.113.0/24"), Via: &netlink.Via{AddrFamily: unix.AF_INET6, Addr: local},
			LinkIndex: up.Attrs().Index},
	} {
		if err := client.RouteAdd(&r); err != nil {
			t.Fatal(err)
		}
	}
	allow := func(groups string) {
		t.Helper()
		inside(t, b.client, func() error {
			return os.WriteFile("/proc/sys/net/ipv4/ping_group_range", []byte(groups), 0)
		})
	}
	allow("0 2147483647")
	for _, c := range []struct{ name, to, want string }{
		{"IPv4", "198.51.100.2:4747", "192.0.2.1"},
		{"IPv6", "[2001:db8:2::2]:4747", "2001:db8:1::1"},
		{"an address of the link", "[2001:db8:3::2]:4747", "fe80::1%up0"},
		{"IPv4 by a router of IPv6", "203.0.113.2:4747", "fe80::1%up0"},
		{"on the same link", "192.0.2.1:4747", ""},
		{"this host", "127.0.0.1:4747", ""},
	} {
		seen := b.hop(t, c.to)
		if seen == nil || c.want == "" {
			if seen != nil || c.want != "" {
				t.Errorf("%s: %+v, want %q", c.name, seen, c.want)
			}
			continue
		}
		answered := 0
		for _, p := range seen.Pings {
			if p.RTT >= 0 {
				answered++
			}
		}
		if seen.Address != c.want || seen.Wireless || answered == 0 {
			t.Errorf("%s: %+v, want %q", c.name, seen, c.want)
		}
	}
	if seen := meter.AskHop(context.Background(), "", time.Now())(); seen != nil {
		t.Errorf("no address: %+v", seen)
	}
	allow("1 0")
	if seen := b.hop(t, "198.51.100.2:4747"); seen != nil {
		t.Errorf("a user who may not ask has %+v", seen)
	}
}

func prefix(text string) *net.IPNet {
	_, p, err := net.ParseCIDR(text)
	if err != nil {
		panic(err)
	}
	return p
}
