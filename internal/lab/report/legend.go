// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"strings"

	"weir/internal/lab/measure"
	"weir/internal/page"
)

// meanings of metrics, by name or, of those with a name in them, by what they begin and end with.
var meanings = map[string]string{
	"goodput":          "payload that receivers read, of all flows",
	"goodput.down":     "payload that clients read",
	"goodput.up":       "payload that the server read",
	"goodput.client.":  "payload that this client's flows read",
	"goodput.flow.":    "payload that this flow's receivers read",
	"share.client.":    "this client's share of all goodput",
	"ratio.":           "goodput of a connection of the one flow over that of a connection of the other",
	"program.":         "the number in that program's output",
	"utilisation":      "goodput, of what the link can carry as TCP payload",
	"utilisation.":     "the same between these two times since the beginning of the run",
	"arrived":          "likewise what came to the receivers, whether they could read it yet or not",
	"jain.flows":       "Jain's fairness index over connections: 1 is equal shares",
	"jain.clients":     "Jain's fairness index over clients: 1 is equal shares",
	"fetch":            "median time from connecting to the last byte",
	"fetch..p50":       "half of this flow's connections were done after this time",
	"fetch..p99":       "99 % of this flow's connections were done after this time",
	"unfinished":       "fetches that were not done at the end",
	"calm.":            "time after the change until the probe's delay stays below the limit for a second",
	"srtt":             "TCP's smoothed round-trip time, the median flow",
	"cwnd":             "congestion window, the median flow",
	"unsent":           "data in the socket that was not sent yet, the median flow",
	"sndbuf_limited":   "share of a flow's busy time in which its send buffer was the bottleneck",
	"rwnd_limited":     "share of a flow's busy time in which its receiver's window was the bottleneck",
	"retransmits":      "packets sent again, of all flows",
	"retransmitted":    "the same, over the packets that were delivered",
	"wakeups":          "how often the senders woke",
	"ce":               "delivered packets that carried a congestion mark",
	"rtt.min":          "smallest round trip of the UDP probe",
	"rtt.p50":          "median round trip of the UDP probe",
	"rtt.p99":          "round trip of the UDP probe that 1 % exceed",
	"added.p50":        "median round trip of the UDP probe above the idle link's",
	"added.p99":        "round trip of the UDP probe that 1 % exceed, above the idle link's",
	"added..mean":      "mean round trip of this probe above the idle link's",
	"added..p50":       "median round trip of this probe above the idle link's",
	"added..p99":       "round trip of this probe that 1 % exceed, above the idle link's",
	"added..max":       "longest round trip of this probe above the idle link's",
	"probe..p50":       "median round trip of this probe",
	"probe..p99":       "round trip of this probe that 1 % exceed",
	"probe..lost":      "share of this probe's packets without an answer",
	"jitter":           "mean absolute deviation of the UDP probe's round trip",
	"lost":             "share of the UDP probe's packets without an answer",
	"ssh.p50":          "median time from a keystroke to its echo",
	"ssh.p99":          "time from a keystroke to its echo that 1 % exceed",
	"ssh.jitter":       "its mean absolute deviation",
	"request.p50":      "median time from a request to its answer's last byte",
	"request.p99":      "time from a request to its answer's last byte that 1 % exceed",
	"stream.p50":       "median delay of a UDP stream, one way",
	"stream.p99":       "delay of a UDP stream that 1 % exceed, one way",
	"stream.lost":      "share of the UDP stream's packets that were lost",
	"provider.drops":   "packets that the provider dropped",
	"provider.backlog": "mean queue at the provider",
	"inward.drops":     "packets that the provider dropped on the way to the server",
	"inward.backlog":   "mean queue at the provider on the way to the server",
	"uplink.drops":     "packets that the server's own queue dropped",
	"uplink.marks":     "packets that the server's own queue marked (ECN)",
	"uplink.backlog":   "mean queue at the server",
	"sojourn.c.mean":   "mean wait in the classic queue of bpf_dualpi2",
	"sojourn.c.p99":    "wait in the classic queue of bpf_dualpi2 that 1 % exceed",
	"sojourn.l.mean":   "mean wait in the L4S queue of bpf_dualpi2",
	"sojourn.l.p50":    "median wait in the L4S queue of bpf_dualpi2",
	"sojourn.l.p99":    "wait in the L4S queue of bpf_dualpi2 that 1 % exceed",
	"step.missed":      "L4S packets that waited for longer than the step's threshold and left unmarked",
	"step.early":       "L4S packets that the step marked though they waited for less",
}

// meaning is what a metric says, in a few words; empty of a name that is none.
func meaning(metric string) string {
	family, rest, _ := strings.Cut(metric, ".")
	last := rest[strings.LastIndexByte(rest, '.')+1:]
	part, _, _ := strings.Cut(rest, ".")
	return cmp.Or(meanings[metric], meanings[family+".."+last], meanings[family+"."+part+"."], meanings[family+"."])
}

// legend says what the columns of some tables mean, each once.
func legend(all []table) (terms []page.Term) {
	seen := map[string]bool{}
	for _, t := range all {
		for _, m := range t.columns {
			if !seen[m.Name] {
				seen[m.Name] = true
				terms = append(terms, page.Term{Name: column(m), Text: meaning(m.Name)})
			}
		}
	}
	return terms
}

// column is a column's heading, with its unit.
func column(m measure.Metric) string { return strings.TrimSpace(m.Heading + " " + unitName(m.Unit)) }
