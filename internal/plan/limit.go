// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"time"

	"weir/internal/host"
	"weir/internal/qdisc"
	"weir/internal/units"
)

// Limit is what keeps a host from sending faster, of which there is one at a time.
type Limit string

const (
	LimitRate     Limit = "rate"     // enforced beyond this host, below what its device could send
	LimitShaper   Limit = "shaper"   // this host's own
	LimitDevice   Limit = "device"   // the uplink's line rate
	LimitPath     Limit = "path"     // it loses packets with no queue to blame; a policer looks the same
	LimitBuffer   Limit = "buffer"   // this host's send buffers
	LimitReceiver Limit = "receiver" // the windows of the other ends
	LimitCPU      Limit = "cpu"
	LimitProgram  Limit = "program" // the senders: they do not always have something to send
	LimitNone     Limit = "none"    // no connection is busy
	LimitUnknown  Limit = "unknown"
)

// Binding is the verdict on which limit binds, of one look at the host.
type Binding struct {
	Limit Limit  `json:"limit"`
	Says  string `json:"says"` // the same to a person
}

// Binds tells which limit binds now. It rests on what Diagnose's findings rest on, in the order in which those weigh:
// what stands in a queue says more than what a connection waits for besides. Counters since the boot, a device's
// requeues among them, say nothing about now and are left out.
func Binds(facts host.Facts) Binding { return newDiagnosis(facts).binds() }

func (d *diagnosis) binds() Binding {
	s, rate := d.deep.Sockets, d.shaper()
	busy := counted(s.Busy, "busy connection")
	of := func(n int) string { return fmt.Sprintf("%d of %s", n, busy) }
	switch {
	case d.queueing() && d.elsewhere() && rate != 0:
		return Binding{LimitRate,
			fmt.Sprintf("a rate enforced beyond this host, below the %s that it shapes to: %s wait, and not here.",
				rate, of(s.Queueing))}
	case d.queueing() && d.elsewhere():
		return Binding{LimitRate,
			fmt.Sprintf("a rate enforced beyond this host, below what %s could send: %s wait, and not here.",
				d.link.Name, of(s.Queueing))}
	case rate != 0 && (d.queueing() && d.known() || s.Rate >= rate/10*9 || d.unseen() && d.holds()):
		return Binding{LimitShaper, fmt.Sprintf("the rate that %s enforces, %s.", d.shaperName(), rate)}
	case d.queueing() && d.known():
		return Binding{LimitDevice, fmt.Sprintf("%s itself: %s wait, and the queue is here.", d.link.Name,
			of(s.Queueing))}
	case d.lossy():
		return Binding{LimitPath, fmt.Sprintf("the path: %s lose packets without a queue.", of(s.Lossy))}
	case d.bufferBound():
		return Binding{LimitBuffer, fmt.Sprintf("this host's send buffers: %s wait for room.", of(s.Buffer))}
	case d.receiverBound():
		return Binding{LimitReceiver, fmt.Sprintf("the receivers: %s wait for a window.", of(s.Receiver))}
	case d.cpuShort():
		return Binding{LimitCPU, fmt.Sprintf("the CPU: in %.0f %% of the last 10 s something waited for it.",
			100*float64(d.deep.CPU))}
	case d.deviceFull():
		return Binding{LimitDevice, fmt.Sprintf("%s itself: %s of its %s are in use.", d.link.Name, roughly(s.Rate),
			d.link.Speed)}
	case !s.Read:
		return Binding{LimitUnknown, "cannot be told yet: the live connections are not known. To know them:  ss -t, " +
			"once, which loads what it takes; then weir doctor again, best under load."}
	case s.Busy == 0 && d.unseen():
		return Binding{LimitUnknown, "cannot be told: the ends of what this host forwards are elsewhere."}
	case s.Busy == 0:
		return Binding{LimitNone, "nothing now: no connection is busy."}
	case d.link.Name == "":
		return Binding{LimitUnknown, "cannot be told: there is no default route, so the uplink is not known."}
	case 2*s.App >= s.Busy:
		return Binding{LimitProgram, fmt.Sprintf("the programs: of %s, %d did not always have something to send.", busy,
			s.App)}
	}
	return Binding{LimitUnknown,
		fmt.Sprintf("cannot be told: %s, and none waits in a queue, loses packets or is held back by an end.", busy)}
}

