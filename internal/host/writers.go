// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"cmp"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"weir/internal/units"
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
	MAC    string `json:"mac,omitempty"` // of the devices that are meant: patterns of 52:54:00:12:34:56
	// of udev's: the device's name at its "add" event, without which the line is not run
	Name string     `json:"name,omitempty"`
	Rate units.Rate `json:"rate,omitempty"` // of that queue, where the line says it
	Idle string     `json:"idle,omitempty"` // why the line has no effect
	// of networkd's: what it asks of devices, and what the files that are read before this one ask
	Match  *Match  `json:"match,omitempty"`
	Before []Match `json:"before,omitempty"`
	// TuneD sets sysctls, and then those of /etc/sysctl.d again (reapply_sysctl in tuned-main.conf(5))
	Yields bool   `json:"yields,omitempty"`
	Timer  bool   `json:"timer,omitempty"` // that alone starts the unit, and not at boot
	Text   string `json:"text,omitempty"`  // of the line
}

// What a writer sets where a line is a command that only its program understands.
const (
	SomeQueue   = "a queue"
	SomeSetting = "a setting"
)

// SysctlDir is who reads a file of /etc/sysctl.d of another name than it should have; the others are why a file has
// no effect.
const (
	SysctlDir       = "sysctl.d"
	NotExecutable   = "it is not executable"
	NameOfNoPart    = "run-parts passes over a name like that"
	NameWithoutConf = "its name does not end in .conf"
	UnreadFolder    = "no program reads that folder"
)

// Where says where it is, as compilers do: "FILE:LINE".
func (w Writer) Where() string { return location(w.File, w.Line) }

// MayMatch reports whether the queue that it sets could be this device's. What OpenVPN and pppd hand to a script is the
// name of a tunnel.
func (w Writer) MayMatch(l Link) bool {
	tunnel := (w.By == "OpenVPN" || w.By == "ppp") && strings.Contains(w.Dev, "$")
	if w.Match != nil && (!w.Match.mayMatch(l) || w.OverriddenBy(l) != "") {
		return false
	}
	return nameMayMatch(w.Dev, l.Name) && (l.MAC == "" || nameMayMatch(w.MAC, l.MAC)) &&
		(!tunnel || nameMayMatch("tun* tap* ppp*", l.Name))
}

// OverriddenBy is the file of networkd's that is for this device, and because of which the writer's, which is read
// later and means it too, is not; "" if there is none.
func (w Writer) OverriddenBy(l Link) string {
	i := slices.IndexFunc(w.Before, func(m Match) bool { return m.surelyMatches(l) })
	if i < 0 || w.Match == nil || !w.Match.mayMatch(l) {
		return ""
	}
	return w.Before[i].File
}

// WaitsFor reports whether it waits for a name that could be this device's.
func (w Writer) WaitsFor(dev string) bool { return w.Name != "" && nameMayMatch(w.Name, dev) }

// nameMayMatch reports whether what a file has for a name could mean a device: patterns, or what a script or udev fills
// in.
func nameMayMatch(written, dev string) bool {
	if others, ok := strings.CutPrefix(written, "!"); ok { // systemd.network(5), [Match]
		return !nameMayMatch(others, dev)
	}
	return written == "" || strings.ContainsAny(written, "$%{") ||
		slices.ContainsFunc(strings.Fields(written), func(pattern string) bool {
			ok, _ := path.Match(pattern, dev)
			return ok
		})
}

// place is where administrators and their tools put such lines.
type place struct {
	by        string
	dir       string
	suffix    string // of the names that count
	sub       string // what is looked at are the folders in dir of this pattern
	file      string // the only file that is looked at
	execution execution
	when      string // the lines take effect
}

// execution is how the lines of a place come to be run.
type execution int

const (
	execNone     execution = iota // not at all: they are settings of a program's
	execLines                     // settings, some of which are commands
	execFile                      // each file is a program, if it may be executed
	execRunParts                  // the same, by run-parts(8), which passes over most names with a dot
)

