// SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"weir/internal/stats"
	"weir/internal/wire"
)

// Options say how to calibrate. The zero Options do all.
type Options struct {
	NoFraming bool        // take the packets of one size only
	Phase     func(Phase) // told when a phase begins; may be nil
}

// Phase is a part of a run.
type Phase string

// The parts of a run, in their order.
const (
	Listening  Phase = "listening to the idle link"
	Saturating Phase = "filling the link"
	Small      Phase = "filling it with small packets"
	Datagrams  Phase = "filling it with datagrams"
	Below      Phase = "sending less than that"
	Verifying  Phase = "sending 99.75 % of the result"
)

// verifyShare is what of a found rate is sent to verify it, and what weir up shapes to.
const verifyShare = 0.9975

// What ends a run that can tell nothing.
var (
	ErrSilent  = errors.New("no probe is answered on the idle link")
	ErrBusy    = errors.New("this host was too busy to look at the link often enough")
	ErrStalled = errors.New("while the link was to be filled, nothing arrived at the other end most of the time")
)

// run is a calibration under way. All times are seconds, all rates bit/s.
type run struct {
	Options
	link         Link
	idle         idleLink
	otherRate    float64 // what this host sends beside the test when nothing stands in its way
	large        plateau
	tcpPlateau   plateau // what TCP had shown, where datagrams have shown it better
	disagreement string  // what TCP and datagrams disagree about

	lossDivided       bool    // the rate is what arrived, with what the path loses
	chanceUncertainty float64 // half of its interval that comes of this
	load              Load
}

// Run calibrates a link, and leaves nothing under way. It takes about 15 s.
func Run(ctx context.Context, link Link, o Options) (*Result, error) {
	r := &run{Options: o, link: link}
	result, err := r.calibrate(ctx)
	return result, errors.Join(err, link.Send(context.WithoutCancel(ctx), Load{}))
}

func (r *run) calibrate(ctx context.Context) (*Result, error) {
	if err := r.listen(ctx); err != nil {
		return nil, err
	}
	if err := r.saturate(ctx); err != nil {
		return nil, err
	}
	if r.large.own.packets < 1 {
		if r.large.windows == 0 {
			return nil, ErrBusy
		}
		return nil, ErrStalled
	}
	framing, err := r.findFraming(ctx)
	if err != nil {
		return nil, err
	}
	below, err := r.measureBelow(ctx)
	if err == nil && r.large.byDatagrams && below.lost > maxLost {
		smooth := false
		if r.large.flow().bitRate(wire.EthernetHeader) > sureRate {
			below, smooth, err = r.measureLossByDatagrams(ctx, below)
		}
		if err == nil && !smooth {
			r.large = r.tcpPlateau
			framing, err = r.frameBySmallPackets(ctx)
		}
	}
	if err != nil {
		return nil, err
	}
	result := r.conclude(&framing, below)
	if result.Kind == Unsaturated {
		result.Took = r.now()
		return result, nil
	}
	err = r.verify(ctx, result, framing, below)
	result.Took = r.now()
	return result, err
}

func (r *run) samples() series {
	s, _ := r.link.Seen()
	return s
}

func (r *run) probes() []Probe {
	_, p := r.link.Seen()
	return p
}

func (r *run) now() float64 {
	s := r.samples()
	if len(s) == 0 {
		return 0
	}
	return s[len(s)-1].At.Seconds()
}

func (r *run) startPhase(p Phase) {
	if r.Phase != nil {
		r.Phase(p)
	}
}

// watch lets a time pass, and tells when it began and ended.
func (r *run) watch(ctx context.Context, d float64) (a, b float64, err error) {
	a = r.now()
	if err = r.link.Watch(ctx, duration(d)); err == nil {
		err = ctx.Err()
	}
	return a, r.now(), err
}

func (r *run) send(ctx context.Context, l Load) error {
	r.load = l
	return r.link.Send(ctx, l)
}

// listen finds the RTT with no queue.
func (r *run) listen(ctx context.Context) error {
	const (
		long    = 0.9
		patient = 4 // times more, on a long way: its answers are still to come
	)
	r.startPhase(Listening)
	a, b, err := r.watch(ctx, long)
	if err != nil {
		return err
	}
	r.idle = measureIdle(r.probes(), a, b-0.1)
	for k := 0; k < patient && r.idle.base == 0; k++ {
		if _, b, err = r.watch(ctx, long); err != nil {
			return err
		}
		r.idle = measureIdle(r.probes(), 0, b)
	}
	if r.idle.base == 0 {
		return ErrSilent
	}
	r.otherRate = r.samples().other().bitRate(wire.EthernetHeader)
	return nil
}

