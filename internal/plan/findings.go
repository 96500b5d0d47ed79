// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/internal/host"
	"weir/internal/qdisc"
	"weir/internal/units"
)

// Severity is how much a finding matters.
type Severity string

const (
	Harmful Severity = "harmful" // or without the effect that somebody wanted
	Notable Severity = "note"    // worth knowing
	Fine    Severity = "fine"
)

// Mark is the severity as a person sees it.
func (s Severity) Mark() string {
	switch s {
	case Harmful:
		return "✗"
	case Notable:
		return "!"
	}
	return "✓"
}

func (s Severity) order() int { return slices.Index([]Severity{Harmful, Notable, Fine}, s) }

// Finding is something about a host that matters for its latency or its throughput.
type Finding struct {
	Severity Severity `json:"severity"`
	Title    string   `json:"title"`
	Seen     string   `json:"seen"`               // values, and where they were read
	Why      string   `json:"why,omitempty"`      // it matters
	Try      string   `json:"try,omitempty"`      // the command that would change it
	Evidence string   `json:"evidence,omitempty"` // the scenario that shows it, or what else says so
}

// Diagnose finds what holds a host back, worst first. Like Make it is a pure function. Facts without their Deep part
// give what can be said without it. What is not wrong is never called so: a host as its distribution made it has
// nothing but fine things.
func Diagnose(facts host.Facts) []Finding {
	d := newDiagnosis(facts)
	for _, check := range checks() {
		check(d)
	}
	slices.SortStableFunc(d.found,
		func(a, b Finding) int { return cmp.Compare(a.Severity.order(), b.Severity.order()) })
	if !slices.ContainsFunc(d.found, func(f Finding) bool { return f.Severity != Fine }) {
		nothing := Finding{Severity: Fine, Title: "Nothing to do.", Seen: "Nothing that was looked at is wrong."}
		switch {
		case d.link.Name == "":
			nothing = Finding{Severity: Notable, Title: "There is no default route.",
				Seen: "No route leads everywhere.",
				Why:  "So the uplink is not known, and its queue was not looked at.", Try: "weir doctor --dev NAME"}
		case !d.deep.Sockets.Read:
			nothing = Finding{Severity: Fine, Title: "Nothing wrong is to be seen.",
				Seen: "Where packets wait only live connections tell, and those are not known."}
		}
		d.found = slices.Insert(d.found, 0, nothing)
	}
	return d.found
}

// diagnosis is one in the making.
type diagnosis struct {
	host.Facts
	deep  *host.Deep
	link  host.Link   // the uplink
	stack qdisc.Stack // at its root; nil when it is one that has no Stack
	cc    string      // the congestion control of new connections
	found []Finding

	carried Carried // for others
}

func newDiagnosis(facts host.Facts) *diagnosis {
	d := &diagnosis{Facts: facts, deep: facts.Deep, cc: facts.Sysctls[congestionControl].Value, carried: Carries(facts)}
	if d.deep == nil {
		d.deep = &host.Deep{}
	}
	dev, _, err := Uplink(facts)
	if err != nil {
		dev = facts.Uplink
	}
	d.link, _ = facts.Link(dev)
	d.stack, _ = d.link.Tree.Stack()
	return d
}

// checks are all that a diagnosis looks for; among findings of one severity this is their order.
func checks() []func(*diagnosis) {
	return []func(*diagnosis){
		(*diagnosis).bridged,
		(*diagnosis).queue,
		(*diagnosis).relay,
		(*diagnosis).ring,
		(*diagnosis).notInKernel,
		(*diagnosis).unreadFile,
		(*diagnosis).unsent,
		(*diagnosis).mptcp,
		(*diagnosis).buffers,
		(*diagnosis).lossyPath,
		(*diagnosis).boundConnections,
		(*diagnosis).limit,
		(*diagnosis).severalUplinks,
		(*diagnosis).defaultQdisc,
		(*diagnosis).fairness,
		(*diagnosis).relayFairness,
		(*diagnosis).ecn,
		(*diagnosis).overridden,
		(*diagnosis).changedSince,
		(*diagnosis).otherWriters,
		(*diagnosis).udevNames,
		(*diagnosis).containers,
		(*diagnosis).tunnels,
		(*diagnosis).cookies,
		(*diagnosis).congestion,
		(*diagnosis).kernel,
	}
}

func (d *diagnosis) add(f Finding) { d.found = append(d.found, f) }

// initial tells whether this is the first network namespace: only there is net.core.default_qdisc. Boot files are for
// no other.
func (d *diagnosis) initial() bool { _, ok := d.Sysctls["net.core.default_qdisc"]; return ok }

// source says where a value comes from, as far as files tell.
func (d *diagnosis) source(name string) string {
	return cmp.Or(sysctlOwner(d.Facts, name), "read from "+host.SysctlPath(name))
}

