// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"weir/internal/stats"
	"weir/internal/tcp"
)

// ResultVersion is that of a Result's JSON. It changes when a field changes its meaning or goes.
const ResultVersion = 1

// Result is what a measurement found. Times are in ms, speeds in Mbit/s of payload, shares 0 to 1.
type Result struct {
	Version   int        `json:"version"`
	Says      string     `json:"says"`
	Grade     Grade      `json:"grade,omitempty"` // of what a load adds in the median
	Target    string     `json:"target"`
	Time      time.Time  `json:"time"`
	Local     string     `json:"local"`
	Remote    string     `json:"remote"` // its host's name
	Probe     string     `json:"probe"`  // how it was asked: "udp", "https", "ssh" or "tcp"
	Interval  float64    `json:"interval"`
	Phases    []Phase    `json:"phases"`
	Paths     []Path     `json:"paths,omitempty"` // to the address that was used, and to one of the other family
	Hop       *Hop       `json:"hop,omitempty"`   // the first router on the way, where it is known
	Notes     []string   `json:"notes,omitempty"`
	Recording *Recording `json:"recording,omitempty"` // all samples
}

// Phase is what was found in one phase. Its first part, in which flows speed up, does not count.
type Phase struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"` // that count
	// above the idle phase's median; nil where there is too little to tell how sure it is
	Added *Added `json:"added,omitempty"`
	// payload that arrived, by direction
	Goodput map[string]stats.Estimate `json:"goodput,omitempty"`
	RTT     stats.Dist                `json:"rtt"`
	RPM     float64                   `json:"rpm,omitempty"`    // round trips a minute: how many such RTTs fit
	Jitter  *stats.Estimate           `json:"jitter,omitempty"` // mean deviation of the RTTs from their mean
	// one way, above the idle phase's median; only as true as the two clocks run alike
	Up       *stats.Dist    `json:"up,omitempty"`
	Down     *stats.Dist    `json:"down,omitempty"`
	Sent     int            `json:"sent"`
	Lost     int            `json:"lost"`
	LostUp   int            `json:"lost_up"`
	LostDown int            `json:"lost_down"`
	Loss     stats.Estimate `json:"loss"`
	Senders  []Sender       `json:"senders,omitempty"`
	Hop      *HopPhase      `json:"hop,omitempty"` // nil: too little is known of the first hop
}

// Added is a delay above that of the idle link.
type Added struct {
	P50 stats.Estimate `json:"p50"`
	P90 stats.Estimate `json:"p90"`
	P99 stats.Estimate `json:"p99"`
}

// Sender is what the senders of a direction know together.
type Sender struct {
	Direction     string     `json:"direction"`
	Flows         int        `json:"flows"`
	Ended         []string   `json:"ended,omitempty"` // why flows ended early
	Kernel        bool       `json:"kernel"`          // the sender's kernel told what follows
	CC            []string   `json:"cc,omitempty"`
	ECN           bool       `json:"ecn"`    // negotiated by all
	Marked        float64    `json:"marked"` // of the packets delivered
	RTT           stats.Dist `json:"rtt"`    // smoothed, by the sender's kernel
	MinRTT        float64    `json:"min_rtt"`
	RTTVar        float64    `json:"rttvar"`
	Retransmitted float64    `json:"retransmitted"` // of the bytes
	Limit         tcp.Limit  `json:"limit,omitempty"`
	Full          bool       `json:"full"` // the path was what limited them, so the link was full
}

// rampUp is what of a loaded phase does not count, in seconds; half of a phase that is shorter than twice that.
const rampUp = 2.0

// block is how long delays are taken to resemble each other, in seconds; a quarter of a phase that is shorter than four
// of them.
const block = 1.0

