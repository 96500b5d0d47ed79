// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"net"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	sockdiag "github.com/mdlayher/netlink"
	"github.com/mdlayher/netlink/nltest"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/internal/units"
)

func link(target string) *fstest.MapFile {
	return &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink | 0o777}
}

func settings(root fstest.MapFS) *Deep {
	f := Facts{Kernel: "6.1", Sysctls: map[string]Sysctl{"net.core.default_qdisc": {}}} // the first network namespace's
	return readDeep(root, &f, processes{})
}

// Which line decides, for each way in which the loaders order and mask files.
func TestSettings(t *testing.T) {
	const rmem = "net.ipv4.tcp_rmem"
	systemd := fstest.MapFS{"usr/lib/systemd/systemd-sysctl": file(""),
		"proc/sys/net/core/default_qdisc": file("fq_codel")}
	for _, test := range []struct {
		name         string
		files        fstest.MapFS
		boot, manual string // file:line=value
	}{
		{"none", fstest.MapFS{}, "", ""},
		{"sorted by name across directories", fstest.MapFS{
			"etc/sysctl.d/10-a.conf": file(rmem + "=1"), "usr/lib/sysctl.d/20-b.conf": file("\n" + rmem + " = 2\t3"),
		}, "/usr/lib/sysctl.d/20-b.conf:2=2 3", "/usr/lib/sysctl.d/20-b.conf:2=2 3"},
		{"same name masks", fstest.MapFS{
			"run/sysctl.d/10-a.conf": file(rmem + "=1"), "usr/lib/sysctl.d/10-a.conf": file(rmem + "=2"),
		}, "/run/sysctl.d/10-a.conf:1=1", "/run/sysctl.d/10-a.conf:1=1"},
		{"null masks", fstest.MapFS{
			"etc/sysctl.d/10-a.conf": link("/dev/null"), "usr/lib/sysctl.d/10-a.conf": file(rmem + "=2"),
			"dev/null": &fstest.MapFile{Mode: fs.ModeDevice},
		}, "", ""},
		{"empty masks", fstest.MapFS{
			"etc/sysctl.d/10-a.conf": file(""), "usr/lib/sysctl.d/10-a.conf": file(rmem + "=2"),
		}, "", ""},
		{"Debian 12 links sysctl.conf", fstest.MapFS{
			"etc/sysctl.conf": file(rmem + "=1"), "etc/sysctl.d/99-sysctl.conf": link("../sysctl.conf"),
			"etc/sysctl.d/99-z.conf": file(rmem + "=9"),
		}, "/etc/sysctl.d/99-z.conf:1=9", "/etc/sysctl.conf:1=1"},
		{"Debian 13 does not", fstest.MapFS{
			"etc/sysctl.conf": file(rmem + "=1"), "etc/sysctl.d/10-z.conf": file(rmem + "=9"),
		}, "/etc/sysctl.d/10-z.conf:1=9", "/etc/sysctl.conf:1=1"},
		{"absolute link", fstest.MapFS{
			"etc/sysctl.d/50-a.conf": link("/opt/tune.conf"), "opt/tune.conf": file(rmem + "=1"),
		}, "/etc/sysctl.d/50-a.conf:1=1", "/etc/sysctl.d/50-a.conf:1=1"},
		{"loop of links", fstest.MapFS{"etc/sysctl.d/50-a.conf": link("50-b.conf"),
			"etc/sysctl.d/50-b.conf": link("50-a.conf")}, "", ""},
		{"other names, comments, no assignment", fstest.MapFS{
			"etc/sysctl.d/50-a": file(rmem + "=1"), "etc/sysctl.d/50-b.conf": file("#" + rmem + "=1\n;" + rmem +
				"=2\n" + rmem + " 3\nnet.ipv4.tcp_rmemx=4\nnet/ipv4.tcp_rmem=5"),
		}, "", ""},
		{"slashes, minus, space", fstest.MapFS{
			"etc/sysctl.d/50-a.conf": file("  - net/ipv4/tcp_rmem =  1   2 "),
		}, "/etc/sysctl.d/50-a.conf:1=1 2", "/etc/sysctl.d/50-a.conf:1=1 2"},
		{"key beats pattern", fstest.MapFS{
			"etc/sysctl.d/50-a.conf": file(rmem + "=1\nnet.ipv4.tcp_*mem=2"),
		}, "/etc/sysctl.d/50-a.conf:1=1", "/etc/sysctl.d/50-a.conf:1=1"},
		{"pattern", fstest.MapFS{
			"etc/sysctl.d/50-a.conf": file("net.*.tcp_[!w]mem=2\nnet.*.tcp_[]mem=3"),
		}, "/etc/sysctl.d/50-a.conf:1=2", "/etc/sysctl.d/50-a.conf:1=2"},
		{"kept from patterns", fstest.MapFS{
			"etc/sysctl.d/50-a.conf": file("net.ipv4.tcp_*mem=2"), "etc/sysctl.d/60-a.conf": file("-" + rmem),
		}, "", ""},
		{"kept, then set after all", fstest.MapFS{
			"etc/sysctl.d/50-a.conf": file("-" + rmem + "\n" + rmem + "=4"),
		}, "/etc/sysctl.d/50-a.conf:2=4", "/etc/sysctl.d/50-a.conf:2=4"},
		{"kernel command line", fstest.MapFS{
			"proc/cmdline": file(`quiet sysctl.net.ipv4.tcp_rmem=1 sysctl/net/ipv4.tcp_rmem="2  3	4" sysctl.net.ipv4.tcp_r*=5 sysctl.net.ipv4.tcp_rmem= -- sysctl.net.ipv4.tcp_rmem=6` + "\n"),
		}, "kernel command line:0=2 3 4", ""},
		{"any file beats the kernel command line", fstest.MapFS{
			"proc/cmdline": file("sysctl." + rmem + "=1"), "usr/lib/sysctl.d/50-a.conf": file("net.*.tcp_rmem=2"),
		}, "/usr/lib/sysctl.d/50-a.conf:1=2", "/usr/lib/sysctl.d/50-a.conf:1=2"},
		{"kept as the kernel command line says", fstest.MapFS{
			"proc/cmdline": file("sysctl." + rmem + "=1"), "etc/sysctl.d/50-a.conf": file("net.*.tcp_rmem=2\n-" + rmem),
		}, "kernel command line:0=1", ""},
		{"a quote that never ends", fstest.MapFS{"proc/cmdline": file(`sysctl.net.ipv4.tcp_rmem="1 2`)},
			"kernel command line:0=1 2", ""},
		{"nothing of the kind", fstest.MapFS{"proc/cmdline": file(
			"sysctlx.net.ipv4.tcp_rmem=1 sysctl net.ipv4.tcp_rmem=1 sysctl." + rmem)}, "", ""},
		{"not text", fstest.MapFS{"etc/sysctl.d/50-a.conf": file("\xff\xfe" + rmem + "=1\n\x00\n" + rmem + "=\xff")},
			"", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			for name, f := range systemd {
				test.files[name] = f
			}
			d := settings(test.files)
			var boot, manual []string
			for _, s := range d.Settings {
				if s.Sysctl != rmem {
					continue
				}
				text := fmt.Sprintf("%s:%d=%s", s.File, s.Line, s.Value)
				if s.Wins {
					boot = append(boot, text)
				}
				if s.Manual {
					manual = append(manual, text)
				}
			}
			if got := strings.Join(boot, " "); got != test.boot {
				t.Errorf("at boot %q, want %q", got, test.boot)
			}
			if got := strings.Join(manual, " "); got != test.manual {
				t.Errorf("by sysctl --system %q, want %q", got, test.manual)
			}
		})
	}
	// Without systemd it is procps's sysctl that the boot runs.
	d := settings(fstest.MapFS{"sbin/sysctl": file(""), "etc/sysctl.conf": file(rmem + "=1")})
	if s, ok := d.AtBoot(rmem); d.Loader != procps || !ok || s.Unread {
		t.Errorf("loader %q, %+v", d.Loader, s)
	}
	// The kernel's command line is of the first network namespace, whoever loads files there.
	for _, root := range []fstest.MapFS{{}, {"proc/sys/net/core/default_qdisc": file("fq_codel")}} {
		first := len(root) == 1
		root["proc/cmdline"] = file("sysctl.net.ipv4.tcp_rmem=1")
		if s, ok := settings(root).AtBoot(rmem); ok != first {
			t.Errorf("first namespace: %v, and at boot %+v", first, s)
		}
	}
	// And without either nothing is set.
	d = settings(fstest.MapFS{"etc/sysctl.conf": file(rmem + "=1")})
	if s, ok := d.AtBoot(rmem); d.Loader != "" || ok {
		t.Errorf("loader %q, %+v", d.Loader, s)
	}
}

