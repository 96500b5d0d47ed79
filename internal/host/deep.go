// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/internal/qdisc"
	"weir/internal/units"
)

// Deep is what a diagnosis wants to know of a host beyond what a plan needs, and what costs more to read.
type Deep struct {
	// of sysctls at boot: SystemdSysctl, procps, or neither
	Loader string `json:"loader,omitempty"`
	// of sysctls in files, in the order in which they are read
	Settings   []Setting   `json:"settings,omitempty"`
	Writers    []Writer    `json:"writers,omitempty"` // who else sets what plans set
	Idle       []Writer    `json:"idle,omitempty"`    // and what would, but has no effect
	Contained  []Contained `json:"contained,omitempty"`
	Sockets    Sockets     `json:"sockets"` // live TCP connections
	SYN        SYN         `json:"syn"`     // how connections were opened since the boot
	TCPMemory  TCPMemory   `json:"tcp_memory"`
	Namespaces []Namespace `json:"namespaces,omitempty"` // other network namespaces that processes are in
	// the kernel has address translation loaded; its rules only root may read
	NAT Support `json:"nat"`
	// modules of congestion controls and queues: what one of them does is no kernel's own default
	Loaded []string `json:"loaded,omitempty"`
	// the kernel takes queueing disciplines written in BPF, and describes its types
	BPFQdisc  Support             `json:"bpf_qdisc"`
	AccECN    Support             `json:"acc_ecn"`            // accurate ECN feedback
	CPU       units.Share         `json:"cpu_pressure"`       // of the last 10 s in which something waited for a CPU
	Offloads  map[string][]string `json:"offloads,omitempty"` // by device: gro, gso, tso
	Droppers  []Dropper           `json:"droppers,omitempty"`
	Listened  units.Duration      `json:"listened,omitempty"` // over which counters were compared; 0: read once
	Counts    Counts              `json:"counts,omitempty"`
	Rose      Counts              `json:"rose,omitempty"` // while Listened passed
	Conntrack Conntrack           `json:"conntrack,omitzero"`
	// of devices with hardware, those that go to one CPU
	Interrupts []Interrupt `json:"interrupts,omitempty"`
	TxQueues   []TxQueue   `json:"tx_queues,omitempty"` // that somebody has bounded
	// routes that set more for connections than where they go
	Routes    []RouteMetrics `json:"routes,omitempty"`
	Netfilter Netfilter      `json:"netfilter,omitzero"`
	Unknown   []Unread       `json:"unknown,omitempty"` // what could not be read
	Journal   []byte         `json:"-"`                 // the text of that file; nil if there is none
}

// Dropper is a filter's action on a device that drops packets, or has dropped some.
type Dropper struct {
	Dev string `json:"dev"`
	qdisc.Dropper
	Now uint64 `json:"now,omitempty"` // packets that it dropped while Deep.Listened passed
}

// Listen notes what has happened since an earlier look, which was so long ago, to a tenth of a second. Both have a deep
// part.
func (f *Facts) Listen(earlier Facts, passed time.Duration) {
	const tenth = units.Duration(100 * time.Millisecond)
	d, before := f.Deep, earlier.Deep
	f.Links = slices.Clone(f.Links)
	for i := range f.Links {
		was, _ := earlier.Link(f.Links[i].Name)
		f.Links[i].Tree = f.Links[i].Tree.Since(was.Tree)
	}
	d.Listened, d.Rose = max(tenth, units.Duration(passed).Round(tenth)), d.Counts.since(before.Counts)
	d.Netfilter.listen(before.Netfilter)
	d.Sockets.listen(&before.Sockets, passed, f.bounds())
	if slices.ContainsFunc(before.Unknown, func(u Unread) bool { return u.What == DroppingFilters }) {
		return
	}
	for i := range d.Droppers {
		now := &d.Droppers[i]
		now.Now = now.Drops // one that was not there has dropped nothing before
		for _, was := range before.Droppers {
			same := was.Dev == now.Dev && was.Parent == now.Parent && was.Handle == now.Handle &&
				was.Filter == now.Filter && was.Priority == now.Priority && was.Action == now.Action
			if same {
				now.Now = max(now.Drops, was.Drops) - was.Drops
			}
		}
	}
}

// bounds are what this host lets a connection have at most.
type bounds struct {
	buffer uint64          // bytes, to receive into: the third value of tcp_rmem; 0: not known
	fixed  bool            // no buffer to receive into grows (net.ipv4.tcp_moderate_rcvbuf)
	cwnds  map[uint32]bool // segments on their way, as routes have it
}

