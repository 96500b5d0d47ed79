// SPDX-License-Identifier: Apache-2.0

// Package bench measures what queues carry on this host's CPU: packets that go from a program through the queue to a
// virtual device, and no further.
//
// It runs in a network namespace of its own, which ends with the process that it starts. It may not touch another, nor
// a setting of the host. What a figure means for a plan is the plan's affair.
package bench

import (
	"errors"
	"fmt"
	"strings"

	"weir/internal/qdisc"
	"weir/internal/units"
)

const (
	frame   = 1514 // bytes of a full packet with its Ethernet header
	payload = 1472 // bytes of it that a UDP datagram carries
	// datagrams that a program hands over at once: as many as fit a superpacket
	together = 44
	// far above what any CPU does, so that the shaper never waits
	unreached = "400gbit"
)

// Report is what was measured.
type Report struct {
	Kernel  string     `json:"kernel"`
	Senders int        `json:"senders"` // threads that sent at once, one for each CPU
	OneCake units.Rate `json:"one_cake,omitempty"`
	Results []Result   `json:"results"`
}

// Result is what one queue carries.
type Result struct {
	Name    string     `json:"name"`
	Queue   string     `json:"queue"`                        // as tc writes it
	Whole   bool       `json:"whole,omitempty"`              // superpackets pass as they are
	Packets float64    `json:"packets_per_second,omitempty"` // of 1514 bytes
	Rate    units.Rate `json:"rate,omitempty"`               // bit/s
	Lacks   string     `json:"lacks,omitempty"`              // why it was not measured
}

// oneCake is the name of the candidate that a plan goes by.
const oneCake = "one CAKE"

// candidates are what a plan may take for a wide link, and first what the senders do without a queue.
func candidates(senders int) []Result {
	share := units.Rate(400e9 / float64(senders)).String()
	return []Result{
		{Name: "no queue", Queue: "noqueue", Whole: true},
		{Name: oneCake, Queue: "cake bandwidth " + unreached + " besteffort dual-dsthost"},
		{Name: "one CAKE, superpackets whole", Queue: "cake bandwidth " + unreached +
			" besteffort dual-dsthost no-split-gso", Whole: true},
		{Name: "cake_mq", Queue: "cake_mq bandwidth " + unreached + " besteffort dual-dsthost"},
		{Name: "htb + fq_codel", Queue: "htb rate " + unreached + " | fq_codel", Whole: true},
		{Name: "htb + fq for each queue", Queue: "mq | htb rate " + share + " | fq", Whole: true},
	}
}

// counted is a candidate with what it carried: frames that the device took in a time.
func (r Result) counted(frames uint64, seconds float64) Result {
	if r.Whole {
		frames *= together
	}
	if seconds > 0 {
		r.Packets = float64(frames) / seconds
		r.Rate = units.Rate(r.Packets * frame * 8)
	}
	return r
}

// several tells whether a candidate wants a device with several queues.
func (r Result) several() bool {
	return strings.HasPrefix(r.Queue, "cake_mq") || strings.HasPrefix(r.Queue, "mq")
}

// stack reads what tc would.
func (r Result) stack() (qdisc.Stack, error) { return qdisc.ParseStack(r.Queue) }

// add takes a result into the report.
func (r *Report) add(x Result) {
	r.Results = append(r.Results, x)
	if x.Name == oneCake {
		r.OneCake = floor(x.Rate)
	}
}

// floor rounds a rate down to two digits: what differs in the third differs the next time.
func floor(r units.Rate) units.Rate {
	step := units.Rate(1)
	for r/step >= 100 {
		step *= 10
	}
	return r / step * step
}

// ErrLacks is why nothing can be measured here: there is no CAKE, or no right to make a namespace.
var ErrLacks = errors.New("nothing can be measured here")

func lacks(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrLacks, fmt.Sprintf(format, args...))
}
