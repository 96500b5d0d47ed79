// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"testing"

	"weir/internal/host"
	"weir/internal/qdisc"
)

// The first sentence is what a person who does not know queues should know first.
func TestSummarize(t *testing.T) {
	facts := func(edits ...func(*host.Facts)) host.Facts {
		return with(t, append([]func(*host.Facts){looked}, edits...)...)
	}
	idle := func(s *host.Sockets) { s.Queueing = 0 }
	lowat := sysctl("ipv4.tcp_notsent_lowat", "8192")
	shaped := uplink(t, "cake bandwidth 49.875mbit dual-dsthost", 1)
	full := counts(qdisc.Stats{Backlog: 900_000, Qlen: 600})
	const again, sell = "while a download runs", "with what you pay for, e.g. 50mbit"
	const unsold = sell + "; or auto, which finds it"
	for _, c := range []struct {
		name  string
		facts host.Facts
		want  Summary
	}{
		{"queue elsewhere", facts(load), Summary{true, "Downloads make everything else on this server slow: replies " +
			"wait 164 ms in your provider's queue.", "weir plan --rate RATE", unsold, "queue-at-provider"}},
		{"queue elsewhere, less", facts(load, sockets(func(s *host.Sockets) { s.QueueMin = s.QueueRTT - 600_000 })),
			Summary{true, "Downloads make everything else on this server slow: replies wait 0.6 ms in your " +
				"provider's " +
				"queue.",
				"weir plan --rate RATE", unsold, "queue-at-provider"}},
		{"queue elsewhere, a relay", facts(measuredNAT, load), Summary{true, "Downloads make everything else on this " +
			"server slow: replies wait 164 ms in your provider's queue.", "weir plan --role relay --rate RATE", sell,
			"queue-at-provider"}},
		{"a FIFO", facts(uplink(t, "pfifo_fast", 1), load, full), Summary{true, "Downloads make everything else on " +
			"this server slow: replies wait 164 ms in this server's own queue.", "weir plan", "", "queue-in-fifo"}},
		{"what is harmful goes before what binds", facts(usesBBR, lowat, load, sockets(func(s *host.Sockets) {
			s.Queueing, s.Receiver = 0, 17
		})), Summary{true, "A setting makes downloads slow down everything else: they keep too much on the way.",
			"weir up",
			"", "lowat-makes-bbr-queue"}},
		{"what binds goes before the rest", facts(lowat, load, sockets(func(s *host.Sockets) {
			s.Queueing, s.Receiver = 0, 17
		})), Summary{true, "Downloads are as fast as those who receive them allow; this server is not the reason.", "",
			"nothing here; those who receive would need larger windows", "receivers-bind"}},
		{"the rest", facts(lowat, load, sockets(idle)), Summary{true, "A setting costs this server CPU time for " +
			"nothing: it makes programs send in small pieces.", "weir up", "", "lowat-too-small"}},

		{"an own rate, and a busy CPU", facts(shaped, load, full, func(f *host.Facts) { f.Deep.CPU = 0.9 }),
			Summary{true,
				"Downloads are held back by the rate that cake on eth0 enforces, 49.875mbit.", "",
				"nothing, if that rate is meant; tc -s qdisc show dev eth0 shows what enforces it", ""}},
		{"a busy CPU", facts(load, sockets(idle), func(f *host.Facts) { f.Deep.CPU = 0.9 }), Summary{true,
			"This server's processor is too busy: in 90 % of the last 10 s something waited for it.", "weir plan",
			"without --rate", "cpu-short"}},
		{"programs, and more", facts(lowat, load, sockets(func(s *host.Sockets) { s.Queueing, s.App = 0, 17 })),
			Summary{true, "Downloads are held back by the programs: of 17 busy connections, 17 did not always have " +
				"something to send. A setting costs this server CPU time for nothing: it makes programs send in " +
				"small pieces.", "weir up", "", "lowat-too-small"}},
		{"nothing", facts(load, sockets(idle)), Summary{true,
			"Nothing wrong was seen: 17 busy connections, and none waits in a queue.", "weir doctor --listen 10s",
			"sees more, while traffic runs", "nothing-wrong"}},
		{"nothing, listened to", facts(load, sockets(idle), left(1e9, 6e6)), Summary{true,
			"Nothing wrong was seen: 17 busy connections, and none waits in a queue.", "", "nothing", "nothing-wrong"}},
		{"some lose packets", facts(load, sockets(func(s *host.Sockets) { s.Queueing, s.Lossy = 0, 4 })), Summary{true,
			"Nothing wrong was seen: 17 busy connections, of which 4 lose packets, and none waits in a queue or is " +
				"held back by an end.", "weir doctor --listen 10s", "sees more, while traffic runs", "nothing-wrong"}},
		{"the path behind a shaper", facts(shaped, left(1e9, 6e6), lossyAt(0.03, 4.8e6)), Summary{true,
			"Downloads are slower than they could be: 3% of what they send is lost on the way.",
			"weir plan --rate 50mbit --loss 3%", "", "path-loses-packets"}},
		{"losses behind a shaper, at one look", facts(shaped, lossyAt(0.03, 4.8e6)), Summary{false,
			"Nothing wrong was seen so far, but whether this server itself drops what connections lose is not " +
				"known.", "weir doctor --listen 10s", again, ""}},
		{"uploads", facts(brings(4, host.Windows{})), Summary{true,
			"Nothing wrong was seen: this server does not hold back what comes in.", "", "nothing", "nothing-wrong"}},
		{"uploads that a filter holds back", facts(policer(30e6, 9), hangs(ingressFilters), listened(1), uploads(29e6)),
			Summary{true,
				"Uploads to this server are as slow as a rule on it makes them: it drops what exceeds 30mbit.",
				"", "tc -s filter show dev eth0 ingress shows it; a shaper with the same rate queues instead",
				"filter-drops"}},
		{"the same, beside downloads", facts(policer(30e6, 9), hangs(ingressFilters), listened(1), load, noQueue,
			uploads(29e6)), Summary{true,
			"Uploads to this server are as slow as a rule on it makes them: it drops what exceeds 30mbit.", "",
			"tc -s filter show dev eth0 ingress shows it; a shaper with the same rate queues instead", "filter-drops"}},
		{"the same, beside downloads that wait", facts(policer(30e6, 9), hangs(ingressFilters), listened(1), load,
			uploads(29e6)), Summary{true, "Downloads make everything else on this server slow: replies wait 164 ms " +
			"in your provider's queue.", "weir plan --rate RATE", unsold, "queue-at-provider"}},
		{"nothing, shaped", facts(shaped, load, full), Summary{true,
			"Nothing wrong was seen: what waits does so in this server's own queue.", "", "nothing", "nothing-wrong"}},
		{"nobody there", facts(), Summary{false, "Nothing wrong was seen so far, but no connection is busy.",
			"weir doctor --listen 10s",
			again, ""}},
		{"nobody there, and more", facts(lowat, sysctl("ipv4.tcp_rmem", "4096 16384 4194304")), Summary{false,
			"Nothing harmful was seen so far, but no connection is busy. Worth knowing: 3 things, below.",
			"weir doctor --listen 10s",
			again, ""}},
		{"nobody there, and nothing to shape with", facts(kernelWith("fq_codel", "mq"), lowat), Summary{true,
			"This server's kernel has nothing to shape with: weir up --rate would be refused.", "",
			"install the package with all of the kernel's modules", "kernel-cannot-shape"}},
		{"the same, and Debian's", facts(kernelWith("fq_codel", "mq"), func(f *host.Facts) {
			f.Kernel = "6.1.0-50-cloud-amd64"
		}), Summary{true,
			"This server's kernel has nothing to shape with: weir up --rate would be refused.", "",
			"apt-get install --reinstall linux-image-6.1.0-50-cloud-amd64", "kernel-cannot-shape"}},
		{"nobody there, and Weir's own shaper can", facts(kernelWith("fq"), bpfShaper), Summary{false,
			"Nothing wrong was seen so far, but no connection is busy.", "weir doctor --listen 10s", again, ""}},
		{"nobody there, and what the kernel has shapes", facts(kernelWith("tbf", "mq"),
			uplink(t, "tbf rate 50mbit burst 32k latency 50ms", 1)), Summary{false,
			"Nothing wrong was seen so far, but no connection is busy.", "weir doctor --listen 10s", again, ""}},
		{"not looked deeper", with(t), Summary{false,
			"Nothing wrong was seen so far, but the live connections are not known.", "weir doctor --listen 10s",
			again + "; it loads the module tcp_diag", ""}},
	} {
		if got := Summarize(c.facts); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}
