// SPDX-License-Identifier: Apache-2.0

package qdisc

// pieStats are pie's (struct tc_pie_xstats).
type pieStats struct {
	Probability float64 `json:"probability"` // 0 to 1
	Delay       uint32  `json:"delay_us"`    // us
	Packets     uint32  `json:"packets"`     // enqueued
	Dropped     uint32  `json:"dropped"`     // packets, by the AQM
	Overlimit   uint32  `json:"overlimit"`   // packets dropped at the limit
	MaxQueue    uint32  `json:"max_queue"`   // packets
	ECNMarks    uint32  `json:"ecn_marks"`   // packets
}

func readPIEStats(s *Stats, b []byte) error {
	f := &fields{b}
	// The kernel keeps the probability in 56 bits and reports it in 64 (net/sched/sch_pie.c, pie_dump_stats).
	x := pieStats{Probability: float64(f.u64()) / (1 << 64), Delay: f.u32()}
	f.u32() // avg_dq_rate and dq_rate_estimating belong to an estimator that is off
	f.u32()
	x.Packets, x.Dropped, x.Overlimit, x.MaxQueue, x.ECNMarks = f.u32(), f.u32(), f.u32(), f.u32(), f.u32()
	s.Marks, s.Overflows, s.X = uint64(x.ECNMarks), uint64(x.Overlimit), x
	return nil
}

// readFQPIEStats reads the marks alone (struct tc_fq_pie_xstats).
func readFQPIEStats(s *Stats, b []byte) error {
	const before = 16 // bytes
	f := &fields{b[min(before, len(b)):]}
	s.Marks = uint64(f.u32())
	return nil
}