const (
	maxConnections = 16
	minLongRTT     = 0.06 // s of RTT above which all connections start at once: each takes long to get going
)

// neededConnections is how many connections a rate needs: each is to have eight packets under way, or it retransmits by
// timeout.
func (r *run) neededConnections(rate float64) int {
	return int(clamp(rate*(r.idle.base+0.03)/8/wire.EthernetMTU/8, 2, 8))
}

// saturate fills the link until the rate has stood for a while.
func (r *run) saturate(ctx context.Context) error {
	r.startPhase(Saturating)
	n, base := 1, r.idle.base
	patience := math.Max(12, 40*base) // s, in which a credit may end, and connections get going
	if base > minLongRTT {
		n = 8
	}
	if err := r.send(ctx, Load{Connections: n}); err != nil {
		return err
	}
	a, b, err := r.watch(ctx, math.Max(0.6, 8*base))
	if err != nil {
		return err
	}
	first := r.samples().between(a+(b-a)/3, b).delivered().bitRate(wire.EthernetHeader)
	if more := r.neededConnections(first); more > n {
		n, err = more, r.addConnections(ctx, more, first)
	}
	length := clamp(45*base, 4, math.Max(7.5, 25*base))
	start := a
	for err == nil {
		if _, b, err = r.watch(ctx, length); err != nil {
			return err
		}
		r.large = findPlateau(r.samples(), r.probes(), r.idle, n, start, b)
		if !r.large.stable && b < patience {
			length = 1
			continue
		}
		more := r.moreConnections(n)
		if more == n || b > patience {
			return nil
		}
		n = more
		length = clamp(30*base, 3, 5)
		err = r.addConnections(ctx, n, r.large.flow().bitRate(wire.EthernetHeader))
		start = r.now()
	}
	return err
}

// addConnections adds connections. Nobody can connect through a link that drops a third of what comes, so the others
// make room first.
func (r *run) addConnections(ctx context.Context, n int, rate float64) error {
	if err := r.drain(ctx, rate); err != nil {
		return err
	}
	return r.send(ctx, Load{Connections: n, Segment: r.load.Segment})
}

// moreConnections is how many connections are needed to fill what the last ones have shown.
func (r *run) moreConnections(n int) int {
	p := r.large
	if p.medianWait < r.idle.queueThreshold() && !p.queuesBulk(r.idle) && p.lost < 0.005 {
		return min(maxConnections, 2*max(n, r.neededConnections(p.flow().bitRate(wire.EthernetHeader))))
	}
	rate := p.flow().bitRate(wire.EthernetHeader)
	if r.idle.base > minLongRTT || r.canCountDatagrams() && rate <= sureRate { // datagrams tell it better
		return n
	}
	return max(n, r.neededConnections(rate))
}

// The small packets are small enough to tell one byte, and few enough for hosts to keep up with.
const (
	smallSize       = 240 // bytes of IP
	middleSize      = 552
	thirdSize       = 264 // tells cells from plain bytes: 24 bytes more are one cell or none
	fastRate        = 300e6
	maxATMRate      = 30e6 // nobody has sold a faster line over ATM
	minCellOverhead = 30.0 // bytes, what cells look like as plain overhead; below 0 they do, too, and nothing else does
)

// Sizes are the bounds that a Load may have for its packets.
func Sizes() []int { return []int{0, smallSize, middleSize, thirdSize} }

// findFraming finds the framing, by datagrams where the peer counts them.
func (r *run) findFraming(ctx context.Context) (framing, error) {
	if r.canCountDatagrams() {
		f, ok, err := r.measureByDatagrams(ctx)
		if err != nil || ok {
			return f, err
		}
	}
	return r.frameBySmallPackets(ctx)
}

// mayBeCells reports whether plain bytes may be cells on a link of a rate.
func (f framing) mayBeCells(rate float64) bool {
	return f.known && rate <= maxATMRate && (f.overhead >= minCellOverhead || f.overhead < -3)
}

