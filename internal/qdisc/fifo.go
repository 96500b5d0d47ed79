// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"weir/internal/units"
)

// fifoSpec is a queue without any management: pfifo counts packets, bfifo bytes (net/sched/sch_fifo.c, tc-bfifo(8)).
type fifoSpec struct {
	Bytes bool `json:"bytes"` // bfifo
	// packets or bytes, 1 and up; 0: the device's queue length, times its largest packet for bytes
	Limit uint32 `json:"limit"`
}

func (f fifoSpec) Kind() string {
	if f.Bytes {
		return "bfifo"
	}
	return "pfifo"
}
func (f fifoSpec) String() string { return format(f) }
func (f fifoSpec) edit() editor   { return &f }

func (f fifoSpec) encode(base Spec) ([]byte, error) {
	if f == base {
		return nil, nil
	}
	if f.Limit == 0 {
		return nil, fmt.Errorf("limit cannot be put back to the kernel's own choice in place: replace the discipline")
	}
	return u32bytes(f.Limit), nil // struct tc_fifo_qopt, bare
}

func (f *fifoSpec) options() []option {
	if f.Bytes {
		return []option{auto(value("limit", 0, 4,
			func(s string) (uint64, error) {
				if _, err := strconv.ParseUint(s, 10, 64); err == nil {
					return whole(s, "", 1, math.MaxUint32)
				}
				return readSize(1)(s)
			},
			func(v uint64) string { return units.Size(v).String() },
			func() uint64 { return uint64(f.Limit) }, func(v uint64) { f.Limit = uint32(v) }), &f.Limit)}
	}
	return []option{auto(count("limit", 0, 4, &f.Limit, 1, math.MaxUint32), &f.Limit)}
}

func (f *fifoSpec) decode(b []byte, d device) error {
	v, err := integer(b)
	if err != nil || len(b) != 4 || v == 0 {
		return fmt.Errorf("limit: %s", strings.TrimSpace(fmt.Sprint(v, err)))
	}
	f.Limit = uint32(v)
	if d.present && (!f.Bytes && f.Limit == d.queue || f.Bytes && d.queue > 0 && f.Limit%d.queue == 0 &&
		d.frame(f.Limit/d.queue)) {
		f.Limit = 0
	}
	return nil
}

func (f *fifoSpec) finish() (Spec, error) { return *f, nil }
