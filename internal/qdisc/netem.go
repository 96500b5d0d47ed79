// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"weir/internal/units"

	"github.com/mdlayher/netlink"
)

// The attributes of netem (TCA_NETEM_*, include/uapi/linux/pkt_sched.h). They follow a bare struct tc_netem_qopt.
const (
	netemCorrelation = iota + 1
	netemDistribution
	netemReorder
	netemCorrupt
	netemLoss
	netemRate
	netemECN
	netemRate64
	netemPad
	netemLatency64
	netemJitter64
	netemSlot
	netemSlotDistribution
	netemSeed
)

const netemLossGE = 2 // NETEM_LOSS_GE, within netemLoss

// netemSpec delays, loses, duplicates, corrupts and reorders packets on purpose (net/sched/sch_netem.c, tc-netem(8)).
// The kernel does not report a delay distribution, so none is offered here. It keeps shares as 32 bits; each
// correlation is that with the previous packet.
type netemSpec struct {
	Limit                uint32         `json:"limit"`                 // packets, 1 and up; default 1000
	Delay                units.Duration `json:"delay"`                 // added to each packet
	Jitter               units.Duration `json:"jitter"`                // by which the delay varies, up to 2.147483647s
	DelayCorrelation     units.Share    `json:"delay_correlation"`     //
	Loss                 units.Share    `json:"loss"`                  // lost at random
	LossCorrelation      units.Share    `json:"loss_correlation"`      //
	Gilbert              gilbertModel   `json:"gemodel"`               // lost in bursts, instead
	ECN                  bool           `json:"ecn"`                   // mark instead of losing
	Duplicate            units.Share    `json:"duplicate"`             //
	DuplicateCorrelation units.Share    `json:"duplicate_correlation"` //
	Corrupt              units.Share    `json:"corrupt"`               // one bit wrong
	CorruptCorrelation   units.Share    `json:"corrupt_correlation"`   //
	Reorder              units.Share    `json:"reorder"`               // sent at once, past the delayed ones
	ReorderCorrelation   units.Share    `json:"reorder_correlation"`   //
	// only each gap-th packet is reordered; at least 1 with reorder
	Gap  uint32     `json:"gap"`
	Rate units.Rate `json:"rate"` // 0: unlimited
	// bytes added to each packet when the rate is applied
	PacketOverhead int32  `json:"packet_overhead"`
	CellSize       uint32 `json:"cell_size"`     // bytes per cell; 0: no cells
	CellOverhead   int32  `json:"cell_overhead"` // bytes added to each cell
	// of the random numbers; 0: the kernel picks one, and reports it
	Seed uint64 `json:"seed"`
}

// Unseeded is a Spec without the seed of its random numbers: where nobody chose one it is the kernel's, and tells
// nothing of what the discipline does.
func Unseeded(s Spec) Spec {
	if q, is := s.(netemSpec); is {
		q.Seed = 0
		return q
	}
	return s
}

// gilbertModel is the loss model of Gilbert and Elliott: a good and a bad state, each with a loss of its own. The zero
// value is none.
type gilbertModel struct {
	P    units.Share `json:"p"`   // from good to bad
	R    units.Share `json:"r"`   // from bad to good
	Bad  units.Share `json:"1-h"` // lost while bad
	Good units.Share `json:"1-k"` // lost while good
}

func newNetem() *netemSpec { return &netemSpec{Limit: 1000} }

func (q netemSpec) Kind() string   { return "netem" }
func (q netemSpec) String() string { return format(q) }
func (q netemSpec) edit() editor   { return &q }

// The kernel's shares: 0 to 4294967295 for 0 to 1, rounded half to even as tc does.
func toShare(v uint32) units.Share   { return units.Share(float64(v) / math.MaxUint32) }
func fromShare(s units.Share) uint32 { return uint32(math.RoundToEven(float64(s) * math.MaxUint32)) }