// places are all of them. Of what packages ship below /usr only the units are looked at that are enabled, and what
// modprobe(8) is told.
func places() []place {
	const (
		boot, up, tunnel = "at every boot", "whenever the device comes up", "whenever the tunnel comes up"
		appears, starts  = "whenever the device appears", "whenever the unit starts"
		times, built     = "at its times", "when the system is built"
		leased, guest    = "whenever DHCP gives an address", "whenever libvirt starts a guest or a network"
		firewall, loaded = "whenever the firewall starts", "whenever the module is loaded"
		state            = "whenever keepalived changes its state"
	)
	return []place{
		{by: "udev", dir: "etc/udev/rules.d", suffix: ".rules", execution: execLines, when: appears},
		{by: "udev", dir: "run/udev/rules.d", suffix: ".rules", execution: execLines, when: appears},
		{by: "systemd unit", dir: "etc/systemd/system", suffix: ".service", execution: execLines, when: starts},
		{by: "systemd unit", dir: "run/systemd/system", suffix: ".service", execution: execLines, when: starts},
		{by: "systemd unit", dir: "etc/systemd/system", sub: "*.service.d", suffix: ".conf", execution: execLines,
			when: starts},
		{by: "systemd unit", dir: "run/systemd/system", sub: "*.service.d", suffix: ".conf", execution: execLines,
			when: starts},
		{by: "networkd-dispatcher", dir: "etc/networkd-dispatcher", sub: "*.d", execution: execFile, when: up},
		{by: "NetworkManager", dir: "etc/NetworkManager/system-connections", when: up},
		{by: "NetworkManager", dir: "run/NetworkManager/system-connections", suffix: ".nmconnection", when: up},
		{by: "NetworkManager", dir: "etc/NetworkManager/dispatcher.d", execution: execFile, when: up},
		{by: "NetworkManager", dir: "etc/NetworkManager/dispatcher.d/pre-up.d", execution: execFile, when: up},
		{by: "NetworkManager", dir: "etc/NetworkManager/dispatcher.d/no-wait.d", execution: execFile, when: up},
		{by: "ifupdown", dir: "etc/network/interfaces.d", execution: execLines, when: up},
		{by: "ifupdown", file: "etc/network/interfaces", execution: execLines, when: up}, // Proxmox's and Alpine's, too
		{by: "ifupdown", dir: "etc/network/if-pre-up.d", execution: execRunParts, when: up},
		{by: "ifupdown", dir: "etc/network/if-up.d", execution: execRunParts, when: up},
		{by: "dhclient", dir: "etc/dhcp/dhclient-enter-hooks.d", execution: execLines, when: leased},
		{by: "dhclient", dir: "etc/dhcp/dhclient-exit-hooks.d", execution: execLines, when: leased},
		{by: "dhcpcd", file: "etc/dhcpcd.enter-hook", execution: execLines, when: leased},
		{by: "dhcpcd", file: "etc/dhcpcd.exit-hook", execution: execLines, when: leased},
		{by: "hotplug", dir: "etc/hotplug.d/iface", execution: execLines, when: up}, // OpenWrt's
		{by: "hotplug", dir: "etc/hotplug.d/net", execution: execLines, when: appears},
		{by: "netplan", dir: "etc/netplan", suffix: ".yaml", when: up},
		{by: "wg-quick", dir: "etc/wireguard", suffix: ".conf", execution: execLines, when: tunnel},
		{by: "OpenVPN", dir: "etc/openvpn", suffix: ".conf", execution: execLines, when: tunnel},
		{by: "OpenVPN", dir: "etc/openvpn/client", suffix: ".conf", execution: execLines, when: tunnel},
		{by: "OpenVPN", dir: "etc/openvpn/server", suffix: ".conf", execution: execLines, when: tunnel},
		{by: "ppp", dir: "etc/ppp/ip-up.d", execution: execRunParts, when: tunnel},
		{by: "ppp", dir: "etc/ppp/ipv6-up.d", execution: execRunParts, when: tunnel},
		{by: "ppp", file: "etc/ppp/ip-up", execution: execFile, when: tunnel},
		{by: "ppp", file: "etc/ppp/ip-up.local", execution: execFile, when: tunnel},
		{by: "libvirt", dir: "etc/libvirt/hooks", execution: execFile, when: guest},
		{by: "libvirt", dir: "etc/libvirt/hooks", sub: "*.d", execution: execFile, when: guest},
		{by: "keepalived", file: "etc/keepalived/keepalived.conf", execution: execLines, when: state},
		{by: "keepalived", dir: "etc/keepalived/conf.d", suffix: ".conf", execution: execLines, when: state},
		{by: "strongSwan", file: "etc/ipsec.conf", execution: execLines, when: tunnel},
		{by: "strongSwan", file: "etc/swanctl/swanctl.conf", execution: execLines, when: tunnel},
		{by: "strongSwan", dir: "etc/swanctl/conf.d", suffix: ".conf", execution: execLines, when: tunnel},
		{by: "wicked", dir: "etc/wicked/scripts", execution: execFile, when: up}, // SUSE's
		{by: "Shorewall", file: "etc/shorewall/start", execution: execLines, when: firewall},
		{by: "Shorewall", file: "etc/shorewall/started", execution: execLines, when: firewall},
		{by: "profile.d", dir: "etc/profile.d", suffix: ".sh", execution: execLines, when: "whenever somebody logs in"},
		{by: "cloud-init", dir: "etc/cloud/cloud.cfg.d", suffix: ".cfg", execution: execLines, when: boot},
		{by: "cloud-init", file: "etc/cloud/cloud.cfg", execution: execLines, when: boot},
		{by: "cloud-init", file: "var/lib/cloud/instance/cloud-config.txt", execution: execLines, when: boot},
		{by: "cloud-init", dir: "var/lib/cloud/scripts/per-boot", execution: execFile, when: boot},
		{by: "cron", dir: "etc/cron.d", execution: execLines, when: times},
		{by: "cron", file: "etc/crontab", execution: execLines, when: times},
		{by: "cron", file: "var/spool/cron/crontabs/root", execution: execLines, when: times},
		{by: "cron", file: "var/spool/cron/root", execution: execLines, when: times}, // Fedora's
		{by: "cron", file: "etc/crontabs/root", execution: execLines, when: times},   // Alpine's
		{by: "cron", dir: "etc/cron.hourly", execution: execRunParts, when: times},
		{by: "cron", dir: "etc/cron.daily", execution: execRunParts, when: times},
		{by: "cron", dir: "etc/cron.weekly", execution: execRunParts, when: times},
		{by: "cron", dir: "etc/cron.monthly", execution: execRunParts, when: times},
		{by: "tmpfiles", dir: "etc/tmpfiles.d", suffix: ".conf", when: boot},
		{by: "tmpfiles", dir: "run/tmpfiles.d", suffix: ".conf", when: boot},
		{by: "tmpfiles", dir: "usr/local/lib/tmpfiles.d", suffix: ".conf", when: boot},
		{by: "rc.local", file: "etc/rc.local", execution: execFile, when: boot},
		{by: "rc.local", file: "etc/rc.d/rc.local", execution: execFile, when: boot},
		{by: "init", dir: "etc/init.d", execution: execFile, when: boot},
		{by: "modprobe", dir: "etc/modprobe.d", suffix: ".conf", execution: execLines, when: loaded},
		{by: "modprobe", dir: "run/modprobe.d", suffix: ".conf", execution: execLines, when: loaded},
		{by: "modprobe", dir: "usr/local/lib/modprobe.d", suffix: ".conf", execution: execLines, when: loaded},
		{by: "modprobe", dir: "usr/lib/modprobe.d", suffix: ".conf", execution: execLines, when: loaded},
		{by: "tinc", dir: "etc/tinc", sub: "*", suffix: "tinc-up", execution: execFile, when: tunnel},
		{by: "netctl", dir: "etc/netctl", execution: execLines, when: up},
		{by: "ifup", file: "sbin/ifup-local", execution: execFile, when: up}, // Red Hat's
		{by: "cron", file: "etc/anacrontab", execution: execLines, when: times},
		{by: "local.d", dir: "etc/local.d", suffix: ".start", execution: execFile, when: boot}, // OpenRC's
		{by: "NixOS", dir: "etc/nixos", suffix: ".nix", execution: execLines, when: built},
		{by: "modules-load", dir: "etc/modules-load.d", suffix: ".conf", when: boot},
		{by: "modules-load", file: "etc/modules", when: boot},
	}
}

