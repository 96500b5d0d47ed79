// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"

	"weir/internal/host"
	"weir/internal/text"
	"weir/internal/units"
)

// deviceBound is what the bounded queues of a device let pass.
type deviceBound struct {
	dev       string
	each, all units.Rate // of its slowest queue, and of all, if all are bounded
	queues    int        // that have a rate
	full      []host.TxQueue
}

// boundDevices are those that what leaves passes, with queues that somebody has bounded.
func (p *patient) boundDevices() (found []deviceBound) {
	for _, l := range p.links {
		b := deviceBound{dev: l.Name}
		for _, q := range p.deep.TxQueues {
			if q.Dev != l.Name {
				continue
			}
			if q.Rate != 0 {
				b.queues++
				b.all += q.Rate
				if b.each == 0 || q.Rate < b.each {
					b.each = q.Rate
				}
			}
			if q.Full {
				b.full = append(b.full, q)
			}
		}
		if b.queues > 0 || b.full != nil {
			found = append(found, b)
		}
	}
	return found
}

// boundQueue is the device whose queues' rates the busy connections are near, which takes one that has no other queue.
// A connection goes by one of them.
func (p *patient) boundQueue() (bound deviceBound, holds bool) {
	s := p.deep.Sockets
	for _, b := range p.boundDevices() {
		l, _ := p.Link(b.dev)
		if b.queues == 0 || b.queues < l.TxQueues || s.Busy == 0 {
			continue
		}
		if s.Rate/units.Rate(min(s.Busy, b.queues)) >= b.each/10*7 && s.Rate <= b.all/10*13 {
			return b, true
		}
	}
	return bound, false
}

// checkDeviceQueues is about what somebody lets a device's queues have, behind all that is queued.
func checkDeviceQueues(p *patient) (found []Finding) {
	for _, b := range p.boundDevices() {
		show := fmt.Sprintf("/sys/class/net/%s/queues", b.dev)
		if b.queues > 0 {
			found = append(found, Finding{
				Code: "device-rate-set", Severity: Notable,
				Plain: fmt.Sprintf("A setting of the network card lets no download have more than %s.", b.each),
				Title: fmt.Sprintf("%s of %s may send %s at most.", text.Counted(b.queues, "queue"), b.dev, b.each),
				Seen:  fmt.Sprintf("tx_maxrate in %s; all of them have %s.", show, b.all),
				Why:   "The card bounds what each of them sends, whatever the link carries.",
				Remark: fmt.Sprintf("echo 0 > %s/tx-0/tx_maxrate takes it away, from each queue, if nobody wants it",
					show),
			})
		}
		if len(b.full) > 0 {
			found = append(found, Finding{
				Code: "device-queue-short", Severity: Notable,
				Plain: "A setting lets the network card of this server hold so little that it may run dry.",
				Title: fmt.Sprintf("%s of %s may hold %s at most, and would hold more.",
					text.Counted(len(b.full), "queue"), b.dev, text.Bytes(float64(b.full[0].Most))),
				Seen: fmt.Sprintf("byte_queue_limits/limit is at limit_max, %d bytes, in %s.", b.full[0].Most, show),
				Why: "The kernel finds out by itself how much a driver has to hold to stay busy (BQL), and may not " +
					"here.",
				Remark: fmt.Sprintf("echo max > %s/tx-%d/byte_queue_limits/limit_max takes it away", show,
					b.full[0].Number),
			})
		}
	}
	return found
}