func (q *netemSpec) options() []option {
	return []option{
		count("limit", 0, 4, &q.Limit, 1, math.MaxUint32),
		{
			words: []string{"delay", "latency"},
			read: func(_ string, a *args) error {
				return values(a, duration(&q.Delay), duration(&q.Jitter), share(&q.DelayCorrelation))
			},
			write: func() string {
				return said("delay", q.Delay == 0 && q.Jitter == 0, 1, q.Delay, q.Jitter, q.DelayCorrelation)
			},
		},
		{
			words: []string{"loss", "drop"},
			read:  q.readLoss,
			write: func() string {
				if q.Gilbert != (gilbertModel{}) {
					return fmt.Sprintf("loss gemodel %s %s %s %s", q.Gilbert.P, q.Gilbert.R, q.Gilbert.Bad,
						q.Gilbert.Good)
				}
				return said("loss random", q.Loss == 0, 1, q.Loss, q.LossCorrelation)
			},
		},
		{
			words: []string{"ecn"},
			read:  func(string, *args) error { q.ECN = true; return nil },
			write: func() string { return said("ecn", !q.ECN, 0) },
		},
		q.shares("duplicate", &q.Duplicate, &q.DuplicateCorrelation),
		q.shares("corrupt", &q.Corrupt, &q.CorruptCorrelation),
		q.shares("reorder", &q.Reorder, &q.ReorderCorrelation),
		auto(count("gap", 0, 4, &q.Gap, 1, math.MaxUint32), &q.Gap),
		{
			words: []string{"rate"},
			read: func(_ string, a *args) error {
				var cell int32
				err := values(a, func(s string) error {
					v, err := readRate(8)(s)
					q.Rate = units.Rate(v * 8)
					return err
				}, signed(&q.PacketOverhead), signed(&cell), signed(&q.CellOverhead))
				if cell < 0 {
					return fmt.Errorf("a cell size of %d is negative", cell)
				}
				q.CellSize = uint32(cell)
				return err
			},
			write: func() string {
				return said("rate", q.Rate == 0, 1, q.Rate, q.PacketOverhead, q.CellSize, q.CellOverhead)
			},
		},
		auto(count("seed", 0, 8, &q.Seed, 1, math.MaxUint64), &q.Seed),
	}
}

// said writes a word and its values; those at the end that are zero are left out, down to the first few.
func said(word string, absent bool, least int, values ...any) string {
	if absent {
		return ""
	}
	texts := make([]string, len(values))
	last := least
	for i, v := range values {
		texts[i] = fmt.Sprint(v)
		if !slices.Contains([]string{"0", "0s", "0%"}, texts[i]) {
			last = max(last, i+1)
		}
	}
	for _, text := range texts[:last] {
		word += " " + text
	}
	return word
}

// values reads a first value, which must be there, and as many of the others as look like numbers.
func values(a *args, reads ...func(string) error) error {
	for i, read := range reads {
		negative := len(a.words) > 0 && len(a.words[0]) > 1 && a.words[0][0] == '-'
		if i > 0 && !a.number() && !negative {
			return nil
		}
		word, err := a.next()
		if err != nil {
			return err
		}
		if err := read(word); err != nil {
			return err
		}
	}
	return nil
}

func duration(p *units.Duration) func(string) error {
	return func(s string) error {
		d, err := parseDuration(s)
		*p = units.Duration(d)
		return err
	}
}

func share(p *units.Share) func(string) error {
	return func(s string) error {
		v, err := parseShare(s)
		// 70% is 0.7 to tc, the nearest there is, on which the last of the 32 bits hangs.
		*p = units.Share(math.Round(float64(v)*1e12) / 1e12)
		return err
	}
}

func signed(p *int32) func(string) error {
	return func(s string) error {
		v, err := strconv.ParseInt(s, 10, 32)
		if err != nil {
			return fmt.Errorf("%q is not a whole number", s)
		}
		if err := noOctal(s, s); err != nil {
			return err
		}
		*p = int32(v)
		return nil
	}
}

