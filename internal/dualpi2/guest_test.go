// SPDX-License-Identifier: Apache-2.0

package dualpi2

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// TestMain is a test on a host, or, as process 1, the whole user space of a kernel that was booted for the tests whose names begin with TestGuest.
func TestMain(m *testing.M) {
	if os.Getpid() != 1 {
		os.Exit(m.Run())
	}
	defer unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	if os.Getenv("MOUNTED") != "" {
		os.Args = append(os.Args[:1], "-test.v", "-test.run="+os.Getenv("WEIR_KERNEL_TEST"))
		fmt.Println("status", m.Run())
		return
	}
	for _, mount := range [][3]string{{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"tmpfs", "/tmp"}, {"tmpfs", "/run"}} {
		os.MkdirAll(mount[1], 0o755)
		if err := unix.Mount(mount[0], mount[1], mount[0], 0, ""); err != nil {
			fmt.Println(mount, err)
		}
	}
	list, _ := os.ReadFile("/modules/modules")
	for _, name := range strings.Fields(string(list)) {
		f, err := os.Open("/modules/" + strings.TrimSuffix(name[strings.LastIndex(name, "/")+1:], ".ko") + ".ko")
		if err != nil {
			fmt.Println(err)
			continue
		}
		if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && !errors.Is(err, unix.EEXIST) {
			fmt.Println(name, err)
		}
		f.Close()
	}
	// What was read before /proc was there is not to be remembered.
	fmt.Println(unix.Exec("/init", os.Args, append(os.Environ(), "MOUNTED=1")))
}

func place(t *testing.T, ifindex int) func(string) error {
	return func(kind string) error {
		t.Log("kind", kind)
		return qdisc(ifindex, kind)
	}
}

func qdisc(ifindex int, kind string) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	b := make([]byte, 16+20)
	ne := binary.NativeEndian
	typ, fl := uint16(unix.RTM_NEWQDISC), uint16(unix.NLM_F_REQUEST|unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_REPLACE)
	if kind == "" {
		typ, fl = unix.RTM_DELQDISC, unix.NLM_F_REQUEST|unix.NLM_F_ACK
	}
	ne.PutUint16(b[4:], typ)
	ne.PutUint16(b[6:], fl)
	ne.PutUint32(b[8:], 1)
	ne.PutUint32(b[16+4:], uint32(ifindex))
	ne.PutUint32(b[16+12:], 0xFFFFFFFF)
	if kind != "" {
		k := append([]byte(kind), 0)
		a := make([]byte, (4+len(k)+3)&^3)
		ne.PutUint16(a, uint16(4+len(k)))
		ne.PutUint16(a[2:], 1)
		copy(a[4:], k)
		b = append(b, a...)
	}
	ne.PutUint32(b, uint32(len(b)))
	if err := unix.Sendto(fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	r := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, r, 0)
	if err != nil {
		return err
	}
	if n >= 20 && ne.Uint16(r[4:]) == unix.NLMSG_ERROR {
		if e := int32(ne.Uint32(r[16:])); e != 0 {
			return unix.Errno(-e)
		}
	}
	return nil
}

func inGuest(t *testing.T) {
	t.Helper()
	if os.Getpid() != 1 {
		t.Skip("skipped, not passed: runs in a kernel of its own")
	}
}

func defaults() Config {
	return Config{Limit: 10000, MemLimit: 10000 * 2 * 1514, Target: 15 * time.Millisecond, TUpdate: 16 * time.Millisecond, Alpha: 41, Beta: 819,
		Coupling: 2, StepThresh: time.Millisecond, DropOverload: true, Protection: 10, Raw: true, SplitGSO: true}
}

