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

// share is what of a found rate is sent to verify it, and what weir up shapes to.
const share = 0.9975

// What ends a run that can tell nothing.
var (
	ErrSilent  = errors.New("no probe is answered on the idle link")
	ErrBusy    = errors.New("this host was too busy to look at the link often enough")
	ErrStalled = errors.New("while the link was to be filled, nothing arrived at the other end most of the time")
)

// run is a calibration under way. All times are seconds, all rates bit/s.
type run struct {
	Options
	link   Link
	idle   idleLink
	beside float64 // what this host sends beside the test when nothing stands in its way
	big    plateau
	tcp    plateau // what TCP had shown, where datagrams have shown it better
	differ string  // what TCP and datagrams disagree about

	divided bool    // the rate is what arrived, with what the path loses
	chance  float64 // half of its interval that comes of this
	load    Load
}

// Run calibrates a link, and leaves nothing under way. It takes about 15 s.
func Run(ctx context.Context, link Link, o Options) (*Result, error) {
	r := &run{Options: o, link: link}
	result, err := r.all(ctx)
	return result, errors.Join(err, link.Send(context.WithoutCancel(ctx), Load{}))
}

func (r *run) all(ctx context.Context) (*Result, error) {
	if err := r.listen(ctx); err != nil {
		return nil, err
	}
	if err := r.saturate(ctx); err != nil {
		return nil, err
	}
	if r.big.own.packets < 1 {
		if r.big.windows == 0 {
			return nil, ErrBusy
		}
		return nil, ErrStalled
	}
	framing, err := r.framed(ctx)
	if err != nil {
		return nil, err
	}
	below, err := r.below(ctx)
	if err == nil && r.big.counted && below.lost > maxLost {
		smooth := false
		if r.big.flow().counted(wire.EthernetHeader) > sureBits {
			below, smooth, err = r.smooth(ctx, below)
		}
		if err == nil && !smooth {
			r.big = r.tcp
			framing, err = r.frame(ctx)
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

func (r *run) begin(p Phase) {
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
	r.begin(Listening)
	a, b, err := r.watch(ctx, long)
	if err != nil {
		return err
	}
	r.idle = quiet(r.probes(), a, b-0.1)
	for k := 0; k < patient && r.idle.base == 0; k++ {
		if _, b, err = r.watch(ctx, long); err != nil {
			return err
		}
		r.idle = quiet(r.probes(), 0, b)
	}
	if r.idle.base == 0 {
		return ErrSilent
	}
	r.beside = r.samples().other().counted(wire.EthernetHeader)
	return nil
}

const (
	maxConnections = 16
	minLongRTT     = 0.06 // s of RTT above which all connections start at once: each takes long to get going
)

// wanted is how many connections a rate needs: each is to have eight packets under way, or it retransmits by timeout.
func (r *run) wanted(rate float64) int {
	return int(clamp(rate*(r.idle.base+0.03)/8/wire.EthernetMTU/8, 2, 8))
}

// saturate fills the link until the rate has stood for a while.
func (r *run) saturate(ctx context.Context) error {
	r.begin(Saturating)
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
	first := r.samples().between(a+(b-a)/3, b).delivered().counted(wire.EthernetHeader)
	if more := r.wanted(first); more > n {
		n, err = more, r.grow(ctx, more, first)
	}
	length := clamp(45*base, 4, math.Max(7.5, 25*base))
	start := a
	for err == nil {
		if _, b, err = r.watch(ctx, length); err != nil {
			return err
		}
		r.big = level(r.samples(), r.probes(), r.idle, n, start, b)
		if !r.big.stable && b < patience {
			length = 1
			continue
		}
		more := r.more(n)
		if more == n || b > patience {
			return nil
		}
		n = more
		length = clamp(30*base, 3, 5)
		err = r.grow(ctx, n, r.big.flow().counted(wire.EthernetHeader))
		start = r.now()
	}
	return err
}

// grow adds connections. Nobody can connect through a link that drops a third of what comes, so the others make room
// first.
func (r *run) grow(ctx context.Context, n int, rate float64) error {
	if err := r.drain(ctx, rate); err != nil {
		return err
	}
	return r.send(ctx, Load{Connections: n, Segment: r.load.Segment})
}

// more is how many connections are needed to fill what the last ones have shown.
func (r *run) more(n int) int {
	p := r.big
	if p.waits < r.idle.stands() && !p.holds(r.idle) && p.lost < 0.005 {
		return min(maxConnections, 2*max(n, r.wanted(p.flow().counted(wire.EthernetHeader))))
	}
	rate := p.flow().counted(wire.EthernetHeader)
	if r.idle.base > minLongRTT || r.countable() && rate <= sureBits { // datagrams tell it better
		return n
	}
	return max(n, r.wanted(rate))
}

// The small packets are small enough to tell one byte, and few enough for hosts to keep up with.
const (
	small      = 240 // bytes of IP
	middle     = 552
	third      = 264 // tells cells from plain bytes: 24 bytes more are one cell or none
	manyBits   = 300e6
	atmBits    = 30e6 // nobody has sold a faster line over ATM
	atmsuspect = 30.0 // bytes, what cells look like as plain overhead; below 0 they do, too, and nothing else does
)

// Sizes are the bounds that a Load may have for its packets.
func Sizes() []int { return []int{0, small, middle, third} }

// framed finds the framing, by datagrams where the peer counts them.
func (r *run) framed(ctx context.Context) (framing, error) {
	if r.countable() {
		f, ok, err := r.datagrams(ctx)
		if err != nil || ok {
			return f, err
		}
	}
	return r.frame(ctx)
}

// celled reports whether plain bytes may be cells on a link of a rate.
func (f framing) celled(rate float64) bool {
	return f.known && rate <= atmBits && (f.overhead >= atmsuspect || f.overhead < -3)
}

// frame fills the link with small packets, and compares.
func (r *run) frame(ctx context.Context) (framing, error) {
	rate := r.big.flow().counted(wire.EthernetHeader)
	if r.NoFraming || !r.filled(r.big) {
		return frame(r.big), nil
	}
	size := small
	if rate > manyBits {
		size = middle
	}
	r.begin(Small)
	length := clamp(30*r.idle.base, 3, 4)
	if rate < 10e6 {
		length = 3.6
	}
	p, err := r.fill(ctx, size, length)
	if err != nil || !r.filled(p) {
		return frame(r.big), err
	}
	f := frame(r.big, p)
	if !f.celled(rate) {
		return f, nil
	}
	q, err := r.fill(ctx, third, 2) // a cell more or less is seen at once
	if err != nil || !r.filled(q) {
		return f, err
	}
	return frame(r.big, p, q), nil
}

func (r *run) filled(p plateau) bool {
	return p.waits > r.idle.stands() || p.holds(r.idle) || p.lost > 0.005
}

func (r *run) fill(ctx context.Context, size int, length float64) (plateau, error) {
	l := Load{Connections: max(2, r.load.Connections), Segment: size}
	err := r.drain(ctx, r.big.flow().counted(wire.EthernetHeader))
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
		p := level(r.samples(), r.probes(), r.idle, l.Connections, a+0.3*(b-a), b)
		if r.stood(p) {
			return p, nil
		}
	}
	return plateau{}, nil
}

// stood reports whether a plateau has a queue, where large packets had one. Else what it lost may be the path's.
func (r *run) stood(p plateau) bool {
	return r.big.waits <= r.idle.stands() || p.waits > r.idle.stands() || p.holds(r.idle)
}

// pace lets the connections that there are send so much that all that this host sends has a rate, counted as a qdisc
// does.
func (r *run) pace(ctx context.Context, rate float64) error {
	size := float64(wire.EthernetMTU)
	if r.load.Segment > 0 {
		size = float64(r.load.Segment)
	}
	ours := math.Max(0.3*rate, rate-r.beside)
	return r.send(ctx, Load{Connections: r.load.Connections, Segment: r.load.Segment,
		Rate: ours * size / (size + wire.EthernetHeader)})
}

// heed is how often this host's other traffic is looked at while a rate is held, in seconds.
const heed = 0.2

// hold has all that this host sends keep a rate for a time, whatever its other traffic does meanwhile.
func (r *run) hold(ctx context.Context, rate, d float64) (a, b float64, err error) {
	a = r.now()
	for b = a; err == nil && b < a+d-heed/2; {
		if err = r.pace(ctx, rate); err == nil {
			if _, b, err = r.watch(ctx, math.Min(heed, a+d-b)); err == nil {
				r.beside = r.samples().between(b-2*heed, b).other().counted(wire.EthernetHeader)
			}
		}
	}
	return a, b, err
}

// left is the rate of what this host has sent, as a qdisc counts it.
func (r *run) left(a, b float64) float64 {
	part := r.samples().between(a, b)
	if device := part.slope(func(s Sample) float64 { return s.DeviceBytes }) * 8; device != 0 {
		return device
	}
	return part.slope(func(s Sample) float64 { return s.Payload + s.Headers + wire.EthernetHeader*s.Segments }) * 8
}

// begun holds a rate until all of it leaves, and no more of it is lost than the path may lose. New connections take
// some RTTs: they begin in bursts, and send less for a while after what these have lost. It looks once in a step, twice
// in a row: what the first step has lost is known in the second.
func (r *run) begun(ctx context.Context, rate float64, u below) error {
	const (
		patience = 10 // steps
		enough   = 2
		most     = (1 + whole) / 2
	)
	step := r.idle.base + heed
	_, b, err := r.hold(ctx, rate, step+heed)
	for k, good := 0, 0; err == nil && k < patience; k++ {
		good++
		if part := r.samples().between(b-step, b); r.left(b-step, b) < most*rate || part.lost() > u.allowed(part) {
			good = 0
		}
		if good == enough {
			break
		}
		_, b, err = r.hold(ctx, rate, step)
	}
	return err
}

// drain paces at half of a rate, and waits until the queue is gone.
func (r *run) drain(ctx context.Context, rate float64) error {
	if err := r.pace(ctx, 0.5*rate); err != nil {
		return err
	}
	return r.calm(ctx)
}

// calm waits until no queue stands, for some time at most.
func (r *run) calm(ctx context.Context) error {
	const (
		patience = 4.0 // s
		look     = 0.05
	)
	_, end, err := r.watch(ctx, r.idle.base+0.1)
	for end += patience; err == nil && r.now() < end; {
		now := r.now()
		_, rtt := answers(r.probes(), now-r.idle.base-0.2, now-r.idle.base)
		if len(rtt) > 0 && stats.QuantileAbove(rtt, 0.5) <= r.idle.base+r.idle.stands() {
			return nil
		}
		_, _, err = r.watch(ctx, look)
	}
	return err
}

// lower is the share of the rate below which the path alone loses.
const lower = 0.85

// below sends less than the rate, and counts what is lost then: that is the path's own.
func (r *run) below(ctx context.Context) (below, error) {
	r.begin(Below)
	rate := r.big.flow().counted(wire.EthernetHeader)
	if err := r.drain(ctx, rate); err != nil {
		return below{}, err
	}
	r.enlarge()
	const (
		crowded = 0.95 // share from which on a policer may drop
		patient = 3    // times that it is looked again
	)
	skip := 2*r.idle.base + 0.2
	long := 1.5
	if rate < 10e6 || r.big.lost > 0.003 && r.big.waits < r.idle.stands() {
		long = 2.2
	}
	if _, _, err := r.hold(ctx, lower*rate, skip); err != nil {
		return below{}, err
	}
	a, b, err := r.hold(ctx, lower*rate, long)
	for k := 0; err == nil && k < patient; k++ {
		if r.left(a, b) < crowded*rate && !falls(r.samples(), a, b) && !clusters(r.samples(), a, b) {
			break
		}
		a, b, err = r.hold(ctx, lower*rate, long)
	}
	if err != nil {
		return below{}, err
	}
	// At first the connections of before may still fill the link. What is lost then is not the path's.
	for k, quarter := 2., (b-a)/4; k > 0; k-- {
		if r.left(a+(k-1)*quarter, a+k*quarter) >= crowded*rate {
			a += k * quarter
			break
		}
	}
	return under(r.samples(), r.probes(), r.idle, a, b), nil
}

// enlarge has what is sent next be large packets again, of new connections.
func (r *run) enlarge() {
	if r.load.Segment > 0 {
		r.load = Load{Connections: int(clamp(float64(r.load.Connections), 2, 4))}
	}
}

// conclude puts together what the phases have shown.
func (r *run) conclude(f *framing, u below) *Result {
	*f = f.plausible()
	if u.waits < -0.002 { // a queue of this host's own traffic stood before the test
		r.big.waits -= u.waits
		r.big.depth -= u.waits
		r.big.bulk -= u.waits
		r.idle.base += u.waits
	}
	p := r.big
	drops := p.lost > u.lost+0.004
	res := &Result{Kind: kindOf(p, r.idle, u.lost), Loss: about(u.lost, u.off, Is), ATM: f.atm,
		Base:     about(r.idle.base, r.idle.noise/2, Is),
		Others:   about(p.beside.counted(wire.EthernetHeader), 0, Is),
		Overhead: about(f.overhead, f.off, Is)}
	res.Loss.Low = math.Max(0, res.Loss.Low)
	whole := *f
	if !f.known {
		res.Overhead = Value{Value: wire.EthernetHeader, Low: 0, High: maxOverhead, Sort: Unknown}
		whole.overhead = wire.EthernetHeader
	} else if f.atm {
		whole.overhead = f.likely
	} else {
		whole.overhead = math.Round(f.overhead) + 0 // never -0
		res.Overhead.Value = whole.overhead
	}
	defer func() { f.overhead = whole.overhead }()
	if u.lost > 0 {
		r.chance = r.chanced(u.lost, u.off)
	}
	rate, off := whole.counted(p)/(1-u.lost), p.off+r.chance
	r.divided = true
	if res.Kind == FIFO && !drops && u.lost > 0.002 {
		rate, off = r.sent(whole, p), p.off+0.001 // what is lost beyond the queue does not enter
		r.divided = false
	}
	if f.known && !f.atm && f.off > 0.5 { // else the whole byte is known
		off += f.off / (p.own.bytes/p.own.packets + whole.overhead)
	}
	res.Rate = about(rate, off*rate, Is)
	widen := func(least, most framing) {
		res.Rate.Low -= rate - rate*least.counted(p)/whole.counted(p)
		res.Rate.High += rate*most.counted(p)/whole.counted(p) - rate
	}
	if f.atm { // all that fit are right for packets of another size than these
		least, most := whole, whole
		least.overhead, most.overhead = math.Max(0, f.overhead-f.off), math.Floor(f.overhead+f.off)
		widen(least, most)
	}
	if !f.known && !r.NoFraming && res.Kind != Unsaturated { // what it may count makes the rate as uncertain
		widen(framing{}, framing{overhead: maxOverhead, atm: rate <= atmBits})
	}
	if res.Kind == Unsaturated || p.idles(r.idle) {
		res.Rate.Sort, res.Rate.High = AtLeast, math.Max(res.Rate.High, rate*p.top)
	}
	r.queue(res, rate, drops)
	if r.differ != "" {
		res.Notes = append(res.Notes, r.differ)
	}
	return res
}

// sent is the rate by what has left, less what the queue has grown by: a FIFO that drops nothing passes all of it.
func (r *run) sent(f framing, p plateau) float64 {
	part := r.samples().between(p.from, p.to)
	left := flow{part.slope(func(s Sample) float64 { return s.Segments }),
		part.slope(func(s Sample) float64 { return s.Payload + s.Headers })}
	at, rtt := answers(r.probes(), p.from, p.to-r.idle.base)
	p.own = left
	return f.counted(p) / (1 + stats.Fit(at, rtt).Slope)
}

// queue says how long the provider's queue is, and how much credit there was.
func (r *run) queue(res *Result, rate float64, drops bool) {
	p := r.big
	switch {
	case res.Kind != FIFO:
		res.Depth = Value{Sort: Unknown}
	case drops:
		res.Depth = about(p.depth, math.Max(0.001, r.idle.noise/2), Is)
	default:
		res.Depth = Value{Value: p.depth, Low: p.depth, Sort: AtLeast}
	}
	// A short credit is gone before a tenth of the windows. A policer's burst is none: it has no queue that it fills.
	short := res.Kind == FIFO && p.burst*8 > 0.15*rate
	if p.credit*8 > 0.15*rate && p.peak > above*rate || short {
		// What the first connection used before anybody counted is missing.
		res.Credit = Value{p.credit, p.credit, 2.5 * p.credit, AtLeast}
	} else {
		res.Credit = Value{0, 0, 0.15 * rate / 8, Is}
		res.Notes = append(res.Notes, fmt.Sprintf("A credit that lasts longer than the %.0f s of this test cannot be "+
			"seen: look again when the link has been busy for a while.", p.to))
	}
}

// Of the result's share that is to be sent, whole at least tries the link. As much above it is no try of that result.
const whole, most = 0.97, 1.03

// verify sends 99.75 % of the result for 2 s. The link must stay as if it were idle.
func (r *run) verify(ctx context.Context, res *Result, f framing, u below) error {
	const (
		long = 2.0  // s
		much = 0.05 // share of the rate from which on this host's own traffic can be too much
	)
	r.begin(Verifying)
	// The pacing counts as a qdisc does, with large packets.
	rate := res.Rate.Value
	size := r.big.own.bytes / r.big.own.packets
	counted := size + f.overhead
	if f.atm {
		counted = cells(size + f.overhead)
	}
	rate *= (size + wire.EthernetHeader) / counted
	if err := r.drain(ctx, rate); err != nil {
		return err
	}
	r.enlarge()
	if err := r.begun(ctx, share*rate, u); err != nil {
		return err
	}
	for again := maxTries - 1; ; again-- {
		a, b, err := r.hold(ctx, share*rate, long)
		if err != nil {
			return err
		}
		why := r.calmly(res, u, rate, a, b)
		// This host's own traffic is heeded some hundred ms late: what it does meanwhile can fill the link.
		if why != "" && again > 0 && r.beside > much*rate {
			continue
		}
		res.unverified(why)
		return nil
	}
}

// calmly says why the link was not calm while the share of a rate was sent; "" if it was.
func (r *run) calmly(res *Result, u below, rate, a, b float64) (why string) {
	part := r.samples().between(a, b)
	_, rtt := answers(r.probes(), a, b-r.idle.base)
	c := &res.Verified
	*c = Check{Sent: r.left(a, b) / (share * rate), Loss: part.lost()}
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
	case c.Sent < whole:
		return fmt.Sprintf("this host could send only %.1f %% of it", 100*c.Sent)
	case c.Sent > most:
		return fmt.Sprintf("this host sent %.1f %% of it", 100*c.Sent)
	case len(rtt) == 0:
		return "no probe was answered"
	case u.sent < tells:
		return "the path's own loss is not known: so slow a link carries too few packets"
	case r.differ != "":
		return "TCP and UDP were carried at different rates"
	case c.Loss > u.allowed(part):
		return fmt.Sprintf("%.2f %% of the packets were lost", 100*c.Loss)
	case c.Added > math.Max(math.Max(0.001, packets), r.idle.noise):
		return fmt.Sprintf("the median packet waited %.1f ms", 1e3*c.Added)
	}
	c.Calm = true
	if res.Kind == FIFO {
		n := math.Max(1, part.grown(func(s Sample) float64 { return s.Segments }))
		r.learn(res, u, c.Loss*n, n)
	}
	return ""
}

// chanced is half of the interval of the rate, where it was divided by a loss with such an interval: in the time in
// which the rate was taken, more or less than that was lost by chance.
func (r *run) chanced(lost, off float64) float64 {
	return math.Hypot(off, 2*math.Sqrt(lost/math.Max(1, r.big.own.packets*(r.big.to-r.big.from))))
}

// learn takes what was lost in a calm verification, too, for the path's loss: of few packets, few are lost. Where the
// provider has a queue, all of it is the path's.
func (r *run) learn(res *Result, u below, lost, sent float64) {
	lost, sent = lost+u.again, sent+u.sent
	if lost < 0.5 {
		return
	}
	p, off := lost/sent, 2*math.Sqrt(lost)/sent
	res.Loss = about(p, off, Is)
	res.Loss.Low = math.Max(0, res.Loss.Low)
	if !r.divided {
		return
	}
	off = r.chanced(p, off) - r.chance
	rate, by := &res.Rate, (1-u.lost)/(1-p)
	*rate = Value{rate.Value * by, by * (rate.Low - off*rate.Value), by * (rate.High + off*rate.Value), rate.Sort}
}

// unverified says what it means for the rate that the link was not calm.
func (res *Result) unverified(why string) {
	if why == "" {
		return
	}
	res.Rate.Sort = Left
	res.Notes = append(res.Notes, "The result could not be verified: with 99.75 % of it, "+why+". Somebody else uses "+
		"the link, or the rate changes. Do not take it for the rate without a second run.")
}