func (f *Facts) bounds() bounds {
	b := bounds{cwnds: map[uint32]bool{}, fixed: f.Sysctls["net.ipv4.tcp_moderate_rcvbuf"].Value == "0"}
	if values := strings.Fields(f.Sysctls["net.ipv4.tcp_rmem"].Value); len(values) == 3 {
		b.buffer, _ = strconv.ParseUint(values[2], 10, 31)
	}
	for _, r := range f.Deep.Routes {
		if slices.Contains(r.Locked, "cwnd") {
			b.cwnds[uint32(r.Metrics["cwnd"])] = true
		}
	}
	return b
}

// RouteMetrics is a route that sets something for connections, by the names that ip-route(8) has for it.
type RouteMetrics struct {
	To         string         `json:"to"` // 192.0.2.0/24, or default
	Dev        string         `json:"dev,omitempty"`
	IPv6       bool           `json:"ipv6,omitempty"`
	Table      int            `json:"table,omitempty"` // as DefaultRoute has it
	Metrics    map[string]int `json:"metrics,omitempty"`
	Locked     []string       `json:"locked,omitempty"`  // of those, what the kernel may not find out by itself
	Congestion string         `json:"congctl,omitempty"` // that its connections use
}

// SYN counts, since the boot, how connections came about (TcpExt and Tcp in /proc/net).
type SYN struct {
	Accepted    uint64 `json:"accepted"`     // connections (PassiveOpens)
	CookiesSent uint64 `json:"cookies_sent"` // SYN cookies
	CookiesGood uint64 `json:"cookies_good"` // of them, that came back and made a connection
	Proxy       bool   `json:"proxy"`        // netfilter's SYN proxy is loaded
}

// TCPMemory is what the buffers of all connections take.
type TCPMemory struct {
	Held units.Size `json:"held"` // /proc/net/sockstat
	// from which on the kernel takes memory back from connections: the second value of tcp_mem (tcp(7))
	Mark      units.Size `json:"mark"`
	Pressures uint64     `json:"pressures"` // how often that was reached since the boot (TcpExt.TCPMemoryPressures)
}

// Namespace is a network namespace that is not the reader's own.
type Namespace struct {
	ID        string `json:"id"`        // "net:[4026532290]"
	Processes int    `json:"processes"` // in it, of those whose namespace may be read
}

// DroppingFilters is what Unread calls the filters whose actions drop packets.
const DroppingFilters = "filters that drop packets"

// Unread is something that could not be read, and why.
type Unread struct {
	What string `json:"what"`
	Why  string `json:"why"`
	File string `json:"-"` // its path, if it is a file or a folder
}

// ReadFiles is what the files below root say of a host that runs a kernel: all but what only its kernel could tell,
// links and connections.
func ReadFiles(root fs.FS, kernel string) Facts {
	f := Facts{Kernel: kernel}
	f.Namespace, _ = fs.ReadLink(root, "proc/thread-self/ns/net")
	readFiles(root, &f)
	f.Qdiscs = support(root, kernel, func([]string) (map[string]bool, error) { return nil, fs.ErrPermission })
	f.OtherQdiscs = modules(root, kernel).others(f.Qdiscs)
	readDeep(root, &f, readRelay(root, &f))
	return f
}