func (q *netemSpec) shares(word string, p, correlation *units.Share) option {
	return option{
		words: []string{word},
		read:  func(_ string, a *args) error { return values(a, share(p), share(correlation)) },
		write: func() string { return said(word, *p == 0 && *correlation == 0, 1, *p, *correlation) },
	}
}

func (q *netemSpec) readLoss(_ string, a *args) error {
	if a.number() { // tc's older form has no model's name
		return values(a, share(&q.Loss), share(&q.LossCorrelation))
	}
	model, err := a.next()
	if err != nil {
		return err
	}
	if err := oneOf("loss model", model, "random", "gemodel"); err != nil {
		return err
	}
	if model == "random" {
		return values(a, share(&q.Loss), share(&q.LossCorrelation))
	}
	g := gilbertModel{Bad: 1, R: -1}
	if err := values(a, share(&g.P), share(&g.R), share(&g.Bad), share(&g.Good)); err != nil {
		return err
	}
	if g.R < 0 {
		g.R = 1 - g.P
	}
	q.Gilbert = g
	return nil
}

// encode sends the struct and what differs from base; the kernel forgets a delay and a loss model that are not said
// again.
func (q netemSpec) encode(base Spec) ([]byte, error) {
	before, _ := base.(netemSpec)
	var b []byte
	// the times travel below
	for _, v := range []uint32{0, q.Limit, fromShare(q.Loss), q.Gap, fromShare(q.Duplicate), 0} {
		b = append(b, u32bytes(v)...)
	}
	var attributes []netlink.Attribute
	send := func(needed bool, attr uint16, data ...[]byte) {
		if needed {
			attributes = append(attributes, netlink.Attribute{Type: attr, Data: slices.Concat(data...)})
		}
	}
	wire := func(s units.Share) []byte { return u32bytes(fromShare(s)) }
	send(q.Delay != 0, netemLatency64, u64bytes(uint64(q.Delay)))
	send(q.Jitter != 0, netemJitter64, u64bytes(uint64(q.Jitter)))
	send(q.DelayCorrelation != before.DelayCorrelation || q.LossCorrelation != before.LossCorrelation ||
		q.DuplicateCorrelation != before.DuplicateCorrelation, netemCorrelation,
		wire(q.DelayCorrelation), wire(q.LossCorrelation), wire(q.DuplicateCorrelation))
	// A gap alone means that all are reordered, so the share goes with it.
	send(q.Reorder != before.Reorder || q.ReorderCorrelation != before.ReorderCorrelation || q.Gap != 0, netemReorder,
		wire(q.Reorder), wire(q.ReorderCorrelation))
	ecn := uint32(0)
	if q.ECN {
		ecn = 1
	}
	send(q.ECN != before.ECN, netemECN, u32bytes(ecn))
	send(q.Corrupt != before.Corrupt || q.CorruptCorrelation != before.CorruptCorrelation, netemCorrupt,
		wire(q.Corrupt), wire(q.CorruptCorrelation))
	if g := q.Gilbert; g != (gilbertModel{}) {
		model, err := netlink.MarshalAttributes([]netlink.Attribute{{Type: netemLossGE,
			Data: slices.Concat(wire(g.P), wire(g.R), u32bytes(math.MaxUint32-fromShare(g.Bad)), wire(g.Good))}})
		if err != nil {
			return nil, err
		}
		send(true, netemLoss|netlink.Nested, model)
	}
	rate := uint64(q.Rate / 8)
	changed := q.Rate != before.Rate || q.PacketOverhead != before.PacketOverhead || q.CellSize != before.CellSize ||
		q.CellOverhead != before.CellOverhead
	send(changed && rate > math.MaxUint32, netemRate64, u64bytes(rate))
	send(changed, netemRate, u32bytes(uint32(min(rate, math.MaxUint32))), u32bytes(uint32(q.PacketOverhead)),
		u32bytes(q.CellSize),
		u32bytes(uint32(q.CellOverhead)))
	send(q.Seed != 0 && q.Seed != before.Seed, netemSeed, u64bytes(q.Seed))
	rest, err := netlink.MarshalAttributes(attributes)
	return append(b, rest...), err
}