// maskedByName are those of whose files of one name only that in the first of their folders counts.
var maskedByName = map[string]bool{"udev": true, "systemd unit": true, "tmpfiles": true, "modprobe": true}

// Device is the device whose queue it sets, as far as that is known.
func (w Writer) Device() string {
	others, ok := strings.CutPrefix(w.Dev, "!")
	if ok {
		return "any device but " + others
	}
	return cmp.Or(w.Dev, "a device")
}

// Queue is what it sets on a device.
func (w Writer) Queue() string {
	if w.Rate != 0 {
		return w.Qdisc + " with " + w.Rate.String()
	}
	return w.Qdisc
}

// When says when the line takes effect.
func (w Writer) When() string {
	if w.Timer {
		return "at its time"
	}
	switch w.By {
	case "networkd":
		return "whenever the device comes up"
	case "ufw":
		return "whenever the firewall starts"
	case "tuned":
		return "whenever TuneD starts"
	}
	for _, p := range places() {
		if p.by == w.By {
			return p.when
		}
	}
	return "at every boot"
}

// writers gives the lines that set something, and those that do not, though somebody meant them to. Loaded are the
// files of settings that they have sysctl(8) read; true: at boot.
func (t *tree) writers() (found, idle []Writer, loaded map[string]bool) {
	s := scanner{tree: t, visited: map[string]bool{}, loaded: map[string]bool{}}
	seen := map[string]bool{} // Fedora's /etc/rc.local leads to another place that is looked at
	masked := map[string]bool{}
	off := t.cloudInitOff()
	units, instances := t.enabledUnits()
	for _, p := range places() {
		if p.by == "cloud-init" && off {
			continue
		}
		for _, name := range t.files(p) {
			if first := p.by + " " + path.Base(name); maskedByName[p.by] && p.sub == "" {
				if masked[first] {
					continue
				}
				masked[first] = true
			}
			// NetworkManager reads files of any name but these.
			aside := p.execution == execNone && asideName.MatchString(path.Base(name))
			if to, ok := t.resolve(name); aside || ok && seen[to] {
				continue
			} else if ok {
				seen[to] = true
			}
			if idle := t.idleReason(p, name); idle == "" || !asideName.MatchString(path.Base(name)) {
				devices := instances[path.Base(name)]
				if p.sub != "" && p.by == "systemd unit" {
					unit := strings.TrimSuffix(path.Base(path.Dir(name)), ".d")
					if devices = instances[unit]; instanceUnit.MatchString(unit) && !strings.Contains(unit, "@.") {
						_, device, _ := strings.Cut(strings.TrimSuffix(unit, ".service"), "@")
						devices = []string{device}
					}
				}
				s.scanEach(p.by, name, p.execution, idle, devices)
			}
		}
	}
	for _, name := range t.sourcedFiles() {
		s.scanEach("ifupdown", name, execLines, "", nil)
	}
	for _, name := range units {
		s.scanEach("systemd unit", name, execLines, "", instances[path.Base(name)])
	}
	tuned, scripts, repeats := t.tuned()
	if repeats {
		s.loaded[sysctlConf] = true
	}
	s.boot = true
	for _, name := range scripts {
		s.scanScript(Writer{By: "tuned"}, name, "#!")
	}
	for _, w := range slices.Concat(deduplicate(s.found), t.networkd(), t.ufw(), tuned, t.unnamedFiles(s.loaded),
		t.ignored()) {
		if w.Idle != "" {
			idle = append(idle, w)
		} else {
			found = append(found, w)
		}
	}
	for _, dir := range []string{"etc/systemd/system/multi-user.target.wants",
		"etc/systemd/system/default.target.wants"} {
		if slices.Contains(t.list(dir, "bpftune.service"), "bpftune.service") {
			found = append(found, Writer{By: "bpftune", File: "/" + dir + "/bpftune.service"})
		}
	}
	return found, idle, s.loaded
}