func readDeep(root fs.FS, f *Facts, p processes) *Deep {
	d, t := readOwners(root)
	f.Deep = d
	d.Journal = t.read(Journal[1:])
	for _, dir := range []string{"proc/thread-self/net", "proc/net"} {
		if text := t.read(dir + "/netstat"); text != nil {
			netstat := counters(string(text))
			d.SYN.CookiesSent, d.SYN.CookiesGood = netstat["TcpExt.SyncookiesSent"], netstat["TcpExt.SyncookiesRecv"]
			d.SYN.Accepted = counters(string(t.read(dir + "/snmp")))["Tcp.PassiveOpens"]
			d.TCPMemory = tcpMemory(string(t.read(dir+"/sockstat")), string(t.read("proc/sys/net/ipv4/tcp_mem")))
			d.TCPMemory.Pressures = netstat["TcpExt.TCPMemoryPressures"]
			d.Counts = t.counts(dir)
			d.Interrupts = t.interrupts(d.Counts)
			d.TxQueues = t.txQueues()
			d.Netfilter.Legacy = t.legacyTables(dir)
			break
		}
	}
	d.NAT = Unknown
	if loaded := t.read("proc/modules"); loaded != nil {
		d.NAT = No
		for l := range strings.Lines(string(loaded)) {
			switch name, _, _ := strings.Cut(l, " "); name {
			case "nf_synproxy_core":
				d.SYN.Proxy = true
			case "nft_masq", "nft_nat", "xt_MASQUERADE", "xt_nat":
				d.NAT = Yes
			default:
				if strings.HasPrefix(name, "tcp_") || strings.HasPrefix(name, "sch_") {
					d.Loaded = append(d.Loaded, name)
				}
			}
		}
	}
	if _, first := f.Sysctls["net.core.default_qdisc"]; !first && d.NAT == Yes {
		d.NAT = Unknown // modules are the kernel's, and rules a network namespace's
	}
	d.BPFQdisc, d.AccECN = No, No
	if t.contains("sys/kernel/btf/vmlinux", "bpf_qdisc_skb_drop") {
		d.BPFQdisc = Yes
	}
	if _, ok := t.resolve("proc/sys/net/ipv4/tcp_ecn_option"); ok {
		d.AccECN = Yes
	}
	d.Conntrack = t.conntrack()
	d.CPU = pressure(string(t.read("proc/pressure/cpu")))
	d.Namespaces = t.namespaces(f.Namespace, p)
	return d
}

// readOwners reads who sets what.
func readOwners(root fs.FS) (*Deep, *tree) {
	d := &Deep{}
	t := &tree{root: root, left: 16 << 20, deep: d}
	d.Loader = t.loader()
	var loaded map[string]bool
	d.Writers, d.Idle, loaded = t.writers()
	d.Settings = t.settings(d.Loader, loaded[sysctlConf])
	d.Contained = t.contained()
	return d, t
}

// tcpMemory reads /proc/net/sockstat, "TCP: inuse 5 … mem 3", and tcp_mem's three values. All are in pages.
func tcpMemory(sockstat, marks string) (m TCPMemory) {
	page := units.Size(os.Getpagesize())
	for l := range strings.Lines(sockstat) {
		fields := strings.Fields(l)
		if i := slices.Index(fields, "mem"); i > 0 && i+1 < len(fields) && fields[0] == "TCP:" {
			m.Held = page * pages(fields[i+1])
		}
	}
	if fields := strings.Fields(marks); len(fields) == 3 {
		m.Mark = page * pages(fields[1])
	}
	return m
}

// pages reads a number of pages; 0 if it is none, or more than any machine has.
func pages(text string) units.Size {
	n, err := strconv.ParseUint(text, 10, 40)
	if err != nil {
		return 0
	}
	return units.Size(n)
}

// counters reads /proc/net/netstat and snmp: pairs of lines, "Name: keys" and "Name: values".
func counters(text string) map[string]uint64 {
	all := map[string]uint64{}
	var head []string
	for l := range strings.Lines(text) {
		fields := strings.Fields(l)
		if len(fields) == 0 {
			continue
		}
		if len(head) != len(fields) || head[0] != fields[0] {
			head = fields
			continue
		}
		for i, field := range fields[1:] {
			if n, err := strconv.ParseUint(field, 10, 64); err == nil {
				all[strings.TrimSuffix(fields[0], ":")+"."+head[i+1]] = n
			}
		}
		head = nil
	}
	return all
}

// pressure reads "some avg10=1.53 …" of /proc/pressure/cpu.
func pressure(text string) units.Share {
	for l := range strings.Lines(text) {
		var percent float64
		if n, _ := fmt.Sscanf(l, "some avg10=%g", &percent); n == 1 && percent >= 0 && percent <= 100 {
			return units.Share(percent / 100)
		}
	}
	return 0
}

// unloaded says why the kernel cannot be asked through a module without loading it, which would change the host; "" if
// it can.
func unloaded(root fs.FS, release, name string) string {
	loaded, _ := fs.ReadFile(root, "proc/modules")
	if !loads(root) || strings.HasPrefix(string(loaded), name+" ") || strings.Contains(string(loaded), "\n"+name+" ") {
		return ""
	}
	builtin, _ := fs.ReadFile(root, path.Join("lib/modules", path.Base(release), "modules.builtin"))
	for l := range strings.Lines(string(builtin)) {
		if module(strings.TrimSpace(l)) == name {
			return ""
		}
	}
	if !modules(root, release).known() {
		return "the module " + name +
			" does not seem to be loaded, and reading must not load it: weir doctor --listen 10s does, and looks " +
			"while traffic runs"
	}
	return "the module " + name + " is not loaded, and reading must not load it: weir doctor --listen 10s does, and " +
		"looks while traffic runs"
}