const netemLen = 24 // struct tc_netem_qopt

func (q *netemSpec) decode(b []byte, _ device) error {
	if len(b) < netemLen {
		return errors.New("struct tc_netem_qopt is too short")
	}
	word := func(b []byte, i int) uint32 { return binary.NativeEndian.Uint32(b[4*i:]) }
	q.Delay, q.Jitter = units.Duration(uint64(word(b, 0))*64), units.Duration(uint64(word(b, 5))*64) // ticks of 64 ns
	q.Limit, q.Gap = word(b, 1), word(b, 3)
	q.Loss, q.Duplicate = toShare(word(b, 2)), toShare(word(b, 4))
	attributes, err := unpack(b[netemLen:])
	if err != nil {
		return err
	}
	lengths := map[uint16]int{netemCorrelation: 12, netemReorder: 8, netemCorrupt: 8, netemRate: 16, netemECN: 4,
		netemRate64:    8,
		netemLatency64: 8, netemJitter64: 8, netemSeed: 8}
	var rate64 uint64
	for _, a := range attributes {
		b := a.Data
		if n, fixed := lengths[a.Type]; fixed && len(b) != n {
			return fmt.Errorf("attribute %d is %d bytes long", a.Type, len(b))
		}
		switch a.Type {
		case netemCorrelation:
			q.DelayCorrelation, q.LossCorrelation, q.DuplicateCorrelation = toShare(word(b, 0)), toShare(word(b, 1)),
				toShare(word(b, 2))
		case netemReorder:
			q.Reorder, q.ReorderCorrelation = toShare(word(b, 0)), toShare(word(b, 1))
		case netemCorrupt:
			q.Corrupt, q.CorruptCorrelation = toShare(word(b, 0)), toShare(word(b, 1))
		case netemRate:
			q.Rate, q.PacketOverhead = units.Rate(uint64(word(b, 0))*8), int32(word(b, 1))
			q.CellSize, q.CellOverhead = word(b, 2), int32(word(b, 3))
		case netemECN:
			q.ECN = word(b, 0) != 0
		case netemRate64:
			rate64 = binary.NativeEndian.Uint64(b)
		case netemLatency64:
			q.Delay = units.Duration(binary.NativeEndian.Uint64(b))
		case netemJitter64:
			q.Jitter = units.Duration(binary.NativeEndian.Uint64(b))
		case netemSeed:
			q.Seed = binary.NativeEndian.Uint64(b)
		case netemLoss:
			if err := q.decodeLoss(b); err != nil {
				return err
			}
		case netemSlot:
			return errors.New("slots have no words here")
		}
	}
	if rate64 > 0 {
		q.Rate = units.Rate(min(rate64, math.MaxUint64/8) * 8)
	}
	return nil
}

func (q *netemSpec) decodeLoss(b []byte) error {
	models, err := unpack(b)
	if err != nil {
		return err
	}
	for _, m := range models {
		if m.Type != netemLossGE || len(m.Data) != 16 {
			return errors.New("this loss model has no words here")
		}
		v := func(i int) uint32 { return binary.NativeEndian.Uint32(m.Data[4*i:]) }
		q.Gilbert = gilbertModel{toShare(v(0)), toShare(v(1)), toShare(math.MaxUint32 - v(2)), toShare(v(3))}
	}
	return nil
}