// Where says where a setting is made; 0 is no line.
func Where(file string, line int) string {
	if line == 0 {
		return file
	}
	return file + ":" + strconv.Itoa(line)
}

// shaper is the rate that the uplink's own tree enforces; 0: none.
func (d *diagnosis) shaper() units.Rate { return treeRate(d.link.Tree) }

// treeRate is the highest rate that a tree enforces.
func treeRate(tree qdisc.Tree) units.Rate {
	rate := units.Rate(0)
	for _, q := range tree.Qdiscs {
		switch spec := q.Spec.(type) {
		case qdisc.BPFDualPI2:
			rate = max(rate, spec.Rate)
		case qdisc.Cake:
			rate = max(rate, spec.Bandwidth)
		case qdisc.HTB:
			rate = max(rate, spec.Rate)
		case qdisc.TBF:
			rate = max(rate, spec.Rate)
		}
	}
	for _, c := range tree.Classes {
		if c.Parent == qdisc.Root || c.Rate > rate {
			rate = max(rate, c.Rate)
		}
	}
	return rate
}

// queueName is the discipline that holds the packets.
func (d *diagnosis) queueName() string {
	if len(d.stack) > 0 {
		return d.stack[len(d.stack)-1].Kind()
	}
	return Describe(d.link.Tree)
}

// queue finds out where the queue is: here, or in front of somebody else's narrower link.
func (d *diagnosis) queue() {
	if d.link.Name == "" {
		return
	}
	root, ok := d.link.Tree.Root()
	if !ok {
		return
	}
	s, name, rate := d.deep.Sockets, d.queueName(), d.shaper()
	on := name + " on " + d.link.Name
	queueing, elsewhere := d.queueing(), d.elsewhere()
	yours, besides := "The queue is yours.",
		"The limit seems to be below the shaper's rate: a queue that stands elsewhere is not managed."
	try, less := "weir plan --rate RATE    with what the provider sold",
		"weir plan --rate RATE    with less than "+rate.String()
	if d.carried.OneCard {
		yours, besides = "The queue of what leaves is yours.",
			"What leaves has just come in by the same card: a queue on the way in is not managed."
		try, less = relayPlan, relayPlan
	}
	seen := fmt.Sprintf("%d of %s: RTT %s, minimum %s", s.Queueing, counted(s.Busy, "busy connection"),
		millis(s.QueueRTT), millis(s.QueueMin))
	holds := fmt.Sprintf("%s holds %s", on, counted(int(root.Stats.Qlen), "packet"))
	switch {
	case queueing && rate == 0 && elsewhere:
		why := fmt.Sprintf("%s has no rate, and acts on a queue at this device only. Yours is in the provider's box.",
			name)
		if name == "noqueue" {
			why = "There is no queue at this device. Yours is in the provider's box."
		}
		d.add(Finding{Harmful, "The queue is not yours.", seen + "; " + holds + ".", why, try,
			"scenarios/narrow-link.toml"})
	case queueing && rate != 0 && elsewhere:
		d.add(Finding{Notable, "There is a queue besides yours.",
			fmt.Sprintf("%s; %s, which shapes to %s.", seen, holds, rate),
			besides, less, "scenarios/seeds/shaping.toml"})
	case queueing && slices.Contains([]string{"pfifo_fast", "pfifo", "bfifo"}, name):
		d.add(Finding{Notable, "The queue is here, and one for all.", seen + "; " + holds + ".",
			"In a plain FIFO each packet waits behind all others.", "weir plan", "scenarios/seeds/gso.toml"})
	case queueing:
		d.add(Finding{Severity: Fine, Title: "The queue is here.", Seen: seen + "; " + holds + "."})
	case rate != 0:
		d.add(Finding{Severity: Fine, Title: yours, Seen: fmt.Sprintf("%s shapes to %s.", on, rate)})
	case chosenAQM(root, name):
		d.idle(root, on)
	case s.Busy == 0 && s.Read:
		d.add(Finding{Severity: Fine, Title: on + ": no queue is to be seen.",
			Seen: "No connection is busy, so which limit binds cannot be seen either: look again under load."})
	case s.Busy > 0:
		d.add(Finding{Severity: Fine, Title: on + ": no queue is to be seen.",
			Seen: fmt.Sprintf("%s, none with an RTT far above its minimum.", counted(s.Busy, "busy connection"))})
	}
}

// chosenAQM tells whether somebody has put an active queue management without a rate there: no kernel comes with one of
// these for a default.
func chosenAQM(root qdisc.Qdisc, name string) bool {
	return root.Handle != 0 &&
		slices.Contains([]string{"bpf_dualpi2", "cake", "cake_mq", "codel", "dualpi2", "fq_pie", "pie"}, name)
}

