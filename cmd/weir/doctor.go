// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weir/internal/cli"
	"weir/internal/doctor"
	"weir/internal/host"
	"weir/internal/journal"
	"weir/internal/kernel"
	"weir/internal/plan"
	"weir/internal/qdisc"
	"weir/internal/text"
)

// diagnosed is what JSON has.
type diagnosed struct {
	Summary    doctor.Summary    `json:"summary"`
	Bottleneck doctor.Bottleneck `json:"bottleneck"`
	Stages     []doctor.Stage    `json:"stages"`
	Findings   []doctor.Finding  `json:"findings"`
	Facts      host.Facts        `json:"facts"`
}

func newDoctorCommand() *cobra.Command {
	var asJSON, verbose, bench, inside bool
	var dev string
	var patience time.Duration
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "What holds this server back, and what would help",
		Long: `Looks at this server and says what makes it slow under load.

The first line says what is wrong, the second what to do or, where too little
was seen, how to see more. --listen 10s looks for so long while traffic runs.
For that it loads tcp_diag, the module by which ss sees connections.

It looks at the uplink and its queue, and at the live TCP connections. It also
looks at the settings that matter, at the files that set them, and at what this
host passes on for others.

It follows a packet from the program to its receiver. The bottleneck is the
stage that is shown to hold it back, on this host or beyond; -v shows them all,
and which could not be seen.

Each finding says what was seen, why it matters and what would change it; beside
weir-lab also which run of that shows it. Its mark is ✗ (harmful or without
effect), ! (worth knowing) or ✓ (fine). With --json each has a code that stays
the same: docs/findings.md explains them.

Doctor changes nothing, sends nothing, and needs no root. What only root can see
is listed as unknown.

With --bench it measures instead what one CAKE carries on this host's CPU, in a
network namespace that ends with it. For two seconds that keeps every CPU busy.

Exit status: 0 nothing is harmful or without effect, 1 something is or doctor
failed, 2 wrong usage.`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case inside:
				return inBench(cmd.OutOrStdout())
			case bench:
				return runBench(cmd, asJSON)
			}
			facts, err := look(cmd, patience)
			if err != nil {
				return err
			}
			if err := lookAt(&facts, dev); err != nil {
				return err
			}
			findings := doctor.Diagnose(facts)
			w := cmd.OutOrStdout()
			switch {
			case asJSON:
				err = cli.PrintJSON(w,
					diagnosed{doctor.Summarize(facts), doctor.FindBottleneck(facts), doctor.FindStages(facts),
						findings, facts})
			case verbose:
				printDiagnosis(w, facts, findings)
				printStages(w, facts)
				printSettings(w, facts)
				printIngress(w, facts)
			default:
				printDiagnosis(w, facts, findings)
			}
			if err != nil {
				return err
			}
			return allWell(findings)
		},
	}
	device(cmd, &dev, "`device` of the uplink (default: the default route's)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false,
		"also print what was seen of each stage of a packet's way, and each setting with the files that set it")
	cmd.Flags().Var((*timeOption)(&patience), "listen", "look for this `time` while traffic runs: 10s")
	cmd.Flags().BoolVar(&bench, "bench", false, "measure what one CAKE carries on this host's CPU")
	cmd.Flags().BoolVar(&inside, "bench-inside", false, "started by --bench, in a network namespace of its own")
	cmd.Flags().MarkHidden("bench-inside")
	return cmd
}

// look reads the host: at once, or as it is at the busiest of several moments of that time, with what its counters have
// counted meanwhile.
func look(cmd *cobra.Command, patience time.Duration) (facts host.Facts, err error) {
	if patience <= 0 {
		return journal.ReadHost()
	}
	if connections, err := host.OpenConnections(); err == nil {
		_, _ = connections.Read() // which has the kernel load what it takes; why it cannot is said below
		connections.Close()
	}
	const pause = 2 * time.Second
	interrupted, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
	defer stop()
	began, line := time.Now(), cli.NewProgress(cmd.ErrOrStderr())
	defer line.Clear()
	before, err := journal.ReadHost()
	for err == nil && interrupted.Err() == nil && time.Since(began) < patience {
		line.Say(time.Since(began), func() string { return "looks while traffic runs, for " + patience.String() })
		select {
		case <-interrupted.Done():
		case <-time.After(min(pause, patience-time.Since(began))):
		}
		var now host.Facts
		if now, err = journal.ReadHost(); err == nil {
			now.Listen(before, time.Since(began))
			if facts.Deep == nil || now.Deep.Sockets.Busy >= facts.Deep.Sockets.Busy {
				facts = now
			}
		}
	}
	if err == nil && facts.Deep == nil { // there was no time for a second look
		facts = before
	}
	return facts, err
}

