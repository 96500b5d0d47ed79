// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/internal/bpf"
	"weir/internal/units"
)

func file(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text), Mode: 0o644} }

func TestFiles(t *testing.T) {
	root := fstest.MapFS{
		"proc/sys/kernel/random/boot_id":                     file("4f6a\n"),
		"proc/meminfo":                                       file("MemTotal:        1048576 kB\nMemFree: 1 kB\n"),
		"proc/sys/net/ipv4/tcp_rmem":                         file("4096\t131072\t6291456\n"),
		"proc/sys/net/core/rmem_max":                         {Data: []byte("212992\n"), Mode: 0o444},
		"proc/sys/net/ipv4/tcp_available_congestion_control": file("reno cubic\n"),
		"lib/modules/6.1/modules.dep": file(
			"kernel/net/ipv4/tcp_bbr.ko.xz:\nkernel/net/ipv4/tcp_diag.ko.xz: " +
				"kernel/net/ipv4/inet_diag.ko.xz\nkernel/net/ipv4/tcp_cubic.ko:\n"),
		"lib/modules/6.1/modules.builtin":                         file("kernel/net/sched/sch_fq_codel.ko\n"),
		"proc/sys/net/ipv4/conf/all/forwarding/not/a/file/at/all": file(""),
	}
	f := Facts{Kernel: "6.1"}
	readFiles(root, &f)
	want := Facts{
		Kernel: "6.1", Boot: "4f6a", Memory: 1 << 30,
		Sysctls: map[string]Sysctl{
			"net.ipv4.tcp_rmem": {Value: "4096 131072 6291456"},
			"net.core.rmem_max": {Value: "212992", ReadOnly: true},
		},
		Congestion: Congestion{Available: []string{"cubic", "reno"}, Loadable: []string{"bbr"}},
	}
	if !reflect.DeepEqual(f, want) {
		t.Errorf("read\n%+v\nwant\n%+v", f, want)
	}
}