func TestWriters(t *testing.T) {
	d := settings(fstest.MapFS{
		"etc/udev/rules.d/99-a.rules": file(
			"#\nACTION==\"add\", SUBSYSTEM==\"net\", NAME==\"ens3\", RUN+=\"/sbin/tc qdisc replace dev ens3 root " +
				"dualpi2\"\n"),
		"etc/udev/rules.d/50-b.rules": file(
			"RUN+=\"/bin/etc qdisc add dev x root fq\"\ntc filter add dev eth0\n"),
		"etc/systemd/system/shape.service": file(
			"[Service]\nExecStart=/usr/sbin/tc -s qdisc add dev eth0 root handle 10: fq_codel\nExecStart=tc qdisc " +
				"add dev eth0 parent 10:1 fq\nExecStart=tc qdisc add dev eth0 clsact\nExecStart=tc qdisc replace " +
				"dev $DEV root $Q\nExecStart=sysctl -w net.ipv4.tcp_ecn=1 net.ipv4.tcp_congestion_control=\"bbr\"\n"),
		"etc/systemd/network/10-up.network":                    file("[Match]\nName=ens4\n[CAKE]\nBandwidth=50M\n"),
		"etc/systemd/network/10-up.network.d/q.conf":           file("[FairQueueing]\n"),
		"etc/NetworkManager/system-connections/w.nmconnection": file("[tc]\nqdisc.root=fq_codel\n"),
		"etc/rc.local": executable(
			"#!/bin/sh\necho bbr > /proc/sys/net/ipv4/tcp_congestion_control\n"),
		"etc/modules-load.d/x.conf": file("sch_dualpi2\ntcp_bbr\n"),
		"etc/tuned/active_profile":  file("mine ../../etc\n"),
		"etc/tuned/mine/tuned.conf": file(
			"[main]\ninclude=mine, base\n[sysctl]\nnet.ipv4.tcp_rmem=\"1 2 3\"\nvm.x=1\n[other]\nnet.ipv4.tcp_ecn=1\n"),
		"usr/lib/tuned/base/tuned.conf":                              file("[sysctl]\nnet/ipv4/tcp_wmem=>4 5 6\n"),
		"etc/systemd/system/multi-user.target.wants/bpftune.service": link("/lib/systemd/system/bpftune.service"),
		"var/lib/weir/journal.json":                                  file("who reads it knows"),
	})
	var got []string
	for _, w := range d.Writers {
		got = append(got, strings.TrimSpace(strings.Join([]string{w.By, fmt.Sprintf("%s:%d", w.File, w.Line), w.Sysctl,
			w.Value, w.Qdisc, w.Dev, w.Name}, " ")))
	}
	slices.Sort(got)
	want := []string{
		"NetworkManager /etc/NetworkManager/system-connections/w.nmconnection:2   fq_codel",
		"bpftune /etc/systemd/system/multi-user.target.wants/bpftune.service:0",
		"modules-load /etc/modules-load.d/x.conf:1   dualpi2",
		"networkd /etc/systemd/network/10-up.network.d/q.conf:1   fq ens4",
		"networkd /etc/systemd/network/10-up.network:3   cake ens4",
		"rc.local /etc/rc.local:2 net.ipv4.tcp_congestion_control bbr",
		"systemd unit /etc/systemd/system/shape.service:2   fq_codel eth0",
		"systemd unit /etc/systemd/system/shape.service:5   a queue $DEV",
		"systemd unit /etc/systemd/system/shape.service:6 net.ipv4.tcp_congestion_control bbr",
		"systemd unit /etc/systemd/system/shape.service:6 net.ipv4.tcp_ecn 1",
		"tuned /etc/tuned/mine/tuned.conf:4 net.ipv4.tcp_rmem 1 2 3",
		"tuned /usr/lib/tuned/base/tuned.conf:2 net.ipv4.tcp_wmem 4 5 6",
		"udev /etc/udev/rules.d/99-a.rules:2   dualpi2 ens3 ens3",
	}
	if string(d.Journal) != "who reads it knows" {
		t.Errorf("the journal is %q", d.Journal)
	}
	if !slices.Equal(got, want) {
		t.Errorf("writers\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Which udev rules wait for a device by a name that it may not have yet.
func TestUdevNames(t *testing.T) {
	const run = `, RUN+="/sbin/tc qdisc replace dev ens3 root fq"`
	for rule, want := range map[string]string{
		`ACTION=="add", SUBSYSTEM=="net", NAME=="ens3"`:          "ens3",
		`ACTION == "add", KERNEL == "ens*"`:                      "ens*",
		`ACTION=="add", ENV{ID_NET_NAME}=="ens3"`:                "",
		`ACTION=="add|move", NAME=="ens3"`:                       "",
		`ACTION=="move", NAME=="ens3"`:                           "",
		`ACTION=="add", ATTR{address}=="52:54:00:00:00:01"`:      "",
		`ACTION=="add", SUBSYSTEM=="net", NAME="ens3"`:           "",
		`ACTION=="add", ENV{NAME}=="x", ATTRS{address}=="52:54"`: "",
	} {
		w := settings(fstest.MapFS{"etc/udev/rules.d/a.rules": file(rule + run)}).Writers
		if len(w) != 1 || w[0].Name != want {
			t.Errorf("%s: %+v, want %q", rule, w, want)
		}
	}
}

// Asking for connections may load a module, unless that is there already or nothing can be loaded.
func TestUnloaded(t *testing.T) {
	loading := fstest.MapFS{"proc/modules": file("tcp_bbr 1 0\n"), "proc/sys/kernel/modprobe": file("/sbin/modprobe\n"),
		"proc/sys/kernel/modules_disabled": file("0\n")}
	with := func(more fstest.MapFS) fstest.MapFS {
		root := fstest.MapFS{}
		for _, files := range []fstest.MapFS{loading, more} {
			for name, f := range files {
				root[name] = f
			}
		}
		return root
	}
	for name, test := range map[string]struct {
		root fstest.MapFS
		asks bool
	}{
		"Debian, not loaded": {with(fstest.MapFS{"lib/modules/6.1/modules.dep": file(
			"kernel/net/ipv4/tcp_diag.ko:\n")}), false},
		"Debian, loaded": {with(fstest.MapFS{"proc/modules": file("x 1\ntcp_diag 1 0\n")}), true},
		"built in": {with(fstest.MapFS{"lib/modules/6.1/modules.builtin": file(
			"kernel/net/ipv4/tcp_diag.ko\n")}), true},
		"container":             {with(nil), false},
		"container, loaded":     {with(fstest.MapFS{"proc/modules": file("tcp_diag 1 0\n")}), true},
		"no helper":             {with(fstest.MapFS{"proc/sys/kernel/modprobe": file("\n")}), true},
		"loading is over":       {with(fstest.MapFS{"proc/sys/kernel/modules_disabled": file("1\n")}), true},
		"kernel has no modules": {fstest.MapFS{}, true},
	} {
		why := unloaded(test.root, "6.1", "tcp_diag")
		if (why == "") != test.asks || why != "" && !strings.Contains(why, "weir doctor --listen 10s does") {
			t.Errorf("%s: %q", name, why)
		}
	}
}

func TestProc(t *testing.T) {
	page := units.Size(os.Getpagesize())
	d := settings(fstest.MapFS{
		"proc/net/netstat": file("TcpExt: SyncookiesSent SyncookiesRecv TCPMemoryPressures Other\n" +
			"TcpExt: 100 20 7 x\nIpExt: A\nIpExt: 1 2\n"),
		"proc/net/sockstat": file("sockets: used 9\nTCP: inuse 5 orphan 0 tw 0 alloc 7 mem 300\n" +
			"UDP: inuse 4 mem 2\n"),
		"proc/sys/net/ipv4/tcp_mem": file("100\t200\t400\n"),
		"proc/net/snmp":             file("Tcp: RtoAlgorithm PassiveOpens\nTcp: 1 900\n"),
		"proc/modules":              file("nf_synproxy_core 1 0\nxt_nat 1 0\ntcp_bbr 1 0\n"),
		"proc/pressure/cpu":         file("some avg10=62.50 avg60=1.00 avg300=0.00 total=1\n"),
		"proc/thread-self/ns/net":   link("net:[1]"),
		"proc/1/ns/net":             link("net:[1]"),
		"proc/2/ns/net":             link("net:[2]"),
		"proc/3/ns/net":             link("net:[2]"),
		"proc/sys/kernel/x/ns/net":  link("net:[3]"),
	})
	if d.SYN != (SYN{Accepted: 900, CookiesSent: 100, CookiesGood: 20, Proxy: true}) || d.NAT != Yes ||
		d.TCPMemory != (TCPMemory{Held: 300 * page, Mark: 200 * page, Pressures: 7}) || d.CPU != 0.625 ||
		!slices.Equal(d.Loaded, []string{"tcp_bbr"}) {
		t.Errorf("%+v", d)
	}
	f := ReadFiles(fstest.MapFS{"proc/thread-self/ns/net": link("net:[1]"), "proc/1/ns/net": link("net:[1]"),
		"proc/2/ns/net": link("net:[2]"), "proc/3/ns/net": link("net:[2]")}, "6.1")
	if !reflect.DeepEqual(f.Deep.Namespaces, []Namespace{{"net:[2]", 2}}) || f.Deep.NAT != Unknown {
		t.Errorf("%+v", f.Deep)
	}
}

func TestTCPMemory(t *testing.T) {
	for _, text := range []string{"", "TCP:", "TCP: mem", "TCP: mem -1", "mem 5", "TCP: mem 99999999999999"} {
		if m := tcpMemory(text, text); m != (TCPMemory{}) {
			t.Errorf("%q: %+v", text, m)
		}
	}
}

// A file that never ends is read for a while, and everything else is still found.
func TestEndless(t *testing.T) {
	root := endless{fstest.MapFS{"usr/lib/systemd/systemd-sysctl": file(""), "etc/sysctl.d/10-a.conf": file(""),
		"etc/sysctl.d/20-b.conf": file("net.ipv4.tcp_ecn=1\n")}}
	f := Facts{Kernel: "6.1"}
	d := readDeep(root, &f, processes{})
	if s, ok := d.AtBoot("net.ipv4.tcp_ecn"); !ok || s.File != "/etc/sysctl.d/20-b.conf" {
		t.Errorf("%+v", d.Settings)
	}
	if len(d.Unknown) != 1 || d.Unknown[0].What != "/etc/sysctl.d/10-a.conf" {
		t.Errorf("unknown: %+v", d.Unknown)
	}
}

type endless struct{ fstest.MapFS }

func (e endless) Open(name string) (fs.File, error) {
	f, err := e.MapFS.Open(name)
	if name == "etc/sysctl.d/10-a.conf" {
		return forever{f}, err
	}
	return f, err
}

type forever struct{ fs.File }

func (forever) Read(b []byte) (int, error) {
	return copy(b, bytes.Repeat([]byte("net.x=1\n"), len(b)/8+1)), nil
}

// Whatever files hold, reading them ends, and without a panic; a line that decides is one that is there.
func FuzzSettings(f *testing.F) {
	f.Add("net.ipv4.tcp_ecn = 1 # x\n-net.ipv4.*\n", "net/ipv4/tcp_[a-", "../sysctl.conf")
	f.Add("=\n-\n-=\n.=.\n/=/", "\xff\x00", "/dev/null")
	f.Add("quiet sysctl.net.ipv4.tcp_ecn=\"1 -- 2", `{"goal":{"dev":"x"},"entries":[{"theirs":true}]}`, "")
	f.Add("RUN+=\"tc qdisc replace dev $name root cake\"", "[sysctl]\nnet.ipv4.tcp_ecn=>1\n[CAKE]", "50-a.conf")
	f.Fuzz(func(t *testing.T, a, b, target string) {
		root := fstest.MapFS{
			"usr/lib/systemd/systemd-sysctl": file(""), "etc/sysctl.conf": file(b), "etc/sysctl.d/50-a.conf": file(a),
			"run/sysctl.d/60-b.conf": file(b),
			"etc/sysctl.d/99-c.conf": link(target), "etc/rc.local": file(a), "etc/udev/rules.d/a.rules": file(b),
			"etc/systemd/network/a.network": file(a + b),
			"etc/tuned/active_profile":      file("p"), "etc/tuned/p/tuned.conf": file(a + b),
			"proc/net/netstat": file(a),
			"proc/net/snmp":    file(b),
			"proc/modules":     file(a), "proc/pressure/cpu": file(b),
			"etc/NetworkManager/system-connections/a.nmconnection": file(a),
			"proc/sys/net/core/default_qdisc":                      file("fq"), "proc/cmdline": file(a),
			"var/lib/weir/journal.json": file(b),
		}
		d := settings(root)
		wins := map[string]bool{}
		for _, s := range d.Settings {
			if s.Wins && (wins[s.Sysctl] || s.Masked != "" || s.Unread || s.Keeps) {
				t.Errorf("cannot decide: %+v", s)
			}
			wins[s.Sysctl] = wins[s.Sysctl] || s.Wins
			Facts{}.Takes(s.Sysctl, s.Value, a)
		}
	})
}

// Offsets in struct tcp_info (include/uapi/linux/tcp.h). As the header has them: the reader uses a struct.
const (
	infoOptions      = 5
	infoScales       = 6
	infoFlags        = 7 // bit 0: delivery_rate_app_limited
	infoMSS          = 16
	infoUnacked      = 24
	infoLastSent     = 44 // ms ago
	infoLastReceived = 52
	infoRcvSSThresh  = 64
	infoRTT          = 68 // us
	infoCwnd         = 80
	infoRetrans      = 100
	infoMaxPace      = 112 // bytes per second
	infoBytesAcked   = 120
	infoBytesIn      = 128 // received
	infoNotsent      = 144
	infoMinRTT       = 148 // us
	infoSegsOut      = 156 // with data
	infoRate         = 160 // bytes per second
	infoBusy         = 168 // us, as the next two
	infoRwndLimited  = 176
	infoBufLimited   = 184
	infoDeliveredCE  = 196
	infoBytesSent    = 200
	infoBytesAgain   = 208
	infoRcvWindow    = 232
)

// socket is an answer of inet_diag.
type socket struct {
	state        byte
	sport, dport uint16
	to           string
	cc           string
	info         map[int]uint64 // by offset in struct tcp_info
	cookie       uint64
	memory       []uint32 // SK_MEMINFO_*
	tos, class   int      // of IPv4 and IPv6; -1: the kernel does not say
}

func (s socket) bytes() []byte {
	to := net.ParseIP(s.to)
	b := make([]byte, diagLen)
	b[0], b[diagState] = unix.AF_INET6, s.state
	if four := to.To4(); four != nil {
		b[0], to = unix.AF_INET, four
	}
	binary.BigEndian.PutUint16(b[diagSport:], s.sport)
	binary.BigEndian.PutUint16(b[diagDport:], s.dport)
	copy(b[diagDst:], to)
	for typ, value := range map[uint16]int{inetDiagTOS: s.tos, inetDiagClass: s.class} {
		if value >= 0 {
			b = append(b, attribute(typ, []byte{byte(value)})...)
		}
	}
	binary.NativeEndian.PutUint64(b[diagCookie:], s.cookie)
	if s.memory != nil {
		var data []byte
		for _, n := range s.memory {
			data = binary.NativeEndian.AppendUint32(data, n)
		}
		b = append(b, attribute(inetDiagSkMem, data)...)
	}
	if s.info != nil {
		info := make([]byte, 240)
		for at, v := range s.info {
			switch at {
			case infoOptions, infoScales, infoFlags:
				info[at] = byte(v)
			case infoRate, infoBusy, infoRwndLimited, infoBufLimited, infoBytesSent, infoBytesAgain, infoBytesAcked,
				infoBytesIn, infoMaxPace:
				binary.NativeEndian.PutUint64(info[at:], v)
			default:
				binary.NativeEndian.PutUint32(info[at:], uint32(v))
			}
		}
		b = append(b, attribute(inetDiagInfo, info)...)
	}
	return append(b, attribute(inetDiagCong, append([]byte(s.cc), 0))...)
}

func attribute(typ uint16, data []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(data)))
	b = binary.NativeEndian.AppendUint16(b, typ)
	b = append(b, data...)
	return append(b, make([]byte, -len(data)&3)...)
}

// faked is a kernel that has these sockets.
func faked(sockets ...socket) dump {
	return func(family byte, each func([]byte)) error {
		for _, s := range sockets {
			if b := s.bytes(); b[0] == family {
				each(b)
			}
		}
		return nil
	}
}

func TestSockets(t *testing.T) {
	transfer := func(cc string, rtt, least uint64, more map[int]uint64) socket {
		info := map[int]uint64{infoRTT: rtt, infoMinRTT: least, infoUnacked: 40, infoRate: 1_250_000,
			infoBytesSent: 10_000_000, infoBytesAcked: 10_000_000, infoBusy: 1_000_000}
		for at, v := range more {
			info[at] = v
		}
		return socket{state: tcpEstablished, sport: 443, to: "198.51.100.7", cc: cc, info: info}
	}
	var s Sockets
	err := s.read(faked(
		socket{state: tcpListen, sport: 443, to: "0.0.0.0", cc: "bbr"},
		transfer("cubic", 212_000, 48_000, nil),
		transfer("cubic", 208_000, 48_300, map[int]uint64{infoFlags: 1}),
		transfer("cubic", 49_000, 48_000, map[int]uint64{infoBytesAgain: 800_000, infoRetrans: 500, infoUnacked: 2,
			infoNotsent: 9}),
		transfer("bbr", 49_000, 48_000, map[int]uint64{infoBytesAgain: 1_200_000, infoRetrans: 500}),
		// too few to mean anything
		transfer("cubic", 49_000, 48_000, map[int]uint64{infoBytesAgain: 9_000_000, infoRetrans: 9}),
		transfer("cubic", 1_900, 100, map[int]uint64{infoRwndLimited: 200_000, infoBufLimited: 199_999}), // near enough
		transfer("cubic", 200_000, 48_000, map[int]uint64{infoUnacked: 9}),                               // a chat
		transfer("cubic", 200_000, 48_000, map[int]uint64{infoLastSent: 1001}),                           // not now
		socket{state: tcpEstablished, sport: 40000, to: "2001:db8::1", cc: "cubic",
			info: map[int]uint64{infoMinRTT: 1<<32 - 1, infoUnacked: 99}},
		socket{state: tcpEstablished, sport: 443, to: "127.0.0.53", cc: "cubic"},
		socket{state: tcpEstablished, sport: 443, to: "::1", cc: "cubic"},
		socket{state: tcpEstablished, sport: 443, to: "192.0.2.10", cc: "cubic"}, // this host itself
		socket{state: tcpEstablished, sport: 443, to: "172.17.0.9", cc: "cubic"}, // a container
		socket{state: 6, sport: 443, to: "198.51.100.7"},                         // TIME_WAIT
	), []Link{
		{Name: "eth0", Addrs: []string{"192.0.2.10/24", "nonsense"}},
		{Name: "docker0", Kind: "bridge", Addrs: []string{"172.17.0.1/16"}},
		{Name: "wg0", Kind: "wireguard", Addrs: []string{"198.51.100.1/24"}},
	}, "eth0")
	if err != nil {
		t.Fatal(err)
	}
	s.QueueRTT, s.QueueMin, s.RTT = s.QueueRTT.Round(1e7), s.QueueMin.Round(1e6), s.RTT.Round(1e6)
	s.MinRTT = s.MinRTT.Round(1e6)
	want := Sockets{
		Read: true, Total: 9, Congestion: map[string]int{"cubic": 8, "bbr": 1}, Accepted: 8, Busy: 6, Most: 6, Queueing: 2,
		QueueRTT: 210e6, QueueMin: 48e6, MinRTT: 48e6,
		// in steps of 3 %
		Lossy: 2, LossyBBR: 1, LossyShare: 0.1, Receiver: 1, App: 1, Rate: 60e6, Fastest: 10e6, RTT: 49e6,
	}
	if !reflect.DeepEqual(s, want) {
		t.Errorf("read\n%+v\nwant\n%+v", s, want)
	}
	if s.Dialled() != 1 {
		t.Errorf("dialled %d", s.Dialled())
	}
}

// What a connection's packets are marked with is the socket's own, of IPv6 its class, and ECN's bits are none of it.
func TestBackground(t *testing.T) {
	open := socket{state: tcpEstablished, sport: 22, to: "198.51.100.7", info: map[int]uint64{infoRTT: 1}}
	six := open
	six.to = "2001:db8::7"
	with := func(s socket, sport, dport uint16, tos, class int) socket {
		s.sport, s.dport, s.tos, s.class = sport, dport, tos, class
		return s
	}
	var s Sockets
	if err := s.read(faked(
		with(open, 22, 40000, 0x20, -1), with(open, 40000, 22, 0x22, -1), with(open, 443, 40000, 0x04, -1),
		with(six, 22, 40000, 0, 0x20), with(six, 22, 40000, 0x20, 0), // one over IPv4 behind IPv6's socket
		with(open, 22, 40000, 0x48, -1), with(open, 22, 40000, 0x08, -1), with(open, 22, 40000, -1, -1),
		with(open, 22, 40000, 0xb8, -1), with(six, 22, 40000, 0, 0),
	), nil, "eth0"); err != nil || s.Background != 5 || s.BackgroundSSH != 4 || s.Cut != 0 {
		t.Errorf("%+v, %v", s, err)
	}
}

// The client that has most connections counts, by its address.
func TestMost(t *testing.T) {
	to := func(client string) socket {
		return socket{state: tcpEstablished, sport: 443, to: client, cc: "cubic",
			info: map[int]uint64{infoRTT: 49_000, infoMinRTT: 48_000, infoUnacked: 40}}
	}
	var s Sockets
	err := s.read(faked(to("198.51.100.7"), to("198.51.100.8"), to("198.51.100.7"), to("2001:db8::1"),
		to("2001:db8::1"), to("2001:db8::1")), nil, "eth0")
	if err != nil || s.Most != 3 || s.Busy != 6 {
		t.Errorf("%+v, %v", s, err)
	}
}

// listened is what two looks at one connection find.
func listened(t *testing.T, before, now map[int]uint64) Sockets {
	t.Helper()
	look := func(info map[int]uint64) (s Sockets) {
		all := map[int]uint64{infoRTT: 49_000, infoMinRTT: 48_000, infoMSS: 1448}
		maps.Copy(all, info)
		s.senders = &senders{accounts: map[uint64]account{}}
		err := s.read(faked(socket{state: tcpEstablished, sport: 443, to: "198.51.100.7", cc: "cubic", info: all}), nil,
			"eth0")
		if err != nil {
			t.Fatal(err)
		}
		if s.Refused != 0 {
			t.Errorf("refused at one look: %+v", s)
		}
		return s
	}
	was, s := look(before), look(now)
	s.listen(&was, 10*time.Second, bounds{cwnds: map[uint32]bool{10: true}})
	return s
}

// What TCP has sent between two looks and neither has on its way, nor sent again, nor is acknowledged, this host itself
// has refused.
func TestRefused(t *testing.T) {
	const long = 50_000_000 // bytes, that were refused long ago
	for name, c := range map[string]struct {
		sent, acked, again, unacked uint64
		want                        int
		more                        map[int]uint64
	}{
		"a rule drops most (measured)": {13_635_008, 2_912_305, 0, 0, 1, nil},
		"the program waits, too":       {13_635_008, 2_912_305, 0, 0, 0, map[int]uint64{infoFlags: 1}},
		"the receiver binds": {13_635_008, 2_912_305, 0, 0, 0,
			map[int]uint64{infoBusy: 1_000_000, infoRwndLimited: 300_000}},
		"the buffer binds": {13_635_008, 2_912_305, 0, 0, 0,
			map[int]uint64{infoBusy: 1_000_000, infoBufLimited: 300_000}},
		"all arrives":      {13_635_008, 13_635_008, 0, 0, 0, nil},
		"on its way":       {13_635_008, 13_577_088, 0, 40, 0, nil},
		"lost on the path": {13_635_008, 12_635_008, 1_000_000, 0, 0, nil},
		"a thousandth":     {20_000_000, 19_980_000, 0, 0, 0, nil},
		"a little more":    {20_000_000, 19_979_999, 0, 0, 1, nil},
		"ten segments":     {100_000, 85_520, 0, 0, 0, nil},
		"an old kernel":    {0, 9_900_000, 0, 40, 0, nil},
	} {
		for _, past := range []uint64{0, long} {
			before := map[int]uint64{infoBytesSent: 2 * past, infoBytesAcked: past, infoBytesAgain: past / 10}
			info := map[int]uint64{infoNotsent: 9, infoUnacked: c.unacked, infoBytesSent: 2*past + c.sent,
				infoBytesAcked: past + c.acked, infoBytesAgain: past/10 + c.again}
			maps.Copy(info, c.more)
			if s := listened(t, before, info); s.Busy != 1 || s.Refused != c.want {
				t.Errorf("%s, after %d: %+v", name, past, s)
			}
		}
	}
}

// Over a short path nothing is in flight when one looks: a connection is busy that got much through between two looks.
func TestSentMuch(t *testing.T) {
	const mb = 1 << 20
	for name, c := range map[string]struct {
		before, now map[int]uint64
		want        int
	}{
		"much":          {map[int]uint64{infoBytesAcked: 5 * mb}, map[int]uint64{infoBytesAcked: 6 * mb}, 1},
		"little":        {map[int]uint64{infoBytesAcked: 5 * mb}, map[int]uint64{infoBytesAcked: 6*mb - 1}, 0},
		"nothing since": {map[int]uint64{infoBytesAcked: 5 * mb}, map[int]uint64{infoBytesAcked: 5 * mb}, 0},
		"much, and it waits": {map[int]uint64{infoBytesAcked: 5 * mb},
			map[int]uint64{infoBytesAcked: 6 * mb, infoUnacked: 10}, 1},
		"little, and it waits": {nil, map[int]uint64{infoBytesAcked: 9, infoNotsent: 1}, 1},
		"much, but not now":    {nil, map[int]uint64{infoBytesAcked: 6 * mb, infoLastSent: 1001}, 0},
	} {
		if s := listened(t, c.before, c.now); s.Busy != c.want || s.Most != c.want {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// A second look tells of the busy connections what one look does, of those that go on as they began.
func TestSecondLook(t *testing.T) {
	look := func(n uint64) (s Sockets) {
		s.senders = &senders{accounts: map[uint64]account{}}
		transfer := func(cc string, rtt, again uint64) socket {
			return socket{state: tcpEstablished, sport: 443, to: "198.51.100.7", cc: cc, cookie: rtt,
				info: map[int]uint64{infoRTT: rtt,
					infoMinRTT: 48_000, infoUnacked: 40, infoRate: 1_250_000, infoBytesSent: n * 10_000_000,
					infoBytesAcked: n * 10_000_000, infoBytesAgain: n * again, infoRetrans: n * 500,
					infoBusy: n * 1_000_000, infoRwndLimited: n * 300_000, infoBufLimited: n * 300_000,
					infoMaxPace: 1_250_000, infoFlags: 1}}
		}
		if err := s.read(faked(transfer("cubic", 212_000, 0), transfer("bbr", 49_000, 800_000)), nil, ""); err != nil {
			t.Fatal(err)
		}
		return s
	}
	before, now := look(1), look(2)
	now.listen(&before, 10*time.Second, bounds{})
	now.senders, before.senders = nil, nil
	if !reflect.DeepEqual(now, before) || now.Busy != 2 || now.Lossy != 1 || now.Queueing != 1 {
		t.Errorf("%+v\n%+v", now, before)
	}
}

// Of a connection that both looks saw it counts what has come of it in between, of another its whole life.
func TestLately(t *testing.T) {
	lost := map[int]uint64{infoBytesSent: 100_000_000, infoBytesAgain: 5_000_000, infoRetrans: 4000}
	waited := map[int]uint64{infoBytesSent: 100_000_000, infoBusy: 60_000_000, infoRwndLimited: 50_000_000,
		infoBufLimited: 50_000_000}
	old := map[int]uint64{infoSegsOut: 80_000, infoRetrans: 4000, infoBytesAcked: 100_000_000}
	later := func(was map[int]uint64, more map[int]uint64) map[int]uint64 {
		now := maps.Clone(was)
		for field, n := range more {
			now[field] += n
		}
		return now
	}
	for name, c := range map[string]struct {
		before, now             map[int]uint64
		lossy, receiver, buffer int
		share                   units.Share
	}{
		"lost long ago":         {lost, later(lost, map[int]uint64{infoBytesSent: 10_000_000}), 0, 0, 0, 0},
		"lost in its life":      {nil, lost, 1, 0, 0, 0.05},
		"loses now":             {lost, later(lost, lost), 1, 0, 0, 0.05},
		"loses now, in its age": {nil, later(lost, map[int]uint64{infoBytesSent: 1e9}), 0, 0, 0, 0},
		"loses more now": {lost, later(lost, map[int]uint64{infoBytesSent: 10_000_000, infoBytesAgain: 1_000_000,
			infoRetrans: 800}), 1, 0, 0, 0.1},
		"an accident now": {lost, later(lost, map[int]uint64{infoBytesSent: 100_000, infoBytesAgain: 10_000,
			infoRetrans: 9}), 0, 0, 0, 0},
		"waited long ago":        {waited, later(waited, map[int]uint64{infoBusy: 9_000_000}), 0, 0, 0, 0},
		"waited in its life":     {nil, waited, 0, 1, 1, 0},
		"waits for a window now": {waited, later(waited, map[int]uint64{infoBusy: 9, infoRwndLimited: 2}), 0, 1, 0, 0},
		"waits for room now":     {waited, later(waited, map[int]uint64{infoBusy: 9, infoBufLimited: 2}), 0, 0, 1, 0},
		"an old kernel, lost long ago": {old, later(old, map[int]uint64{infoSegsOut: 8000,
			infoBytesAcked: 10_000_000}), 0, 0, 0, 0},
		"an old kernel, loses now": {old, later(old, old), 1, 0, 0, 0.05},
	} {
		now := later(c.now, map[int]uint64{infoNotsent: 9})
		got := listened(t, c.before, now)
		share := units.Share(math.Round(float64(got.LossyShare)*1000) / 1000)
		if got.Busy != 1 || got.Lossy != c.lossy || got.Receiver != c.receiver || got.Buffer != c.buffer ||
			share != c.share {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// Of connections that wait for room in the send buffer the largest of those is told.
func TestSendBuffer(t *testing.T) {
	waiting := func(cookie uint64, queued, buffer uint32) socket {
		return socket{state: tcpEstablished, sport: 443, to: "198.51.100.7", cc: "cubic", cookie: cookie,
			info: map[int]uint64{infoRTT: 49_000, infoMinRTT: 48_000, infoMSS: 1448, infoUnacked: 40, infoBusy: 9,
				infoBytesAcked: 9_000_000}, memory: []uint32{0, 131072, 0, buffer, 0, queued, 0, 0, 0}}
	}
	var s Sockets
	if err := s.read(faked(waiting(1, 60_000, 65536), waiting(2, 90_000, 98304), waiting(3, 0, 4<<20)), nil,
		""); err != nil || s.Buffer != 2 || s.SendBuffer != 98304 {
		t.Errorf("%+v, %v", s, err)
	}
}

// A route can bound how many segments a connection has on its way.
func TestClamped(t *testing.T) {
	for name, c := range map[string]struct{ cwnd, unacked, want int }{
		"all that a route allows":  {10, 10, 1},
		"less than that":           {10, 9, 0},
		"more than a route allows": {11, 11, 0},
	} {
		now := map[int]uint64{infoNotsent: 9, infoCwnd: uint64(c.cwnd), infoUnacked: uint64(c.unacked)}
		if s := listened(t, nil, now); s.Clamped != c.want {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// What connections bring in is counted between two looks.
func TestReceived(t *testing.T) {
	for name, c := range map[string]struct {
		before, now uint64
		want        units.Rate
	}{
		"some":                 {5_000_000, 30_000_000, 20_000_000},
		"all that there is":    {0, 30_000_000, 24_000_000},
		"not enough for bulk":  {0, bulk - 1, 0},
		"less than there was":  {30_000_000, 5_000_000, 0},
		"as much as there was": {30_000_000, 30_000_000, 0},
	} {
		s := listened(t, map[int]uint64{infoBytesIn: c.before}, map[int]uint64{infoBytesIn: c.now})
		if s.Received != c.want {
			t.Errorf("%s: %s, want %s", name, s.Received, c.want)
		}
	}
}

// A window that this host announces is too small where the other end uses most of it, and it cannot grow.
func TestWindows(t *testing.T) {
	const most, mb, rtt = 6 << 20, 1 << 20, 100_000
	type look struct {
		received, window uint64
		memory           []uint32 // what is unread, and the buffer
		scale            uint64   // and that is on
	}
	uses := func(window uint64) uint64 { return 100 * window } // in the 100 RTTs of ten seconds
	fixed := map[string]Windows{"it still grows": {Fixed: 1, Largest: 200_000},
		"opened while one listens, and small": {Fixed: 1, Largest: 100_000}}
	for name, c := range map[string]struct {
		before, now look
		want        Windows
	}{
		"as large as tcp_rmem lets it be": {look{0, 3 * mb, []uint32{0, most}, 7},
			look{uses(3 * mb), 3 * mb, []uint32{0, most}, 7}, Windows{Maximum: 1, Largest: 3 * mb}},
		"three quarters of it are used": {look{0, 3 * mb, []uint32{0, most}, 7},
			look{uses(3*mb) * 3 / 4, 3 * mb, []uint32{0, most}, 7}, Windows{Maximum: 1, Largest: 3 * mb}},
		"half of it is used": {look{0, 3 * mb, []uint32{0, most}, 7},
			look{uses(3*mb) / 2, 3 * mb, []uint32{0, most}, 7}, Windows{}},
		"opened while one listens": {look{}, look{uses(3 * mb), 3 * mb, []uint32{0, most}, 7},
			Windows{Maximum: 1, Largest: 3 * mb}},
		"by its scale": {look{0, 65535, []uint32{0, 300_000}, 0}, look{uses(65535), 65535, []uint32{0, 300_000}, 0},
			Windows{Scale: 1, Largest: 65535}},
		"by another scale": {look{0, 250_000, []uint32{0, 900_000}, 2},
			look{uses(250_000), 250_000, []uint32{0, 900_000}, 2}, Windows{Scale: 1, Largest: 250_000}},
		"above its scale": {look{0, 337_384, []uint32{0, 439_333}, 0},
			look{uses(64_000), 337_384, []uint32{0, 439_333}, 0}, Windows{Scale: 1, Largest: 65535}},
		"by its program": {look{0, 100_000, []uint32{0, 200_000}, 7},
			look{uses(100_000), 100_000, []uint32{0, 200_000}, 7}, Windows{Fixed: 1, Largest: 100_000}},
		"by its program, above tcp_rmem": {look{0, 4 * mb, []uint32{0, 2 * most}, 7},
			look{uses(4 * mb), 4 * mb, []uint32{0, 2 * most}, 7}, Windows{Fixed: 1, Largest: 4 * mb}},
		"it still grows": {look{0, 100_000, []uint32{0, 200_000}, 7},
			look{uses(200_000), 200_000, []uint32{0, 400_000}, 7}, Windows{}},
		"a slow program": {look{0, 100, []uint32{most / 2, most}, 7},
			look{uses(100), 100, []uint32{most / 2, most}, 7}, Windows{Unread: 1}},
		"a program that is slow at one look": {look{0, 3 * mb, []uint32{0, most}, 7},
			look{uses(1 * mb), 3 * mb, []uint32{most / 2, most}, 7}, Windows{}},
		"opened while one listens, and small": {look{}, look{uses(100_000), 100_000, []uint32{0, 200_000}, 7},
			Windows{}},
		"nothing is known of its memory": {look{0, 100_000, nil, 7}, look{uses(100_000), 100_000, nil, 7}, Windows{}},
	} {
		for _, older := range []bool{false, true} { // before Linux 6.2
			read := func(l look) (s Sockets) {
				info := map[int]uint64{infoMinRTT: rtt, infoRTT: 2 * rtt, infoBytesIn: 5*mb + l.received,
					infoOptions: 4,
					infoScales:  l.scale << 4, infoRcvWindow: l.window, infoRcvSSThresh: 7}
				if older {
					info[infoRcvWindow], info[infoRcvSSThresh] = 0, l.window
				}
				var memory []uint32
				if l.memory != nil {
					memory = append(slices.Clone(l.memory), make([]uint32, 7)...)
				}
				s.senders = &senders{accounts: map[uint64]account{}}
				if err := s.read(faked(socket{state: tcpEstablished, sport: 40000, to: "198.51.100.7", cc: "cubic",
					info: info, memory: memory}), nil, "eth0"); err != nil {
					t.Fatal(err)
				}
				return s
			}
			was, now := read(c.before), read(c.now)
			if c.before.memory == nil && c.now.memory != nil {
				was = Sockets{Read: true, senders: &senders{}}
			}
			if now.Window != (Windows{}) {
				t.Errorf("%s: %+v at one look", name, now.Window)
			}
			other := now
			now.listen(&was, 10*time.Second, bounds{buffer: most})
			if now.Window != c.want {
				t.Errorf("%s: %+v, want %+v", name, now.Window, c.want)
			}
			// Where none grows, one that is not as large as it may be is as large as it will be.
			want := c.want
			if w, differs := fixed[name]; differs {
				want = w
			}
			other.listen(&was, 10*time.Second, bounds{buffer: most, fixed: true})
			if other.Window != want {
				t.Errorf("%s, and none grows: %+v, want %+v", name, other.Window, want)
			}
		}
	}
}

// A connection whose program bounds its pace is told by what is delivered.
func TestPaced(t *testing.T) {
	for name, c := range map[string]struct {
		most, delivered uint64 // bytes per second
		want            int
	}{
		"at its pace":        {625_000, 610_000, 1},
		"a little above":     {625_000, 812_499, 1},
		"far above":          {625_000, 812_600, 0},
		"below, by the path": {625_000, 437_000, 0},
		"no bound":           {1<<64 - 1, 1_250_000, 0},
		"none told":          {0, 1_250_000, 0},
	} {
		var s Sockets
		err := s.read(faked(socket{state: tcpEstablished, sport: 443, to: "198.51.100.7", cc: "cubic",
			info: map[int]uint64{infoRTT: 49_000, infoMinRTT: 48_000, infoUnacked: 40, infoMaxPace: c.most,
				infoRate: c.delivered}}), nil, "eth0")
		if err != nil || s.Paced != c.want || s.Pace != units.Rate(8*c.most*uint64(c.want)) {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
}

// Bulk data comes in by a connection that has just brought some, and more than it took away.
func TestReceiving(t *testing.T) {
	const mb = 1 << 20
	for name, c := range map[string]struct {
		in, out, last uint64
		want          int
	}{
		"an upload":            {30 * mb, 300, 20, 1},
		"an upload, long ago":  {30 * mb, 300, 1001, 0},
		"a request":            {mb - 1, 300, 20, 0},
		"a download":           {2 * mb, 90 * mb, 20, 0},
		"nothing was received": {0, 0, 0, 0},
	} {
		var s Sockets
		err := s.read(faked(socket{state: tcpEstablished, sport: 443, to: "198.51.100.7", cc: "cubic",
			info: map[int]uint64{infoBytesIn: c.in, infoBytesAcked: c.out, infoLastReceived: c.last}}), nil, "eth0")
		if err != nil || s.Receiving != c.want {
			t.Errorf("%s: %d, want %d (%v)", name, s.Receiving, c.want, err)
		}
	}
}

// What is passed on is told from what is served and from what is fetched.
func TestPassed(t *testing.T) {
	const mb = 1_000_000
	conn := func(port uint16, in, out uint64) socket {
		return socket{state: tcpEstablished, sport: port, to: "198.51.100.7", cc: "cubic",
			info: map[int]uint64{infoBytesIn: in, infoBytesAcked: out}}
	}
	accepted := func(in, out uint64) socket { return conn(443, in, out) }
	dialled := func(in, out uint64) socket { return conn(40000, in, out) }
	for name, c := range map[string]struct {
		sockets []socket
		want    units.Share
	}{
		"nothing":                    {nil, 0},
		"a server":                   {[]socket{accepted(mb, 900*mb), accepted(mb, mb)}, 0},
		"a server that asks others":  {[]socket{accepted(mb, 900*mb), dialled(4*mb, mb)}, 0.01},
		"a download":                 {[]socket{dialled(900*mb, mb)}, 0},
		"a download beside a server": {[]socket{dialled(900*mb, mb), accepted(mb, 100*mb)}, 0.11},
		"a proxy, downloads": {[]socket{accepted(mb, 50*mb), dialled(50*mb, mb), accepted(mb, 50*mb),
			dialled(52*mb, mb)}, 0.98},
		"a proxy, uploads":     {[]socket{accepted(90*mb, mb), dialled(mb, 90*mb)}, 1},
		"a proxy that buffers": {[]socket{accepted(0, 30*mb), dialled(40*mb, 0)}, 0.75},
		"a proxy, of the host's own": {[]socket{{state: tcpEstablished, sport: 443, to: "127.0.0.1",
			info: map[int]uint64{infoBytesAcked: 9 * mb}}, dialled(9*mb, 0)}, 0},
		"too little to mean anything": {[]socket{accepted(0, mb-1), dialled(mb-1, 0)}, 0},
		"enough":                      {[]socket{accepted(0, mb), dialled(mb, 0)}, 1},
		"more than 64 bits, when added": {[]socket{accepted(0, 1<<64-1), accepted(0, 1<<64-1), dialled(1<<64-1, 0),
			dialled(1<<64-1, 0)}, 1},
	} {
		var s Sockets
		listener := socket{state: tcpListen, sport: 443, to: "0.0.0.0", cc: "cubic"}
		if err := s.read(faked(append([]socket{listener}, c.sockets...)...), nil, ""); err != nil {
			t.Fatal(err)
		}
		if got := units.Share(math.Round(float64(s.Passed)*100) / 100); got != c.want {
			t.Errorf("%s: %v, want %v", name, s.Passed, c.want)
		}
	}
}

// A kernel that is older says less, and one that is broken says it in pieces: both are no reason to fall.
func TestShortAnswers(t *testing.T) {
	whole := socket{state: tcpEstablished, sport: 443, to: "198.51.100.7", cc: "cubic",
		info: map[int]uint64{infoRTT: 1000, infoMinRTT: 900, infoUnacked: 20}}.bytes()
	for n := range len(whole) + 1 {
		var s Sockets
		err := s.read(func(family byte, each func([]byte)) error {
			if family == unix.AF_INET6 {
				return unix.ENOENT
			}
			each(whole[:n])
			return nil
		}, nil, "")
		if err != nil || s.Total+s.Cut == 0 || s.Total > 1 {
			t.Errorf("%d bytes: %+v, %v", n, s, err)
		}
	}
	var s Sockets
	refuse := func(byte, func([]byte)) error { return unix.EPERM }
	if err := s.read(refuse, nil, ""); !errors.Is(err, unix.EPERM) || s.Read {
		t.Errorf("refused: %v, %+v", err, s)
	}
}

// An older kernel's struct is shorter, and a newer one's longer.
func TestReadInfo(t *testing.T) {
	for _, n := range []int{0, 8, 104, 192, 224, 240, 400} {
		info := readInfo(bytes.Repeat([]byte{0xff}, n))
		if info.appLimited != (n > infoFlags) || (info.Rtt != 0) != (n > infoRTT) ||
			(info.Min_rtt != 0) != (n > infoMinRTT) ||
			(info.Bytes_retrans != 0) != (n > infoBytesAgain) {
			t.Errorf("%d bytes: %+v", n, info)
		}
	}
}

// The kernel's answers arrive one by one, and its errors are errors.
func TestAskTCP(t *testing.T) {
	ask := func(answer func(req []sockdiag.Message) ([]sockdiag.Message, error)) (got []byte, err error) {
		conn := nltest.Dial(func(req []sockdiag.Message) ([]sockdiag.Message, error) {
			if data := req[0].Data; len(data) != 56 || data[0] != unix.AF_INET ||
				req[0].Header.Flags != sockdiag.Request|sockdiag.Dump {
				t.Errorf("asked % x, %v", data, req[0].Header)
			}
			return answer(req)
		})
		defer conn.Close()
		err = askTCP(conn, unix.AF_INET, func(b []byte) { got = append(got, b...) })
		return got, err
	}
	got, err := ask(func([]sockdiag.Message) ([]sockdiag.Message, error) {
		return nltest.Multipart([]sockdiag.Message{{Data: []byte{1}}, {Data: []byte{2}}, {Data: make([]byte, 4)}})
	})
	if err != nil || !slices.Equal(got, []byte{1, 2}) {
		t.Errorf("% x, %v", got, err)
	}
	got, err = ask(func(req []sockdiag.Message) ([]sockdiag.Message, error) {
		return nltest.Error(int(unix.ENOENT), []sockdiag.Message{{Data: req[0].Data}})
	})
	if !errors.Is(err, unix.ENOENT) || len(got) > 0 {
		t.Errorf("no such family: % x, %v", got, err)
	}
}

// packed is payloads one after another, each behind its length.
func packed(payloads ...[]byte) (b []byte) {
	for _, p := range payloads {
		b = append(binary.NativeEndian.AppendUint16(b, uint16(len(p))), p...)
	}
	return b
}

func unpacked(b []byte, each func([]byte)) {
	for len(b) >= 2 {
		n := min(int(binary.NativeEndian.Uint16(b)), len(b)-2)
		each(b[2 : 2+n])
		b = b[2+n:]
	}
}

func FuzzSockets(f *testing.F) {
	whole := socket{state: tcpEstablished, sport: 443, to: "198.51.100.7", cc: "cubic",
		info: map[int]uint64{infoRTT: 1000, infoMinRTT: 900, infoUnacked: 20, infoRate: 1 << 63, infoBytesIn: 1 << 63,
			infoBytesAcked: 1 << 62}}.bytes()
	listener := socket{state: tcpListen, sport: 80, to: "0.0.0.0"}.bytes()
	f.Add(packed(listener, whole, socket{state: tcpEstablished, sport: 80, to: "198.51.100.7",
		info: map[int]uint64{infoBytesAcked: 1 << 63}}.bytes()))
	f.Add(packed(whole))
	f.Add(packed(whole[:50], whole[:100]))
	f.Fuzz(func(t *testing.T, b []byte) {
		var s Sockets
		s.read(func(_ byte, each func([]byte)) error {
			unpacked(b, each)
			return nil
		}, nil, "")
		if s.Busy > s.Total || s.Accepted > s.Total || s.Queueing+s.Lossy > s.Busy || s.LossyShare < 0 ||
			s.LossyShare > 1 || !(s.Passed >= 0 && s.Passed <= 1) || s.QueueRTT < 0 || s.QueueMin > s.QueueRTT {
			t.Errorf("%+v", s)
		}
	})
}

func TestHistogram(t *testing.T) {
	for us := uint64(1); us < 1<<32; us = us*17/16 + 1 {
		var h histogram
		h.add(uint32(us))
		if got := float64(h.quantile(0.5)) / 1000 / float64(us); got < 0.97 || got > 1.03 {
			t.Errorf("%d us reads back as %s", us, h.quantile(0.5))
		}
	}
}

// The kernel's own answers: connections that are made here are the ones that are seen.
func TestLiveSockets(t *testing.T) {
	if why := unloaded(os.DirFS("/"), kernelRelease(), "tcp_diag"); why != "" {
		t.Skip("skipped, not passed: " + why)
	}
	inNamespace(t, func() {
		for dev, text := range map[string]string{"a": "192.0.2.2/24", "b": "192.0.2.3/24"} {
			addr, _ := netlink.ParseAddr(text)
			l, _ := netlink.LinkByName(dev)
			if err := netlink.AddrAdd(l, addr); err != nil {
				t.Error(err)
				return
			}
		}
		listener, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Error(err)
			return
		}
		defer unix.Close(listener)
		at := &unix.SockaddrInet4{Port: 5001, Addr: [4]byte{192, 0, 2, 2}}
		if err := errors.Join(unix.Bind(listener, at), unix.Listen(listener, 8)); err != nil {
			t.Error(err)
			return
		}
		const connections = 5
		for range connections {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err == nil {
				defer unix.Close(fd)
				err = unix.Connect(fd, at)
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
		var s Sockets
		if err := s.read(sockDiag, nil, ""); err != nil {
			t.Error(err)
			return
		}
		cc := line(os.DirFS("/"), "proc/sys/net/ipv4/tcp_congestion_control")
		if s.Total != 2*connections || s.Accepted != connections || s.Congestion[cc] != 2*connections || s.Cut != 0 ||
			s.RTT <= 0 || s.RTT > units.Duration(time.Minute) {
			t.Errorf("%d connections, %s: %+v", connections, cc, s)
		}
		f, err := ReadDeep()
		if err != nil || f.Deep == nil || !f.Deep.Sockets.Read || f.Deep.Sockets.Total != 0 {
			t.Errorf("connections to the host itself do not count: %+v, %v", f.Deep, err)
		}
		f.Deep = nil
		if again, err := Read(); err != nil || len(again.Links) != len(f.Links) {
			t.Errorf("%v", err)
		}
	})
}

func kernelRelease() string {
	var uts unix.Utsname
	_ = unix.Uname(&uts)
	return unix.ByteSliceToString(uts.Release[:])
}

// 10,000 connections cost milliseconds, and no memory.
func BenchmarkSockets10000(b *testing.B) {
	whole := socket{state: tcpEstablished, sport: 443, to: "198.51.100.7", cc: "cubic",
		info: map[int]uint64{infoRTT: 90_000, infoMinRTT: 48_000, infoUnacked: 20, infoRate: 1e6}}.bytes()
	b.ReportAllocs()
	for b.Loop() {
		var s Sockets
		err := s.read(func(family byte, each func([]byte)) error {
			for range 10_000 {
				if family == unix.AF_INET {
					each(whole)
				}
			}
			return nil
		}, nil, "")
		if err != nil || s.Queueing != 10_000 {
			b.Fatal(err, s)
		}
	}
}

// And all of it together on this host.
func BenchmarkReadDeep(b *testing.B) {
	runtime.LockOSThread()
	for b.Loop() {
		if _, err := ReadDeep(); err != nil {
			b.Fatal(err)
		}
	}
}
