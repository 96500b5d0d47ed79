// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"fmt"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"weir/internal/host"
	"weir/internal/qdisc"
)

// keep adds the files that bring what is planned back after a reboot, in the order in which they are to be written: first what looks after
// the rest, so that no power cut leaves files that nobody would look at. It is the last step of every plan, and of one that changes nothing
// there is nothing to keep.
//
// No file for modules-load.d(5) is among them. The kernel loads a queueing discipline or congestion control when it is asked for, and a
// list that names a module which the next kernel does not have makes that boot a failed one.
func keep(d *draft) error {
	switch {
	case len(d.Changes) == 0 || d.Goal.Runtime:
		return nil
	case d.facts.Files == nil:
		d.note("reboot", "what is set ends with it: this is a network namespace of its own")
		return nil
	case d.facts.Init != host.Systemd:
		d.note("reboot", "what is set ends with it: this host has no systemd. Let its start run:  weir up --boot, with the goal in %s", host.GoalFile)
		return nil
	}
	ephemeral := func(dir string) bool { return strings.HasPrefix(d.facts.Program, dir+"/") }
	switch {
	case slices.ContainsFunc([]string{"/tmp", "/run", "/dev", "/proc"}, ephemeral):
		return &Refusal{
			What: fmt.Sprintf("this program is %s, which no reboot leaves there, and it has to bring the goal up after one", d.facts.Program),
			Try:  "copy it to /usr/local/bin and run it from there; or --runtime: what is set ends with a reboot",
		}
	case !plainPath.MatchString(d.facts.Program):
		return &Refusal{What: fmt.Sprintf("the path of this program, %q, cannot be written in a unit", d.facts.Program), Try: "copy it to /usr/local/bin; or --runtime"}
	case !plainName.MatchString(d.link.Name):
		return &Refusal{What: fmt.Sprintf("%q cannot be written in a udev rule", d.link.Name), Try: "rename the device; or --runtime: what is set ends with a reboot"}
	}
	planned := slices.Clone(d.Changes)
	unit := host.UnitFile
	if d.facts.Files[host.PackageUnit].Kind == host.Regular {
		unit = host.PackageUnit
	} else {
		d.file(unit, regular(Unit(d.facts.Program)), "brings the goal up after a boot: weir up --boot")
	}
	d.file(host.UnitLink, host.File{Kind: host.Symlink, Text: unit}, "starts that at every boot")
	d.file(host.UdevFile, regular(udevRules(d.link)), "and whenever the device appears, under its name or another")
	if now := d.facts.Files[host.GoalFile]; !says(now, d.Goal) {
		d.file(host.GoalFile, regular(goalFile(d.Goal)), "the goal")
	}
	if text := sysctlFile(planned); text != "" {
		d.file(host.SysctlFile, regular(text), "these settings, from the start of a boot")
		d.Considered = append(d.Considered, Overruled(d.Plan, d.facts)...)
	}
	if text := networkd(planned); text != "" && d.link.Network != "" {
		file := host.NetworkDropIn(d.link.Network)
		if d.facts.Files[path.Dir(file)].Kind != host.Folder {
			d.file(path.Dir(file), host.File{Kind: host.Folder, Mode: 0o755}, "for what is added to "+d.link.Network)
		}
		d.file(file, regular(text), "systemd-networkd, which manages "+d.link.Name+", sets the same queue")
	}
	return nil
}

// What can stand in a unit's ExecStart and in a udev rule as it is, with nothing that either would expand or take for a pattern.
var (
	plainPath = regexp.MustCompile(`^/[\w./+@-]+$`)
	plainName = regexp.MustCompile(`^[\w.+@-]+$`)
)

func (d *draft) file(name string, want host.File, reason string) {
	now := d.facts.Files[name]
	if now.Kind == host.Other {
		d.note(name, "is there and is no file that could be put back: not written, and the goal may not outlast a reboot")
		return
	}
	if now != want {
		d.Changes = append(d.Changes, Change{Target: Target{File: name}, Old: now.String(), New: want.String(), Reason: reason})
	}
}

func regular(text string) host.File { return host.File{Kind: host.Regular, Mode: 0o644, Text: text} }

const header = `# Written by weir, which keeps the goal in /etc/weir.toml over reboots.
# To see whether it is in force: weir status. To undo it, and remove this file: weir down.
`

// Unit is the service that brings the goal up after a boot (systemd.service(5)). It keeps nothing waiting: what it sets can be set at any time.
func Unit(program string) string {
	return header + `
[Unit]
Description=Weir: the goal in /etc/weir.toml
Documentation=man:weir(8)
After=systemd-sysctl.service systemd-networkd.service
# Each device that appears may start it.
StartLimitIntervalSec=0

[Service]
Type=oneshot
ExecStart=` + program + ` up --boot
SyslogIdentifier=weir
TimeoutStartSec=60

[Install]
WantedBy=multi-user.target
`
}

// udevRules start the unit when the device appears. KERNEL is its name as it appears or after it was renamed, NAME the one that it is about to
// get, and the address finds it when it has got another.
func udevRules(l host.Link) string {
	then := `TAG+="systemd", ENV{SYSTEMD_WANTS}+="weir.service"` + "\n"
	text := header + "\nSUBSYSTEM!=\"net\", GOTO=\"weir_end\"\nACTION==\"remove\", GOTO=\"weir_end\"\n"
	text += fmt.Sprintf("KERNEL==%q, %sNAME==%q, %s", l.Name, then, l.Name, then)
	if l.MAC != "" {
		text += fmt.Sprintf("ATTR{address}==%q, %s", l.MAC, then)
	}
	return text + "LABEL=\"weir_end\"\n"
}