// scanEach scans a file, a template of units once for each device that it is enabled for.
func (s *scanner) scanEach(by, name string, how execution, idle string, instances []string) {
	if by != "systemd unit" || len(instances) == 0 {
		instances = []string{""}
	}
	text := s.read(name)
	s.timer = false
	switch by {
	case "cron", "profile.d", "libvirt", "NixOS": // at other times; a line of cron's may say another one
		s.boot = false
	case "systemd unit":
		s.boot, s.timer = s.bootUnit(name)
	default:
		s.boot = true
	}
	for _, s.device = range instances {
		s.scan(by, name, text, how, idle)
	}
	s.device, s.timer = "", false
}

// deduplicate leaves of writers that are alike the first.
func deduplicate(all []Writer) (found []Writer) {
	seen := map[string]bool{}
	for _, w := range all {
		key := strings.Join([]string{w.By, w.Where(), w.Sysctl, w.Value, w.Queue(), w.Dev, w.Idle}, "\x00")
		if !seen[key] {
			found = append(found, w)
		}
		seen[key] = true
	}
	return found
}

// cloudInitOff reports whether cloud-init is told not to run.
func (t *tree) cloudInitOff() bool {
	_, off := t.resolve("etc/cloud/cloud-init.disabled")
	return off || slices.Contains(strings.Fields(string(t.read("proc/cmdline"))), "cloud-init=disabled")
}