// idle is about a discipline that could act, and has no reason to.
func (d *diagnosis) idle(root qdisc.Qdisc, on string) {
	const enough = 10_000 // packets, after which never having acted means something
	name := d.queueName()
	f := Finding{Severity: Notable, Title: on + " has no rate.",
		Try: "weir plan --rate RATE    with what the provider sold",
		Why: name + " without a rate acts on a queue at this device only. Where the provider enforces a lower " +
			"rate the queue is there, and this changes nothing.",
		Evidence: "scenarios/seeds/narrow-link.toml"}
	acted := root.Stats.Drops + root.Stats.Marks + root.Stats.Backlog
	f.Seen = fmt.Sprintf("Of %d packets it has dropped %d and marked %d; %d wait.", root.Stats.Packets,
		root.Stats.Drops, root.Stats.Marks, root.Stats.Qlen)
	if acted > 0 {
		d.add(Finding{Severity: Fine, Title: on + " has something to do.", Seen: f.Seen})
		return
	}
	if root.Stats.Packets >= enough {
		f.Severity, f.Title = Harmful, on+" has no effect."
	}
	d.add(f)
}

// notInKernel finds what files ask for and this kernel does not have.
func (d *diagnosis) notInKernel() {
	if !d.initial() {
		return
	}
	asks := map[string][]string{}
	ask := func(what, file string, line int) {
		if at := Where(file, line); !slices.Contains(asks[what], at) {
			asks[what] = append(asks[what], at)
		}
	}
	for _, s := range d.deep.Settings {
		if s.Masked == "" {
			d.lacking(s.Sysctl, s.Value, func(what string) { ask(what, s.File, s.Line) })
		}
	}
	for _, w := range d.deep.Writers {
		if w.Qdisc != "" && d.Qdiscs[w.Qdisc] == host.No {
			ask(w.Qdisc, w.File, w.Line)
		}
		d.lacking(w.Sysctl, w.Value, func(what string) { ask(what, w.File, w.Line) })
	}
	var names []string
	for what := range asks {
		names = append(names, what)
	}
	slices.Sort(names)
	for _, what := range names {
		f := Finding{Severity: Harmful, Title: "This kernel has no " + what + ".",
			Seen: fmt.Sprintf("%s ask%s for it; kernel %s has no such module.", strings.Join(asks[what], ", "),
				map[bool]string{true: "s"}[len(asks[what]) == 1], d.Kernel),
			Why: "The line has no effect.", Try: "weir plan --rate RATE    for what this kernel can do"}
		if what == "dualpi2" {
			f.Why = "Linux has it since 6.17, but no Debian kernel builds it. The lines have no effect."
			if d.Qdiscs["bpf_dualpi2"] == host.Yes {
				f.Try = fmt.Sprintf("weir dualpi2 add dev %s rate RATE    the same in BPF, with a shaper",
					cmp.Or(d.link.Name, "DEV"))
			}
		}
		d.add(f)
	}
}

func (d *diagnosis) lacking(sysctl, value string, lacks func(string)) {
	switch sysctl {
	case "net.core.default_qdisc":
		if d.Qdiscs[value] == host.No {
			lacks(value)
		}
	case congestionControl:
		if value != "" && !strings.ContainsAny(value, " $") && len(d.Congestion.Available) > 0 &&
			!d.Congestion.Has(value) {
			lacks(value)
		}
	}
}

// unreadFile finds settings in /etc/sysctl.conf where the boot does not read it.
func (d *diagnosis) unreadFile() {
	if !d.initial() {
		return
	}
	var lost []string
	file := ""
	for _, s := range d.deep.Settings {
		if !s.Unread || !s.Manual {
			continue
		}
		if boot, ok := d.deep.AtBoot(s.Sysctl); ok && boot.Value == s.Value {
			continue
		}
		file = s.File
		lost = append(lost, short(s.Sysctl))
	}
	if len(lost) == 0 {
		return
	}
	d.add(Finding{Harmful, file + " is not read at boot.",
		fmt.Sprintf("It sets %s; %s reads /etc/sysctl.d, where nothing points to it.", strings.Join(lost, ", "),
			d.deep.Loader),
		"These settings last until the next boot, and come back only when somebody runs sysctl -p.",
		fmt.Sprintf("mv %s /etc/sysctl.d/90-local.conf    for those that shall stay", file),
		"sysctl.d(5); Debian 13's release notes"})
}

