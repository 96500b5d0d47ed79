// Code generated from results by: scripts/go test ./internal/plan -run TestFigures -update. DO NOT EDIT.

package plan

// figure returns a figure of results by its id, and false for one that no sentence names.
func figure(id string) (value float64, known bool) {
	switch id {

	// Measured on linux 7.3.4 (lab kernel a77ce552).
	case "aqm-interval | forwarded, rtt 48ms, 1 flow | cake rtt 100ms (its default) | utilisation":
		return 91.04, true
	case "aqm-interval | forwarded, rtt 48ms, 1 flow | cake rtt 500ms | utilisation":
		return 99.58, true
	case "aqm-interval | local, rtt 48ms, 16 flows | cake rtt 100ms (its default) | added.p99":
		return 0.66, true
	case "aqm-interval | local, rtt 48ms, 16 flows | cake rtt 500ms | added.p99":
		return 0.24, true
	case "cc/fifo | 4 downloads | bbr | added.p50":
		return 61.77, true
	case "cc/fifo | 4 downloads | bpf_bbr | added.p50":
		return 5.12, true
	case "cc/fifo | 4 downloads | cubic | added.p50":
		return 164.4, true
	case "cc/loss | loss 10% | bpf_bbr | goodput":
		return 35.70, true
	case "cc/loss | loss 10% | cubic | goodput":
		return 0.18, true
	case "ingress | cc bbr, 16 flows | 90 % | added.p99":
		return 10.13, true
	case "ingress | cc bbr, 16 flows | 99.75 % | added.p99":
		return 100.3, true
	case "ingress | cc bbr, 16 flows | Weir --ingress | added.p99":
		return 1.96, true
	case "ingress | cc bbr, 4 flows | 85 %, rtt 100ms (its default) | utilisation":
		return 77.10, true
	case "ingress | cc cubic, 1 flow | 85 %, rtt 100ms (its default) | utilisation":
		return 79.87, true
	case "ingress | cc cubic, 4 flows | Weir --ingress | added.p99":
		return 0.76, true
	case "ingress | cc cubic, 4 flows | Weir --ingress | utilisation":
		return 84.79, true
	case "ingress | cc cubic, 4 flows | as found: fq_codel | added.p99":
		return 199.5, true
	case "ingress | cc cubic, 4 flows | as found: fq_codel | utilisation":
		return 99.83, true
	case "long-fast-link | cc bbr | Weir | goodput":
		return 463.2, true
	case "long-fast-link | cc cubic | Weir | goodput":
		return 476.9, true
	case "long-fast-link | cc cubic | cake alone | goodput":
		return 460.7, true
	case "long-fast-link | cc cubic | cake alone | sndbuf_limited":
		return 13.30, true
	case "narrow-link | Weir | added.p99":
		return 0.24, true
	case "narrow-link | Weir | goodput":
		return 47.60, true
	case "narrow-link | as found: fq_codel, cubic | added.p99":
		return 199.4, true
	case "narrow-link | as found: fq_codel, cubic | goodput":
		return 47.71, true
	case "narrow-link | seed 000: dualpi2 + bbr | ssh.p50":
		return 110.3, true
	case "narrow-link | seed 000: dualpi2 + bbr | uplink.backlog":
		return 0.00, true
	case "relay/mixed | both upload | 93 % of what leaves | added.through.p99":
		return 374.7, true
	case "relay/mixed | both upload | Weir | added.through.p99":
		return 2.23, true
	case "relay/mixed | both upload | both, packed | added.through.p99":
		return 35.26, true
	case "relay/nat | 4 downloads | Weir | added.through.p99":
		return 2.19, true
	case "relay/nat | 4 downloads | Weir | goodput":
		return 43.88, true
	case "relay/nat | 4 downloads | as a server | added.through.p99":
		return 336.7, true
	case "relay/nat | 4 downloads | as found | added.through.p99":
		return 381.5, true
	case "relay/nat | 4 downloads | as found | goodput":
		return 46.55, true
	case "relay/proxy | 4 downloads | Weir | added.through.p99":
		return 0.98, true
	case "relay/proxy | 4 downloads | Weir | goodput":
		return 42.05, true
	case "relay/proxy | 4 downloads | as a server | added.through.p99":
		return 372.8, true
	case "relay/proxy | 4 downloads | as found | added.through.p99":
		return 483.5, true
	case "relay/proxy | 4 downloads | as found | goodput":
		return 46.72, true
	case "relay/router | 4 flows in | Weir --ingress | added.through.p99":
		return 0.80, true
	case "relay/router | 4 flows in | Weir | added.through.p99":
		return 199.2, true
	case "relay/tunnel | 4 downloads | 93 % of what leaves | added.through.p99":
		return 151.5, true
	case "relay/tunnel | 4 downloads | Weir | added.through.p99":
		return 1.06, true
	case "relay/tunnel | 4 downloads | Weir | goodput":
		return 42.87, true
	case "relay/tunnel | 4 downloads | as found | added.through.p99":
		return 1053, true
	case "relay/tunnel | 4 downloads | as found | goodput":
		return 44.55, true
	case "relay/wireguard | 4 downloads | Weir | goodput":
		return 41.59, true
	case "relay/wireguard | 4 uploads | Weir | added.through.p99":
		return 1.77, true
	case "relay/wireguard | 4 uploads | as a server | added.through.p99":
		return 197.7, true
	case "rules/framing | as handed, mss 1448b | as if on a wire | goodput":
		return 46.84, true
	case "rules/framing | as handed, mss 1448b | weir, not told | goodput":
		return 47.60, true
	case "rules/framing | on a wire, mss 1448b | told | added.p99":
		return 0.24, true
	case "rules/framing | on a wire, mss 1448b | weir, not told | added.p99":
		return 199.8, true
	case "rules/l4s | rate 12mbit, 16 flows | Weir --prefer l4s | probe.echo.lost":
		return 5.80, true
	case "rules/l4s | rate 12mbit, 16 flows | Weir | probe.echo.lost":
		return 0.00, true
	case "rules/l4s | rate 3mbit, 16 flows | Weir --prefer l4s | probe.echo.lost":
		return 27.20, true
	case "rules/l4s | rate 3mbit, 16 flows | Weir --prefer l4s | probe.echoL.lost":
		return 19.60, true
	case "rules/l4s | rate 3mbit, 16 flows | Weir | probe.echo.lost":
		return 0.00, true
	case "rules/l4s | rate 3mbit, 16 flows | Weir | probe.echoL.lost":
		return 0.00, true
	case "rules/many | rate:rtt 12mbit:71ms, count 128 | Weir | added.echo.p99":
		return 72.46, true
	case "rules/many | rate:rtt 12mbit:71ms, count 128 | flows | added.echo.p99":
		return 1.01, true
	case "rules/many | rate:rtt 12mbit:71ms, count 33 | Weir | added.echo.p99":
		return 9.56, true
	case "rules/several-queues | Weir | goodput.client.A":
		return 47.66, true
	case "rules/several-queues | cake_mq | goodput.client.A":
		return 11.93, true
	case "rules/several-queues | cake_mq | goodput.client.B":
		return 83.39, true
	case "rules/startstop | rate:rtt 12mbit:71ms | Weir --serves udp | utilisation":
		return 86.44, true
	case "rules/startstop | rate:rtt 12mbit:71ms | Weir | utilisation":
		return 99.04, true
	case "rules/wide | rate 2.5gbit | cake_mq | goodput.client.A":
		return 298.1, true
	case "rules/wide | rate 2.5gbit | cake_mq | goodput.client.B":
		return 2087, true
	case "rules/wide | rate 2.5gbit | htb + fq for each queue | added.p99":
		return 1.00, true
	case "rules/wide | rate 2.5gbit | htb + fq for each queue | goodput.client.A":
		return 298.2, true
	case "rules/wide | rate 2.5gbit | htb + fq for each queue | goodput.client.B":
		return 2087, true
	case "rules/wide | rate 2.5gbit | no shaper | added.p99":
		return 101.8, true
	case "rules/wide | rate 2.5gbit | one CAKE | goodput.client.A":
		return 1193, true
	case "rules/wide | rate 2.5gbit | one CAKE | goodput.client.B":
		return 1193, true
	case "rules/wide | rate 2.5gbit | superpackets whole | added.p99":
		return 0.21, true
	case "rules/wide | rate 2.5gbit | superpackets whole | goodput.client.A":
		return 1193, true
	case "rules/wide | rate 2.5gbit | superpackets whole | goodput.client.B":
		return 1192, true
	case "seed-host | seed 000, as it is | added.p50":
		return 62.01, true
	case "seed-host | seed 000, as it is | uplink.backlog":
		return 0.00, true
	case "seeds/dualpi2 | dualpi2, 4 flows | bbr | lost":
		return 23.73, true
	case "seeds/gso | rate 1gbit | fq_codel | rtt.p50":
		return 0.37, true
	case "seeds/gso | rate 1gbit | pfifo | rtt.p50":
		return 2.55, true
	case "seeds/lossy-path | loss 1% | cubic | fetch":
		return 9.20, true
	case "seeds/lossy-path | loss 1% | fq + bbr | fetch":
		return 2.13, true
	case "seeds/lossy-path | loss 10% | cubic | fetch":
		return 98.38, true
	case "seeds/lossy-path | loss 10% | fq + bbr | fetch":
		return 3.36, true
	case "seeds/lossy-path | loss 10% | pfifo_fast + bbr | fetch":
		return 3.38, true
	case "seeds/narrow-link | FIFO, local, 1 flow | fq + bbr | ssh.p50":
		return 50.09, true
	case "seeds/narrow-link | FIFO, local, 4 flows | fq + bbr | ssh.p50":
		return 110.2, true
	case "seeds/narrow-link | FIFO, local, 4 flows | seed 000: dualpi2 + bbr | uplink.backlog":
		return 0.00, true
	case "seeds/notsent-lowat | cc bbr | 131072 | unsent":
		return 127.3, true
	case "seeds/notsent-lowat | cc bbr | 8192 | added.p50":
		return 49.15, true
	case "seeds/notsent-lowat | cc bbr | 8192 | srtt":
		return 98.00, true
	case "seeds/notsent-lowat | cc bbr | 8192 | unsent":
		return 36.77, true
	case "seeds/notsent-lowat | cc bbr | default | srtt":
		return 50.73, true
	case "seeds/notsent-lowat | cc bbr | default | unsent":
		return 3063, true
	case "seeds/notsent-lowat | cc cubic | 131072 | unsent":
		return 127.3, true
	case "seeds/notsent-lowat | cc cubic | default | unsent":
		return 1029, true
	case "seeds/shaping | 1 against 10, one server address | cake 99.75% | added.p99":
		return 0.16, true
	case "seeds/shaping | 1 against 10, one server address | cake 99.75% | goodput.client.A":
		return 8.64, true
	case "seeds/shaping | 1 against 10, one server address | cake dual-dsthost | goodput.client.A":
		return 47.60, true
	case "steps-down | Weir for L4S | added.p50":
		return 6.48, true
	case "steps-down | Weir without CAKE | added.p50":
		return 0.24, true
	case "steps-down | Weir without CAKE | added.p99":
		return 0.48, true
	case "steps-down | Weir without CAKE | goodput.client.four":
		return 38.10, true
	case "steps-down | Weir without CAKE | goodput.client.one":
		return 9.52, true
	case "steps-down | Weir | added.p50":
		return 0.12, true
	case "steps-down | Weir | added.p99":
		return 0.24, true
	case "steps-down | Weir | goodput.client.four":
		return 23.81, true
	case "steps-down | Weir | goodput.client.one":
		return 23.81, true

	// Measured on linux 7.3.4+deb13-cloud-amd64.
	case "dualpi2/steps | bpf_dualpi2 | added.C.p50":
		return 15.84, true
	case "dualpi2/steps | cake | added.C.p50":
		return 0.18, true
	case "dualpi2/superpackets | bpf_dualpi2 | added.L.p99":
		return 1.65, true
	case "dualpi2/superpackets | htb + dualpi2 | added.L.p99":
		return 1.36, true
	case "shaper/shares | bpf_shaper | added.p99":
		return 1.18, true
	case "shaper/shares | bpf_shaper | goodput.client.A":
		return 47.28, true
	case "shaper/shares | bpf_shaper | goodput.client.B":
		return 47.28, true
	case "shaper/shares | cake_mq | goodput.client.A":
		return 11.72, true
	case "shaper/shares | cake_mq | goodput.client.B":
		return 82.85, true
	case "traffic/gso | with UDP GSO | bpf_dualpi2 | added.p99":
		return 24.03, true
	case "traffic/gso | without | bpf_dualpi2 | added.p99":
		return 21.39, true
	}
	return 0, false
}
