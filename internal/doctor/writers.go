// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"strings"

	"weir/internal/host"
	"weir/internal/shaper"
)

// checkQueueWriters names who else sets the queue of the uplink, or tunes TCP by itself.
func checkQueueWriters(p *patient) (found []Finding) {
	if !p.inFirstNamespace() {
		return nil
	}
	root, _ := p.link.Tree.Root()
	for _, w := range p.deep.Writers {
		switch {
		case w.By == "bpftune":
			found = append(found, Finding{
				Code: "bpftune", Severity: Notable,
				Plain: "A program changes this server's settings while it runs: bpftune.",
				Title: "bpftune changes settings by itself.",
				Seen:  w.File + " starts it.",
				Why: "It raises buffers and changes congestion controls while connections run; what is set here may " +
					"not stay.",
				Try: "weir status", Remark: "tells what has drifted",
			})
		case w.Qdisc == "" || w.By == "modules-load" || p.Qdiscs[w.Qdisc] == host.No || !w.MayMatch(p.link):
		case w.Qdisc != root.Kind && w.Qdisc != queueOf(p.link) || w.Rate != 0 && w.Rate != p.link.Tree.Rate():
			found = append(found, Finding{
				Code: "queue-set-by-others", Severity: Notable,
				Plain:  fmt.Sprintf("Something may replace the queue of %s: %s sets another.", p.link.Name, w.By),
				Title:  fmt.Sprintf("%s sets %s on %s.", w.By, w.Queue(), w.Device()),
				Seen:   fmt.Sprintf("%s; %s has %s now.", w.Where(), p.link.Name, p.queueText(root.Kind)),
				Why:    "It does so " + w.When() + ", and takes the place of what is there.",
				Remark: "remove the line, or what it competes with",
			})
		}
	}
	return found
}

// queueText writes a discipline of the uplink with the rate that is enforced.
func (p *patient) queueText(kind string) string {
	return host.Writer{Qdisc: kind, Rate: p.link.Tree.Rate()}.Queue()
}

// checkDepartureTimes names programs that come after a bpf_shaper, whose packets leave at the times that they are
// given.
func checkDepartureTimes(p *patient) (found []Finding) {
	root, _ := p.link.Tree.Root()
	if x, is := root.Stats.X.(shaper.Stats); is && x.After != "" {
		found = append(found, Finding{
			Code: "departure-times-by-others", Severity: Notable,
			Plain: fmt.Sprintf("Another program decides when packets leave %s: %s.", p.link.Name, x.After),
			Title: fmt.Sprintf("After %s on %s comes another's program.", root.Kind, p.link.Name),
			Seen:  x.After + ", at the device's egress.",
			Why:   "It could give packets other times to leave at, and so undo the rate and the shares.",
			Try:   "weir status", Remark: "says how to put it last again",
		})
	}
	return found
}

// checkUdevNames finds rules that wait for the uplink by a name that it may not have when it appears.
func checkUdevNames(p *patient) (found []Finding) {
	if !p.inFirstNamespace() {
		return nil
	}
	for _, w := range p.deep.Writers {
		// A queue that is not in the kernel is another finding; a name that the kernel gives is there from the start.
		if !w.WaitsFor(p.link.Name) || p.Qdiscs[w.Qdisc] == host.No || strings.HasPrefix(p.link.Name, "eth") {
			continue
		}
		dev := cmp.Or(w.Dev, p.link.Name)
		found = append(found, Finding{
			Code: "udev-rule-by-name", Severity: Notable,
			Plain: "The queue of " + dev + " may be gone after a reboot: the rule that sets it may never run.",
			Title: fmt.Sprintf("udev may never set %s on %s.", w.Qdisc, dev),
			Seen:  fmt.Sprintf("%s wants ACTION add and the name %s.", w.Where(), w.Name),
			Why: "The rule compares the name that the device has, or was given by a rule before it, at the moment it " +
				"appears. On some systems it gets this one only later, and the line is never run.",
			Try: "weir up", Remark: "which also knows the device by its address, in place of this line",
			Evidence: evidence{Doc: "udev(7), of NAME"},
		})
	}
	return found
}