// unsent is about a socket that is fed in pieces that are too small.
func (d *diagnosis) unsent() {
	now, err := strconv.ParseInt(d.Sysctls[notsentLowat].Value, 10, 64)
	switch {
	case err != nil || now < 0 || now >= 131072:
	case now < 16384 && d.cc == "bbr":
		d.add(Finding{Harmful, fmt.Sprintf("tcp_notsent_lowat %d makes BBR queue.", now),
			fmt.Sprintf("%s = %d, %s.", notsentLowat, now, d.source(notsentLowat)),
			"Fed in pieces below its burst size, BBR takes its own gaps for aggregated ACKs and keeps another BDP in " +
				"flight.", "weir up",
			"scenarios/seeds/notsent-lowat.toml"})
	default:
		d.add(Finding{Notable, fmt.Sprintf("tcp_notsent_lowat %d costs wake-ups.", now),
			fmt.Sprintf("%s = %d, %s.", notsentLowat, now, d.source(notsentLowat)),
			"Programs are woken for each small piece, and nothing is gained below 131072.", "weir up",
			"scenarios/seeds/notsent-lowat.toml"})
	}
}

// buffers is about what connections' buffers start with, and what they may grow to.
func (d *diagnosis) buffers() {
	const rmemDefault, wmemDefault = 131072, 16384 // the kernel's
	for _, b := range []struct {
		name   string
		kernel uint64
		why    string
	}{
		{tcpRmem, rmemDefault, "Every new connection starts with %s of the usual window."},
		{tcpWmem, wmemDefault, "Every new connection starts with %s of the usual room for what it sends."},
	} {
		sizes, ok := triple(d.Sysctls[b.name].Value)
		if !ok {
			continue
		}
		if sizes[1] < b.kernel {
			part := fmt.Sprintf("%.0f %%", 100*float64(sizes[1])/float64(b.kernel))
			if sizes[1] > 0 && b.kernel%sizes[1] == 0 {
				part = fmt.Sprintf("1/%d", b.kernel/sizes[1])
			}
			d.add(Finding{Notable, fmt.Sprintf("%s default is %d (kernel: %d).", short(b.name), sizes[1], b.kernel),
				fmt.Sprintf("%s = %d %d %d, %s.", b.name, sizes[0], sizes[1], sizes[2], d.source(b.name)),
				fmt.Sprintf(b.why, part), "weir up", ""})
		}
		// Half of a buffer at most is payload in flight.
		rate, rtt := d.shaper(), d.deep.Sockets.RTT
		bdp := float64(rate) / 8 * time.Duration(rtt).Seconds()
		if most := float64(sizes[2]) / 2; bdp > most {
			d.add(Finding{Notable, fmt.Sprintf("%s maximum is below what the path holds.", short(b.name)),
				fmt.Sprintf("%s = %d %d %d, %s; %s × %s (nine in ten connections are nearer) is %.1f MiB, and half "+
					"of a buffer is payload.",
					b.name, sizes[0], sizes[1], sizes[2], d.source(b.name), rate, millis(rtt), bdp/(1<<20)),
				"One connection alone cannot fill the path.",
				fmt.Sprintf("weir plan --rate %s --rtt %s", rate, rtt.Round(units.Duration(time.Millisecond))),
				"scenarios/long-fast-link.toml"})
		}
	}
}

// lossyPath is about packets that are lost with no queue to blame.
func (d *diagnosis) lossyPath() {
	s := d.deep.Sockets
	if !d.lossy() {
		return
	}
	share := units.Share(float64(int(float64(s.LossyShare)*1000+0.5)) / 1000)
	seen := fmt.Sprintf("%d of %s sent %s of the bytes again, with an RTT near its minimum.", s.Lossy,
		counted(s.Busy, "busy connection"), share)
	if 2*s.LossyBBR >= s.Lossy {
		d.add(Finding{Severity: Fine, Title: "The path loses packets, and BBR does not slow down for it.", Seen: seen,
			Evidence: "scenarios/seeds/lossy-path.toml"})
		return
	}
	try := fmt.Sprintf("weir plan --loss %s", share)
	if d.cc == "bbr" {
		try = "restart the services that hold these connections: new ones get BBR"
	}
	d.add(Finding{Notable, "The path loses packets without a queue.", seen,
		"What these connections use takes each for congestion and slows down; BBR does not. A provider that drops " +
			"what exceeds a rate looks the same: then tell --rate.",
		try, "scenarios/seeds/lossy-path.toml"})
}

// boundConnections is about ends that hold a connection back: then the link is not the problem.
func (d *diagnosis) boundConnections() {
	s := d.deep.Sockets
	if d.bufferBound() {
		d.add(Finding{Notable, "Send buffers hold connections back.",
			fmt.Sprintf("%d of %s spent a fifth of their time or more waiting for room in the send buffer; %s = %s, "+
				"%s.", s.Buffer, counted(s.Busy, "busy connection"),
				tcpWmem, d.Sysctls[tcpWmem].Value, d.source(tcpWmem)),
			"They could send more than they may keep in flight.",
			"weir plan --rate RATE --rtt TIME    sizes the buffers for a path", "scenarios/long-fast-link.toml"})
	}
	if d.receiverBound() {
		d.add(Finding{Notable, "Receivers hold connections back.",
			fmt.Sprintf("%d of %s spent a fifth of their time or more waiting for the receiver's window.", s.Receiver,
				counted(s.Busy, "busy connection")),
			"The limit is at the other end, and nothing that is set here changes it.", "", ""})
	}
}