// lookAt takes another device for the uplink, if one is named.
func lookAt(facts *host.Facts, dev string) error {
	if dev == "" {
		return nil
	}
	if _, there := facts.Link(dev); !there {
		return plan.NoDevice(dev, *facts)
	}
	facts.Uplink = dev
	return nil
}

func allWell(findings []doctor.Finding) error {
	if slices.ContainsFunc(findings, func(f doctor.Finding) bool { return f.Severity == doctor.Harmful }) {
		return cli.ErrNo
	}
	return nil
}

// printDiagnosis prints what matters most and what to do, then what the host is, and then each finding.
func printDiagnosis(w io.Writer, f host.Facts, findings []doctor.Finding) {
	printSummary(w, doctor.Summarize(f))
	fmt.Fprintln(w)
	for _, l := range f.Links {
		if l.Name == f.Uplink {
			printWrapped(w, "", describeLink(f, l))
		}
	}
	for _, l := range f.Links {
		if l.Name != f.Uplink && l.Up && l.Kind == "" && !l.Loopback {
			printWrapped(w, "", describeLink(f, l))
		}
	}
	printWrapped(w, "", describeHost(f))
	fmt.Fprintln(w)
	printWrapped(w, "", "Bottleneck:  "+doctor.FindBottleneck(f).Says)
	for _, x := range findings {
		printFinding(w, x)
	}
	printUnknown(w, f)
}

// printStages prints what was seen of each stage, in the order in which a packet meets them.
func printStages(w io.Writer, f host.Facts) {
	fmt.Fprintln(w)
	printWrapped(w, "", "The way of a packet, from a program to its receiver:")
	for _, s := range doctor.FindStages(f) {
		saw := s.Saw
		if s.Lacks != "" {
			saw = strings.TrimPrefix(saw+"; not seen: "+s.Lacks, "; ")
		}
		printLines(w, text.Wrap(padRight("  "+s.Name, subject), padRight("", subject), text.OneLine(saw), narrow))
	}
}

// printSummary prints in a line what is wrong and in the next what to do, or how to know.
func printSummary(w io.Writer, s doctor.Summary) {
	do := s.Try + s.Remark
	if s.Try != "" && s.Remark != "" {
		do = s.Try + "  (" + s.Remark + ")"
	}
	printWrapped(w, "", s.Says)
	if s.Told {
		printWrapped(w, "What to do:  ", do)
	} else {
		printWrapped(w, "To know more:  ", do)
	}
}

// printFinding prints what was seen, why it matters, and after an arrow what would change it.
func printFinding(w io.Writer, x doctor.Finding) {
	printWrapped(w, x.Severity.Mark()+" ", x.Title+"  "+x.Seen)
	if x.Why != "" {
		printWrapped(w, "  ", x.Why)
	}
	self, _ := os.Executable()
	try, see := x.Try+x.Remark, evidenceOf(x, filepath.Dir(self))
	if x.Try != "" && x.Remark != "" {
		try = x.Try + "    " + x.Remark
	}
	if with := try + "    " + see; try != "" && see != "" && text.Width(with)+text.Width("  → ") <= narrow {
		try, see = with, ""
	}
	if try != "" {
		printWrapped(w, "  → ", try)
	}
	if see != "" {
		printWrapped(w, "  ", see)
	}
}

// evidenceOf says where to see that a finding is so. What the lab shows it says only where that program is, too.
func evidenceOf(x doctor.Finding, programs string) string {
	_, missing := os.Stat(filepath.Join(programs, "weir-lab"))
	switch e := x.Evidence; {
	case e.Doc != "":
		return "(" + e.Doc + ")"
	case e.Scenario != "" && missing == nil:
		return "(see: weir-lab run " + e.Scenario + ")"
	}
	return ""
}

// printUnknown prints what could not be read, and why.
func printUnknown(w io.Writer, f host.Facts) {
	if f.Deep == nil || len(f.Deep.Unknown) == 0 {
		return
	}
	const most = 6
	var unknown []string
	for _, u := range f.Deep.Unknown[:min(len(f.Deep.Unknown), most)] {
		unknown = append(unknown, u.What+" ("+u.Why+")")
	}
	if more := len(f.Deep.Unknown) - most; more > 0 {
		unknown = append(unknown, fmt.Sprintf("%d more (--json has them)", more))
	}
	fmt.Fprintln(w)
	printWrapped(w, "  ", "Unknown: "+strings.Join(unknown, "; ")+".")
}

