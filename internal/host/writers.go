// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Writer is a line, outside the sysctl files, by which something else on the host sets what plans set: a sysctl, or the
// queue of a device.
type Writer struct {
	By     string `json:"by"` // tuned, udev, systemd unit, networkd, NetworkManager …
	File   string `json:"file"`
	Line   int    `json:"line,omitempty"`   // 0: the file's being there is what matters
	Sysctl string `json:"sysctl,omitempty"` // that it sets
	Value  string `json:"value,omitempty"`
	Qdisc  string `json:"qdisc,omitempty"` // that it sets, on Dev if that is known, or that a module is loaded for
	Dev    string `json:"dev,omitempty"`
	// of udev's: the device's name at its "add" event, without which the line is not run
	Name string `json:"name,omitempty"`
	Text string `json:"text,omitempty"` // of the line
}

// Where says where it is, as compilers do: "FILE:LINE".
func (w Writer) Where() string { return where(w.File, w.Line) }

// Means reports whether the queue that it sets could be this device's.
func (w Writer) Means(dev string) bool { return means(w.Dev, dev) }

// Awaits reports whether it waits for a name that could be this device's.
func (w Writer) Awaits(dev string) bool { return w.Name != "" && means(w.Name, dev) }

// means reports whether what a file has for a name could mean a device: patterns, or what a script or udev fills in.
func means(written, dev string) bool {
	return written == "" || strings.ContainsAny(written, "$%{") ||
		slices.ContainsFunc(strings.Fields(written), func(pattern string) bool {
			ok, _ := path.Match(pattern, dev)
			return ok
		})
}

// places are where administrators and their tools put such lines. What packages ship below /usr is not looked at: no
// package of Debian's sets a queue there.
func places() []struct{ by, dir, suffix string } {
	return []struct{ by, dir, suffix string }{
		{"udev", "etc/udev/rules.d", ".rules"},
		{"udev", "run/udev/rules.d", ".rules"},
		{"systemd unit", "etc/systemd/system", ".service"},
		{"systemd unit", "run/systemd/system", ".service"},
		{"networkd", "etc/systemd/network", ".network"},
		{"networkd", "run/systemd/network", ".network"},
		{"networkd-dispatcher", "etc/networkd-dispatcher/routable.d", ""},
		{"NetworkManager", "etc/NetworkManager/system-connections", ".nmconnection"},
		{"NetworkManager", "etc/NetworkManager/dispatcher.d", ""},
		{"ifupdown", "etc/network/interfaces.d", ""},
		{"ifupdown", "etc/network/if-up.d", ""},
		{"netplan", "etc/netplan", ".yaml"},
		{"cloud-init", "etc/cloud/cloud.cfg.d", ".cfg"},
		{"cron", "etc/cron.d", ""},
		{"modules-load", "etc/modules-load.d", ".conf"},
	}
}

func (t *tree) writers() []Writer {
	var found []Writer
	for _, p := range places() {
		for _, name := range t.list(p.dir, p.suffix) {
			found = append(found, scan(p.by, path.Join(p.dir, name), t.read(path.Join(p.dir, name)))...)
		}
		// Drop-ins: etc/systemd/network/10-x.network.d/y.conf.
		if p.by == "networkd" {
			for _, dir := range t.dropIns(p.dir) {
				for _, name := range t.list(dir, ".conf") {
					found = append(found, scan(p.by, path.Join(dir, name), t.read(path.Join(dir, name)))...)
				}
			}
		}
	}
	for _, f := range []struct{ by, path string }{
		{"ifupdown", "etc/network/interfaces"}, {"rc.local", "etc/rc.local"}, {"cloud-init", "etc/cloud/cloud.cfg"},
		{"modules-load", "etc/modules"},
	} {
		found = append(found, scan(f.by, f.path, t.read(f.path))...)
	}
	found = append(found, t.tuned()...)
	for _, dir := range []string{"etc/systemd/system/multi-user.target.wants",
		"etc/systemd/system/default.target.wants"} {
		if slices.Contains(t.list(dir, "bpftune.service"), "bpftune.service") {
			found = append(found, Writer{By: "bpftune", File: "/" + dir + "/bpftune.service"})
		}
	}
	return found
}

func (t *tree) dropIns(dir string) (dirs []string) {
	matches := t.subdirectories(dir)
	for _, name := range matches {
		if strings.HasSuffix(name, ".network.d") {
			dirs = append(dirs, path.Join(dir, name))
		}
	}
	return dirs
}

var (
	tcCommand = regexp.MustCompile(`(?:^|[^\w.-])tc\s+(?:-\S+\s+)*qdisc\s+(?:add|replace|change)\s(.*)`)
	tcDev     = regexp.MustCompile(`\bdev\s+"?([\w.@:$%{}-]+)`)
	tcRoot    = regexp.MustCompile(`\broot\b`)
	tcKind    = regexp.MustCompile(`\broot\s+(?:handle\s+\S+\s+)?([a-z_0-9]+)`)
	nmQdisc   = regexp.MustCompile(`^qdisc\.root=(?:root\s+)?(?:handle\s+\S+\s+)?([a-z_0-9]+)`)
	section   = regexp.MustCompile(`^\[(\w+)\]$`)
	// udev(7): NAME is what a preceding rule has given, KERNEL what the kernel calls the device at that moment.
	udevAdd   = regexp.MustCompile(`\bACTION\s*==\s*"add"`)
	udevName  = regexp.MustCompile(`\b(?:NAME|KERNEL)\s*==\s*"([^"]+)"`)
	setSysctl = regexp.MustCompile(
		`(?:\b|/proc/sys/)(net[./](?:core|ipv4|ipv6|mptcp)[./][a-z_./]+)["']?\s*=\s*["']?([^\s"';&|]+)`)
	echoSysctl = regexp.MustCompile(`echo\s+["']?([^"'>]+?)["']?\s*>\s*/proc/sys/(net/[a-z0-9_/]+)`)
)