func goalFile(g Goal) string {
	text, err := toml.Marshal(g)
	if err != nil {
		panic(fmt.Sprintf("plan: a goal that TOML cannot write: %v", err)) // it has none but strings, booleans and texts
	}
	return `# The goal of weir. To change it edit it and run:  weir up
# To see whether it is in force:  weir status. To undo it all and remove this file:  weir down
` + string(text)
}

// ParseGoal reads what goalFile writes, and what a person has made of it.
func ParseGoal(text string) (g Goal, err error) {
	d := toml.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	bad := func(line int, what string) error {
		return &Refusal{What: fmt.Sprintf("%s:%d: %s", host.GoalFile, line, what), Usage: true,
			Try: `as in: dev = "eth0" and rate = "50mbit", each on a line; weir up --help has all the names`}
	}
	var strict *toml.StrictMissingError
	var decode *toml.DecodeError
	switch err := d.Decode(&g); {
	case errors.As(err, &strict):
		line, _ := strict.Errors[0].Position()
		return g, bad(line, fmt.Sprintf("unknown key %q", strings.Join(strict.Errors[0].Key(), ".")))
	case errors.As(err, &decode):
		line, _ := decode.Position()
		return g, bad(line, strings.TrimPrefix(decode.Error(), "toml: "))
	case err != nil:
		return g, bad(0, err.Error())
	}
	// A bare number is one to TOML, whatever its unit would have been.
	var raw map[string]any
	_ = toml.Unmarshal([]byte(text), &raw)
	for _, key := range []string{"rate", "ingress", "rtt", "loss"} {
		if v, there := raw[key]; there && reflect.TypeOf(v).Kind() != reflect.String {
			before, _, _ := strings.Cut(text, key)
			return g, bad(strings.Count(before, "\n")+1, fmt.Sprintf("%s = %v has no unit: write it with one, in quotes", key, v))
		}
	}
	var refusal *Refusal
	if err := g.Check(); errors.As(err, &refusal) {
		return g, &Refusal{What: host.GoalFile + ": " + refusal.What, Try: refusal.Try, Usage: true}
	}
	return g, nil
}

// says tells whether a file is a goal's already, in whatever words.
func says(f host.File, g Goal) bool {
	if f.Kind != host.Regular {
		return false
	}
	written, err := ParseGoal(f.Text)
	return err == nil && written == g
}

func sysctlFile(changes []Change) string {
	text := ""
	for _, c := range changes {
		if c.Sysctl != "" {
			text += c.Sysctl + " = " + c.New + "\n"
		}
	}
	if text == "" {
		return ""
	}
	return header + "\n" + text
}

// Overruled names the lines that set at boot, after the file that keeps a plan, something else than the plan does.
func Overruled(p Plan, f host.Facts) (notes []Note) {
	if f.Deep == nil {
		return nil
	}
	for _, c := range p.Changes {
		if s, ok := f.Deep.AtBoot(c.Sysctl); ok && c.Sysctl != "" && !s.Sets(c.New) && path.Base(s.File) > path.Base(host.SysctlFile) {
			notes = append(notes, Note{c.Sysctl, fmt.Sprintf("%s:%d says %s and is read later at boot; weir.service then sets %s again", s.File, s.Line, s.Value, c.New)})
		}
	}
	return notes
}

// networkd writes a queue in the words of systemd.network(5); "" if that has none for it.
func networkd(changes []Change) string {
	i := slices.IndexFunc(changes, func(c Change) bool { return c.Dev != "" })
	if i < 0 {
		return ""
	}
	stack, err := qdisc.ParseStack(changes[i].New)
	if err != nil || len(stack) != 1 {
		return ""
	}
	q, ok := stack[0].(qdisc.Cake)
	if !ok || q.MultiQueue || q.MemLimit != 0 || q.Ingress || q.ATM == "ptm" && q.Raw {
		return ""
	}
	isolation := map[string]string{"flowblind": "none", "srchost": "src-host", "dsthost": "dst-host", "hosts": "hosts", "flows": "flows",
		"dual-srchost": "dual-src-host", "dual-dsthost": "dual-dst-host", "triple-isolate": "triple"}
	acks := map[string]string{"no-ack-filter": "no", "ack-filter": "yes", "ack-filter-aggressive": "aggressive"}
	yes := map[bool]string{true: "yes", false: "no"}
	text := header + "\n[CAKE]\n"
	set := func(key, value string) { text += key + "=" + value + "\n" }
	if q.Bandwidth != 0 {
		set("Bandwidth", fmt.Sprint(uint64(q.Bandwidth)))
	}
	set("AutoRateIngress", yes[q.Autorate])
	set("PriorityQueueingPreset", q.Diffserv)
	set("FlowIsolationMode", isolation[q.FlowMode])
	set("RTTSec", fmt.Sprintf("%dus", time.Duration(q.RTT).Microseconds()))
	set("NAT", yes[q.NAT])
	set("Wash", yes[q.Wash])
	set("SplitGSO", yes[q.SplitGSO])
	set("AckFilter", acks[q.ACKFilter])
	if q.Raw {
		set("UseRawPacketSize", "yes")
	} else {
		set("OverheadBytes", fmt.Sprint(q.Overhead))
	}
	if q.ATM != "noatm" {
		set("CompensationMode", q.ATM)
	}
	if q.MPU != 0 {
		set("MPUBytes", fmt.Sprint(q.MPU))
	}
	if q.FWMark != 0 {
		set("FirewallMark", fmt.Sprint(q.FWMark))
	}
	return text
}