// In a container /proc/sys is mounted once more, read-only; what is mounted last at a place is what counts there.
func TestReadOnlyMount(t *testing.T) {
	const proc = "21 1 0:20 / /proc rw,nosuid - proc proc rw\n"
	const sys = "30 21 0:20 /sys /proc/sys ro,nosuid - proc proc rw\n"
	for text, want := range map[string]bool{
		"": false, proc: false, proc + sys: true,
		proc + sys + "31 30 0:20 /sys/net /proc/sys/net rw - proc proc rw\n": false,
		proc + "22 21 0:9 / /proc/system ro - tmpfs tmpfs rw\n":              false,
		proc + sys + "no line of this kind\n":                                true,
		proc + sys + "33 30 0:20 /sys /proc/sys rw - proc proc rw\n":         false,
	} {
		root := fstest.MapFS{"proc/self/mountinfo": file(text)}
		if got := readOnlyMount(root)("/proc/sys/net/ipv4/tcp_wmem"); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// Three states, and the kernel is asked only where asking cannot make it load anything.
func TestSupport(t *testing.T) {
	never := func([]string) (map[string]bool, error) {
		t.Error("the kernel was asked, though the list of its modules is there")
		return nil, nil
	}
	debian := fstest.MapFS{
		"lib/modules/6.1/modules.dep": file("kernel/net/sched/sch_cake.ko: " +
			"\nkernel/net/sched/sch_fq_codel.ko.zst:\nextra/net/sched/sch-fq.ko:\n"),
		"lib/modules/6.1/modules.builtin": file("kernel/net/sched/sch_htb.ko\n"),
	}
	got := support(debian, "6.1", never)
	for kind, want := range map[string]Support{"cake": Yes, "fq_codel": Yes, "fq": Yes, "htb": Yes, "mq": Yes,
		"pfifo": Yes, "cake_mq": No, "dualpi2": No} {
		if got[kind] != want {
			t.Errorf("%s: %s, want %s", kind, got[kind], want)
		}
	}
	// A module without the alias by which the kernel would load it is there once it is loaded, or built in.
	const dep, alias = "kernel/net/sched/sch_dualpi2.ko.xz:\n", "alias net-sch-dualpi2 sch_dualpi2\n"
	for _, c := range []struct {
		alias, loaded, builtin string
		want                   Support
	}{{"", "", "", No}, {alias, "", "", Yes}, {"", "sch_dualpi2 20480 1 - Live 0x0\n", "", Yes},
		{"", "", "kernel/net/sched/sch_dualpi2.ko\n", Yes}} {
		got := support(fstest.MapFS{"lib/modules/6.18/modules.dep": file(dep),
			"lib/modules/6.18/modules.alias":   file(c.alias),
			"lib/modules/6.18/modules.builtin": file(c.builtin), "proc/modules": file(c.loaded)}, "6.18", never)
		if got["dualpi2"] != c.want {
			t.Errorf("%+v: %s", c, got["dualpi2"])
		}
	}
	if got := modules(debian, "6.1").ingress(); got != No {
		t.Errorf("ingress without its modules: %s", got)
	}
	debian["lib/modules/6.1/modules.builtin"] = file(
		"kernel/net/sched/sch_ingress.ko\nkernel/net/sched/cls_matchall.ko\n" +
			"kernel/net/sched/act_mirred.ko\nkernel/drivers/net/ifb.ko\n")
	if got := modules(debian, "6.1").ingress(); got != Yes {
		t.Errorf("ingress with its modules: %s", got)
	}
	if got := modules(debian, "6.2").ingress(); got != Unknown {
		t.Errorf("ingress of a kernel without a list: %s", got)
	}
	debian["lib/modules/6.1/modules.alias"] = file("alias net-sch-cake_mq sch_cake\n")
	if got := support(debian, "6.1", never); got["cake_mq"] != Yes {
		t.Errorf("cake_mq: %s, want yes by its alias", got["cake_mq"])
	}

	asked := func(kinds []string) (map[string]bool, error) {
		return map[string]bool{"cake": true, "fq": false}, nil
	}
	got = support(fstest.MapFS{}, "6.1", asked)
	if got["cake"] != Yes || got["fq"] != No || got["htb"] != Unknown {
		t.Errorf("by asking: cake %s, fq %s, htb %s; want yes, no, unknown", got["cake"], got["fq"], got["htb"])
	}
	// A container without /lib/modules: asked, the kernel would load the host's.
	container := fstest.MapFS{"proc/modules": file("x 1 0\n"), "proc/sys/kernel/modprobe": file("/sbin/modprobe\n")}
	never = func([]string) (map[string]bool, error) {
		t.Error("the kernel was asked, though it can load modules")
		return nil, nil
	}
	if got := support(container, "6.1", never); got["cake"] != Unknown {
		t.Errorf("in a container: cake %s, want unknown", got["cake"])
	}
	for name, text := range map[string]string{"proc/sys/kernel/modprobe": "\n",
		"proc/sys/kernel/modules_disabled": "1\n"} {
		container["proc/sys/kernel/modprobe"] = file("/sbin/modprobe\n")
		container[name] = file(text)
		if got := support(container, "6.1", asked); got["cake"] != Yes {
			t.Errorf("%s %q: nothing can be loaded, and cake is %s", name, text, got["cake"])
		}
	}
	got = support(fstest.MapFS{}, "6.1", func([]string) (map[string]bool, error) {
		return nil,
			errors.New("not permitted")
	})
	if _, there := got["bpf_dualpi2"]; there {
		t.Error("bpf_dualpi2 was looked for among the kernel's own")
	}
	if got["cake"] != Unknown {
		t.Errorf("nobody to ask: cake %s, want unknown", got["cake"])
	}
}

// Whatever the files hold, reading ends, and ends without a panic.
func FuzzFiles(f *testing.F) {
	f.Add("MemTotal: 1 kB", "6.1", []byte("kernel/net/sched/sch_cake.ko:"))
	f.Add("MemTotal: -1 kB\x00", "../../etc", []byte(":::\n\n.ko\nnet/tcp_.ko"))
	f.Add("MemTotal: 99999999999999999999 kB", "", []byte{0xff, '\n'})
	f.Fuzz(func(t *testing.T, text, release string, modules []byte) {
		root := fstest.MapFS{}
		for _, path := range []string{"proc/meminfo", "proc/sys/net/ipv4/tcp_rmem",
			"proc/sys/net/ipv4/tcp_available_congestion_control"} {
			root[path] = file(text)
		}
		root["lib/modules/6.1/modules.dep"] = &fstest.MapFile{Data: modules}
		facts := Facts{Kernel: release}
		readFiles(root, &facts)
		support(root, release, func([]string) (map[string]bool, error) { return nil, fs.ErrPermission })
	})
}

// inNamespace runs f in a network namespace of its own, with a veth pair a–b that is up.
func inNamespace(t *testing.T, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped, not passed: a network namespace needs root")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends here
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Errorf("unshare: %v", err)
			return
		}
		a := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "a", NumTxQueues: 4, NumRxQueues: 4}, PeerName: "b"}
		if err := netlink.LinkAdd(a); err != nil {
			t.Errorf("veth: %v", err)
			return
		}
		for _, name := range []string{"lo", "a", "b"} {
			link, err := netlink.LinkByName(name)
			if err == nil {
				err = netlink.LinkSetUp(link)
			}
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		// The kernel tells of a carrier a little later.
		for _, name := range []string{"a", "b"} {
			for range 1000 {
				if link, err := netlink.LinkByName(name); err != nil || link.Attrs().OperState == netlink.OperUp {
					break
				}
				time.Sleep(time.Millisecond)
			}
		}
		f()
	}()
	<-done
}