// files are the paths of a place's files.
func (t *tree) files(p place) (names []string) {
	switch {
	case p.file != "":
		return []string{p.file}
	case p.sub != "":
		for _, sub := range t.subdirectories(p.dir) {
			matched, _ := path.Match(p.sub, sub)
			// networkd-dispatcher's scripts of a link that goes down
			if matched && sub != "off.d" && sub != "no-carrier.d" {
				names = append(names, t.files(place{dir: path.Join(p.dir, sub), suffix: p.suffix})...)
			}
		}
		return names
	}
	for _, name := range t.list(p.dir, p.suffix) {
		names = append(names, path.Join(p.dir, name))
	}
	return names
}

// partName is what run-parts(8) runs.
var partName = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// idleReason says why a file of a place is not run; "" if it is.
func (t *tree) idleReason(p place, name string) string {
	if p.execution == execRunParts && !partName.MatchString(path.Base(name)) {
		return NameOfNoPart
	}
	if p.execution == execFile || p.execution == execRunParts {
		name, _ = t.resolve(name)
		if info, err := fs.Stat(t.root, name); err == nil && info.Mode()&0o111 == 0 {
			return NotExecutable
		}
	}
	return ""
}

// sourcedFiles are the files that ifupdown is told to read besides (interfaces(5)).
func (t *tree) sourcedFiles() (names []string) {
	for l := range strings.Lines(string(t.read("etc/network/interfaces"))) {
		words := strings.Fields(l)
		if len(words) != 2 || words[0] != "source" && words[0] != "source-directory" {
			continue
		}
		pattern := words[1]
		if !path.IsAbs(pattern) {
			pattern = path.Join("/etc/network", pattern)
		}
		if words[0] == "source-directory" {
			pattern = path.Join(pattern, "*")
		}
		matches, _ := fs.Glob(t.root, path.Clean(pattern)[1:])
		for _, name := range matches {
			if path.Dir(name) != "etc/network/interfaces.d" && len(names) < 256 {
				names = append(names, name)
			}
		}
	}
	return names
}