// namespaces lists those of processes, other than the own one.
func (t *tree) namespaces(own string, p processes) []Namespace {
	if p.hidden > 0 {
		needs := "root"
		if os.Geteuid() == 0 { // within a container, or a sandbox
			needs = "CAP_SYS_PTRACE, which root does not have here"
		}
		t.noteUnknown("other network namespaces", fmt.Sprintf("of other people's processes, %d here: needs %s",
			p.hidden, needs))
	}
	var list []Namespace
	for id, n := range p.namespaces {
		if id != own {
			list = append(list, Namespace{id, n})
		}
	}
	slices.SortFunc(list, func(a, b Namespace) int { return cmp.Or(b.Processes-a.Processes, cmp.Compare(a.ID, b.ID)) })
	return list
}

// tree reads files of a host and stays calm: no more than left bytes in all, no device, no pipe, no loop of links.
type tree struct {
	root fs.FS
	left int64
	deep *Deep
}

func (t *tree) noteUnknown(what, why string) {
	t.deep.Unknown = append(t.deep.Unknown, Unread{What: what, Why: why})
}

func (t *tree) noteUnread(name, why string) {
	u := Unread{What: "/" + name, Why: why, File: "/" + name}
	if !slices.Contains(t.deep.Unknown, u) { // some files are read more than once
		t.deep.Unknown = append(t.deep.Unknown, u)
	}
}

// resolve follows a file's symbolic links within the root; false if that leads nowhere, or to /dev/null.
func (t *tree) resolve(name string) (string, bool) {
	for range 8 {
		info, err := fs.Lstat(t.root, name)
		switch {
		case err != nil:
			return "", false
		case info.Mode().IsRegular():
			return name, true
		case info.Mode()&fs.ModeSymlink == 0:
			return "", false
		}
		target, err := fs.ReadLink(t.root, name)
		if err != nil {
			return "", false
		}
		if path.IsAbs(target) {
			name = path.Clean(target)[1:]
		} else {
			name = path.Join(path.Dir(name), target)
		}
	}
	return "", false
}

// read returns a file's text; nil if there is none. Of a file that is too long to be meant seriously it gives the
// beginning.
func (t *tree) read(name string) []byte {
	const longest = 1 << 20
	name, ok := t.resolve(name)
	if !ok {
		return nil
	}
	file, err := t.root.Open(name)
	if err != nil {
		if os.IsPermission(err) {
			t.noteUnread(name, "needs root")
		}
		return nil
	}
	defer file.Close()
	most := min(longest, t.left)
	text, err := io.ReadAll(io.LimitReader(file, most+1))
	if err != nil {
		t.noteUnread(name, "cannot be read")
		return nil
	}
	if int64(len(text)) > most {
		t.noteUnread(name, fmt.Sprintf("read no further than %d bytes", most))
		text = text[:most]
	}
	t.left -= int64(len(text))
	return text
}

// contains looks for a name in a file of the kernel's, piece by piece.
func (t *tree) contains(name, what string) bool {
	file, err := t.root.Open(name)
	if err != nil {
		return false
	}
	defer file.Close()
	const piece = 256 << 10
	buf := make([]byte, piece)
	kept := 0
	for range 256 {
		n, err := file.Read(buf[kept:])
		if bytes.Contains(buf[:kept+n], []byte(what)) {
			return true
		}
		if err != nil {
			return false
		}
		// What may be the beginning of it comes again.
		whole := kept + n
		kept = min(whole, len(what)-1)
		copy(buf, buf[whole-kept:whole])
	}
	return false
}

// list returns the names in a directory that end so, sorted; of a directory with thousands, the first ones.
func (t *tree) list(dir, suffix string) []string {
	const most = 4096
	entries, err := fs.ReadDir(t.root, dir)
	if os.IsPermission(err) {
		t.noteUnread(dir, "needs root")
	}
	var names []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), suffix) && !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	if len(names) > most {
		t.noteUnread(dir, fmt.Sprintf("%d files, of which %d were read", len(names), most))
		names = names[:most]
	}
	return names
}

func (t *tree) subdirectories(dir string) (names []string) {
	entries, _ := fs.ReadDir(t.root, dir)
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}