// frameBySmallPackets fills the link with small packets, and compares.
func (r *run) frameBySmallPackets(ctx context.Context) (framing, error) {
	rate := r.large.flow().bitRate(wire.EthernetHeader)
	if r.NoFraming || !r.filledLink(r.large) {
		return fitFraming(r.large), nil
	}
	size := smallSize
	if rate > fastRate {
		size = middleSize
	}
	r.startPhase(Small)
	length := clamp(30*r.idle.base, 3, 4)
	if rate < 10e6 {
		length = 3.6
	}
	p, err := r.fillWith(ctx, size, length)
	if err != nil || !r.filledLink(p) {
		return fitFraming(r.large), err
	}
	f := fitFraming(r.large, p)
	if !f.mayBeCells(rate) {
		return f, nil
	}
	q, err := r.fillWith(ctx, thirdSize, 2) // a cell more or less is seen at once
	if err != nil || !r.filledLink(q) {
		return f, err
	}
	return fitFraming(r.large, p, q), nil
}

func (r *run) filledLink(p plateau) bool {
	return p.medianWait > r.idle.queueThreshold() || p.queuesBulk(r.idle) || p.lost > 0.005
}

func (r *run) fillWith(ctx context.Context, size int, length float64) (plateau, error) {
	l := Load{Connections: max(2, r.load.Connections), Segment: size}
	err := r.drain(ctx, r.large.flow().bitRate(wire.EthernetHeader))
	if err == nil {
		err = r.send(ctx, l)
	}
	if err != nil {
		return plateau{}, err
	}
	const longer = 2.0 // s: connections with small packets take longer, above all where some get lost
	a := r.now()
	for _, d := range []float64{length, longer} {
		_, b, err := r.watch(ctx, d)
		if err != nil {
			return plateau{}, err
		}
		p := findPlateau(r.samples(), r.probes(), r.idle, l.Connections, a+0.3*(b-a), b)
		if r.queueStood(p) {
			return p, nil
		}
	}
	return plateau{}, nil
}

// queueStood reports whether a plateau has a queue, where large packets had one. Else what it lost may be the path's.
func (r *run) queueStood(p plateau) bool {
	least := r.idle.queueThreshold()
	return r.large.medianWait <= least || p.medianWait > least || p.queuesBulk(r.idle)
}

// pace lets the connections that there are send so much that all that this host sends has a rate, counted as a qdisc
// does.
func (r *run) pace(ctx context.Context, rate float64) error {
	size := float64(wire.EthernetMTU)
	if r.load.Segment > 0 {
		size = float64(r.load.Segment)
	}
	ours := math.Max(0.3*rate, rate-r.otherRate)
	return r.send(ctx, Load{Connections: r.load.Connections, Segment: r.load.Segment,
		Rate: ours * size / (size + wire.EthernetHeader)})
}

// heedInterval is how often this host's other traffic is looked at while a rate is held, in seconds.
const heedInterval = 0.2

// holdRate has all that this host sends keep a rate for a time, whatever its other traffic does meanwhile.
func (r *run) holdRate(ctx context.Context, rate, d float64) (a, b float64, err error) {
	a = r.now()
	for b = a; err == nil && b < a+d-heedInterval/2; {
		if err = r.pace(ctx, rate); err == nil {
			if _, b, err = r.watch(ctx, math.Min(heedInterval, a+d-b)); err == nil {
				r.otherRate = r.samples().between(b-2*heedInterval, b).other().bitRate(wire.EthernetHeader)
			}
		}
	}
	return a, b, err
}

// sentRate is the rate of what this host has sent, as a qdisc counts it.
func (r *run) sentRate(a, b float64) float64 {
	part := r.samples().between(a, b)
	if device := part.slope(func(s Sample) float64 { return s.DeviceBytes }) * 8; device != 0 {
		return device
	}
	return part.slope(func(s Sample) float64 { return s.Payload + s.Headers + wire.EthernetHeader*s.Segments }) * 8
}

// awaitRate holds a rate until all of it leaves, and no more of it is lost than the path may lose. New connections take
// some RTTs: they begin in bursts, and send less for a while after what these have lost. It looks once in a step, twice
// in a row: what the first step has lost is known in the second.
func (r *run) awaitRate(ctx context.Context, rate float64, u belowRate) error {
	const (
		patience = 10 // steps
		enough   = 2
		minSent  = (1 + minTry) / 2
	)
	step := r.idle.base + heedInterval
	_, b, err := r.holdRate(ctx, rate, step+heedInterval)
	for k, good := 0, 0; err == nil && k < patience; k++ {
		good++
		part := r.samples().between(b-step, b)
		if r.sentRate(b-step, b) < minSent*rate || part.lossShare() > u.allowedLoss(part) {
			good = 0
		}
		if good == enough {
			break
		}
		_, b, err = r.holdRate(ctx, rate, step)
	}
	return err
}