// unitDirs are where units are, the first first. The administrator's are in the first two.
func unitDirs() []string {
	return []string{"etc/systemd/system", "run/systemd/system", "usr/local/lib/systemd/system",
		"usr/lib/systemd/system", "lib/systemd/system"}
}

// enabledUnits are the units of packages that are started at boot: a link leads to them, and no unit of the same name
// comes before them (systemd.unit(5)). Instances are those of templates, by the template's name.
func (t *tree) enabledUnits() (names []string, instances map[string][]string) {
	instances = map[string][]string{}
	seen := map[string]bool{} // links: one that leads nowhere masks those of its name in later folders
	for _, above := range unitDirs() {
		for _, sub := range t.subdirectories(above) {
			if ext := path.Ext(sub); ext != ".wants" && ext != ".requires" && ext != ".upholds" {
				continue
			}
			for _, unit := range t.list(path.Join(above, sub), ".service") {
				name, ok := t.resolve(path.Join(above, sub, unit))
				link := path.Join(sub, unit)
				masked := seen[link]
				seen[link] = true
				if masked || !ok || path.Ext(name) != ".service" {
					continue
				}
				if before, after, ok := strings.Cut(strings.TrimSuffix(unit, ".service"), "@"); ok && after != "" &&
					!slices.Contains(instances[before+"@.service"], after) {
					instances[before+"@.service"] = append(instances[before+"@.service"], after)
				}
				replaced := slices.ContainsFunc(unitDirs()[:2], func(dir string) bool {
					_, err := fs.Lstat(t.root, path.Join(dir, path.Base(name)))
					return dir == path.Dir(name) || err == nil
				})
				if !replaced && !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
	}
	return names, instances
}

var (
	installKey   = regexp.MustCompile(`(?m)^\s*(?:WantedBy|RequiredBy|UpheldBy)\s*=\s*\S`)
	instanceUnit = regexp.MustCompile(`@.*\.service$`)
	// What starts no unit at boot: systemd.special(7).
	atOtherTimes = regexp.MustCompile(
		`^(?:sleep|suspend|hibernate|hybrid-sleep|suspend-then-hibernate|halt|poweroff|reboot|kexec|shutdown|final|` +
			`rescue|emergency)\.target\.`)
)

// bootUnit reports whether a unit, or the one that a drop-in is for, may run at boot. It does not where it waits for
// somebody to enable it, and nobody has: neither does a link lead to it, nor another unit name it. Nor does it where
// nothing but a timer starts it that is for other times.
func (s *scanner) bootUnit(file string) (boot, timer bool) {
	unit := path.Base(file)
	if !strings.HasSuffix(unit, ".service") {
		unit = strings.TrimSuffix(path.Base(path.Dir(file)), ".d")
	}
	template := instanceUnit.ReplaceAllString(unit, "@.service")
	stem := strings.TrimSuffix(unit, ".service")
	dirs := unitDirs()
	var text []byte
	for _, dir := range dirs {
		if text = s.read(path.Join(dir, template)); text != nil {
			break
		}
	}
	var timers [][]byte
	for _, dir := range dirs {
		for _, sub := range s.subdirectories(dir) {
			pulls := strings.HasSuffix(sub, ".wants") || strings.HasSuffix(sub, ".requires") ||
				strings.HasSuffix(sub, ".upholds")
			if !pulls || atOtherTimes.MatchString(sub) {
				continue
			}
			for _, name := range s.list(path.Join(dir, sub), "") {
				by := path.Ext(name)
				if by == ".timer" && strings.TrimSuffix(name, by) == stem {
					timers = append(timers, s.read(path.Join(dir, sub, name)))
				} else if name == unit || strings.TrimSuffix(name, by) == stem && by != ".service" ||
					unit == template && instanceUnit.ReplaceAllString(name, "@.service") == unit {
					return true, false
				}
			}
		}
	}
	if len(timers) > 0 {
		boot = slices.ContainsFunc(timers, firesAtBoot)
		return boot, !boot
	}
	if !installKey.Match(text) {
		return true, false
	}
	if s.units == nil {
		s.units = map[string][]byte{}
		for _, dir := range dirs[:2] {
			for _, name := range s.list(dir, "") {
				s.units[name] = s.read(path.Join(dir, name))
			}
		}
	}
	for name, text := range s.units {
		if name != unit && name != template && bytes.Contains(text, []byte(unit)) {
			return true, false
		}
	}
	return false, false
}

// firesAtBoot reports whether a timer starts its unit at boot, or may: systemd.timer(5).
func firesAtBoot(text []byte) bool {
	var boot, calendar, makesUp bool
	for _, l := range logicalLines(text) {
		key, value, _ := strings.Cut(l, "=")
		switch key, value = strings.TrimSpace(key), strings.TrimSpace(value); {
		case key == "Persistent":
			makesUp = trueValue.MatchString(value)
		case !strings.HasPrefix(key, "On"):
		case value == "": // which forgets all of them
			boot, calendar = false, false
		case key == "OnCalendar":
			calendar = true
		case key == "OnBootSec" || key == "OnStartupSec" || key == "OnActiveSec":
			boot = true
		}
	}
	return boot || calendar && makesUp
}

// ufw reads the sysctl file that the firewall applies when it starts (ufw-framework(8)).
func (t *tree) ufw() (found []Writer) {
	file, enabled := "etc/ufw/sysctl.conf", false
	for l := range strings.Lines(string(t.read("etc/default/ufw"))) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(l), "IPT_SYSCTL="); ok {
			file = strings.TrimPrefix(path.Clean("/"+strings.Trim(name, `"'`)), "/")
		}
	}
	for l := range strings.Lines(string(t.read("etc/ufw/ufw.conf"))) {
		if strings.ToLower(strings.TrimSpace(l)) == "enabled=yes" {
			enabled = true
		}
	}
	if !enabled {
		return nil
	}
	return t.assignments("ufw", file, "")
}

