// SPDX-License-Identifier: Apache-2.0

// Package bench measures what queues carry on this host's CPU: TCP from one network namespace through the queue at a
// virtual device to another.
//
// It runs in a network namespace of its own, which ends with the process that it starts. It may not touch another, nor
// a setting of the host. What a figure means for a plan is the plan's affair.
package bench

import (
	"errors"
	"fmt"

	"weir/internal/qdisc"
	"weir/internal/units"
	"weir/internal/wire"
)

const (
	payload = 1448 // bytes of it that TCP carries
	// far above what any CPU does, so that the shaper never waits
	unreached = "400gbit"
)

// Report is what was measured.
type Report struct {
	Kernel  string     `json:"kernel"`
	CPUs    int        `json:"cpus"`
	OneCake units.Rate `json:"one_cake,omitempty"`
	Results []Result   `json:"results"`
}

// Result is what one queue carries.
type Result struct {
	Name    string     `json:"name"`
	Queue   string     `json:"queue"`                        // as tc writes it
	Packets float64    `json:"packets_per_second,omitempty"` // of 1514 bytes
	Rate    units.Rate `json:"rate,omitempty"`               // bit/s
	Lacks   string     `json:"lacks,omitempty"`              // why it was not measured

	multiqueue bool // it wants a device with several queues
}

// oneCake is the name of the candidate that a plan takes its figures from.
const oneCake = "one CAKE"

// candidates are what a plan may take for a wide link, and first what the senders do without a queue.
func candidates(queues int) []Result {
	share := units.Rate(400e9 / float64(queues)).String()
	return []Result{
		{Name: "no queue", Queue: "noqueue"},
		{Name: oneCake, Queue: "cake bandwidth " + unreached + " besteffort dual-dsthost"},
		{Name: "one CAKE, superpackets whole", Queue: "cake bandwidth " + unreached +
			" besteffort dual-dsthost no-split-gso"},
		{Name: "cake_mq", Queue: "cake_mq bandwidth " + unreached + " besteffort dual-dsthost", multiqueue: true},
		{Name: "htb + fq_codel", Queue: "htb rate " + unreached + " | fq_codel"},
		{Name: "htb + fq for each queue", Queue: "mq | htb rate " + share + " | fq", multiqueue: true},
	}
}

// counted is a candidate with what it carried: bytes that were received in a time.
func (r Result) counted(bytes int64, seconds float64) Result {
	r.Packets = float64(bytes) / payload / seconds
	r.Rate = units.Rate(r.Packets * wire.Frame * 8)
	return r
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

func errLacking(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrLacks, fmt.Sprintf(format, args...))
}