// drain paces at half of a rate, and waits until the queue is gone.
func (r *run) drain(ctx context.Context, rate float64) error {
	if err := r.pace(ctx, 0.5*rate); err != nil {
		return err
	}
	return r.awaitCalm(ctx)
}

// awaitCalm waits until no queue stands, for some time at most.
func (r *run) awaitCalm(ctx context.Context) error {
	const (
		patience = 4.0 // s
		look     = 0.05
	)
	_, end, err := r.watch(ctx, r.idle.base+0.1)
	for end += patience; err == nil && r.now() < end; {
		now := r.now()
		_, rtt := answers(r.probes(), now-r.idle.base-0.2, now-r.idle.base)
		if len(rtt) > 0 && stats.QuantileAbove(rtt, 0.5) <= r.idle.base+r.idle.queueThreshold() {
			return nil
		}
		_, _, err = r.watch(ctx, look)
	}
	return err
}

// belowShare is the share of the rate below which the path alone loses.
const belowShare = 0.85

// measureBelow sends less than the rate, and counts what is lost then: that is the path's own.
func (r *run) measureBelow(ctx context.Context) (belowRate, error) {
	r.startPhase(Below)
	rate := r.large.flow().bitRate(wire.EthernetHeader)
	if err := r.drain(ctx, rate); err != nil {
		return belowRate{}, err
	}
	r.useLargePackets()
	const (
		crowded = 0.95 // share from which on a policer may drop
		patient = 3    // times that it is looked again
	)
	skip := 2*r.idle.base + 0.2
	long := 1.5
	if rate < 10e6 || r.large.lost > 0.003 && r.large.medianWait < r.idle.queueThreshold() {
		long = 2.2
	}
	if _, _, err := r.holdRate(ctx, belowShare*rate, skip); err != nil {
		return belowRate{}, err
	}
	a, b, err := r.holdRate(ctx, belowShare*rate, long)
	for k := 0; err == nil && k < patient; k++ {
		if r.sentRate(a, b) < crowded*rate && !lossFalls(r.samples(), a, b) && !lossClusters(r.samples(), a, b) {
			break
		}
		a, b, err = r.holdRate(ctx, belowShare*rate, long)
	}
	if err != nil {
		return belowRate{}, err
	}
	// At first the connections of before may still fill the link. What is lost then is not the path's.
	for k, quarter := 2., (b-a)/4; k > 0; k-- {
		if r.sentRate(a+(k-1)*quarter, a+k*quarter) >= crowded*rate {
			a += k * quarter
			break
		}
	}
	return lookBelowRate(r.samples(), r.probes(), r.idle, a, b), nil
}

// useLargePackets has what is sent next be large packets again, of new connections.
func (r *run) useLargePackets() {
	if r.load.Segment > 0 {
		r.load = Load{Connections: int(clamp(float64(r.load.Connections), 2, 4))}
	}
}

