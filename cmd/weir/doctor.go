// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"weir/internal/host"
	"weir/internal/plan"
	"weir/internal/qdisc"
)

func newDoctorCommand() *cobra.Command {
	var asJSON, verbose bool
	var dev string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "What holds this server back, and what would help",
		Long: `Looks at this server and says what makes it slow under load.

It looks at the uplink and its queue, and at the live TCP connections. It also
looks at the settings that matter, at the files that set them, and at what this
host passes on for others.

"What binds" is the bottleneck: a rate limit beyond this host, its own shaper,
the device, the path, an end of connections, or the CPU.

Each finding says what was seen, why it matters, what would change it, and where
that was measured. Its mark is ✗ (harmful or without effect), ! (worth knowing)
or ✓ (fine).

Doctor changes nothing, sends nothing, and needs no root. What only root can see
is listed as unknown.

Exit status: 0 nothing is harmful or without effect, 1 something is or doctor
failed, 2 wrong usage.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			facts, err := host.ReadDeep()
			if err != nil {
				return err
			}
			if dev != "" {
				if _, there := facts.Link(dev); !there {
					return &plan.Refusal{What: dev + ": no such device", Try: "one of: " +
						strings.Join(deviceNames(facts), ", ")}
				}
				facts.Uplink = dev
			}
			findings := plan.Diagnose(facts)
			if asJSON {
				err = printJSON(cmd.OutOrStdout(), struct {
					Binds    plan.Binding   `json:"binds"`
					Findings []plan.Finding `json:"findings"`
					Facts    host.Facts     `json:"facts"`
				}{plan.Binds(facts), findings, facts})
			} else {
				printDiagnosis(cmd.OutOrStdout(), facts, findings)
				if verbose {
					printSettings(cmd.OutOrStdout(), facts)
					printIngress(cmd.OutOrStdout(), facts)
				}
			}
			if err != nil {
				return err
			}
			return verdict(findings)
		},
	}
	device(cmd, &dev, "`device` of the uplink (default: the default route's)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false,
		"also print each setting and the files that set it, in the order of reading")
	return cmd
}

func verdict(findings []plan.Finding) error {
	if slices.ContainsFunc(findings, func(f plan.Finding) bool { return f.Severity == plan.Harmful }) {
		return errNotSo
	}
	return nil
}

// printDiagnosis prints what the host is, then each finding: what was seen, why it matters, and after an arrow what
// would change it.
func printDiagnosis(w io.Writer, f host.Facts, findings []plan.Finding) {
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
	printWrapped(w, "", "What binds:  "+plan.Binds(f).Says)
	for _, x := range findings {
		printWrapped(w, x.Severity.Mark()+" ", x.Title+"  "+x.Seen)
		if x.Why != "" {
			printWrapped(w, "  ", x.Why)
		}
		see := x.Evidence
		if strings.HasPrefix(see, "scenarios/") {
			see = "see: weir lab run " + see
		}
		switch with := x.Try + "    (" + see + ")"; {
		case x.Try != "" && see != "" && width(with)+len("  → ") <= columns:
			printWrapped(w, "  → ", with)
		default:
			if x.Try != "" {
				printWrapped(w, "  → ", x.Try)
			}
			if see != "" {
				printWrapped(w, "  ", "("+see+")")
			}
		}
	}
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
	words = append(words, counted(l.TxQueues, "queue"), fmt.Sprintf("mtu %d", l.MTU))
	if f.Deep != nil && len(f.Deep.Offloads[l.Name]) > 0 {
		words = append(words, strings.Join(f.Deep.Offloads[l.Name], " "))
	}
	queue := "root qdisc " + plan.Describe(l.Tree)
	if stack, ok := l.Tree.Stack(); ok && !plan.Shapes(stack) {
		queue += ", no rate"
	}
	words = append(words, queue)
	if now := plan.DescribeIngress(f, l.Name); now != plan.NoIngress {
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
			if q.Parent == qdisc.Ingress && l.Redirect != qdisc.IFB {
				text := q.Kind
				if l.Redirect != "" {
					text += ", which redirects all that arrives to " + l.Redirect
				}
				printText(w, printable(l.Name)+"  ingress", printable(text))
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
		printText(w, shortName(plan.Target{Sysctl: name}), printable(f.Sysctls[name].Value))
		for _, s := range f.Deep.Settings {
			if s.Sysctl != name {
				continue
			}
			how := "a later line wins"
			switch {
			case s.Masked != "":
				how = "masked by " + s.Masked
			case s.Wins && s.Sets(f.Sysctls[name].Value):
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
			printText(w, "", printable(fmt.Sprintf("%s: %s (%s)", plan.Where(s.File, s.Line), s.Value, how)))
		}
		for _, x := range f.Deep.Writers {
			if x.Sysctl == name {
				printText(w, "", printable(fmt.Sprintf("%s: %s (%s)", plan.Where(x.File, x.Line), x.Value, x.By)))
			}
		}
	}
	for _, x := range f.Deep.Writers {
		if x.Qdisc != "" {
			printText(w, cmp.Or(x.Dev, x.By),
				printable(fmt.Sprintf("%s: %s (%s)", plan.Where(x.File, x.Line), x.Qdisc, x.By)))
		}
	}
}

// printWrapped prints text over as many lines as it takes, the first behind a mark and the others below its beginning.
// Two or more spaces stay. Text can come from anybody's files: what could move a terminal's cursor is shown as what it
// is not.
func printWrapped(w io.Writer, mark, text string) {
	indent := strings.Repeat(" ", width(mark))
	line, bare := mark, true
	for _, word := range words(printable(text)) {
		if !bare && width(line)+width(word) > columns {
			fmt.Fprintln(w, strings.TrimRight(line, " "))
			line, word = indent, strings.TrimLeft(word, " ")
		}
		for width(word) > columns-width(indent) && width(line)+width(word) > columns {
			cut := []rune(word)
			fits := columns - width(line)
			fmt.Fprintln(w, line+string(cut[:fits]))
			line, word = indent, string(cut[fits:])
		}
		line += word
		bare = false
	}
	fmt.Fprintln(w, strings.TrimRight(line, " "))
}

// words are a text's words, each with the space before it.
func words(text string) (all []string) {
	start, inSpace := 0, true
	for i, r := range text {
		if r == ' ' && !inSpace {
			all = append(all, text[start:i])
			start = i
		}
		inSpace = r == ' '
	}
	return append(all, text[start:])
}

func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
}