// networkdKinds are networkd's sections that are queueing disciplines (systemd.network(5)).
var networkdKinds = map[string]string{
	"CAKE": "cake", "FairQueueing": "fq", "FairQueueingControlledDelay": "fq_codel", "ControlledDelay": "codel",
	"TokenBucketFilter": "tbf", "HierarchyTokenBucket": "htb", "NetworkEmulator": "netem", "PIE": "pie",
	"FlowQueuePIE": "fq_pie",
}

// scan finds the lines of a file that set something.
func scan(by, file string, text []byte) (found []Writer) {
	const mostText = 120
	number, dev := 0, ""
	for raw := range bytes.Lines(text) {
		number++
		if len(raw) > 4096 || !utf8.Valid(raw) {
			continue
		}
		l := strings.TrimSpace(string(raw))
		if l == "" || l[0] == '#' || l[0] == ';' {
			continue
		}
		w := Writer{By: by, File: "/" + file, Line: number, Text: l}
		if len([]rune(l)) > mostText {
			w.Text = string([]rune(l)[:mostText]) + "…"
		}
		add := func() { found = append(found, w) }
		switch {
		case by == "networkd" && strings.HasPrefix(l, "Name="):
			dev = strings.TrimPrefix(l, "Name=")
		case by == "networkd":
			if m := section.FindStringSubmatch(l); m != nil && networkdKinds[m[1]] != "" {
				w.Qdisc, w.Dev = networkdKinds[m[1]], dev
				add()
			}
		case by == "modules-load":
			if kind, ok := strings.CutPrefix(l, "sch_"); ok {
				w.Qdisc = kind
				add()
			}
		case by == "NetworkManager" && nmQdisc.MatchString(l):
			w.Qdisc = nmQdisc.FindStringSubmatch(l)[1]
			add()
		}
		// What hangs below a root, or at the ingress, is no queue of its own.
		if m := tcCommand.FindStringSubmatch(l); m != nil && tcRoot.MatchString(m[1]) {
			w.Dev, w.Qdisc = "", "a queue"
			if d := tcDev.FindStringSubmatch(m[1]); d != nil {
				w.Dev = d[1]
			}
			if k := tcKind.FindStringSubmatch(m[1]); k != nil {
				w.Qdisc = k[1]
			}
			if n := udevName.FindStringSubmatch(l); by == "udev" && n != nil && udevAdd.MatchString(l) {
				w.Name = n[1]
			}
			add()
		}
		assigned := func(key, value string) {
			if name := strings.ReplaceAll(key, "/", "."); slices.Contains(sysctls, name) {
				w.Qdisc, w.Dev, w.Name = "", "", ""
				w.Sysctl, w.Value = name, strings.Join(strings.Fields(value), " ")
				add()
			}
		}
		for _, m := range setSysctl.FindAllStringSubmatch(l, -1) {
			assigned(m[1], m[2])
		}
		for _, m := range echoSysctl.FindAllStringSubmatch(l, -1) {
			assigned(m[2], m[1])
		}
	}
	return found
}

// tuned reads the [sysctl] sections of the active profiles and of those that they include.
func (t *tree) tuned() (found []Writer) {
	const deepest = 8
	type step struct {
		profile string
		depth   int
	}
	var todo []step
	for name := range strings.FieldsSeq(string(t.read("etc/tuned/active_profile"))) {
		todo = append(todo, step{name, 0})
	}
	seen := map[string]bool{}
	for len(todo) > 0 && len(seen) < 64 {
		s := todo[0]
		todo = todo[1:]
		if seen[s.profile] || s.depth > deepest || s.profile != path.Base(s.profile) {
			continue
		}
		seen[s.profile] = true
		for _, dir := range []string{"etc/tuned/profiles", "etc/tuned", "usr/lib/tuned/profiles", "usr/lib/tuned"} {
			file := path.Join(dir, s.profile, "tuned.conf")
			text := t.read(file)
			if text == nil {
				continue
			}
			number, in := 0, ""
			for raw := range strings.Lines(string(text)) {
				number++
				l := strings.TrimSpace(raw)
				if l == "" || l[0] == '#' || l[0] == ';' || !utf8.ValidString(l) {
					continue
				}
				if m := section.FindStringSubmatch(l); m != nil {
					in = m[1]
					continue
				}
				key, value, ok := strings.Cut(l, "=")
				key, value = strings.TrimSpace(key), strings.TrimSpace(value)
				switch {
				case !ok:
				case in == "main" && key == "include":
					for name := range strings.FieldsFuncSeq(value, func(r rune) bool { return r == ',' || r == ' ' }) {
						todo = append(todo, step{name, s.depth + 1})
					}
				case in == "sysctl":
					if name := strings.ReplaceAll(normalKey(key), "/", "."); slices.Contains(sysctls, name) {
						// ">" raises only, and quotes are the format's own.
						value = strings.Join(strings.Fields(strings.Trim(strings.TrimPrefix(value, ">"), `"`)), " ")
						found = append(found, Writer{By: "tuned", File: "/" + file, Line: number, Sysctl: name,
							Value: value, Text: l})
					}
				}
			}
			break
		}
	}
	return found
}