// conclude puts together what the phases have shown.
func (r *run) conclude(f *framing, u belowRate) *Result {
	*f = f.withoutImpossible()
	if u.medianWait < -0.002 { // a queue of this host's own traffic stood before the test
		r.large.medianWait -= u.medianWait
		r.large.depth -= u.medianWait
		r.large.bulkWait -= u.medianWait
		r.idle.base += u.medianWait
	}
	p := r.large
	drops := p.lost > u.lost+0.004
	res := &Result{Kind: kindOf(p, r.idle, u.lost), Loss: plusMinus(u.lost, u.uncertainty, Within), ATM: f.atm,
		Base:     plusMinus(r.idle.base, r.idle.noise/2, Within),
		Others:   plusMinus(p.otherSent.bitRate(wire.EthernetHeader), 0, Within),
		Overhead: plusMinus(f.overhead, f.uncertainty, Within)}
	res.Loss.Low = math.Max(0, res.Loss.Low)
	whole := *f
	if !f.known {
		res.Overhead = Value{Value: wire.EthernetHeader, Low: 0, High: maxOverhead, Sort: Unknown}
		whole.overhead = wire.EthernetHeader
	} else if f.atm {
		whole.overhead = f.bestOverhead
	} else {
		whole.overhead = math.Round(f.overhead) + 0 // never -0
		res.Overhead.Value = whole.overhead
	}
	defer func() { f.overhead = whole.overhead }()
	if u.lost > 0 {
		r.chanceUncertainty = r.uncertaintyOfLoss(u.lost, u.uncertainty)
	}
	rate, off := whole.bitRate(p)/(1-u.lost), p.uncertainty+r.chanceUncertainty
	r.lossDivided = true
	if res.Kind == FIFO && !drops && u.lost > 0.002 {
		rate, off = r.rateBySent(whole, p), p.uncertainty+0.001 // what is lost beyond the queue does not enter
		r.lossDivided = false
	}
	if f.known && !f.atm && f.uncertainty > 0.5 { // else the whole byte is known
		off += f.uncertainty / (p.own.bytes/p.own.packets + whole.overhead)
	}
	res.Rate = plusMinus(rate, off*rate, Within)
	widen := func(lowFraming, highFraming framing) {
		res.Rate.Low -= rate - rate*lowFraming.bitRate(p)/whole.bitRate(p)
		res.Rate.High += rate*highFraming.bitRate(p)/whole.bitRate(p) - rate
	}
	if f.atm { // all that fit are right for packets of another size than these
		lowFraming, highFraming := whole, whole
		lowFraming.overhead = math.Max(0, f.overhead-f.uncertainty)
		highFraming.overhead = math.Floor(f.overhead + f.uncertainty)
		widen(lowFraming, highFraming)
	}
	if !f.known && !r.NoFraming && res.Kind != Unsaturated { // what it may count makes the rate as uncertain
		widen(framing{}, framing{overhead: maxOverhead, atm: rate <= maxATMRate})
	}
	if res.Kind == Unsaturated || p.idledAtTimes(r.idle) {
		res.Rate.Sort, res.Rate.High = AtLeast, math.Max(res.Rate.High, rate*p.bestShare)
	}
	r.describeQueue(res, rate, drops)
	if r.disagreement != "" {
		res.Notes = append(res.Notes, r.disagreement)
	}
	return res
}

// rateBySent is the rate by what has left, less what the queue has grown by: a FIFO that drops nothing passes all of
// it.
func (r *run) rateBySent(f framing, p plateau) float64 {
	part := r.samples().between(p.from, p.to)
	left := flow{part.slope(func(s Sample) float64 { return s.Segments }),
		part.slope(func(s Sample) float64 { return s.Payload + s.Headers })}
	at, rtt := answers(r.probes(), p.from, p.to-r.idle.base)
	p.own = left
	return f.bitRate(p) / (1 + stats.Fit(at, rtt).Slope)
}

// describeQueue says how long the provider's queue is, and how much credit there was.
func (r *run) describeQueue(res *Result, rate float64, drops bool) {
	p := r.large
	switch {
	case res.Kind != FIFO:
		res.Depth = Value{Sort: Unknown}
	case drops:
		res.Depth = plusMinus(p.depth, math.Max(0.001, r.idle.noise/2), Within)
	default:
		res.Depth = Value{Value: p.depth, Low: p.depth, Sort: AtLeast}
	}
	// A short credit is gone before a tenth of the windows. A policer's burst is none: it has no queue that it fills.
	short := res.Kind == FIFO && p.burst*8 > 0.15*rate
	if p.credit*8 > 0.15*rate && p.peak > plateauFactor*rate || short {
		// What the first connection used before anybody counted is missing.
		res.Credit = Value{p.credit, p.credit, 2.5 * p.credit, AtLeast}
	} else {
		res.Credit = Value{0, 0, 0.15 * rate / 8, Within}
		res.Notes = append(res.Notes, fmt.Sprintf("A credit that lasts longer than the %.0f s of this test cannot be "+
			"seen: look again when the link has been busy for a while.", p.to))
	}
}

// Of the result's share that is to be sent, minTry at least tries the link. More than maxTry is no try of that result.
const minTry, maxTry = 0.97, 1.03

// verify sends 99.75 % of the result for 2 s. The link must stay as if it were idle.
func (r *run) verify(ctx context.Context, res *Result, f framing, u belowRate) error {
	const (
		long = 2.0  // s
		much = 0.05 // share of the rate from which on this host's own traffic can be too much
	)
	r.startPhase(Verifying)
	// The pacing counts as a qdisc does, with large packets.
	rate := res.Rate.Value
	size := r.large.own.bytes / r.large.own.packets
	counted := size + f.overhead
	if f.atm {
		counted = atmSize(size + f.overhead)
	}
	rate *= (size + wire.EthernetHeader) / counted
	if err := r.drain(ctx, rate); err != nil {
		return err
	}
	r.useLargePackets()
	if err := r.awaitRate(ctx, verifyShare*rate, u); err != nil {
		return err
	}
	for again := maxTries - 1; ; again-- {
		a, b, err := r.holdRate(ctx, verifyShare*rate, long)
		if err != nil {
			return err
		}
		why := r.whyNotCalm(res, u, rate, a, b)
		// This host's own traffic is heeded some hundred ms late: what it does meanwhile can fill the link.
		if why != "" && again > 0 && r.otherRate > much*rate {
			continue
		}
		res.markUnverified(why)
		return nil
	}
}

