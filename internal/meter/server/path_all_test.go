// SPDX-License-Identifier: Apache-2.0

//go:build all && linux

package server

// In make test-all: probes wait for answers in real time, in namespaces of this host.

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"weir/internal/meter"
)

// between is three hosts in a row, each a network namespace: a client, a router, and a server.
type between struct {
	client, router, server netns.NsHandle
}

// inside runs f on a thread that is in a namespace, and ends with it.
func inside(t *testing.T, ns netns.NsHandle, f func() error) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked
		err := netns.Set(ns)
		if err == nil {
			err = f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func newBetween(t *testing.T) (b between) {
	t.Helper()
	for _, ns := range []*netns.NsHandle{&b.client, &b.router, &b.server} {
		done := make(chan error)
		go func() {
			runtime.LockOSThread() // never unlocked: the thread ends, and the handle keeps the namespace
			var err error
			*ns, err = netns.New()
			done <- err
		}()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ns.Close() })
	}
	b.wire(t, b.client, "client", "192.0.2.", "2001:db8:1::")
	b.wire(t, b.server, "server", "198.51.100.", "2001:db8:2::")
	inside(t, b.router, func() error {
		for _, name := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
			if err := os.WriteFile("/proc/sys/net/"+name, []byte("1"), 0); err != nil {
				return err
			}
		}
		return nil
	})
	return b
}

// wire joins a host with the router, which is 1 in each network; the host is 2.
func (b between) wire(t *testing.T, host netns.NsHandle, name, v4, v6 string) {
	t.Helper()
	at, err := netlink.NewHandleAt(b.router)
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	there, err := netlink.NewHandleAt(host)
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "to-" + name
	link := &netlink.Veth{LinkAttrs: attrs, PeerName: "up0", PeerNamespace: netlink.NsFd(host)}
	if err := at.LinkAdd(link); err != nil {
		t.Fatal(err)
	}
	lo, err := there.LinkByName("lo")
	if err == nil {
		err = there.LinkSetUp(lo)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, end := range []struct {
		handle *netlink.Handle
		device string
		number int
	}{{at, "to-" + name, 1}, {there, "up0", 2}} {
		l, err := end.handle.LinkByName(end.device)
		if err != nil {
			t.Fatal(err)
		}
		for _, address := range []string{fmt.Sprintf("%s%d/24", v4, end.number),
			fmt.Sprintf("%s%d/64", v6, end.number)} {
			a, err := netlink.ParseAddr(address)
			if err != nil {
				t.Fatal(err)
			}
			a.Flags = unix.IFA_F_NODAD
			if err := end.handle.AddrAdd(l, a); err != nil {
				t.Fatal(err)
			}
		}
		if err := end.handle.LinkSetUp(l); err != nil {
			t.Fatal(err)
		}
	}
	for _, via := range []string{v4 + "1", v6 + "1"} {
		if err := there.RouteAdd(&netlink.Route{Gw: net.ParseIP(via)}); err != nil {
			t.Fatal(err)
		}
	}
}

// mtu sets how long packets may be that the router sends to a host.
func (b between) mtu(t *testing.T, name string, bytes int) {
	t.Helper()
	at, err := netlink.NewHandleAt(b.router)
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	l, err := at.LinkByName("to-" + name)
	if err == nil {
		err = at.LinkSetMTU(l, bytes)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// rule is what the router does to packets that come from a host.
type rule struct {
	from string
	mask byte // bits of DSCP and ECN that stay
	drop byte // packets with one of these bits are dropped
}

// rules replaces the router's.
func (b between) rules(t *testing.T, rules []rule) {
	t.Helper()
	c, err := nftables.New(nftables.WithNetNSFd(int(b.router)))
	if err != nil {
		t.Fatal(err)
	}
	c.FlushRuleset()
	for _, family := range []nftables.TableFamily{nftables.TableFamilyIPv4, nftables.TableFamilyIPv6} {
		table := c.AddTable(&nftables.Table{Name: "t", Family: family})
		chain := c.AddChain(&nftables.Chain{Name: "c", Table: table, Type: nftables.ChainTypeFilter,
			Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityMangle})
		for _, r := range rules {
			c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: r.exprs(family == nftables.TableFamilyIPv6)})
		}
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
}

func (r rule) exprs(v6 bool) []expr.Any {
	name := make([]byte, unix.IFNAMSIZ)
	copy(name, "to-"+r.from)
	// The first two bytes of a header: version, length and TOS; or version, traffic class and part of the label.
	both := func(tos byte) []byte {
		if v6 {
			return binary.BigEndian.AppendUint16(nil, uint16(tos)<<4)
		}
		return []byte{0, tos}
	}
	whole := binary.BigEndian.AppendUint16(nil, ^binary.BigEndian.Uint16(both(^r.mask)))
	all := []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: name},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 0, Len: 2},
	}
	if r.drop != 0 {
		return append(all,
			&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 2, Mask: both(r.drop), Xor: []byte{0, 0}},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: []byte{0, 0}},
			&expr.Verdict{Kind: expr.VerdictDrop})
	}
	write := &expr.Payload{OperationType: expr.PayloadWrite, SourceRegister: 1, Base: expr.PayloadBaseNetworkHeader,
		Offset: 0, Len: 2}
	if !v6 {
		write.CsumType, write.CsumOffset = expr.CsumTypeInet, 10
	}
	return append(all,
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 2, Mask: whole, Xor: []byte{0, 0}}, write)
}