func TestGuestLoad(t *testing.T) {
	if os.Getpid() != 1 {
		t.Skip("guest")
	}
	runtime.LockOSThread()
	host, _ := netns.Get()
	peer, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	netns.Set(host)
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "a", TxQLen: 1000}, PeerName: "b", PeerNamespace: netlink.NsFd(int(peer))}); err != nil {
		t.Fatal(err)
	}
	up := func(name, addr string) int {
		l, err := netlink.LinkByName(name)
		if err != nil {
			t.Fatal(err)
		}
		a, _ := netlink.ParseAddr(addr)
		if err := netlink.AddrAdd(l, a); err != nil {
			t.Fatal(err)
		}
		if err := netlink.LinkSetUp(l); err != nil {
			t.Fatal(err)
		}
		return l.Attrs().Index
	}
	ifindex := up("a", "10.0.0.1/24")
	netns.Set(peer)
	up("b", "10.0.0.2/24")
	sink, err := net.ListenPacket("udp", "10.0.0.2:9")
	if err != nil {
		t.Fatal(err)
	}
	netns.Set(host)
	_ = sink
	c := defaults()
	c.Rate = 50e6 / 8
	begin := time.Now()
	err = Install(ifindex, c, place(t, ifindex))
	t.Log("installed after", time.Since(begin))
	if err != nil {
		var v *ebpf.VerifierError
		if errors.As(err, &v) {
			n := len(v.Log)
			t.Log(strings.Join(v.Log[max(0, n-60):], "\n"))
		}
		t.Fatal(err)
	}
	for i := range 3 {
		conn, err := net.Dial("udp", "10.0.0.2:9")
		if err != nil {
			t.Fatal(err)
		}
		f, _ := conn.(*net.UDPConn).SyscallConn()
		f.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TOS, i) })
		for range 100 {
			conn.Write(make([]byte, 1400))
		}
	}
	time.Sleep(200 * time.Millisecond)
	in, ok, err := Read(ifindex)
	t.Logf("%v %v %+v %+v", ok, err, in.Config, in.Kind)
	t.Logf("in %d %d, marks %d %d, soj C mean %v p99 %v L mean %v p99 %v n %d %d unmarked %d missed %d early %d prob %d", in.Stats.PacketsInC, in.Stats.PacketsInL, in.Stats.ECNMark, in.Stats.StepMark,
		in.Stats.SojournC.Mean(), in.Stats.SojournC.Quantile(.99), in.Stats.SojournL.Mean(), in.Stats.SojournL.Quantile(.99), in.Stats.SojournC.Packets, in.Stats.SojournL.Packets, in.Stats.Unmarked, in.Stats.StepMissed, in.Stats.StepEarly, in.Stats.Prob)
	if in.Config != c {
		t.Errorf("config %+v, want %+v", in.Config, c)
	}
	c.Rate = 100e6 / 8
	c.SplitGSO = false
	if err := Change(ifindex, c); err != nil {
		t.Fatal(err)
	}
	in, ok, err = Read(ifindex)
	if err != nil || in.Config != c {
		t.Errorf("config %+v, want %+v, %v", in.Config, c, err)
	}
	if err := qdisc(ifindex, ""); err != nil {
		t.Fatal(err)
	}
	in, ok, err = Read(ifindex)
	t.Log("placed", in.Placed, ok, err)
	if err := Clean(ifindex); err != nil {
		t.Fatal(err)
	}
	in, ok, err = Read(ifindex)
	t.Log("after clean", in.Placed, ok, err)
	time.Sleep(300 * time.Millisecond)
	var id ebpf.ProgramID
	for {
		next, err := ebpf.ProgramGetNextID(id)
		if err != nil {
			break
		}
		id = next
		p, err := ebpf.NewProgramFromID(id)
		if err != nil {
			continue
		}
		info, _ := p.Info()
		t.Error("left:", info.Name)
		p.Close()
	}
	var mid ebpf.MapID
	for {
		next, err := ebpf.MapGetNextID(mid)
		if err != nil {
			break
		}
		mid = next
		p, err := ebpf.NewMapFromID(mid)
		if err != nil {
			continue
		}
		info, _ := p.Info()
		t.Error("left map:", info.Name)
		p.Close()
	}
}