// Summarize makes a result of a recording. It is pure.
func Summarize(rec *Recording) Result {
	r := Result{Version: ResultVersion, Target: rec.Target, Time: rec.Time, Local: rec.Local, Remote: rec.Remote.Name,
		Probe: rec.Probe, Interval: rec.Interval, Notes: slices.Clone(rec.Notes), Recording: rec}
	var idle window
	var idleHop *HopPhase
	if rec.Hop != nil {
		r.Hop = &rec.Hop.Hop
	}
	for _, s := range rec.Spans {
		if s.To <= s.From {
			continue
		}
		ramp := 0.0
		if s.Name != Idle {
			ramp = min(rampUp, (s.To-s.From)/2)
		}
		w := windowOf(rec.Samples, s.From+ramp, s.To)
		hop := rec.Hop.look(s.From+ramp, s.To)
		if s.Name == Idle {
			idle, idleHop = w, hop
		}
		p := Phase{Name: s.Name, Seconds: s.To - s.From - ramp, RTT: stats.NewDist(w.rtt), Sent: w.sent, Lost: w.lost,
			LostUp: w.up, LostDown: w.down, Loss: stats.Ratio(w.lost, w.sent), Hop: hop}
		if p.RTT.Mean > 0 {
			p.RPM = math.Round(float64(time.Minute/time.Millisecond) / p.RTT.Mean)
		}
		p.delays(w, idle, rec.Interval)
		p.flows(s, ramp)
		if s.Name != Idle && !p.loaded() {
			p.Added = nil
			r.Notes = append(r.Notes, p.Name+": no data arrived, so nothing is known of this load.")
		}
		p.Hop.judge(idleHop, p.Added)
		r.Phases = append(r.Phases, p)
	}
	for _, p := range rec.Paths {
		r.Paths = append(r.Paths, p.judge())
	}
	r.Says, r.Grade = r.sentence(), r.grade()
	r.warn(rec)
	return r
}

// loaded reports whether data arrived.
func (p *Phase) loaded() bool {
	for _, g := range p.Goodput {
		if g.Value > 0 {
			return true
		}
	}
	return false
}

// Silent is the first load of which no data arrived; "" if there is none.
func (r Result) Silent() string {
	for _, p := range r.Phases {
		if p.Name != Idle && !p.loaded() {
			return p.Name
		}
	}
	return ""
}

// window is the samples of a phase.
type window struct {
	rtt, upward, downward []float64
	sent, lost, up, down  int
}

func windowOf(samples []Sample, from, to float64) (w window) {
	for _, s := range samples {
		if s.At < from || s.At >= to {
			continue
		}
		w.sent++
		if s.RTT >= 0 && !math.IsInf(s.RTT, 0) && !math.IsNaN(s.RTT) {
			w.rtt = append(w.rtt, s.RTT)
			w.upward, w.downward = append(w.upward, s.Up), append(w.downward, s.Down)
			continue
		}
		w.lost++
		switch s.Lost {
		case LostUp:
			w.up++
		case LostDown:
			w.down++
		}
	}
	return w
}

// delays compares a phase with the idle one.
func (p *Phase) delays(w, idle window, interval float64) {
	const enough = 50 // samples
	if interval <= 0 || len(idle.rtt) < enough || len(w.rtt) < enough {
		return
	}
	length := min(int(block*1000/interval), len(w.rtt)/4, len(idle.rtt)/4)
	if p.Name != Idle {
		figures := stats.Bootstrap([][]float64{w.rtt, idle.rtt}, length, func(s [][]float64) []float64 {
			loaded, base := slices.Clone(s[0]), stats.Quantile(s[1], 0.5)
			slices.Sort(loaded)
			return []float64{stats.Rank(loaded, 0.5) - base, stats.Rank(loaded, 0.9) - base,
				stats.Rank(loaded, 0.99) - base}
		})
		if figures != nil {
			base := stats.Quantile(idle.rtt, 0.5)
			for i := range figures { // no round trip takes less than nothing
				figures[i].Low = max(figures[i].Low, -base)
			}
			p.Added = &Added{figures[0], figures[1], figures[2]}
		}
	}
	if e := stats.Bootstrap([][]float64{w.rtt}, length, func(s [][]float64) []float64 {
		return []float64{stats.MeanDeviation(s[0])}
	}); e != nil {
		e[0].Low = max(e[0].Low, 0)
		p.Jitter = &e[0]
	}
	above := func(s, idle []float64) *stats.Dist {
		base := stats.Quantile(idle, 0.5)
		more := make([]float64, len(s))
		for i := range s {
			more[i] = s[i] - base
		}
		d := stats.NewDist(more)
		return &d
	}
	if slices.ContainsFunc(idle.upward, func(v float64) bool { return v != 0 }) && len(w.upward) > 0 {
		p.Up, p.Down = above(w.upward, idle.upward), above(w.downward, idle.downward)
	}
}