// whyNotCalm says why the link was not calm while the share of a rate was sent; "" if it was.
func (r *run) whyNotCalm(res *Result, u belowRate, rate, a, b float64) (why string) {
	part := r.samples().between(a, b)
	_, rtt := answers(r.probes(), a, b-r.idle.base)
	c := &res.Verified
	*c = Check{Sent: r.sentRate(a, b) / (verifyShare * rate), Loss: part.lossShare()}
	if len(rtt) > 0 {
		c.Added = stats.QuantileAbove(rtt, 0.5) - r.idle.base
	}
	// The connections are paced each by itself, so their packets meet. As the load nears 1, more than x·√N packets wait
	// with a probability of exp(-2x²), for N sources (the N*D/D/1 queue). That is 1.22·√N one time in twenty, and never
	// more than one of each. Where TCP sends two packets at a time (tcp_tso_autosize), the median of 0.6·√N pairs is as
	// many. It is a median of many meetings, as no two connections have one pace.
	meet := math.Min(1.22*math.Sqrt(float64(r.load.Connections)), float64(r.load.Connections))
	packets := 8 * wire.Frame / rate * math.Max(1, meet)
	switch {
	case c.Sent < minTry:
		return fmt.Sprintf("this host could send only %.1f %% of it", 100*c.Sent)
	case c.Sent > maxTry:
		return fmt.Sprintf("this host sent %.1f %% of it", 100*c.Sent)
	case len(rtt) == 0:
		return "no probe was answered"
	case u.sentLate < minTellingPackets:
		return "the path's own loss is not known: so slow a link carries too few packets"
	case r.disagreement != "":
		return "TCP and UDP were carried at different rates"
	case c.Loss > u.allowedLoss(part):
		return fmt.Sprintf("%.2f %% of the packets were lost", 100*c.Loss)
	case c.Added > math.Max(math.Max(0.001, packets), r.idle.noise):
		return fmt.Sprintf("the median packet waited %.1f ms", 1e3*c.Added)
	}
	c.Calm = true
	if res.Kind == FIFO {
		n := math.Max(1, part.growth(func(s Sample) float64 { return s.Segments }))
		r.learnPathLoss(res, u, c.Loss*n, n)
	}
	return ""
}

// uncertaintyOfLoss is half of the interval of the rate, where it was divided by a loss with such an interval: in the
// time in which the rate was taken, more or less than that was lost by chance.
func (r *run) uncertaintyOfLoss(lost, off float64) float64 {
	return math.Hypot(off, 2*math.Sqrt(lost/math.Max(1, r.large.own.packets*(r.large.to-r.large.from))))
}

// learnPathLoss takes what was lost in a calm verification, too, for the path's loss: of few packets, few are lost.
// Where the provider has a queue, all of it is the path's.
func (r *run) learnPathLoss(res *Result, u belowRate, lost, sent float64) {
	lost, sent = lost+u.lostLate, sent+u.sentLate
	if lost < 0.5 {
		return
	}
	p, off := lost/sent, 2*math.Sqrt(lost)/sent
	res.Loss = plusMinus(p, off, Within)
	res.Loss.Low = math.Max(0, res.Loss.Low)
	if !r.lossDivided {
		return
	}
	off = r.uncertaintyOfLoss(p, off) - r.chanceUncertainty
	rate, by := &res.Rate, (1-u.lost)/(1-p)
	*rate = Value{rate.Value * by, by * (rate.Low - off*rate.Value), by * (rate.High + off*rate.Value), rate.Sort}
}

// markUnverified says what it means for the rate that the link was not calm.
func (res *Result) markUnverified(why string) {
	if why == "" {
		return
	}
	res.Rate.Sort = Left
	res.Notes = append(res.Notes, "The result could not be verified: with 99.75 % of it, "+why+". Somebody else uses "+
		"the link, or the rate changes. Do not take it for the rate without a second run.")
}