func TestRead(t *testing.T) {
	inNamespace(t, func() {
		addr, _ := netlink.ParseAddr("192.0.2.2/24")
		a, _ := netlink.LinkByName("a")
		if err := netlink.AddrAdd(a, addr); err != nil {
			t.Fatal(err)
		}
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: a.Attrs().Index, Gw: net.IPv4(192, 0, 2, 1)}); err != nil {
			t.Fatal(err)
		}
		f, err := Read()
		if err != nil {
			t.Fatal(err)
		}
		link, ok := f.Link("a")
		if !ok || link.Kind != "veth" || link.Driver != "veth" || !link.Up || link.Loopback || link.MTU != 1500 {
			t.Errorf("link a: %+v", link)
		}
		if link.Speed != 0 {
			t.Errorf("a veth pair has no speed, and reads %s", link.Speed)
		}
		if len(link.Addrs) == 0 || !strings.HasPrefix(fmt.Sprint(link.Addrs), "[192.0.2.2/24") {
			t.Errorf("addresses of a: %v", link.Addrs)
		}
		if f.Uplink != "a" {
			t.Errorf("uplink %q, want a", f.Uplink)
		}
		if lo, ok := f.Link("lo"); !ok || !lo.Loopback || !lo.Up {
			t.Errorf("link lo: %+v", lo)
		}
		if root, ok := link.Tree.Root(); !ok || root.Kind == "" {
			t.Errorf("tree of a: %+v", link.Tree)
		}
		if _, ok := f.Sysctls["net.ipv4.tcp_rmem"]; !ok {
			t.Errorf("sysctls: %v", f.Sysctls)
		}
		if s, ok := f.Sysctls["net.core.default_qdisc"]; ok && f.Namespace != "" {
			t.Logf("net.core.default_qdisc is %+v in a namespace of its own", s)
		}
		if len(f.Congestion.Available) == 0 || f.Memory < 16*units.Size(1<<20) || f.Boot == "" || f.Kernel == "" ||
			!f.Admin {
			t.Errorf("facts: %+v", f)
		}
		for kind, support := range f.Qdiscs {
			if support == Unknown && (!loads(os.DirFS("/")) || modules(os.DirFS("/"), f.Kernel).known()) {
				t.Errorf("%s: unknown, to root", kind)
			}
		}
		if f.Qdiscs["pfifo_fast"] != Yes || f.Qdiscs["mq"] != Yes {
			t.Errorf("every kernel has pfifo_fast and mq: %v", f.Qdiscs)
		}
		again, err := Read()
		if err != nil {
			t.Fatal(err)
		}
		for i := range f.Links {
			if !f.Links[i].Tree.Same(again.Links[i].Tree) {
				t.Errorf("reading changed %s:\n%+v\n%+v", f.Links[i].Name, f.Links[i].Tree, again.Links[i].Tree)
			}
			f.Links[i].Tree, again.Links[i].Tree = f.Links[0].Tree, f.Links[0].Tree
			// What the kernel sends by itself meanwhile is counted.
			f.Links[i].RxBytes, f.Links[i].TxBytes, f.Links[i].RxPkts = again.Links[i].RxBytes, again.Links[i].TxBytes,
				again.Links[i].RxPkts
		}
		f.Passing = again.Passing
		if !reflect.DeepEqual(f, again) {
			t.Errorf("reading twice gives different facts:\n%+v\n%+v", f, again)
		}
	})
}

