// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"strings"

	"weir/internal/host"
	"weir/internal/text"
)

// checkInterrupts is about a card whose busy queues one CPU serves, while others have time.
func checkInterrupts(p *patient) []Finding {
	cpu, others, share := p.busiest()
	var numbers []string
	for _, i := range p.deep.Interrupts {
		const minInterrupts = 1000 // while one listened; fewer take no CPU's time
		if i.Dev == p.link.Name && i.CPU == cpu && p.deep.Rose[i.Count()] >= minInterrupts {
			numbers = append(numbers, fmt.Sprint(i.Number))
		}
	}
	const full = 0.8 // of its time
	if share < full || others > share/2 || len(numbers) < 2 || p.deep.Sockets.Busy == 0 {
		return nil
	}
	return []Finding{{
		Code: "queues-on-one-cpu", Severity: Notable,
		Plain: "One processor of this server does the work of several for the network, and the others have time.",
		Title: fmt.Sprintf("CPU %d serves %s of %s alone.", cpu, text.Counted(len(numbers), "busy queue"), p.link.Name),
		Seen: fmt.Sprintf("Interrupts %s go to it. It spent %s of the last %s on packets (softirq), the others %s.",
			strings.Join(numbers, " and "), percent(share), p.deep.Listened, percent(others)),
		Why:    "A queue's packets are taken in where its interrupt comes.",
		Remark: "systemctl status irqbalance, or a CPU of its own for each in /proc/irq/NUMBER/smp_affinity_list",
	}}
}

// busiest is the CPU that has spent most of its time on packets while one listened, with that share, and that of the
// others on the average.
func (p *patient) busiest() (cpu int, others, share float64) {
	var sum float64
	n := 0
	for number := range host.MostCPUs {
		softirq, had := host.CPUCounts(number)
		if _, there := p.deep.Counts[had]; !there { // it is offline
			continue
		}
		n++
		s := float64(p.deep.Rose[softirq]) / float64(max(1, p.deep.Rose[had]))
		sum += s
		if s > share {
			cpu, share = number, s
		}
	}
	if n < 2 {
		return cpu, share, share
	}
	return cpu, (sum - share) / float64(n-1), share
}