// unnamedFiles are the lines of files in /etc/sysctl.d that no loader reads for their names, and no command either.
func (t *tree) unnamedFiles(loaded map[string]bool) (found []Writer) {
	for _, name := range t.list("etc/sysctl.d", "") {
		file := path.Join("etc/sysctl.d", name)
		if _, read := loaded[file]; !read && !strings.HasSuffix(name, ".conf") && !asideName.MatchString(name) {
			found = append(found, t.assignments(SysctlDir, file, NameWithoutConf)...)
		}
	}
	return found
}

// asideName are names of files that somebody, or a package, does not want to be read.
var asideName = regexp.MustCompile(
	`^\.|^README|~$|\.(?:bak|old|orig|save|off|disabled|swp|example|sample|dpkg-\w+|rpm\w+|ucf-\w+)$`)

// assignments are the settings in a file with the words of sysctl.conf(5).
func (t *tree) assignments(by, file, idle string) (found []Writer) {
	lines := parseSysctls(t.read(file))
	for _, s := range lines.settingsIn("/" + file) {
		if s.Pattern == "" && !s.Keeps {
			found = append(found, Writer{By: by, File: s.File, Line: s.Line, Sysctl: s.Sysctl, Value: s.Value,
				Idle: idle})
		}
	}
	return found
}

// isTunedTrue reports whether TuneD takes a value for yes.
func isTunedTrue(value string) bool {
	return slices.Contains([]string{"1", "yes", "y", "true", "t", "on"}, strings.ToLower(strings.TrimSpace(value)))
}

