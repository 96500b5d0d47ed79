// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"encoding/binary"

	"weir/internal/units"
)

// Rate is what a discipline enforces, in bit/s; 0 if it is no shaper, or has no rate. Of mqprio it is what its hardware
// lets the traffic class have that packets without a priority are in.
func (q Qdisc) Rate() units.Rate {
	switch {
	case q.Spec != nil:
		return Rate(q.Spec)
	case q.Kind == "cbs":
		return idleSlope(q.Options)
	case q.Kind == "mqprio":
		return mostOfClass(q.Options)
	}
	return 0
}

// idleSlope reads a struct tc_cbs_qopt (include/uapi/linux/pkt_sched.h), whose rates are in kbit/s.
func idleSlope(options []byte) units.Rate {
	const parms, slope, whole = 1, 12, 20 // TCA_CBS_PARMS, and bytes in it
	b := inner(options, parms)
	if len(b) < whole {
		return 0
	}
	return 1000 * units.Rate(max(int32(binary.NativeEndian.Uint32(b[slope:])), 0))
}

// mostOfClass reads a struct tc_mqprio_qopt and the attributes behind it, whose rates are in bytes per second and in
// the order of the traffic classes.
func mostOfClass(options []byte) units.Rate {
	const (
		classOfNone = 1  // the byte of priority 0 in prio_tc_map
		header      = 84 // bytes, with padding
		rates       = 4  // TCA_MQPRIO_MAX_RATE64, around all and each
	)
	if len(options) < header {
		return 0
	}
	class := int(options[classOfNone])
	list, _ := unpack(inner(options[header:], rates))
	if class >= len(list) || len(list[class].Data) != 8 {
		return 0
	}
	return units.Rate(8 * binary.NativeEndian.Uint64(list[class].Data))
}
