// SPDX-License-Identifier: Apache-2.0

// Package host reads what a plan needs to know of a Linux host, once, into a plain value.
//
// It reads and never writes: no setting, no module, no file of the host is different afterwards. It describes and never
// judges: what a value means for a goal is the plan's affair. What is not there is a fact, too, and absent from the
// value: a sysctl of another network namespace, a speed that a driver does not know. Only a host that cannot be read at
// all is an error.
package host

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"weir/internal/qdisc"
	"weir/internal/units"
)

// Facts is a host as it was at one moment, seen from one network namespace.
type Facts struct {
	Kernel    string `json:"kernel"`          // release, as uname -r says it
	Build     string `json:"build,omitempty"` // what its builder says of it besides: "Debian 6.12.107-1"
	Boot      string `json:"boot,omitempty"`  // the kernel's random id of this boot
	Namespace string `json:"namespace"`       // of the network: "net:[4026531840]"
	// of the namespace, which none has twice in a boot; 0 where the kernel has none
	Cookie uint64     `json:"cookie,omitempty"`
	Admin  bool       `json:"admin"`            // the reader may change networks here (CAP_NET_ADMIN)
	Memory units.Size `json:"memory,omitempty"` // RAM, in bytes
	Links  []Link     `json:"links"`            // by index
	// Device of the default route; IPv4's before IPv6's, the lowest metric first
	Uplink   string         `json:"uplink,omitempty"`
	Defaults []DefaultRoute `json:"defaults,omitempty"` // all of them, of whatever table, the uplink's first
	// by dotted name; a name that is missing does not exist here
	Sysctls    map[string]Sysctl  `json:"sysctls"`
	Congestion Congestion         `json:"congestion"`
	Qdiscs     map[string]Support `json:"qdiscs"` // by kind
	// by name: what this program brings along, in BPF
	Objects map[string]Support `json:"objects,omitempty"`
	// and of those that the kernel does not take, or where that is not known, why
	Lacks map[string]string `json:"lacks,omitempty"`
	// kinds that this program has no words for, as modules on disk
	OtherQdiscs []string `json:"other_qdiscs,omitempty"`
	// what it takes to let arriving packets wait in a queue: IngressModules
	Ingress Support `json:"ingress,omitempty"`
	// what it takes to let a tunnel's packets wait unpacked: UnpackModules
	Unpack  Support `json:"unpack,omitempty"`
	Passing Passing `json:"passing,omitzero"`
	// programs that are known to pass on what others send, by name
	Relays  []Relay `json:"relays,omitempty"`
	MPTCP   int     `json:"mptcp,omitempty"` // sockets: listeners, and connections that speak it
	Init    string  `json:"init,omitempty"`  // Systemd, OpenRC, or not known
	Program Program `json:"program,omitzero"`
	Udev    bool    `json:"udev,omitempty"` // it runs
	// what the Starter's file starts, if that is Weir's and the program is there
	UnitProgram string `json:"unit_program,omitempty"`
	// what is where a plan may write, by path; nil where nothing can be kept
	Files    map[string]File      `json:"-"`
	Modified map[string]time.Time `json:"-"` // and when each was written
	// this may not be the first network namespace: process 1's cannot be read
	Hidden bool `json:"hidden,omitempty"`
	// all of it only if ReadDeep has read it; of Read no more than who sets what at boot
	Deep *Deep `json:"deep,omitempty"`
}

// MarshalJSON writes facts with a member that readers know from before there were several objects.
func (f Facts) MarshalJSON() ([]byte, error) {
	type plain Facts
	return json.Marshal(struct {
		plain
		BPFDualPI2 string `json:"bpf_dualpi2,omitempty"`
	}{plain(f), f.Lacks[qdisc.BPF]})
}

// Program is the file that this program runs from.
type Program struct {
	Path     string `json:"path,omitempty"`
	RootOnly bool   `json:"root_only,omitempty"` // nobody but root can put another in its place
}

// Sysctl is the value of a kernel setting, its fields separated by one space.
type Sysctl struct {
	Value    string `json:"value"`
	ReadOnly bool   `json:"read_only,omitempty"` // as net.core.rmem_max is outside the first network namespace
}