// limit is about the other limits that can bind: the CPU, and the device itself.
func (d *diagnosis) limit() {
	if d.cpuShort() {
		d.add(Finding{Notable, "The CPU is short.",
			fmt.Sprintf("In %.0f %% of the last 10 s something waited for a CPU (/proc/pressure/cpu).",
				100*float64(d.deep.CPU)),
			"Where the CPU is the limit a shaper costs more than it gives: fq without one is the cheapest queue.",
			"weir plan    without --rate", ""})
	}
	if d.deviceFull() {
		d.add(Finding{Severity: Fine, Title: "The device is the limit.",
			Seen: fmt.Sprintf("%s deliver %s of %s.", counted(d.deep.Sockets.Busy, "busy connection"),
				roughly(d.deep.Sockets.Rate), d.link.Speed)})
	}
}

// kernel says what there is to build with.
func (d *diagnosis) kernel() {
	var has, lacks []string
	for _, kind := range []string{"cake", "cake_mq", "htb", "fq", "fq_codel", "dualpi2"} {
		switch d.Qdiscs[kind] {
		case host.Yes:
			has = append(has, kind)
		case host.No:
			lacks = append(lacks, kind)
		}
	}
	if len(has)+len(lacks) == 0 {
		return
	}
	if d.deep.BPFQdisc == host.Yes {
		has = append(has, "queues in BPF")
	}
	if d.deep.AccECN == host.Yes {
		has = append(has, "AccECN")
	}
	has = append(has, slices.Concat(d.Congestion.Available, d.Congestion.Loadable)...)
	seen := "Has " + strings.Join(has, ", ") + "."
	if len(lacks) > 0 {
		seen += " Has no " + strings.Join(lacks, ", ") + "."
	}
	if slices.Contains(lacks, "dualpi2") && d.Qdiscs["bpf_dualpi2"] == host.Yes {
		seen += " Debian builds no sch_dualpi2; weir dualpi2 brings it as BPF."
	}
	f := Finding{Severity: Fine, Title: "Linux " + d.Kernel + ".", Seen: seen}
	no := func(kind string) bool { return d.Qdiscs[kind] == host.No }
	if no("cake") && (no("htb") || no("fq_codel")) {
		f.Severity, f.Why, f.Try = Notable, "There is nothing here to shape with and keep connections apart: where "+
			"the provider enforces a rate the queue stays there.",
			"install the package with all of the kernel's modules"
	}
	d.add(f)
}

// defaultQdisc is about a default that came too late for the device that matters.
func (d *diagnosis) defaultQdisc() {
	want := d.Sysctls["net.core.default_qdisc"].Value
	root, ok := d.link.Tree.Root()
	if !ok || want == "" || root.Handle != 0 || d.link.Kind != "" || len(d.stack) == 0 || d.Qdiscs[want] == host.No {
		return
	}
	kind := d.stack[len(d.stack)-1].Kind()
	if kind == want || kind == "mq" || kind == "noqueue" {
		return
	}
	f := Finding{Severity: Notable, Title: fmt.Sprintf("default_qdisc is %s, and %s has %s.", want, d.link.Name, kind),
		Seen: fmt.Sprintf("net.core.default_qdisc = %s, %s.", want, d.source("net.core.default_qdisc")),
		Why:  "Only devices that come up later get it.",
		Try:  fmt.Sprintf("weir plan --qdisc %s    if it is wanted there", want)}
	if d.cc == "bbr" && want == "fq" {
		f.Why += " BBR does without fq: it has paced itself since Linux 4.13."
		f.Evidence = "scenarios/seeds/lossy-path.toml"
	}
	d.add(f)
}

// fairness is about CAKE's default on a server that sends everything from one address.
func (d *diagnosis) fairness() {
	addresses := 0
	for _, a := range d.link.Addrs {
		if !strings.HasPrefix(a, "fe80:") && !strings.Contains(a, ":") {
			addresses++
		}
	}
	if d.Forwards() || addresses > 1 {
		return
	}
	for _, s := range d.stack {
		if cake, ok := s.(qdisc.Cake); ok && cake.Bandwidth != 0 && cake.FlowMode == "triple-isolate" {
			d.add(Finding{Notable, "CAKE shares between connections, not between clients.",
				fmt.Sprintf("%s on %s: triple-isolate, its default.", s.Kind(), d.link.Name),
				"It divides by the busier of the two hosts, and on a server that is always the server: who opens " +
					"more connections gets more.",
				"weir plan --rate RATE    which takes dual-dsthost",
				"scenarios/seeds/shaping.toml"})
		}
	}
}