// TestPathClient is no test of its own, but the client of TestPath in a namespace.
func TestPathClient(t *testing.T) {
	addr := os.Getenv("WEIR_TEST_PATH")
	if addr == "" {
		t.Skip("skipped here: only TestPath runs it")
	}
	if hosts := os.Getenv("WEIR_TEST_HOSTS"); hosts != "" { // this process has mounts of its own
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount(hosts, "/etc/hosts", "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	rec, err := meter.Measure(ctx, meter.Target{Addr: addr, Token: "secret", Pin: os.Getenv("WEIR_TEST_PIN")},
		meter.Options{Time: 10 * time.Second, Conns: 1, Progress: func(p meter.Progress) {
			if p.Phase == meter.Idle {
				cancel()
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	json.NewEncoder(os.Stdout).Encode(meter.Summarize(rec))
}

// look is what a client finds.
func (b between) look(t *testing.T, addr, hosts, pin string) []meter.Path {
	t.Helper()
	var out bytes.Buffer
	inside(t, b.client, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		c := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestPathClient$")
		c.Env = append(os.Environ(), "WEIR_TEST_PATH="+addr, "WEIR_TEST_HOSTS="+hosts, "WEIR_TEST_PIN="+pin)
		c.SysProcAttr = &unix.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
		c.Stdout, c.Stderr = &out, os.Stderr
		if err := c.Run(); err != nil {
			return fmt.Errorf("%w: %s", err, out.String())
		}
		return nil
	})
	var r meter.Result
	if err := json.NewDecoder(&out).Decode(&r); err != nil {
		t.Fatal(err)
	}
	for i := range r.Paths {
		if r.Paths[i].RTT <= 0 {
			t.Errorf("%s: %s is not answered", addr, r.Paths[i].Address)
		}
		r.Paths[i].RTT = 0
	}
	return r.Paths
}

// A real router clears, changes and drops what it is told to, by either protocol, and both ends find out.
func TestPath(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped, not passed: network namespaces need root")
	}
	b := newBetween(t)
	kept, err := Keep(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var tcp net.Listener
	var udp net.PacketConn
	inside(t, b.server, func() (err error) {
		// Go knows of the first namespace's IPv6 alone, so it is told that these speak both.
		both := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
			if e := c.Control(func(fd uintptr) {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0)
			}); e != nil {
				err = e
			}
			return err
		}}
		if tcp, err = both.Listen(context.Background(), "tcp6", "[::]:4747"); err == nil {
			udp, err = both.ListenPacket(context.Background(), "udp6", "[::]:4747")
		}
		return err
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	limits := DefaultLimits()
	limits.Tests = 2 // one by each protocol
	s := New(Config{Limits: limits, Token: "secret", Certificate: kept.Certificate, Name: "here"})
	go func() { done <- s.Serve(ctx, tcp, udp) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	b.pathCases(t, kept.Fingerprint)

	// A name with addresses of both families.
	b.rules(t, nil)
	b.mtu(t, "server", 1500)
	hosts := filepath.Join(t.TempDir(), "hosts")
	names := []byte("198.51.100.2 both.example\n2001:db8:2::2 both.example\n")
	if err := os.WriteFile(hosts, names, 0o644); err != nil {
		t.Fatal(err)
	}
	paths := b.look(t, "both.example:4747", hosts, kept.Fingerprint)
	if len(paths) != 2 || paths[0].Family == paths[1].Family || !paths[0].Used || paths[1].Used ||
		paths[1].There.MTU != 1500 || paths[1].There.ECN != meter.Kept {
		t.Errorf("%+v", paths)
	}
}

func (b between) pathCases(t *testing.T, pin string) {
	way := func(ecn, dscp meter.Fate, mtu, above int) meter.Way {
		return meter.Way{ECN: ecn, DSCP: dscp, MTU: mtu, Above: above}
	}
	whole := way(meter.Kept, meter.Kept, 1500, 0)
	for _, c := range []struct {
		name        string
		rules       []rule
		mtu         int
		there, back meter.Way
	}{
		{"whole", nil, 1500, whole, whole},
		{"DSCP is cleared there, ECN back", []rule{{"client", 0x03, 0}, {"server", 0xfc, 0}}, 1500,
			way(meter.Kept, meter.Cleared, 1500, 0), way(meter.Cleared, meter.Kept, 1500, 0)},
		{"the old TOS", []rule{{"client", 0x1f, 0}}, 1500, way(meter.Kept, meter.Changed, 1500, 0), whole},
		{"ECN is dropped there", []rule{{"client", 0, 0x03}}, 1500, way(meter.Dropped, meter.Kept, 1500, 0),
			way("", meter.Kept, 1500, 0)},
		{"a tunnel", nil, 1423, way(meter.Kept, meter.Kept, 1423, 1424), way(meter.Kept, meter.Kept, 1423, 0)},
	} {
		b.rules(t, c.rules)
		b.mtu(t, "server", c.mtu)
		for family, addr := range map[string]string{"IPv4": "198.51.100.2:4747", "IPv6": "[2001:db8:2::2]:4747"} {
			paths := b.look(t, addr, "", pin)
			if len(paths) != 1 {
				t.Errorf("%s by %s: %+v", c.name, family, paths)
				continue
			}
			p := paths[0]
			// On a busy machine the time may be over before a length is known to a byte.
			if most, above := p.There.MTU, p.There.Above; c.there.Above > 0 && most > 1400 && most <= c.there.MTU &&
				above >= c.there.Above {
				p.There.MTU, p.There.Above, p.Back.MTU = c.there.MTU, c.there.Above, c.back.MTU
			}
			if p.Family != family || !p.Used || p.There != c.there || p.Back != c.back {
				t.Errorf("%s by %s: %+v there, %+v back", c.name, family, p.There, p.Back)
			}
		}
	}
}
