// SPDX-License-Identifier: Apache-2.0

package change

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"testing"
	"time"
	"weir/internal/hint"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
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
	unlock, err := s.lock()
	if err != nil {
		t.Fatal(err)
	}
	before, began := open(), m.clock
	if _, err := s.lock(); !errors.Is(err, ErrBusy) {
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
	if unlock, err := s.lock(); err != nil {
		t.Errorf("after the other run: %v", err)
	} else {
		unlock()
	}
	if unlock != nil || m.clock-began > 1300*time.Millisecond {
		t.Errorf("the lock was had after %v", m.clock-began)
	}
}

// Only a file system that takes nothing more is one that Weir goes on without.
func TestUnwritable(t *testing.T) {
	for err, want := range map[error]bool{unix.EROFS: true, unix.ENOSPC: true, unix.EDQUOT: true, unix.EIO: false,
		unix.EACCES: false, fmt.Errorf("write: %w", unix.EDQUOT): true} {
		if unwritable(err) != want {
			t.Errorf("%v: %v", err, !want)
		}
	}
	if unwritable(nil) {
		t.Error("no error is one")
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
			if err := (live{}).cleanQueue(device.Index, c.kept); err != nil {
				t.Errorf("%+v: %v", c, err)
			}
			if l, err := netlink.LinkByName("card"); err != nil || int(l.Attrs().GSOMaxSegs) != c.want {
				t.Errorf("%+v: %v, %d", c, err, l.Attrs().GSOMaxSegs)
			}
			if err := netlink.LinkDel(device); err != nil {
				t.Error(err)
			}
			if (live{}).cleanQueue(device.Index, c.kept) == nil {
				t.Errorf("%+v: no error for a device that is gone", c)
			}
		}
	})
}

// Of a journal that cannot be reached the refusal and its cause can both be asked.
func TestUnreachable(t *testing.T) {
	err := unreachable(&os.PathError{Op: "open", Path: "journal.json", Err: unix.EACCES})
	if refusal := (*hint.Error)(nil); !errors.As(err, &refusal) || refusal.Try == "" ||
		!errors.Is(err, fs.ErrPermission) || err.Error() != "journal: open journal.json: permission denied" {
		t.Errorf("%v", err)
	}
}