// tuned reads the [sysctl] sections of the active profiles and of those that they include, and which scripts these run.
// With one of these, TuneD may apply the administrator's files of sysctl.d and /etc/sysctl.conf again.
func (t *tree) tuned() (found []Writer, scripts []string, repeats bool) {
	const deepest, most = 8, 64
	type step struct {
		profile string
		depth   int
	}
	reapplies := true // its default
	for l := range strings.Lines(string(t.read("etc/tuned/tuned-main.conf"))) {
		if key, value, _ := strings.Cut(l, "="); strings.TrimSpace(key) == "reapply_sysctl" {
			reapplies = isTunedTrue(value)
		}
	}
	var todo []step
	for name := range strings.FieldsSeq(string(t.read("etc/tuned/active_profile"))) {
		todo = append(todo, step{name, 0})
	}
	seen, enabled := map[string]bool{}, map[string]bool{} // sections: what is said first, by who includes the others
	for len(todo) > 0 && len(seen) < most {
		s := todo[0]
		todo = todo[1:]
		if seen[s.profile] || s.depth > deepest || s.profile != path.Base(s.profile) {
			continue
		}
		seen[s.profile] = true
		p := t.readTunedProfile(s.profile)
		for name, on := range p.enabled {
			if _, said := enabled[name]; !said {
				enabled[name] = on
			}
		}
		for _, name := range p.includes {
			todo = append(todo, step{name, s.depth + 1})
		}
		for _, w := range p.found {
			w.Yields = reapplies
			found = append(found, w)
		}
		scripts = append(scripts, p.scripts...)
		repeats = repeats || p.hasSysctl && reapplies
	}
	if on, said := enabled["sysctl"]; said && !on {
		found, repeats = nil, false
	}
	if on, said := enabled["script"]; said && !on {
		scripts = nil
	}
	return found, scripts, repeats
}

// tunedProfile is what a profile of TuneD says.
type tunedProfile struct {
	includes  []string
	scripts   []string
	found     []Writer
	enabled   map[string]bool // by a section's name, where it is said
	hasSysctl bool
}

// readTunedProfile reads the profile of a name in the first folder that has it.
func (t *tree) readTunedProfile(name string) tunedProfile {
	p := tunedProfile{enabled: map[string]bool{}}
	var file string
	var text []byte
	for _, dir := range []string{"etc/tuned/profiles", "etc/tuned", "usr/lib/tuned/profiles", "usr/lib/tuned"} {
		file = path.Join(dir, name, "tuned.conf")
		if text = t.read(file); text != nil {
			break
		}
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
			p.hasSysctl = p.hasSysctl || in == "sysctl"
			continue
		}
		key, value, ok := strings.Cut(l, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		switch {
		case !ok:
		case key == "enabled":
			if _, said := p.enabled[in]; !said {
				p.enabled[in] = isTunedTrue(value)
			}
		case in == "main" && key == "include":
			p.includes = append(p.includes, strings.Fields(strings.ReplaceAll(value, ",", " "))...)
		case in == "script" && key == "script":
			name := strings.ReplaceAll(value, "${i:PROFILE_DIR}", "/"+path.Dir(file))
			if !path.IsAbs(name) {
				name = path.Join("/", path.Dir(file), name)
			}
			p.scripts = append(p.scripts, path.Clean(name)[1:])
		case in == "sysctl":
			if name := strings.ReplaceAll(normalKey(key), "/", "."); slices.Contains(sysctls, name) {
				// ">" raises only, and quotes are the format's own.
				value = strings.Join(strings.Fields(strings.Trim(strings.TrimPrefix(value, ">"), `"`)), " ")
				p.found = append(p.found, Writer{By: "tuned", File: "/" + file, Line: number, Sysctl: name,
					Value: value, Text: l})
			}
		}
	}
	return p
}
