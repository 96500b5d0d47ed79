// SPDX-License-Identifier: Apache-2.0

package change

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/internal/dualpi2"
	"weir/internal/host"
	"weir/internal/kernel"
	"weir/internal/plan"
	"weir/internal/qdisc"
)

// machine is what is changed. The tests have one that fails when told to.
type machine interface {
	admin() bool // this process may change networks
	uid() int    // of who runs this process
	facts() (host.Facts, error)
	tree(c *qdisc.Conn, link int) (qdisc.Tree, error) // of one device, which is little of facts
	// the live connections, but for those that leave by a device that is said not to pass
	path(f host.Facts, pass map[int]bool) host.Sockets
	droppers(f host.Facts) []host.Dropper // filters whose actions drop; those that cannot be read are left out
	kernel.Machine
	writable(path string) error // why a file could not be written, for all that can be told before
	sweep(path string)          // away with what a run that was killed has written of it
	reload(done []plan.Change)  // tells those who have read the files that were changed
}

// live is the host in the network namespace of the calling thread.
type live struct{}

func (live) admin() bool { return host.Admin() }

func (live) uid() int { return os.Geteuid() }

func (live) facts() (host.Facts, error) { return host.Read() }

// tree goes by a socket that is open: a thread may have another network namespace by now.
func (live) tree(c *qdisc.Conn, link int) (qdisc.Tree, error) { return c.Tree(link) }

func (live) path(f host.Facts, pass map[int]bool) host.Sockets { return host.ReadPath(f, pass) }

func (live) droppers(f host.Facts) []host.Dropper {
	found, _ := host.ReadDroppers(f.Links)
	return found
}

func (live) SetTree(link int, stack qdisc.Stack) error {
	conn, err := qdisc.Dial(0)
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.Set(link, stack)
}

// SetIngress is about what arrives; an empty one takes it away.
func (live) SetIngress(link int, a qdisc.Arriving) error { return qdisc.SetIngress(link, a) }

func (live) RestoreTree(link int, tree qdisc.Tree) error {
	conn, err := qdisc.Dial(0)
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.Restore(link, tree)
}

func (live) CleanQueue(link int, before qdisc.Tree, gsoSegs int) error {
	conn, err := qdisc.Dial(0)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.Clean(link, before); err != nil {
		return err
	}
	tree, err := conn.Tree(link)
	if root, _ := tree.Root(); err != nil || strings.HasPrefix(root.Kind, dualpi2.Prefix) ||
		slices.Contains(qdisc.BPFKinds(), root.Kind) {
		return err // it is in place: of this goal, or again of the one before
	}
	// One segment at a time is what such a queue asks for, and nobody else.
	l, err := netlink.LinkByIndex(link)
	if err != nil || l.Attrs().GSOMaxSegs != 1 || gsoSegs <= 1 {
		return err
	}
	return netlink.LinkSetGSOMaxSegs(l, gsoSegs)
}

func (live) SetSysctl(name, value string) error {
	path := host.SysctlPath(name)
	// Not os.WriteFile, which would create a file where the setting does not exist.
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return withoutPath(err)
	}
	_, err = f.WriteString(value)
	if err := errors.Join(err, f.Close()); err != nil {
		return withoutPath(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return withoutPath(err)
	}
	if now := strings.Join(strings.Fields(string(text)), " "); now != value {
		return fmt.Errorf("the kernel took it and reports %s", now)
	}
	return nil
}

// withoutPath leaves out the path, which the name of the setting says already.
func withoutPath(err error) error {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}
