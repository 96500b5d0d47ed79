// SPDX-License-Identifier: Apache-2.0

package change

import (
	"errors"
	"os"
	"testing"
	"time"

	"weir/internal/journal"
	"weir/internal/plan"
	"weir/internal/qdisc"

	"github.com/vishvananda/netlink"
)

// Who waits for the lock does so for a second, then says so, and leaves no file open.
func TestLockIsWaitedFor(t *testing.T) {
	open := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	s, m := newFake(t)
	unlock, err := s.disk.Lock(journal.Patience)
	if err != nil {
		t.Fatal(err)
	}
	before, began := open(), m.clock
	if _, err := s.disk.Lock(journal.Patience); !errors.Is(err, journal.ErrBusy) {
		t.Errorf("beside another run: %v", err)
	}
	if waited := m.clock - began; waited != time.Second {
		t.Errorf("waited for %v", waited)
	}
	if after := open(); after != before {
		t.Errorf("%d files are open, and were %d", after, before)
	}
	m.slept = func() {
		if m.clock-began > 1200*time.Millisecond && unlock != nil {
			unlock()
			unlock = nil
		}
	}
	if unlock, err := s.disk.Lock(journal.Patience); err != nil {
		t.Errorf("after the other run: %v", err)
	} else {
		unlock()
	}
	if unlock != nil || m.clock-began > 1300*time.Millisecond {
		t.Errorf("the lock was had after %v", m.clock-began)
	}
}

// A slow host is still at it for seconds after weir up: weir confirm waits, and the time that is left goes on.
func TestConfirmWaits(t *testing.T) {
	s, m := newFake(t)
	must[Outcome](t)(s.Up(plan.Goal{Dev: "eth0", Rate: 50e6}, minute))
	unlock, err := s.disk.Lock(journal.Patience)
	if err != nil {
		t.Fatal(err)
	}
	began := m.clock
	m.slept = func() {
		if m.clock-began > 5*time.Second && unlock != nil {
			unlock()
			unlock = nil
		}
	}
	if _, confirmed, err := s.Confirm(); !confirmed || err != nil {
		t.Errorf("%v, %v", confirmed, err)
	}
}

// What a BPF queue has asked of its device is undone with it, unless somebody has set another number since.
func TestLiveCleanQueue(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		for _, c := range []struct{ there, kept, want int }{
			{1, 65535, 65535},
			{1, 2, 2},
			{2, 65535, 2},
			{1, 1, 1},
			{1, 0, 1}, // not known
		} {
			device := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "card"}, PeerName: "other"}
			if err := netlink.LinkAdd(device); err != nil {
				t.Error(err)
				return
			}
			if err := netlink.LinkSetGSOMaxSegs(device, c.there); err != nil {
				t.Error(err)
			}
			if err := (live{}).CleanQueue(device.Index, qdisc.Tree{}, c.kept); err != nil {
				t.Errorf("%+v: %v", c, err)
			}
			if l, err := netlink.LinkByName("card"); err != nil || int(l.Attrs().GSOMaxSegs) != c.want {
				t.Errorf("%+v: %v, %d", c, err, l.Attrs().GSOMaxSegs)
			}
			if err := netlink.LinkDel(device); err != nil {
				t.Error(err)
			}
			if (live{}).CleanQueue(device.Index, qdisc.Tree{}, c.kept) == nil {
				t.Errorf("%+v: no error for a device that is gone", c)
			}
		}
	})
}

// A setting is set where the kernel has it and reports it back; the reason is the kernel's, without the path.
func TestLiveSetSysctl(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		for _, c := range []struct{ name, value, want string }{
			{"net.ipv4.tcp_ecn", "1", ""},
			{"net.ipv4.tcp_rmem", "4096 131072 6291456", ""},
			{"net.ipv4.tcp_keepalive_time", "010", "the kernel took it and reports 8"},
			{"net.ipv4.tcp_keepalive_time", "much", "invalid argument"},
			{"net.ipv4.none", "1", "no such file or directory"},
		} {
			got := ""
			if err := (live{}).SetSysctl(c.name, c.value); err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("%s = %s: %q, want %q", c.name, c.value, got, c.want)
			}
		}
	})
}