// ecn is about a setting that contradicts what the host does.
func (d *diagnosis) ecn() {
	now, s := d.Sysctls[tcpECN].Value, d.deep.Sockets
	seen := fmt.Sprintf("%s = %s, %s", tcpECN, now, d.source(tcpECN))
	marks := d.shaper() != 0 && slices.Contains([]string{"bpf_dualpi2", "cake", "cake_mq", "fq_codel", "dualpi2"},
		d.queueName())
	switch {
	case now == "1" && d.cc == "bbr":
		d.add(Finding{Notable, "ECN is asked for, and BBR does not listen.", seen + "; congestion control bbr.",
			"BBR takes no notice of marks: a queue that marks it instead of dropping has no hold on it.",
			"sysctl -w net.ipv4.tcp_ecn=2    the kernel's default",
			"scenarios/seeds/dualpi2.toml"})
	case now == "1" && s.Read && s.Total > 0 && s.Dialled() == 0 && !d.Forwards():
		d.add(Finding{Notable, "tcp_ecn 1 changes nothing here.",
			fmt.Sprintf("%s; all %s were opened by others.", seen, counted(s.Total, "connection")),
			"Connections that are accepted get ECN when the client asks, with 1 as with 2.", "",
			"scenarios/seeds/ecn.toml"})
	case now == "0" && marks && d.cc != "bbr":
		d.add(Finding{Notable, "ECN is refused, and the queue here could mark.",
			fmt.Sprintf("%s; %s on %s marks what asks for it.", seen, d.queueName(), d.link.Name),
			"What could be marked is dropped and sent again.", "sysctl -w net.ipv4.tcp_ecn=2    the kernel's default",
			"scenarios/seeds/ecn.toml"})
	}
}

// overridden finds lines that somebody has written and another file undoes.
func (d *diagnosis) overridden() {
	if !d.initial() {
		return
	}
	for _, name := range d.names() {
		wins, ok := d.deep.AtBoot(name)
		if !ok {
			continue
		}
		var losers []string
		for _, s := range d.deep.Settings {
			// What packages ship below /usr is there to be overridden, and so is a pattern.
			own := !strings.HasPrefix(s.File, "/usr/") && s.Pattern == "" && !s.Keeps
			if s.Sysctl == name && own && !s.Wins && !s.Unread && s.Masked == "" && s.File != wins.File &&
				!sameFields(s.Value, wins.Value) {
				losers = append(losers, fmt.Sprintf("%s: %s", Where(s.File, s.Line), s.Value))
			}
		}
		for _, w := range d.deep.Writers {
			if w.Sysctl == name && !sameFields(w.Value, wins.Value) {
				losers = append(losers, fmt.Sprintf("%s, %s: %s", w.By, Where(w.File, w.Line), w.Value))
			}
		}
		if len(losers) == 0 {
			continue
		}
		d.add(Finding{Notable, fmt.Sprintf("%s is set by several, to different values.", short(name)),
			fmt.Sprintf("%s: %s wins at boot; against it %s. Now: %s.", Where(wins.File, wins.Line), wins.Value,
				strings.Join(losers, "; "), d.Sysctls[name].Value),
			"Which one is in force depends on who came last.", "remove all lines but one", ""})
	}
}

// changedSince finds values that are not what the next boot will set.
func (d *diagnosis) changedSince() {
	// A file that could not be read may say what no other does.
	hidden := slices.ContainsFunc(d.deep.Unknown,
		func(u host.Unread) bool { return strings.Contains(u.What, "/sysctl") })
	if !d.initial() || d.deep.Loader == "" || d.weir() != "" || hidden {
		return
	}
	for _, name := range d.names() {
		now := d.Sysctls[name].Value
		wins, ok := d.deep.AtBoot(name)
		written := slices.ContainsFunc(d.deep.Writers, func(w host.Writer) bool { return w.Sysctl == name })
		// What came from a file that the boot does not read has been said already.
		unread := slices.ContainsFunc(d.deep.Settings,
			func(s host.Setting) bool { return s.Sysctl == name && s.Unread && s.Sets(now) })
		lacks := false
		d.lacking(name, wins.Value, func(string) { lacks = true })
		switch {
		case ok && !wins.Sets(now) && !written && !lacks && !unread:
			f := Finding{Notable, fmt.Sprintf("%s has changed since the boot.", short(name)),
				fmt.Sprintf("It is %s; %s says %s.", now, Where(wins.File, wins.Line), wins.Value),
				"The next boot brings the file's value back.", "sysctl -p " + wins.File + "    or change the file", ""}
			if wins.File == host.CommandLine {
				f.Why, f.Try = "The next boot brings that value back.",
					"a line in /etc/sysctl.d, which comes later, for the value that shall stay"
			}
			d.add(f)
		case !ok && !written && !unread && d.foreign(name, now):
			d.add(Finding{Notable, fmt.Sprintf("%s is %s, and no file says so.", short(name), now), "Read from " +
				host.SysctlPath(name) + ".",
				"The next boot brings the kernel's own value back.", "weir plan    says whether it is worth keeping",
				""})
		}
	}
}