// Waits says how the load feels, and where packets wait: on which way if the probe can tell, and on which side of the
// first router.
func (r Result) Waits(p Phase) string {
	idle := r.Find(Idle)
	if p.Added == nil || idle == nil || p.RPM == 0 || idle.RPM == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f round trips a minute, %.0f when idle.", p.RPM, idle.RPM) + p.ways() + r.Hop.sentence(p.Hop)
}

// Here says that most of a wait is on the first hop, and that the other host cannot shorten it. It is empty where no
// load waits there.
func (r Result) Here() string {
	for _, p := range r.Phases {
		if p.Hop != nil && p.Hop.Queue == QueueHere {
			return strings.TrimSpace(r.Hop.sentence(p.Hop)) + " The other host cannot shorten that."
		}
	}
	return ""
}

// ways says on which way packets wait.
func (p *Phase) ways() string {
	const clear = 1.0 // ms: less is no queue to look for
	if p.Up == nil || p.Down == nil || p.Added.P50.Low < clear {
		return ""
	}
	there, back := max(p.Up.P50, 0), max(p.Down.P50, 0)
	switch most := 0.8 * (there + back); {
	case there > most:
		return " The queue stands on the way there."
	case back > most:
		return " The queue stands on the way back."
	}
	return fmt.Sprintf(" Queues stand both ways: %s ms on the way there, and %s ms on the way back.",
		Figure(there), Figure(back))
}

// flows sums up what the two ends saw: the receivers know what arrived, the senders why it was not more.
func (p *Phase) flows(s Span, ramp float64) {
	for _, direction := range []string{Download, Upload} {
		receivers, senders := s.Local, s.Far
		if direction == Upload {
			receivers, senders = s.Far, s.Local
		}
		receivers, senders = flowsOf(receivers, direction), flowsOf(senders, direction)
		if bins := binsOf(receivers, int(ramp/Step.Seconds()), completeSteps(receivers, s)); len(bins) > 0 {
			if p.Goodput == nil {
				p.Goodput = map[string]stats.Estimate{}
			}
			p.Goodput[direction] = goodput(bins)
		}
		if len(senders) > 0 {
			s := senderOf(direction, senders)
			for _, f := range receivers { // who ends a flow is not always who notices
				if f.Error != "" && !slices.Contains(s.Ended, f.Error) {
					s.Ended = append(s.Ended, f.Error)
				}
			}
			// Data was always under way, but there was none in store and no queue is seen: it could have been more.
			starved := !slices.ContainsFunc(senders, func(f Flow) bool { return !f.Starved })
			if s.Limit == tcp.Network && starved && p.Added != nil && p.Added.P50.Low < negligibleWait {
				s.Limit, s.Full = tcp.Application, false
			}
			// A sender that waits for a path on which nothing passes says the same as one that fills it.
			s.Full = s.Full && p.Goodput[direction].Value > 0
			p.Senders = append(p.Senders, s)
		}
	}
}

// arrived are the bins of a direction, as who receives it knows them.
func (s Span) arrived(direction string) []float64 {
	flows := s.Local
	if direction == Upload {
		flows = s.Far
	}
	return binsOf(flowsOf(flows, direction), 0, maxSteps)
}