func (q *netemSpec) finish() (Spec, error) {
	for _, s := range []*units.Share{&q.DelayCorrelation, &q.Loss, &q.LossCorrelation, &q.Gilbert.P, &q.Gilbert.R,
		&q.Gilbert.Bad, &q.Gilbert.Good,
		&q.Duplicate, &q.DuplicateCorrelation, &q.Corrupt, &q.CorruptCorrelation, &q.Reorder, &q.ReorderCorrelation} {
		if !(*s >= 0 && *s <= 1) {
			return nil, errors.New("shares go from 0% to 100%")
		}
		*s = toShare(fromShare(*s))
	}
	q.Rate -= q.Rate % 8
	if q.Reorder > 0 && q.Gap == 0 {
		q.Gap = 1
	}
	switch {
	case q.Delay < 0 || q.Jitter < 0:
		return nil, errors.New("delay and jitter cannot be negative")
	case q.Jitter > math.MaxInt32:
		return nil, fmt.Errorf("jitter %s is out of range (0s to 2.147483647s)", q.Jitter)
	case q.DelayCorrelation > 0 && q.Jitter == 0 || q.LossCorrelation > 0 && q.Loss == 0:
		return nil, errors.New("a correlation needs a jitter, or a loss, that is above zero")
	case q.Limit == 0:
		return nil, errors.New("a limit of 0 packets loses all")
	case q.Reorder > 0 && q.Delay == 0:
		return nil, errors.New("reorder needs a delay that the packets can overtake")
	case q.Reorder == 0 && q.Gap > 0:
		return nil, errors.New("gap needs reorder")
	case q.ECN && q.Loss == 0 && q.Gilbert == (gilbertModel{}):
		return nil, errors.New("ecn needs a loss")
	case q.Loss > 0 && q.Gilbert != (gilbertModel{}):
		return nil, errors.New("there is one loss model at a time")
	case q.Rate == 0 && (q.PacketOverhead != 0 || q.CellSize != 0 || q.CellOverhead != 0):
		return nil, errors.New("overheads and cells need a rate")
	}
	return *q, nil
}

// alike compares as == does, but for a seed that one side leaves to the kernel.
func (q netemSpec) alike(other Spec) bool {
	o, ok := other.(netemSpec)
	if ok && (q.Seed == 0 || o.Seed == 0) {
		q.Seed, o.Seed = 0, 0
	}
	return ok && q == o
}

// netemRestorable returns why a netem would not come back as it was: the kernel reports that times vary, but not how
// they are distributed. Without a table they are so evenly; whether there is one, nothing tells.
func netemRestorable(options []byte) error {
	if len(options) < netemLen {
		return errors.New("struct tc_netem_qopt is too short")
	}
	const jitter, slotLen, slotJitter = 20, 40, 32 // offsets in struct tc_netem_qopt, in struct tc_netem_slot
	varies := binary.NativeEndian.Uint32(options[jitter:]) != 0
	attributes, err := unpack(options[netemLen:])
	for _, a := range attributes {
		switch {
		case a.Type == netemJitter64 && len(a.Data) == 8:
			varies = varies || binary.NativeEndian.Uint64(a.Data) != 0
		case a.Type == netemSlot && len(a.Data) == slotLen:
			varies = varies || binary.NativeEndian.Uint64(a.Data[slotJitter:]) != 0
		}
	}
	if err == nil && varies {
		err = errors.New("its delay varies, and the kernel does not report by which distribution")
	}
	return err
}

// netemStats are netem's (struct tc_netem_xstats); older kernels keep none.
type netemStats struct {
	Delayed    uint64 `json:"delayed"`    // packets
	Dropped    uint64 `json:"dropped"`    // packets, by the loss model
	Corrupted  uint64 `json:"corrupted"`  // packets
	Duplicated uint64 `json:"duplicated"` // packets
	Reordered  uint64 `json:"reordered"`  // packets
	ECNMarks   uint64 `json:"ecn_marks"`  // packets
}

func readNetemStats(s *Stats, b []byte) error {
	f := &fields{b}
	x := netemStats{f.u64(), f.u64(), f.u64(), f.u64(), f.u64(), f.u64()}
	s.Marks, s.X = x.ECNMarks, x
	return nil
}
