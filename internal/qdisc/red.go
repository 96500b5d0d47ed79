// SPDX-License-Identifier: Apache-2.0

package qdisc

// redStats are red's (struct tc_red_xstats).
type redStats struct {
	Early  uint32 `json:"early"`  // packets dropped by the AQM
	Full   uint32 `json:"full"`   // packets dropped at the limit
	Other  uint32 `json:"other"`  // packets
	Marked uint32 `json:"marked"` // packets
}

func readREDStats(s *Stats, b []byte) error {
	f := &fields{b}
	x := redStats{f.u32(), f.u32(), f.u32(), f.u32()}
	s.Marks, s.X = uint64(x.Marked), x
	return nil
}