// findFall finds the second of a load from which on it was slower: each second before is faster than all after it, with
// room to spare, for 2 s on both sides. The ramp does not count. Speeds are medians in Mbit/s.
func findFall(bins []float64) (before, after, at float64, ok bool) {
	const ramp, least, apart, less = int(rampUp), 2, 1.1, 1.25
	each := int(time.Second / Step)
	var seconds []float64
	for i := 0; i+each <= len(bins); i += each {
		sum := 0.0
		for _, n := range bins[i : i+each] {
			sum += n * 8 / 1e6
		}
		seconds = append(seconds, sum)
	}
	for k := ramp + least; k+least <= len(seconds); k++ {
		early, late := seconds[ramp:k], seconds[k:]
		if slices.Min(early) > apart*slices.Max(late) {
			before, after = stats.Quantile(early, 0.5), stats.Quantile(late, 0.5)
			return before, after, float64(k), before > less*after
		}
	}
	return 0, 0, 0, false
}

func flowsOf(flows []Flow, direction string) (all []Flow) {
	for _, f := range flows {
		if f.Direction == direction {
			all = append(all, f)
		}
	}
	return all
}

// completeSteps returns how many steps of a span all flows have. The last one or two may not have ended when the flows
// did; of a flow that lacks more than these nothing came.
func completeSteps(flows []Flow, s Span) int {
	const mayLack = 2
	steps := int((s.To - s.From) / Step.Seconds())
	all := steps
	for _, f := range flows {
		if n := len(f.Bins); n >= steps-mayLack {
			all = min(all, n)
		}
	}
	return all
}

// binsOf adds up the bins of flows that began at about the same time, without those before from and from to on.
func binsOf(flows []Flow, from, to int) (sums []float64) {
	for _, f := range flows {
		for i, n := range f.Bins[min(from, len(f.Bins)):min(max(to, from), len(f.Bins))] {
			if i == len(sums) {
				sums = append(sums, 0)
			}
			sums[i] += float64(n)
		}
	}
	return sums
}

// goodput is the mean of bins, in Mbit/s. Of less than 2 s nobody can say how sure it is: the interval has no end.
func goodput(bins []float64) stats.Estimate {
	mean := func(s [][]float64) []float64 {
		sum := 0.0
		for _, v := range s[0] {
			sum += v
		}
		return []float64{sum * 8 / 1e6 / (float64(len(s[0])) * Step.Seconds())}
	}
	if float64(len(bins))*Step.Seconds() >= 2 {
		e := stats.Bootstrap([][]float64{bins}, min(int(block/Step.Seconds()), len(bins)/4), mean)[0]
		e.Low = max(e.Low, 0) // a bootstrap does not know that less than nothing cannot arrive
		return e
	}
	v := mean([][]float64{bins})[0]
	return stats.Estimate{Value: v, Low: 0, High: math.MaxFloat32}
}