// foreign tells whether no kernel has this value by itself.
func (d *diagnosis) foreign(name, now string) bool {
	switch name {
	case notsentLowat:
		n, err := strconv.ParseInt(now, 10, 64)
		return err == nil && n >= 0 && n < 1<<31-1
	case congestionControl:
		return slices.Contains(d.deep.Loaded, "tcp_"+now)
	}
	return false
}

func (d *diagnosis) names() []string {
	var names []string
	for name := range d.Sysctls {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// weir is the file by which a weir that is up shows.
func (d *diagnosis) weir() string {
	for _, w := range d.deep.Writers {
		if w.By == "weir" {
			return w.File
		}
	}
	return ""
}

// otherWriters names who else sets the queue of the uplink, or tunes TCP by itself.
func (d *diagnosis) otherWriters() {
	if !d.initial() {
		return
	}
	root, _ := d.link.Tree.Root()
	for _, w := range d.deep.Writers {
		switch {
		case w.By == "bpftune":
			d.add(Finding{Notable, "bpftune changes settings by itself.", w.File + " starts it.",
				"It raises buffers and changes congestion controls while connections run; what is set here may not " +
					"stay.", "weir status    tells what has drifted", ""})
		case w.Qdisc == "" || w.By == "modules-load" || d.Qdiscs[w.Qdisc] == host.No || !names(w.Dev, d.link.Name):
		case w.Qdisc != root.Kind && w.Qdisc != d.queueName():
			d.add(Finding{Notable, fmt.Sprintf("%s sets %s on %s.", w.By, w.Qdisc, cmp.Or(w.Dev, "a device")),
				fmt.Sprintf("%s; %s has %s now.", Where(w.File, w.Line), d.link.Name, root.Kind),
				"At the next boot, or when the device appears again, it takes the place of what is there.",
				"remove the line, or what it competes with", ""})
		}
	}
}

// udevNames finds rules that wait for the uplink by a name that it may not have when it appears.
func (d *diagnosis) udevNames() {
	if !d.initial() {
		return
	}
	for _, w := range d.deep.Writers {
		// A queue that is not in the kernel is another finding; a name that the kernel gives is there from the start.
		if w.Name == "" || !names(w.Name, d.link.Name) || d.Qdiscs[w.Qdisc] == host.No ||
			strings.HasPrefix(d.link.Name, "eth") {
			continue
		}
		d.add(Finding{Notable, fmt.Sprintf("udev may never set %s on %s.", w.Qdisc, cmp.Or(w.Dev, d.link.Name)),
			fmt.Sprintf("%s wants ACTION add and the name %s.", Where(w.File, w.Line), w.Name),
			"The rule compares the name that the device has, or was given by a rule before it, at the moment it " +
				"appears. On some systems it gets this one only later, and the line is never run.",
			"weir up    which also knows the device by its address, in place of this line", "udev(7), of NAME"})
	}
}

// containers is about namespaces with TCP settings of their own.
func (d *diagnosis) containers() {
	if len(d.deep.Namespaces) == 0 || !d.initial() {
		return
	}
	processes := 0
	for _, n := range d.deep.Namespaces {
		processes += n.Processes
	}
	seen := fmt.Sprintf("%s in %s.", countedWith(processes, "process", "es"),
		counted(len(d.deep.Namespaces), "other network namespace"))
	var own []string
	for _, name := range []string{congestionControl, tcpECN, notsentLowat, tcpRmem, tcpWmem} {
		if s, ok := d.deep.AtBoot(name); ok && s.Sets(d.Sysctls[name].Value) && !strings.HasPrefix(s.File, "/usr/") ||
			d.foreign(name, d.Sysctls[name].Value) {
			own = append(own, short(name))
		}
	}
	if len(own) == 0 {
		d.add(Finding{Severity: Fine, Title: "Containers.", Seen: seen +
			" No setting here is one that they would miss."})
		return
	}
	d.add(Finding{Notable, "Containers do not inherit the settings.", seen +
		fmt.Sprintf(" Set here: %s.", strings.Join(own, ", ")),
		"Those settings belong to a network namespace. One that is made later starts with this one's congestion " +
			"control and buffers and the kernel's other values; one that is there already keeps its own. The queue " +
			"of the uplink serves them all.",
		"set them where containers are started: docker run --sysctl NAME=VALUE", ""})
}

// tunnels is about UDP that carries other people's TCP.
func (d *diagnosis) tunnels() {
	var names []string
	for _, l := range d.Links {
		if l.Kind == "wireguard" || l.Kind == "tuntap" {
			names = append(names, l.Name)
		}
	}
	if len(names) == 0 {
		return
	}
	if d.cc == "bbr" {
		d.add(Finding{Notable, "BBR does nothing for what is tunnelled.",
			fmt.Sprintf("%s; congestion control bbr, %s.", strings.Join(names, ", "), d.source(congestionControl)),
			"The TCP inside has its ends elsewhere, and their congestion control. What helps it here is the queue of " +
				cmp.Or(d.link.Name, "the uplink") + ".",
			"weir plan --role relay --rate RATE", "scenarios/narrow-link.toml"})
		return
	}
	if len(d.carried.Kinds) > 0 {
		return // what they carry, and what manages it, has been said
	}
	d.add(Finding{Severity: Fine, Title: "Tunnels.", Seen: strings.Join(names, ", ") +
		": what they carry is managed by the queue of " + cmp.Or(d.link.Name, "the uplink") + "."})
}

// cookies is about connections that start without what a handshake tells.
func (d *diagnosis) cookies() {
	s := d.deep.SYN
	many := s.CookiesGood > 0 && s.CookiesGood*100 >= s.Accepted
	if d.cc != "bbr" || !many && !s.Proxy {
		return
	}
	seen := fmt.Sprintf("%d of %d connections came by a SYN cookie since the boot (/proc/net/netstat).", s.CookiesGood,
		s.Accepted)
	if s.Proxy {
		seen += " Netfilter's SYN proxy is loaded."
	}
	d.add(Finding{Notable, "SYN cookies or a SYN proxy, with BBR.", seen,
		"BBR's first round trips rest on the handshake's RTT, which such a connection lacks.",
		"weir plan --cc cubic, or a longer net.ipv4.tcp_max_syn_backlog",
		"not measured: what the authors of seed 001 met in production"})
}

// congestion says what the connections use.
func (d *diagnosis) congestion() {
	s := d.deep.Sockets
	if !s.Read || d.cc == "" {
		return
	}
	if s.Total == 0 {
		d.add(Finding{Severity: Fine, Title: d.cc + ", and no connections.",
			Seen: fmt.Sprintf("%s = %s.", congestionControl, d.cc)})
		return
	}
	same := s.Congestion[d.cc]
	if same == s.Total {
		seen := "All use the present default."
		if d.cc == "bbr" && d.queueName() != "fq" {
			seen += " It does without fq: TCP has paced itself since Linux 4.13."
		}
		d.add(Finding{Severity: Fine, Title: fmt.Sprintf("%s: %s.", d.cc, counted(s.Total, "connection")), Seen: seen})
		return
	}
	var others []string
	for name, n := range s.Congestion {
		if name != d.cc {
			others = append(others, fmt.Sprintf("%d %s", n, name))
		}
	}
	slices.Sort(others)
	title, seen := fmt.Sprintf("%d of %s use %s.", same, counted(s.Total, "connection"), d.cc),
		fmt.Sprintf("The others: %s.", cmp.Or(strings.Join(others, ", "), "not known"))
	if _, set := d.deep.AtBoot(congestionControl); !set && !d.foreign(congestionControl, d.cc) {
		d.add(Finding{Severity: Fine, Title: title, Seen: seen + " Their programs chose."})
		return
	}
	d.add(Finding{Notable, title, seen,
		"They were open before it became the default, or their programs chose; they keep what they have.",
		"restart the services that hold them, if that matters", ""})
}

// sameFields compares values word by word, up to a comment.
func sameFields(a, b string) bool {
	cut := func(s string) string { s, _, _ = strings.Cut(s, " #"); return strings.TrimSpace(s) }
	return cut(a) == cut(b)
}

// ms writes a time as precisely as it is known.
func millis(d units.Duration) string {
	unit := units.Duration(time.Millisecond)
	for d < 10*unit && unit > units.Duration(time.Microsecond) {
		unit /= 10
	}
	return d.Round(unit).String()
}

// roughly leaves a rate its first three digits.
func roughly(r units.Rate) units.Rate {
	unit := units.Rate(1)
	for r/unit >= 1000 {
		unit *= 10
	}
	return r / unit * unit
}

func counted(n int, what string) string { return countedWith(n, what, "s") }

func countedWith(n int, what, plural string) string {
	if n == 1 {
		plural = ""
	}
	return fmt.Sprintf("%d %s%s", n, what, plural)
}

func short(name string) string {
	return strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(name, "net."), "ipv4."), "core.")
}

// Shapes tells whether a stack enforces a rate.
func Shapes(s qdisc.Stack) bool { return shapes(s) }
