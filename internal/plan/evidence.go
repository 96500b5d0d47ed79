// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"
)

// evidence is a sentence about what runs of the lab measured: why a plan does something. String and quoted print it.
//
// Rules name evidence, and evidence names figures by their ids in results (results/README.md). No figure is typed in:
// TestFigures takes the values from the results, and fails for an id that no run has made.
type evidence int

const (
	shapedEvidence evidence = iota
	intervalEvidence
	ownTCPEvidence
	fairEvidence
	wholeEvidence
	perQueueEvidence
	separateEvidence
	sharesEvidence
	withoutCAKEEvidence
	framingEvidence
	ingressEvidence
	routerEvidence
	fifoEvidence
	idleEvidence
	idleHostEvidence
	manyEvidence
	overloadEvidence
	narrowL4SEvidence
	kernelDualPI2Evidence
	bpfDualPI2Evidence
	superpacketEvidence
	udpGSOEvidence
	lossEvidence
	calmEvidence
	bbrDualPI2Evidence
	bpfBBREvidence
	lowatEvidence
	buffersEvidence
	ecnEvidence
	natEvidence
	natOptionEvidence
	wireguardEvidence
	tunnelEvidence
	proxyEvidence
	mixedEvidence

	// Of the published recipes.
	recipeQueueEvidence
	recipeBBREvidence
	recipeECNEvidence
	recipeLowatEvidence
	recipeBuffersEvidence
	recipeCAKEEvidence
	recipeFQEvidence
)

// sentence is what is said of figures: a verb for each of them, with its decimals, in their order. Digits in the text
// itself are settings of the scenarios.
type sentence struct {
	text    string
	figures []string
	also    []string // scenarios that are named without a figure
}