// Root without CAP_SYS_PTRACE cannot read in which network namespace process 1 is. It may be another one, so nothing is
// kept; who cannot change anything guesses.
func TestHidden(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped, not passed: it takes root to be a root who may not do something")
	}
	for _, c := range []struct {
		name          string
		keeps         uint32 // capabilities
		hidden, files bool
	}{
		{"root", 1 << unix.CAP_NET_ADMIN, true, false},
		{"nobody", 0, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			done := make(chan struct{})
			go func() {
				defer close(done)
				runtime.LockOSThread() // and never unlocked: the thread ends here
				header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
				data := [2]unix.CapUserData{{Effective: c.keeps, Permitted: c.keeps}}
				if err := unix.Capset(&header, &data[0]); err != nil {
					t.Error(err)
					return
				}
				f, err := ReadDeep()
				says := slices.ContainsFunc(f.Deep.Unknown, func(u Unread) bool {
					return u.What == "other network namespaces" && strings.Contains(u.Why, "CAP_SYS_PTRACE")
				})
				if !says {
					t.Errorf("root is not told what it lacks: %v", f.Deep.Unknown)
				}
				if err != nil || f.Hidden != c.hidden || (f.Files != nil) != c.files {
					t.Errorf("hidden %v, files %v, %v", f.Hidden, f.Files != nil, err)
				}
			}()
			<-done
		})
	}
}

// A server is read by a timer, a fleet by a loop: it may cost no CPU to speak of.
func BenchmarkRead(b *testing.B) {
	for b.Loop() {
		if _, err := Read(); err != nil {
			b.Fatal(err)
		}
	}
}

func TestOwnQdisc(t *testing.T) {
	for name, c := range map[string]struct {
		admin bool
		err   error
		want  Support
		why   string
	}{
		"there": {true, nil, Yes, ""},
		"an older kernel": {true, fmt.Errorf("%w: the kernel has no BPF qdiscs (requires Linux 6.16)",
			bpf.ErrNotSupported), No, "the kernel has no BPF qdiscs (requires Linux 6.16)"},
		"no reason":      {true, bpf.ErrNotSupported, No, "not supported"},
		"cannot be told": {true, fs.ErrPermission, Unknown, "permission denied"},
		"nobody":         {false, nil, Unknown, "whether it does is for root to find out"},
	} {
		got, why := supportOf(c.admin, func() error {
			if !c.admin {
				t.Error("the kernel was asked by somebody who may load nothing")
			}
			return c.err
		})
		if got != c.want || why != c.why {
			t.Errorf("%s: %s, %q; want %s, %q", name, got, why, c.want, c.why)
		}
	}
}