// senderOf is what senders know together.
func senderOf(direction string, flows []Flow) Sender {
	s := Sender{Direction: direction, Flows: len(flows), Kernel: true, ECN: true}
	var rtts []float64
	var all Flow
	for _, f := range flows {
		s.Kernel = s.Kernel && f.Kernel
		s.ECN = s.ECN && f.ECN
		if f.CC != "" && !slices.Contains(s.CC, f.CC) {
			s.CC = append(s.CC, f.CC)
		}
		if f.Error != "" && !slices.Contains(s.Ended, f.Error) {
			s.Ended = append(s.Ended, f.Error)
		}
		for _, us := range f.RTT {
			rtts = append(rtts, float64(us)/1000)
		}
		if least := float64(f.MinRTT) / 1000; least > 0 && (s.MinRTT == 0 || least < s.MinRTT) {
			s.MinRTT = least
		}
		s.RTTVar += float64(f.RTTVar) / 1000 / float64(len(flows))
		all.Sent, all.Again = all.Sent+f.Sent, all.Again+f.Again
		all.Delivered, all.CE = all.Delivered+f.Delivered, all.CE+f.CE
		all.Elapsed, all.Busy = all.Elapsed+f.Elapsed, all.Busy+f.Busy
		all.Receiver, all.Buffer = all.Receiver+f.Receiver, all.Buffer+f.Buffer
	}
	s.RTT = stats.NewDist(rtts)
	s.Retransmitted = share(all.Again, all.Sent)
	s.Marked = share(all.CE, all.Delivered)
	if s.Kernel {
		us := func(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
		s.Limit = tcp.LimitOf(us(all.Elapsed), us(all.Busy), us(all.Receiver), us(all.Buffer))
		s.Full = s.Limit == tcp.Network
	}
	return s
}

func share(part, whole int64) float64 {
	if whole <= 0 || part <= 0 {
		return 0
	}
	return min(float64(part)/float64(whole), 1)
}

// Find is the phase of a name; nil if there was none.
func (r Result) Find(name string) *Phase {
	for i := range r.Phases {
		if r.Phases[i].Name == name {
			return &r.Phases[i]
		}
	}
	return nil
}

// subject is how a sentence names the load.
func subject(phase string) string {
	return map[string]string{Download: "Downloads add", Upload: "Uploads add",
		Both: "Downloads and uploads together add"}[phase]
}

// sentence is the result in a sentence: of the phase that makes others wait the longest.
func (r Result) sentence() string {
	worst := r.worst()
	idle := r.Find(Idle)
	switch {
	case worst != nil && worst.Added.P50.Value < negligibleWait && worst.Added.P99.Value < 2*negligibleWait:
		return fmt.Sprintf("Neither downloads nor uploads make anything else wait (less than %.0f ms).",
			max(math.Ceil(worst.Added.P99.Value), 1))
	case worst != nil && worst.Added.P50.Value < negligibleWait:
		return fmt.Sprintf("%s less than %d ms to everything else in the median, and %s ms at p99.",
			subject(worst.Name), negligibleWait, Figure(worst.Added.P99.Value))
	case worst != nil:
		return fmt.Sprintf("%s %s ms to everything else.", subject(worst.Name), Figure(max(worst.Added.P50.Value, 0)))
	case idle != nil && idle.RTT.N > 0 && slices.ContainsFunc(r.Phases, func(p Phase) bool { return p.loaded() }):
		return fmt.Sprintf("The idle round trip is %s ms. Under load there were too few probes to say more.",
			Figure(idle.RTT.P50))
	case idle != nil && idle.RTT.N > 0:
		return fmt.Sprintf("The idle round trip is %s ms. There was too little load to say more.", Figure(idle.RTT.P50))
	}
	return "No probe was answered."
}

// worst is the phase that adds most: the highest median, and of such that nobody notices the first. It is nil where
// nothing is known.
func (r Result) worst() (worst *Phase) {
	for i, p := range r.Phases {
		if p.Added != nil && (worst == nil || p.Added.P50.Value > worst.Added.P50.Value) {
			worst = &r.Phases[i]
		}
	}
	return worst
}

// Grade judges a wait for people who do not know what is usual; "" where nothing is known. The bounds are those between
// A and B, and between C and D, of the bufferbloat test at dslreports.com, which others have taken over: 30 and 200 ms.
type Grade string

const (
	good Grade = "good"
	fair Grade = "fair"
	bad  Grade = "bad"
)

func (r Result) grade() Grade {
	switch worst := r.worst(); {
	case worst == nil:
		return ""
	case worst.Added.P50.Value < 30:
		return good
	case worst.Added.P50.Value < 200:
		return fair
	}
	return bad
}

// Says is the grade in a sentence, to a person.
func (g Grade) Says() string {
	return map[Grade]string{
		good: "That is good: a wait below 30 ms is hardly noticed.",
		fair: "That is fair: from 30 ms on, games and calls suffer.",
		bad:  "That is bad: from 200 ms on, calls falter and typing lags.",
	}[g]
}

// negligibleWait is a wait that nobody notices, in ms.
const negligibleWait = 5

// Figure writes a number with three digits, as far as they are known.
func Figure(v float64) string {
	switch a := math.Abs(v); {
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// Ranged writes a figure with what is not known of it.
func Ranged(e stats.Estimate) string {
	if e.High > 1e30 {
		return Figure(e.Value)
	}
	return fmt.Sprintf("%s (%s–%s)", Figure(e.Value), Figure(e.Low), Figure(e.High))
}

// paced reports whether a direction had all of the rate that the server allows.
func (p Phase) paced(direction string, rec *Recording) bool {
	return rec.Remote.Rate > 0 && p.Goodput[direction].Value > 0.9*float64(rec.Remote.Rate)/1e6
}

// warn adds what makes a figure less than it seems.
func (r *Result) warn(rec *Recording) {
	const enough = 50 // probes: fewer, which go out at random times, can well be a fifth less
	for _, p := range r.Phases {
		note := func(format string, args ...any) {
			r.Notes = append(r.Notes, p.Name+": "+fmt.Sprintf(format, args...))
		}
		dead := p.Name != Idle && !p.loaded() // then this host's part in it cannot be told
		if due := p.Seconds * 1000 / max(rec.Interval, 1); !dead && due >= enough && float64(p.Sent) < 0.8*due {
			note("only %d of %.0f probes were sent. This host is busy, and its waits are in the figures.", p.Sent, due)
		}
		for _, s := range p.Senders {
			who := map[string]string{Download: "the server", Upload: "this host"}[s.Direction]
			if len(s.Ended) > 0 {
				note("flows ended early (%s).", s.Ended[0])
			}
			switch {
			case !s.Kernel && rec.browser && s.Direction == Upload:
				note("a browser cannot tell whether the link was full.")
			case !s.Kernel:
				note("the kernel of %s does not say whether the link was full.", who)
			case p.paced(s.Direction, rec): // which is said below
			case !s.Full && s.Limit != tcp.NoLimit && p.Goodput[s.Direction].Value > 0:
				note("the link was not full: %s limited %s.%s", limitWords(s.Limit), who, rec.cipher(s.Limit))
			}
		}
		for _, s := range rec.Spans {
			if s.Name != p.Name {
				continue
			}
			for i, more := range s.otherTraffic() {
				if more > 0 && !dead {
					note("at least %s Mbit/s of other traffic %s by %s. It is part of every delay.", Figure(more),
						[]string{"came in", "went out"}[i], s.Passed.Device)
				}
			}
			if p.Name == Idle {
				continue
			}
			for _, direction := range []string{Download, Upload} {
				held := slices.ContainsFunc(p.Senders, func(s Sender) bool { // by something at an end
					return s.Direction == direction && s.Kernel && !s.Full
				})
				if before, after, at, ok := findFall(s.arrived(direction)); ok && !held {
					note("%ss fell from %s to %s Mbit/s after %.0f s, and stayed there. The provider lets a burst "+
						"pass before it enforces its rate, or somebody else came.", direction, Figure(before),
						Figure(after), at)
				}
			}
		}
		for direction := range p.Goodput {
			if p.paced(direction, rec) {
				note("the server's own limit of %s Mbit/s was reached.", Figure(float64(rec.Remote.Rate)/1e6))
			}
		}
	}
}

// cipher says what to try where a program was too slow that has to encrypt.
func (rec *Recording) cipher(l tcp.Limit) string {
	if l != tcp.Application || !rec.Remote.Plain || rec.Plain {
		return ""
	}
	return " Most of its work is TLS, and --plain does without."
}

func limitWords(l tcp.Limit) string {
	return map[tcp.Limit]string{tcp.Application: "its program", tcp.Receiver: "the receiver's window",
		tcp.SendBuffer: "its send buffer"}[l]
}