// Congestion lists congestion controls by name.
type Congestion struct {
	Available []string `json:"available"` // ready to use
	// as modules on disk; the kernel loads one when its name is written to the sysctl
	Loadable []string `json:"loadable,omitempty"`
	// bpf_bbr: the version of the one that a weir has registered, as far as this process can tell; "" if none has
	Registered string `json:"registered,omitempty"`
	Brings     string `json:"brings,omitempty"` // and the version of the one that this program brings along
}

// Has reports whether a congestion control can be chosen.
func (c Congestion) Has(name string) bool {
	return slices.Contains(c.Available, name) || slices.Contains(c.Loadable, name)
}

// Support is whether a kernel has something, as far as this reader could find out.
type Support string

const (
	Yes     Support = "yes" // in the kernel, or a module on disk that it loads by itself
	No      Support = "no"
	Unknown Support = "unknown" // there is no list of modules, and trying needs root, or could load one
)

// Forwards reports whether the host passes on packets of others, as far as its switches for all interfaces say.
func (f Facts) Forwards() bool {
	return f.Sysctls["net.ipv4.ip_forward"].Value == "1" || f.Sysctls["net.ipv6.conf.all.forwarding"].Value == "1"
}

// Link finds a link by name.
func (f Facts) Link(name string) (Link, bool) {
	i := slices.IndexFunc(f.Links, func(l Link) bool { return l.Name == name })
	if i < 0 {
		return Link{}, false
	}
	return f.Links[i], true
}

// Link is a network device.
type Link struct {
	Index    int        `json:"index"`
	Name     string     `json:"name"`
	Kind     string     `json:"kind,omitempty"`   // veth, bridge, wireguard …; empty for a network card
	Driver   string     `json:"driver,omitempty"` // as ethtool -i says it
	MAC      string     `json:"mac,omitempty"`    // 52:54:00:12:34:56; of an Ethernet device
	Loopback bool       `json:"loopback,omitempty"`
	Up       bool       `json:"up"`                 // administratively, and a carrier is not known to be missing
	MTU      int        `json:"mtu"`                // bytes
	Speed    units.Rate `json:"speed,omitempty"`    // bits per second; 0 when the driver does not know
	TxQueues int        `json:"tx_queues"`          // in use, of those that the device has
	GSOBytes int        `json:"gso_max_size"`       // largest packet handed to the device, bytes
	GSOSegs  int        `json:"gso_max_segs"`       // and in segments
	Addrs    []string   `json:"addrs,omitempty"`    // 192.0.2.1/24
	Tree     qdisc.Tree `json:"tree"`               // its queueing disciplines
	TxQLen   int        `json:"tx_qlen,omitempty"`  // packets that a plain FIFO here, or a tun device, holds at most
	Master   string     `json:"master,omitempty"`   // the bridge or bond of which it is a port
	Parent   string     `json:"parent,omitempty"`   // the device that it is made on: a VLAN's, a tunnel's
	RxBytes  uint64     `json:"rx_bytes,omitempty"` // received since it was made, or its driver loaded (IFLA_STATS64)
	TxBytes  uint64     `json:"tx_bytes,omitempty"` // and sent
	RxPkts   uint64     `json:"rx_pkts,omitempty"`  // packets received, as the driver counts them
	Passes   []string   `json:"passes,omitempty"`   // what goes past that, as qdisc.Outer
	// of a tunnel: what its packets come in, as qdisc.Outer; only root may know
	Ports []string `json:"ports,omitempty"`
	// of a WireGuard tunnel, by their keys; only root may know
	Peers []Peer `json:"peers,omitempty"`
	// the device to which a filter redirects all that arrives; Gone: to one that is no longer there
	Redirect string `json:"redirect,omitempty"`
	// the devices to which filters redirect what leaves by it, or some of that
	LedOut []string `json:"led_out,omitempty"`
}

// Tunnel is the kind of tunnel that a link may be; "" if it is none. A tun device, which has no address of Ethernet's,
// is always a tunnel's; a tap device may be a virtual machine's.
func (l Link) Tunnel() string {
	switch l.Kind {
	case "wireguard", "amneziawg":
		return "wireguard"
	case "ovpn", "ovpn-dco", "ovpn-dco-v2":
		return "ovpn"
	case "xfrm", "vti", "vti6":
		return "xfrm"
	case "gretap":
		return "gre"
	case "ip6gretap":
		return "ip6gre"
	case "ipip", "gre", "ip6gre", "sit", "ip6tnl", "vxlan", "geneve":
		return l.Kind
	case "tuntap":
		return "tunnel"
	}
	return ""
}

