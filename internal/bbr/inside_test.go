// SPDX-License-Identifier: Apache-2.0

package bbr

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"weir/internal/lab/qemu/kerneltest"
)

const sysctls = "/proc/sys/net/ipv4/"

func available(t *testing.T) bool {
	t.Helper()
	text, err := os.ReadFile(sysctls + "tcp_available_congestion_control")
	if err != nil {
		t.Fatal(err)
	}
	return slices.Contains(strings.Fields(string(text)), Name)
}

// choose makes one the default of the thread's network namespace; of "" it only tells which is.
func choose(t *testing.T, name string) string {
	t.Helper()
	if name != "" {
		if err := os.WriteFile(sysctls+"tcp_congestion_control", []byte(name), 0); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(sysctls + "tcp_congestion_control")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// connection is one over the loopback device, from both ends.
type connection struct {
	*testing.T
	from, to *net.TCPConn
}

func listen(t *testing.T) *net.TCPListener {
	t.Helper()
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

func connect(t *testing.T) connection { t.Helper(); return connectTo(t, listen(t)) }

func connectTo(t *testing.T, listener *net.TCPListener) connection {
	t.Helper()
	// On this thread alone, whose network namespace it is to be.
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "")
	defer file.Close()
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: listener.Addr().(*net.TCPAddr).Port,
		Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	from, err := net.FileConn(file)
	if err != nil {
		t.Fatal(err)
	}
	to, err := listener.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	c := connection{t, from.(*net.TCPConn), to}
	t.Cleanup(c.close)
	return c
}

// accepted is the connection with the listener's end as the sender's.
func (c connection) accepted() connection { return connection{c.T, c.to, c.from} }

func (c connection) close() {
	_ = c.from.Close()
	_ = c.to.Close()
}

// option reads or sets the congestion control of the sender's end.
func (c connection) option(use func(fd int) error) error {
	c.Helper()
	raw, err := c.from.SyscallConn()
	if err != nil {
		c.Fatal(err)
	}
	var said error
	return errors.Join(raw.Control(func(fd uintptr) { said = use(int(fd)) }), said)
}

func (c connection) has() (name string) {
	c.Helper()
	if err := c.option(func(fd int) (err error) {
		name, err = unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
		return err
	}); err != nil {
		c.Fatal(err)
	}
	return strings.TrimRight(name, "\x00")
}

func (c connection) set(name string) error {
	return c.option(func(fd int) error {
		return unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, name)
	})
}

// carry fails unless so many bytes come through.
func (c connection) carry(bytes int64) {
	c.Helper()
	sent := make(chan error, 1)
	go func() {
		_, err := io.CopyN(c.from, zeros{}, bytes)
		sent <- err
	}()
	if _, err := io.CopyN(io.Discard, c.to, bytes); err != nil {
		c.Error(err)
	}
	if err := <-sent; err != nil {
		c.Error(err)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

func loopback(t *testing.T) {
	t.Helper()
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// knows fails unless it tells of the sender's end of a connection, which has carried something.
func (c connection) knows() {
	c.Helper()
	all, err := Connections()
	if err != nil {
		c.Error(err)
	}
	i := slices.IndexFunc(all, func(x Connection) bool { return x.Local.String() == c.from.LocalAddr().String() })
	if i < 0 || all[i].Remote.String() != c.from.RemoteAddr().String() || all[i].Version != Version() {
		c.Errorf("of %s it tells %+v", c.from.LocalAddr(), all)
		return
	}
	if m := all[i].Model; m.Rate == 0 || m.MinRTT == 0 || m.SRTT < m.MinRTT/2 || m.Cwnd < 4 || m.MSS < 500 ||
		m.QueueAim == 0 || m.Pacing == 0 {
		c.Errorf("of %s it tells %+v", c.from.LocalAddr(), *m)
	}
}

// held is how many struct_ops the kernel has, whatever became of them.
func held(t *testing.T) (count int) {
	t.Helper()
	for id := ebpf.MapID(0); ; {
		next, err := ebpf.MapGetNextID(id)
		if errors.Is(err, os.ErrNotExist) {
			return count
		}
		if err != nil {
			t.Fatal(err)
		}
		id = next
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			continue
		}
		if m.Type() == ebpf.StructOpsMap {
			count++
		}
		_ = m.Close()
	}
}

// The kernel holds what is registered, without a process, and lets it go with the last that uses it: new network
// namespaces begin with the first one's default, connections keep what they have, and a namespace keeps its default
// until that is written.
func TestInLife(t *testing.T) {
	kerneltest.In(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	loopback(t)
	first, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	before := choose(t, "")
	early := listen(t) // as a server does that is started before it is registered
	if err := Probe(); err != nil {
		t.Fatal(err)
	}
	if version, err := Registered(); !errors.Is(err, ErrNone) || available(t) {
		t.Fatalf("before: %q, %v", version, err)
	}
	if err := Remove(); !errors.Is(err, ErrNone) {
		t.Errorf("there is none to remove: %v", err)
	}
	if err := Load(); err != nil {
		t.Fatal(err)
	}
	if version, err := Registered(); err != nil || version != Version() || !available(t) || choose(t, "") != before {
		t.Errorf("loaded: %q, %v, the default is %s", version, err, choose(t, ""))
	}
	if err := Load(); !errors.Is(err, os.ErrExist) {
		t.Errorf("loaded twice: %v", err)
	}
	choose(t, Name)
	kept := connect(t)
	if kept.has() != Name {
		t.Errorf("a new connection has %s", kept.has())
	}
	kept.carry(4 << 20)
	kept.knows()
	if has := connectTo(t, early).accepted().has(); has != Name {
		t.Errorf("what a listener accepts that was there before has %s", has)
	}

	container, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	defer container.Close()
	loopback(t)
	if choose(t, "") != Name {
		t.Errorf("a new network namespace has %s", choose(t, ""))
	}
	inner := connect(t)
	inner.carry(1 << 20)
	inner.knows()
	if err := netns.Set(first); err != nil {
		t.Fatal(err)
	}

	choose(t, before)
	if err := Remove(); err != nil {
		t.Error(err)
	}
	if version, err := Registered(); !errors.Is(err, ErrNone) || available(t) {
		t.Errorf("removed: %q, %v", version, err)
	}
	if fresh := connect(t); fresh.has() != before || fresh.set(Name) == nil {
		t.Errorf("a new connection has %s, or could choose what is gone", fresh.has())
	}
	kept.carry(1 << 20)
	kept.knows()
	inner.carry(1 << 20)
	if kept.has() != Name {
		t.Errorf("an old connection has %s", kept.has())
	}
	// Another version comes while the first is in use.
	if err := Load(); err != nil {
		t.Fatal(err)
	}
	if err := netns.Set(container); err != nil {
		t.Fatal(err)
	}
	if stale := connect(t); stale.has() != Name || held(t) != 2 {
		t.Errorf("in the namespace whose default it was a new connection has %s; %d are held", stale.has(), held(t))
	}
	choose(t, Name) // the new one
	kept.close()
	inner.close()
	if err := netns.Set(first); err != nil {
		t.Fatal(err)
	}
	if fresh := connect(t); fresh.set(Name) != nil || fresh.has() != Name {
		t.Errorf("the new one cannot be chosen: %s", fresh.has())
	}
	if err := Remove(); err != nil {
		t.Error(err)
	}
}

// path makes the loopback device a path of 20 ms there and back, on which a round has many acknowledgements.
func path(t *testing.T) {
	t.Helper()
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	delay := netlink.NewNetem(netlink.QdiscAttrs{LinkIndex: lo.Attrs().Index, Parent: netlink.HANDLE_ROOT,
		Handle: netlink.MakeHandle(1, 0)}, netlink.NetemQdiscAttrs{Latency: 10000, Limit: 100000})
	if err := errors.Join(netlink.LinkSetMTU(lo, 1500), netlink.QdiscAdd(delay)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := netlink.QdiscDel(delay); err != nil {
			t.Error(err)
		}
	})
}

// virtualTime is the guest's, which goes on by a nanosecond with each instruction, however fast the machine is.
func virtualTime(t *testing.T) time.Duration {
	t.Helper()
	var since unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &since); err != nil {
		t.Fatal(err)
	}
	return time.Duration(since.Nano())
}

// What an acknowledgement costs, and a connection as a whole, in instructions: in a time that is exact, one takes a
// nanosecond, and here the CPU is what limits. Some 100 of an acknowledgement's are of the call and of counting it.
func TestInCost(t *testing.T) {
	kerneltest.In(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	loopback(t)
	path(t)
	before := choose(t, "")
	if err := Load(); err != nil {
		t.Fatal(err)
	}
	const bytes = 128 << 20
	duration := map[string]time.Duration{}
	for _, name := range []string{"bbr", Name} {
		choose(t, name)
		c := connect(t)
		c.carry(bytes / 8)
		start := virtualTime(t)
		c.carry(bytes)
		duration[name] = virtualTime(t) - start
		t.Logf("%s takes %v for %d MiB", name, duration[name], bytes>>20)
		c.close()
	}
	if duration[Name]*100 > duration["bbr"]*105 {
		t.Error("more than 1.05 of bbr's")
	}
	if err := os.WriteFile("/proc/sys/kernel/bpf_stats_enabled", []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	c := connect(t)
	c.carry(bytes)
	calls, cost := time.Duration(0), time.Duration(0)
	for id := ebpf.ProgramID(0); ; {
		next, err := ebpf.ProgramGetNextID(id)
		if err != nil {
			break
		}
		id = next
		program, err := ebpf.NewProgramFromID(id)
		if err != nil {
			t.Fatal(err)
		}
		info, err := program.Info()
		if err == nil && strings.HasPrefix(info.Name, "cong_control") {
			stats, err := program.Stats()
			if err != nil {
				t.Fatal(err)
			}
			calls, cost = calls+time.Duration(stats.RunCount), cost+stats.Runtime
		}
		_ = program.Close()
	}
	if calls < 1000 {
		t.Fatalf("%d calls are counted", calls)
	}
	maxCost := time.Duration(600)
	var system unix.Utsname
	if err := unix.Uname(&system); err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(unix.ByteSliceToString(system.Release[:]), "6.1.") {
		maxCost = 900
	}
	t.Logf("an acknowledgement takes %d instructions, the mean of %d", cost/calls, calls)
	if cost/calls > maxCost {
		t.Errorf("more than %d", maxCost)
	}
	choose(t, before)
	if err := Remove(); err != nil {
		t.Error(err)
	}
}

// Thousands of connections outlive the name, carry on, and leave nothing behind.
func TestMany(t *testing.T) {
	kerneltest.In(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const count = 10000
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 4 * count, Max: 4 * count}); err != nil {
		t.Fatal(err)
	}
	loopback(t)
	before := choose(t, "")
	if err := Load(); err != nil {
		t.Fatal(err)
	}
	choose(t, Name)
	listener, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(listener)
	var address unix.Sockaddr = &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}
	if err := errors.Join(unix.Bind(listener, address), unix.Listen(listener, 16)); err != nil {
		t.Fatal(err)
	}
	if address, err = unix.Getsockname(listener); err != nil {
		t.Fatal(err)
	}
	var from, to []int
	for range count {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		from = append(from, fd)
		if err := unix.Connect(fd, address); err != nil {
			t.Fatal(err)
		}
		if fd, _, err = unix.Accept4(listener, unix.SOCK_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		to = append(to, fd)
	}
	choose(t, before)
	if err := Remove(); err != nil {
		t.Error(err)
	}
	if all, err := Connections(); err != nil || len(all) != 2*count {
		t.Errorf("it tells of %d connections, %v", len(all), err)
	}
	for i, fd := range from {
		text := []byte("still here")
		if _, err := unix.Write(fd, text); err != nil {
			t.Fatal(err)
		}
		if n, err := unix.Read(to[i], text); err != nil || n == 0 {
			t.Fatalf("connection %d: %d bytes, %v", i, n, err)
		}
	}
	for _, fd := range slices.Concat(from, to) {
		// At once, without a minute in TIME-WAIT.
		_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		_ = unix.Close(fd)
	}
	if all, err := Connections(); err != nil || len(all) > 0 {
		t.Errorf("it tells of %d connections when all are closed, %v", len(all), err)
	}
}