// Elsewhere tells that connections wait, and not in the queue that a goal has put at its device; "" if that is not to
// be seen. The facts have a deep part with the live connections.
func Elsewhere(g Goal, f host.Facts) string {
	f.Uplink = g.Dev
	d := newDiagnosis(f)
	if d.link.Name != g.Dev || d.shaper() == 0 || !d.queueing() || !d.elsewhere() {
		return ""
	}
	s := d.deep.Sockets
	root, _ := d.link.Tree.Root()
	return fmt.Sprintf("%d of %s wait: RTT %s, minimum %s, and %s holds %s. The rate is lower somewhere else, or "+
		"what is sent does not pass here",
		s.Queueing, counted(s.Busy, "busy connection"), millis(s.QueueRTT), millis(s.QueueMin), d.shaperName(),
		counted(int(root.Stats.Qlen), "packet"))
}

// many tells whether so many of the busy connections are no accident: one in four.
func (d *diagnosis) many(n int) bool { return n > 0 && 4*n >= d.deep.Sockets.Busy }

// queueing tells whether connections wait in a queue, wherever it is.
func (d *diagnosis) queueing() bool { return d.many(d.deep.Sockets.Queueing) }

// known tells whether the uplink's queue is known.
func (d *diagnosis) known() bool {
	_, ok := d.link.Tree.Root()
	return ok && d.link.Name != ""
}

// unseen tells whether there can be connections that were not looked at.
func (d *diagnosis) unseen() bool { return !d.deep.Sockets.Read || d.Forwards() }

// holds tells whether packets wait at the uplink.
func (d *diagnosis) holds() bool {
	root, _ := d.link.Tree.Root()
	return root.Stats.Backlog > 0
}

// elsewhere tells whether what waits at the uplink explains less than half of the delay: in time, at the rate at which
// the busy connections are served.
func (d *diagnosis) elsewhere() bool {
	root, _ := d.link.Tree.Root()
	s, here := d.deep.Sockets, units.Duration(0)
	if serves := max(d.shaper(), s.Rate); serves > 0 {
		here = units.Duration(float64(root.Stats.Backlog*8) / float64(serves) * float64(time.Second))
	}
	return d.known() && here < (s.QueueRTT-s.QueueMin)/2
}

// lossy tells whether the path loses packets with no queue to blame. Behind an own shaper what is lost may have been
// dropped here, on purpose.
func (d *diagnosis) lossy() bool { return d.many(d.deep.Sockets.Lossy) && d.shaper() == 0 }

func (d *diagnosis) bufferBound() bool { return d.many(d.deep.Sockets.Buffer) }

func (d *diagnosis) receiverBound() bool { return d.many(d.deep.Sockets.Receiver) }

func (d *diagnosis) cpuShort() bool {
	const much = 0.5
	return d.deep.CPU >= much
}

// deviceFull tells whether the busy connections alone fill the uplink.
func (d *diagnosis) deviceFull() bool {
	speed := d.link.Speed
	return speed != 0 && d.deep.Sockets.Rate >= speed/10*9 && d.shaper() == 0
}

// shaperName is the discipline that enforces the rate.
func (d *diagnosis) shaperName() string {
	for _, q := range d.link.Tree.Qdiscs {
		switch q.Spec.(type) {
		case qdisc.BPFDualPI2, qdisc.Cake, qdisc.HTB, qdisc.TBF:
			return q.Kind + " on " + d.link.Name
		}
	}
	return d.queueName() + " on " + d.link.Name
}