// Peer is one of a WireGuard tunnel's.
type Peer struct {
	Key     string   `json:"key"`     // public, in base64
	Allowed []string `json:"allowed"` // prefixes that it may use, sorted: 10.8.0.7/32
}

// DefaultRoute is a way out.
type DefaultRoute struct {
	Dev    string `json:"dev"`
	IPv6   bool   `json:"ipv6,omitempty"`
	Metric int    `json:"metric,omitempty"`
	Table  int    `json:"table,omitempty"` // of policy routing (ip-rule(8)); 0: the main one
}

func (r DefaultRoute) String() string {
	text := "IPv4"
	if r.IPv6 {
		text = "IPv6"
	}
	if r.Metric != 0 {
		text += fmt.Sprintf(", metric %d", r.Metric)
	}
	if r.Table != 0 {
		text += fmt.Sprintf(", table %d", r.Table)
	}
	return text
}

// FirstUserNamespace is that of each boot (include/linux/proc_ns.h), as /proc/PID/ns/user says it.
const FirstUserNamespace = "user:[4026531837]"

// Gone stands for a device that is not there any more. It is no name that a device can have.
const Gone = "a device that is gone"

// readFiles takes from /proc and /lib/modules what is text.
func readFiles(root fs.FS, f *Facts) {
	f.Boot = line(root, "proc/sys/kernel/random/boot_id")
	f.Memory = memory(root)
	f.Sysctls = map[string]Sysctl{}
	frozen := readOnlyMount(root)
	for _, name := range sysctls {
		path := strings.TrimPrefix(SysctlPath(name), "/")
		text, err := fs.ReadFile(root, path)
		if err != nil {
			continue
		}
		s := Sysctl{Value: strings.Join(strings.Fields(string(text)), " ")}
		if info, err := fs.Stat(root, path); err == nil {
			s.ReadOnly = info.Mode()&0o200 == 0 || frozen("/"+path)
		}
		f.Sysctls[name] = s
	}
	f.Congestion.Available = strings.Fields(line(root, "proc/sys/net/ipv4/tcp_available_congestion_control"))
	slices.Sort(f.Congestion.Available)
	for _, name := range loadable(root, f.Kernel) {
		if !slices.Contains(f.Congestion.Available, name) {
			f.Congestion.Loadable = append(f.Congestion.Loadable, name)
		}
	}
}

// readOnlyMount reports whether a path is in a file system that is mounted read-only here, as /proc/sys is in many
// containers (proc_pid_mountinfo(5)).
func readOnlyMount(root fs.FS) func(path string) bool {
	text, _ := fs.ReadFile(root, "proc/self/mountinfo")
	return func(path string) (is bool) {
		longest := 0
		for l := range strings.Lines(string(text)) {
			const point, options = 4, 5
			f := strings.Fields(l)
			if len(f) <= options {
				continue
			}
			at := strings.TrimSuffix(f[point], "/") + "/"
			if len(at) >= longest && strings.HasPrefix(path+"/", at) { // of two at one place the later one is on top
				longest, is = len(at), slices.Contains(strings.Split(f[options], ","), "ro")
			}
		}
		return is
	}
}

// SysctlPath is the file that holds a setting. Names that plans use have no dot within a part, as an interface's name
// could.
func SysctlPath(name string) string { return "/proc/sys/" + strings.ReplaceAll(name, ".", "/") }

func memory(root fs.FS) units.Size {
	text, _ := fs.ReadFile(root, "proc/meminfo")
	for l := range strings.Lines(string(text)) {
		var kib uint64
		if n, _ := fmt.Sscanf(l, "MemTotal: %d kB", &kib); n == 1 && kib < 1<<50 {
			return units.Size(kib << 10)
		}
	}
	return 0
}

func line(root fs.FS, path string) string {
	text, _ := fs.ReadFile(root, path)
	return strings.TrimSpace(string(text))
}
