// SPDX-License-Identifier: Apache-2.0

package change

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/internal/host"
	"weir/internal/journal"
	"weir/internal/kernel"
	"weir/internal/plan"
	"weir/internal/qdisc"
)

// A relay's goal on a real kernel, with this program as the one that makes the tunnel.
func TestLiveRelay(t *testing.T) {
	inNamespace(t, liveRelay)
}

// liveStore is a store in a folder, of the kernel that the test runs on.
func liveStore(dir string) Store {
	return Store{disk: journal.Store{Dir: filepath.Join(dir, "state"), Sleep: time.Sleep}, host: live{},
		timer: waitingProcess{}}
}

// openTunnel makes the device tun0. It goes when the file is closed.
func openTunnel() (fd int, err error) {
	if fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		return -1, err
	}
	request, err := unix.NewIfreq("tun0")
	if err == nil {
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err == nil {
		var l netlink.Link
		if l, err = netlink.LinkByName("tun0"); err == nil {
			err = netlink.LinkSetUp(l)
		}
	}
	if err != nil {
		unix.Close(fd)
	}
	return fd, err
}

func liveRelay(t *testing.T) {
	if err := crossLink(); err != nil {
		t.Error(err)
		return
	}
	program, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		defer unix.Close(program)
		err = unix.Bind(program, &unix.SockaddrInet4{Port: 1194})
	}
	if err != nil {
		t.Error(err)
		return
	}
	fd, err := openTunnel()
	if err != nil {
		t.Skipf("skipped, not passed: no tun device: %v", err)
	}
	defer func() { unix.Close(fd) }()
	facts := func() host.Facts {
		t.Helper()
		f, err := host.Read()
		if err != nil {
			t.Error(err)
		}
		return f
	}
	before := facts()
	if before.Qdiscs["cake"] != host.Yes || before.Ingress == host.No || before.Unpack == host.No {
		t.Skip("skipped, not passed: this kernel has not all that it takes")
	}
	s := liveStore(t.TempDir())
	status := func(how string, drifts bool) {
		t.Helper()
		if status, err := s.Status(); err != nil || status.InForce == drifts || status.Why != "" ||
			(status.Owns == "") != drifts {
			t.Errorf("%s: %+v, %v", how, status, err)
		}
	}
	up := func(goal plan.Goal, how, want string) {
		t.Helper()
		out, err := s.Up(goal, 0)
		if now := kernel.IncomingAt(facts(), "up0").String(); err != nil || len(out.Failed) > 0 || now != want {
			t.Errorf("%s: %+v, %v; what arrives passes %s", how, out, err, now)
		}
		status(how, false)
	}
	filters := func(dev string) (list []netlink.Filter) {
		t.Helper()
		l, err := netlink.LinkByName(dev)
		if err != nil {
			t.Error(err)
			return nil
		}
		list, _ = netlink.FilterList(l, netlink.HANDLE_MIN_INGRESS)
		return list
	}
	unlead := func() {
		for _, f := range filters("up0") {
			if f.Type() == "matchall" {
				if err := netlink.FilterDel(f); err != nil {
					t.Error(err)
				}
			}
		}
	}
	unmake := func() {
		if l, err := netlink.LinkByName(qdisc.IFB); err != nil || netlink.LinkDel(l) != nil {
			t.Errorf("%s: %v", qdisc.IFB, err)
		}
	}
	stop := func() { unix.Close(fd) }
	start := func() {
		t.Helper()
		if fd, err = openTunnel(); err != nil {
			t.Error(err)
		}
	}
	goal := plan.Goal{Dev: "up0", Rate: 50e6, Role: "relay", Carries: "tunnel"}
	bring := func() { t.Helper(); up(goal, "up", unpacked) }

	bring()
	stop()
	status("the tunnel goes", true)
	up(plan.Goal{}, "without the tunnel", alone)
	start()
	status("the tunnel comes back", true)
	up(plan.Goal{}, "with the tunnel", unpacked)
	unmake()
	status("the device is gone", true)
	up(plan.Goal{}, "with another device", unpacked)
	if n := len(filters("tun0")); n < 3 { // u32 lists its tables, too
		t.Errorf("%d filters at the tunnel", n)
	}

	for _, c := range []struct {
		name  string
		spoil func()
	}{
		{"in force", func() {}},
		{"without the tunnel", stop},
		{"the tunnel is another", func() { stop(); start() }},
		{"without the device", unmake},
		{"without the filter", unlead},
		{"without both", func() { unlead(); unmake() }},
		{"with nothing but what goes past", func() { stop(); unlead(); unmake() }},
	} {
		bring()
		c.spoil()
		if out, err := s.Down(Undo{}); err != nil || len(out.Failed)+len(out.Left) > 0 {
			t.Errorf("%s: down: %+v, %v", c.name, out, err)
		}
		if _, there := facts().Link("tun0"); !there {
			start()
		}
		after := facts()
		for _, l := range before.Links {
			now, there := after.Link(l.Name)
			atIngress := slices.ContainsFunc(now.Tree.Qdiscs, atIngress)
			if !there || now.Redirect != "" || len(now.Passes) > 0 || atIngress ||
				kernel.QueueOf(now.Tree).String() != kernel.QueueOf(l.Tree).String() {
				t.Errorf("%s: after down %s is %+v, was %+v", c.name, l.Name, now, l)
			}
		}
		if len(after.Links) != len(before.Links) || !reflect.DeepEqual(after.Sysctls, before.Sysctls) {
			t.Errorf("%s: after down\n%+v\nbefore\n%+v", c.name, after, before)
		}
		if _, err := os.Stat(s.disk.Path()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the journal: %v", c.name, err)
		}
	}
	if link, _ := facts().Link("tun0"); strings.Join(link.Ports, " ") != "udp/1194" {
		t.Errorf("the tunnel's ports are %v", link.Ports)
	}
}