// describeLink says in a line what a device is.
func describeLink(f host.Facts, l host.Link) string {
	words := []string{l.Name, cmp.Or(l.Kind, l.Driver, "no driver known")}
	if l.Speed != 0 {
		words = append(words, l.Speed.String())
	}
	words = append(words, text.Counted(l.TxQueues, "queue"), fmt.Sprintf("mtu %d", l.MTU))
	if f.Deep != nil && len(f.Deep.Offloads[l.Name]) > 0 {
		words = append(words, strings.Join(f.Deep.Offloads[l.Name], " "))
	}
	queue := "root qdisc " + kernel.QueueOf(l.Tree).String()
	if stack, ok := l.Tree.Stack(); ok && !stack.Shapes() {
		queue += ", no rate"
	}
	words = append(words, queue)
	if now := kernel.IncomingAt(f, l.Name).String(); now != kernel.NoIngress {
		words = append(words, "arriving: "+now)
	}
	return strings.Join(words, " · ")
}

// describeHost says in a line what a host is.
func describeHost(f host.Facts) string {
	words := []string{"linux " + f.Kernel}
	if f.Uplink == "" {
		words = append(words, "no default route")
	}
	if cc := f.Sysctls["net.ipv4.tcp_congestion_control"].Value; cc != "" {
		words = append(words, cc)
	}
	if f.Forwards() {
		words = append(words, "forwards")
		if f.Deep != nil && f.Deep.NAT == host.Yes {
			words[len(words)-1] += ", with NAT"
		}
	}
	return strings.Join(words, " · ")
}

// printIngress prints what somebody else has at a device's ingress.
func printIngress(w io.Writer, f host.Facts) {
	for _, l := range f.Links {
		for _, q := range l.Tree.Qdiscs {
			if q.Parent == qdisc.Ingress && !qdisc.IsIFB(l.Redirect) {
				what := q.Kind
				if l.Redirect != "" {
					what += ", which redirects all that arrives to " + l.Redirect
				}
				printText(w, text.OneLine(l.Name)+"  ingress", text.OneLine(what))
			}
		}
	}
}

// printSettings prints each setting's value, and below it every line that sets it, in the order in which they are read.
func printSettings(w io.Writer, f host.Facts) {
	if f.Deep == nil {
		return
	}
	fmt.Fprintf(w, "\nWho sets what; at boot %s reads the files.\n", cmp.Or(f.Deep.Loader, "nobody"))
	for _, name := range slices.Sorted(maps.Keys(f.Sysctls)) {
		printText(w, text.Short(name), text.OneLine(f.Sysctls[name].Value))
		for _, s := range f.Deep.Settings {
			if s.Sysctl != name {
				continue
			}
			how := "a later line wins"
			switch {
			case s.Masked != "":
				how = "masked by " + s.Masked
			case s.Wins && f.Takes(name, s.Value, f.Sysctls[name].Value).Refused != "":
				how = "wins at boot, and the kernel refuses it"
			case s.Wins && f.Leaves(name, s.Value, f.Sysctls[name].Value):
				how = "wins at boot"
			case s.Wins:
				how = "wins at boot, changed since"
			case s.Unread:
				how = "not read at boot"
			case s.Keeps:
				how = "keeps patterns from setting it"
			case s.Pattern != "":
				how = "the pattern " + s.Pattern + " does not win"
			}
			printText(w, "", text.OneLine(fmt.Sprintf("%s: %s (%s)", s.Where(), s.Value, how)))
		}
		for _, x := range f.Deep.Writers {
			if x.Sysctl == name {
				printText(w, "", text.OneLine(fmt.Sprintf("%s: %s (%s)", x.Where(), x.Value, x.By)))
			}
		}
	}
	for _, x := range f.Deep.Writers {
		if x.Qdisc != "" {
			printText(w, cmp.Or(x.Dev, x.By), text.OneLine(fmt.Sprintf("%s: %s (%s)", x.Where(), x.Queue(), x.By)))
		}
	}
	for _, x := range f.Deep.Idle {
		printText(w, cmp.Or(text.Short(x.Sysctl), x.Dev, x.By),
			text.OneLine(fmt.Sprintf("%s: %s (no effect: %s)", x.Where(), cmp.Or(x.Value, x.Queue()), x.Idle)))
	}
}