var sentences = [...]sentence{
	shapedEvidence: {"lab, 50mbit, 48.3ms, 4 downloads: an echo waits %.2f ms at p99 instead of %.0f, the goodput " +
		"is %.1f Mbit/s instead of %.1f, and the provider drops nothing", []string{
		"narrow-link | Weir | added.p99",
		"narrow-link | as found: fq_codel, cubic | added.p99",
		"narrow-link | Weir | goodput",
		"narrow-link | as found: fq_codel, cubic | goodput",
	}, nil},
	intervalEvidence: {"48ms: with CAKE's own interval of 100ms an echo beside 16 flows waits %.2f ms at p99 " +
		"instead of %.2f, and one forwarded flow fills %.0f %% of the link instead of %.1f", []string{
		"aqm-interval | local, rtt 48ms, 16 flows | cake rtt 100ms (its default) | added.p99",
		"aqm-interval | local, rtt 48ms, 16 flows | cake rtt 500ms | added.p99",
		"aqm-interval | forwarded, rtt 48ms, 1 flow | cake rtt 100ms (its default) | utilisation",
		"aqm-interval | forwarded, rtt 48ms, 1 flow | cake rtt 500ms | utilisation",
	}, nil},
	ownTCPEvidence: {"12mbit, 71ms: connections that start and stop fill %.1f %% of the link, and %.1f with ten " +
		"RTTs of interval", []string{
		"rules/startstop | rate:rtt 12mbit:71ms | Weir | utilisation",
		"rules/startstop | rate:rtt 12mbit:71ms | Weir --serves udp | utilisation",
	}, nil},
	fairEvidence: {"1 against 10 connections at 100mbit: %.1f Mbit/s for the one, and %.1f with CAKE's default",
		[]string{
			"seeds/shaping | 1 against 10, one server address | cake dual-dsthost | goodput.client.A",
			"seeds/shaping | 1 against 10, one server address | cake 99.75% | goodput.client.A",
		}, nil},
	wholeEvidence: {"1 against 10 connections at 2.5gbit: with superpackets left whole %.0f and %.0f Mbit/s and an " +
		"echo of %.2f ms at p99; with cake_mq %.0f and %.0f", []string{
		"rules/wide | rate 2.5gbit | superpackets whole | goodput.client.A",
		"rules/wide | rate 2.5gbit | superpackets whole | goodput.client.B",
		"rules/wide | rate 2.5gbit | superpackets whole | added.p99",
		"rules/wide | rate 2.5gbit | cake_mq | goodput.client.A",
		"rules/wide | rate 2.5gbit | cake_mq | goodput.client.B",
	}, nil},
	perQueueEvidence: {"lab, 2.5gbit, 4 queues: an echo waits %.2f ms at p99, and without a shaper %.0f; 1 against " +
		"10 connections share %.0f : %.0f, and with CAKE %.0f : %.0f", []string{
		"rules/wide | rate 2.5gbit | htb + fq for each queue | added.p99",
		"rules/wide | rate 2.5gbit | no shaper | added.p99",
		"rules/wide | rate 2.5gbit | htb + fq for each queue | goodput.client.A",
		"rules/wide | rate 2.5gbit | htb + fq for each queue | goodput.client.B",
		"rules/wide | rate 2.5gbit | one CAKE | goodput.client.A",
		"rules/wide | rate 2.5gbit | one CAKE | goodput.client.B",
	}, nil},
	separateEvidence: {"lab, 100mbit, 1 against 10 connections: %.2f and %.2f Mbit/s, %.2f with one CAKE", []string{
		"rules/several-queues | cake_mq | goodput.client.A",
		"rules/several-queues | cake_mq | goodput.client.B",
		"rules/several-queues | Weir | goodput.client.A",
	}, nil},
	sharesEvidence: {"QEMU, 4 queues, 100mbit, 1 against 10 connections: %.1f and %.1f Mbit/s, and another " +
		"client's echo waits %.2f ms at p99; with cake_mq %.1f and %.1f", []string{
		"shaper/shares | bpf_shaper | goodput.client.A",
		"shaper/shares | bpf_shaper | goodput.client.B",
		"shaper/shares | bpf_shaper | added.p99",
		"shaper/shares | cake_mq | goodput.client.A",
		"shaper/shares | cake_mq | goodput.client.B",
	}, nil},
	withoutCAKEEvidence: {"lab, 50mbit, 48.3ms: an echo waits %.2f ms at p50 and %.2f at p99, where CAKE has %.2f " +
		"and %.2f; 1 against 4 connections share %.1f : %.1f, where CAKE has %.1f : %.1f", []string{
		"steps-down | Weir without CAKE | added.p50",
		"steps-down | Weir without CAKE | added.p99",
		"steps-down | Weir | added.p50",
		"steps-down | Weir | added.p99",
		"steps-down | Weir without CAKE | goodput.client.one",
		"steps-down | Weir without CAKE | goodput.client.four",
		"steps-down | Weir | goodput.client.one",
		"steps-down | Weir | goodput.client.four",
	}, nil},
	framingEvidence: {"lab, 50mbit, 4 downloads: behind a provider that counts all that is on a wire an echo waits " +
		"%.1f ms at p99; if Weir is told, it waits %.2f; the goodput is %.2f Mbit/s where it was told too much, and " +
		"%.2f where not", []string{
		"rules/framing | on a wire, mss 1448b | weir, not told | added.p99",
		"rules/framing | on a wire, mss 1448b | told | added.p99",
		"rules/framing | as handed, mss 1448b | as if on a wire | goodput",
		"rules/framing | as handed, mss 1448b | weir, not told | goodput",
	}, nil},
	ingressEvidence: {"lab, 50mbit, 48.3ms: beside 4 uploads an echo waits %.1f ms at p99 instead of %.0f, for " +
		"%.1f %% of the link instead of %.1f; 16 BBR flows bring a queue back to the provider of %.1f ms at 90 %% " +
		"and of %.0f at 99.75 %%, where 85 %% leaves %.1f; with CAKE's own interval of 100ms one cubic flow fills " +
		"%.0f %% of the link, and four of BBR %.0f", []string{
		"ingress | cc cubic, 4 flows | Weir --ingress | added.p99",
		"ingress | cc cubic, 4 flows | as found: fq_codel | added.p99",
		"ingress | cc cubic, 4 flows | Weir --ingress | utilisation",
		"ingress | cc cubic, 4 flows | as found: fq_codel | utilisation",
		"ingress | cc bbr, 16 flows | 90 % | added.p99",
		"ingress | cc bbr, 16 flows | 99.75 % | added.p99",
		"ingress | cc bbr, 16 flows | Weir --ingress | added.p99",
		"ingress | cc cubic, 1 flow | 85 %, rtt 100ms (its default) | utilisation",
		"ingress | cc bbr, 4 flows | 85 %, rtt 100ms (its default) | utilisation",
	}, nil},
	routerEvidence: {"lab, 50mbit, 4 flows in: ssh through the router waits %.2f ms at p99, and %.1f without", []string{
		"relay/router | 4 flows in | Weir --ingress | added.through.p99",
		"relay/router | 4 flows in | Weir | added.through.p99",
	}, nil},
	fifoEvidence: {"lab, 1gbit at the device: an echo takes %.2f ms with fq_codel, %.2f with one FIFO", []string{
		"seeds/gso | rate 1gbit | fq_codel | rtt.p50",
		"seeds/gso | rate 1gbit | pfifo | rtt.p50",
	}, nil},
	idleEvidence: {"lab, 50mbit: dualpi2 without a rate held %.0f packets and changed nothing", []string{
		"seeds/narrow-link | FIFO, local, 4 flows | seed 000: dualpi2 + bbr | uplink.backlog",
	}, nil},
	idleHostEvidence: {"lab, a host with the published recipe dualpi2-bbr: its queue held %.0f packets, and an " +
		"echo took %.0f ms longer beside four downloads", []string{
		"seed-host | seed 000, as it is | uplink.backlog",
		"seed-host | seed 000, as it is | added.p50",
	}, nil},
	manyEvidence: {"lab, 12mbit: an echo of a client with 33 downloads waits %.2f ms at p99, with 128 %.2f, and " +
		"with flows %.2f", []string{
		"rules/many | rate:rtt 12mbit:71ms, count 33 | Weir | added.echo.p99",
		"rules/many | rate:rtt 12mbit:71ms, count 128 | Weir | added.echo.p99",
		"rules/many | rate:rtt 12mbit:71ms, count 128 | flows | added.echo.p99",
	}, nil},
	overloadEvidence: {"lab, 12mbit, 40ms, 16 downloads: a classic echo loses %.2f %% of its packets, and with " +
		"CAKE %.0f", []string{
		"rules/l4s | rate 12mbit, 16 flows | Weir --prefer l4s | probe.echo.lost",
		"rules/l4s | rate 12mbit, 16 flows | Weir | probe.echo.lost",
	}, nil},
	narrowL4SEvidence: {"lab, 3mbit, 16 downloads: a classic echo loses %.1f %% of its packets, one in the L queue " +
		"%.1f, and with CAKE %.0f and %.0f", []string{
		"rules/l4s | rate 3mbit, 16 flows | Weir --prefer l4s | probe.echo.lost",
		"rules/l4s | rate 3mbit, 16 flows | Weir --prefer l4s | probe.echoL.lost",
		"rules/l4s | rate 3mbit, 16 flows | Weir | probe.echo.lost",
		"rules/l4s | rate 3mbit, 16 flows | Weir | probe.echoL.lost",
	}, nil},
	kernelDualPI2Evidence: {"lab, 50mbit, 48.3ms, 5 cubic downloads: an echo waits %.2f ms at p50, where CAKE has " +
		"%.2f; no fairness between clients; no drop at the provider", []string{
		"steps-down | Weir for L4S | added.p50",
		"steps-down | Weir | added.p50",
	}, nil},
	bpfDualPI2Evidence: {"lab, 50mbit, 10ms, flows of cubic and DCTCP: an echo that is not ECT waits %.2f ms at " +
		"p50, where CAKE has %.2f; no fairness between clients", []string{
		"dualpi2/steps | bpf_dualpi2 | added.C.p50",
		"dualpi2/steps | cake | added.C.p50",
	}, nil},
	superpacketEvidence: {"lab, 50mbit, 10ms: p99 in the L queue %.2f ms instead of %.2f", []string{
		"dualpi2/superpackets | bpf_dualpi2 | added.L.p99",
		"dualpi2/superpackets | htb + dualpi2 | added.L.p99",
	}, nil},
	udpGSOEvidence: {"lab, 50mbit, 40ms: an echo waits %.2f ms at p99, and %.2f without GSO", []string{
		"traffic/gso | with UDP GSO | bpf_dualpi2 | added.p99",
		"traffic/gso | without | bpf_dualpi2 | added.p99",
	}, nil},
	lossEvidence: {"lab, 2.3 MB over 167ms, medians of 15: %.1f s with BBR and %.1f with cubic at 1 %% loss, %.1f " +
		"and %.0f at 10 %%", []string{
		"seeds/lossy-path | loss 1% | fq + bbr | fetch",
		"seeds/lossy-path | loss 1% | cubic | fetch",
		"seeds/lossy-path | loss 10% | fq + bbr | fetch",
		"seeds/lossy-path | loss 10% | cubic | fetch",
	}, nil},
	calmEvidence: {"at 500mbit cubic carries %.0f Mbit/s where BBR carries %.0f", []string{
		"long-fast-link | cc cubic | Weir | goodput",
		"long-fast-link | cc bbr | Weir | goodput",
	}, nil},
	bbrDualPI2Evidence: {"lab, 50mbit: under four BBR flows DualPI2 drops %.0f %% of an innocent probe", []string{
		"seeds/dualpi2 | dualpi2, 4 flows | bbr | lost",
	}, nil},
	bpfBBREvidence: {"lab, 50mbit, four downloads and no shaper: an echo waits %.1f ms longer at p50 with bpf_bbr, " +
		"%.0f with bbr and %.0f with cubic; with 10 %% loss at 167ms one download gets %.1f Mbit/s, and with cubic " +
		"%.2f", []string{
		"cc/fifo | 4 downloads | bpf_bbr | added.p50",
		"cc/fifo | 4 downloads | bbr | added.p50",
		"cc/fifo | 4 downloads | cubic | added.p50",
		"cc/loss | loss 10% | bpf_bbr | goodput",
		"cc/loss | loss 10% | cubic | goodput",
	}, nil},
	lowatEvidence: {"lab: %.0f to %.0f KiB unsent with cubic, %.0f to %.0f with BBR, goodput and RTT unchanged; at " +
		"8192 BBR keeps %.0f ms of queue at the provider", []string{
		"seeds/notsent-lowat | cc cubic | default | unsent",
		"seeds/notsent-lowat | cc cubic | 131072 | unsent",
		"seeds/notsent-lowat | cc bbr | default | unsent",
		"seeds/notsent-lowat | cc bbr | 131072 | unsent",
		"seeds/notsent-lowat | cc bbr | 8192 | added.p50",
	}, nil},
	buffersEvidence: {"lab, 500mbit, 48ms: one cubic flow carries %.0f Mbit/s with the kernel's maximum, held back " +
		"by it for %.0f %% of the time, and %.0f with this one", []string{
		"long-fast-link | cc cubic | cake alone | goodput",
		"long-fast-link | cc cubic | cake alone | sndbuf_limited",
		"long-fast-link | cc cubic | Weir | goodput",
	}, nil},
	ecnEvidence: {"lab: on a server that only accepts 1 and 2 are the same, so it is set where the host dials out",
		nil, []string{"seeds/ecn"}},
	natEvidence: {"lab, 50mbit, 4 downloads through NAT: ssh through the relay waits %.2f ms at p99 instead of " +
		"%.1f, %.1f with a server's plan; the goodput is %.2f Mbit/s instead of %.2f", []string{
		"relay/nat | 4 downloads | Weir | added.through.p99",
		"relay/nat | 4 downloads | as found | added.through.p99",
		"relay/nat | 4 downloads | as a server | added.through.p99",
		"relay/nat | 4 downloads | Weir | goodput",
		"relay/nat | 4 downloads | as found | goodput",
	}, nil},
	natOptionEvidence: {"it has come in there, and by the translated addresses all clients would be one", nil,
		[]string{"relay/fair"}},
	wireguardEvidence: {"lab, 50mbit, WireGuard, 4 uploads: ssh in the tunnel waits %.2f ms at p99, %.1f with a " +
		"server's plan; 4 downloads carry %.2f Mbit/s", []string{
		"relay/wireguard | 4 uploads | Weir | added.through.p99",
		"relay/wireguard | 4 uploads | as a server | added.through.p99",
		"relay/wireguard | 4 downloads | Weir | goodput",
	}, nil},
	tunnelEvidence: {"lab, 50mbit, 4 downloads through a tunnel in user space: ssh in it waits %.2f ms at p99 " +
		"instead of %.0f, %.1f with 93 %% of what leaves; the goodput is %.2f Mbit/s instead of %.2f", []string{
		"relay/tunnel | 4 downloads | Weir | added.through.p99",
		"relay/tunnel | 4 downloads | as found | added.through.p99",
		"relay/tunnel | 4 downloads | 93 % of what leaves | added.through.p99",
		"relay/tunnel | 4 downloads | Weir | goodput",
		"relay/tunnel | 4 downloads | as found | goodput",
	}, nil},
	proxyEvidence: {"lab, 50mbit, 4 downloads through a proxy: ssh through it waits %.2f ms at p99 instead of " +
		"%.1f, %.1f with a server's plan; the goodput is %.2f Mbit/s instead of %.2f", []string{
		"relay/proxy | 4 downloads | Weir | added.through.p99",
		"relay/proxy | 4 downloads | as found | added.through.p99",
		"relay/proxy | 4 downloads | as a server | added.through.p99",
		"relay/proxy | 4 downloads | Weir | goodput",
		"relay/proxy | 4 downloads | as found | goodput",
	}, nil},
	mixedEvidence: {"lab, 50mbit, WireGuard and a proxy, 4 connections each: ssh through the tunnel waits %.2f ms " +
		"at p99 while both upload, %.1f with 93 %% of what leaves, and %.2f with a queue for what arrives that " +
		"holds the tunnel packed", []string{
		"relay/mixed | both upload | Weir | added.through.p99",
		"relay/mixed | both upload | 93 % of what leaves | added.through.p99",
		"relay/mixed | both upload | both, packed | added.through.p99",
	}, nil},

	recipeQueueEvidence: {"lab, 50mbit, 48.3ms: without a rate it held %.0f packets; an echo takes %.0f ms beside " +
		"four BBR flows, as it does with fq", []string{
		"narrow-link | seed 000: dualpi2 + bbr | uplink.backlog",
		"narrow-link | seed 000: dualpi2 + bbr | ssh.p50",
	}, nil},
	recipeBBREvidence: {"lab, 50mbit, 48.3ms: one BBR flow by itself %.0f ms whatever the qdisc, four %.0f ms; " +
		"four over DualPI2 as the bottleneck cost a probe %.0f %% of its packets", []string{
		"seeds/narrow-link | FIFO, local, 1 flow | fq + bbr | ssh.p50",
		"seeds/narrow-link | FIFO, local, 4 flows | fq + bbr | ssh.p50",
		"seeds/dualpi2 | dualpi2, 4 flows | bbr | lost",
	}, nil},
	recipeECNEvidence: {"lab: 1 and 2 are the same on a server that only accepts connections: no packet marked", nil,
		[]string{"seeds/ecn"}},
	recipeLowatEvidence: {"lab: with BBR %.0f KiB unsent become %.0f, and the RTT goes from %.0f to %.0f ms: BBR " +
		"keeps another BDP in flight", []string{
		"seeds/notsent-lowat | cc bbr | default | unsent",
		"seeds/notsent-lowat | cc bbr | 8192 | unsent",
		"seeds/notsent-lowat | cc bbr | default | srtt",
		"seeds/notsent-lowat | cc bbr | 8192 | srtt",
	}, nil},
	recipeBuffersEvidence: {"lab, 500mbit, 48ms: one cubic flow is held to %.0f of %.0f Mbit/s by this maximum",
		[]string{
			"long-fast-link | cc cubic | cake alone | goodput",
			"long-fast-link | cc cubic | Weir | goodput",
		}, nil},
	recipeCAKEEvidence: {"lab, 100mbit, 20ms: an echo waits %.2f ms at p99, and the provider drops nothing; one " +
		"connection against ten gets %.1f Mbit/s, and %.1f with dual-dsthost", []string{
		"seeds/shaping | 1 against 10, one server address | cake 99.75% | added.p99",
		"seeds/shaping | 1 against 10, one server address | cake 99.75% | goodput.client.A",
		"seeds/shaping | 1 against 10, one server address | cake dual-dsthost | goodput.client.A",
	}, nil},
	recipeFQEvidence: {"lab, 10 %% loss, 167ms: 2.3 MB take %.2f s with it and %.2f without; only devices that " +
		"come up later get it", []string{
		"seeds/lossy-path | loss 10% | fq + bbr | fetch",
		"seeds/lossy-path | loss 10% | pfifo_fast + bbr | fetch",
	}, nil},
}

// String is the sentence with its figures, and behind it in brackets the scenarios that repeat them.
func (e evidence) String() string { return e.text() + " (" + e.scenarios() + ")" }

// quoted is the same for use within brackets: the scenarios come after a semicolon.
func (e evidence) quoted() string { return e.text() + "; " + e.scenarios() }

func (e evidence) text() string {
	var values []any
	for _, id := range sentences[e].figures {
		value, _ := figure(id)
		values = append(values, value)
	}
	return fmt.Sprintf(sentences[e].text, values...)
}

// scenarios are the files that repeat the figures, with commas between.
func (e evidence) scenarios() string {
	var files []string
	for _, name := range sentences[e].scenarios() {
		files = append(files, "scenarios/"+name+".toml")
	}
	return strings.Join(files, ", ")
}

// scenarios are the names of those that the figures are from.
func (s sentence) scenarios() []string {
	names := slices.Clone(s.also)
	for _, id := range s.figures {
		if name, _, _ := strings.Cut(id, " | "); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}
