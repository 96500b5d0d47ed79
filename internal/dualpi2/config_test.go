// SPDX-License-Identifier: Apache-2.0

package dualpi2

import (
	"math"
	"math/bits"
	"testing"
	"time"

	"weir/internal/bpf"
	"weir/internal/units"
)

// What an instance is configured to do can be read back as it was said, for any device.
func FuzzConfig(f *testing.F) {
	d := Defaults()
	f.Add(d.Limit, uint32(30280000), int64(d.Target), int64(d.TUpdate), d.Alpha, d.Beta, d.CouplingFactor,
		int64(d.StepThresh), uint32(0), uint64(50e6), int32(0), true, int32(14))
	f.Add(uint32(1), uint32(1), int64(0), int64(1000), uint32(1), uint32(math.MaxInt32), uint8(255), int64(0),
		uint32(7), uint64(1000), int32(-64), false, int32(0))
	f.Fuzz(func(t *testing.T, limit, memory uint32, target, tupdate int64, alpha, beta uint32, coupling uint8,
		step int64, packets uint32, rate uint64, overhead int32, raw bool, header int32) {
		c := Defaults()
		c.Limit, c.MemLimit, c.Alpha, c.Beta, c.CouplingFactor = limit, memory, alpha, beta, coupling
		c.Target, c.TUpdate, c.StepThresh = units.Duration(target), units.Duration(tupdate), units.Duration(step)
		c.StepPackets, c.Overhead, c.Raw, c.LLLLMark, c.LLLLMask = packets, overhead, raw, 3, 7
		c.SplitGSO = false             // which is the device's
		c.Rate = units.Rate(rate &^ 7) // the programs count bytes
		if c.check() != nil || overhead < -64 || overhead > 256 || header < 0 || header > 64 {
			t.Skip()
		}
		if packets != 0 {
			c.StepThresh = 0
		}
		o := c.encode(header)
		if got := o.decode(header); got != c {
			t.Errorf("%+v reads back as %+v", c, got)
		}
		if c.Rate != 0 && o.NsPerByte == 0 {
			t.Errorf("a rate of %d is none", rate)
		}
		if o.Pi2.Alpha > 1<<gainBits || o.Pi2.Beta > 1<<gainBits || o.Pi2.GainShift > 62 {
			t.Errorf("gains %d and %d, shifted by %d", o.Pi2.Alpha, o.Pi2.Beta, o.Pi2.GainShift)
		}
	})
}

// A gain is exact to one part in 2^28, where it is not tiny beside the other.
func TestGains(t *testing.T) {
	for _, c := range [][2]uint32{{41, 819}, {1, 1}, {1, 256}, {math.MaxInt32, math.MaxInt32}, {25600, 76800}} {
		a, b, shift := gains(c[0], c[1])
		for i, gain := range []uint32{a, b} {
			want := float64(c[i]) / 256 * maxProb / 1e9
			got := math.Ldexp(float64(gain), -int(shift))
			largest := float64(max(c[0], c[1])) / 256 * maxProb / 1e9
			if math.Abs(got-want) > largest/(1<<28) {
				t.Errorf("%d/256 Hz is %g, not %g", c[i], got, want)
			}
		}
	}
}

// The shaper's clock is exact to a millionth from 1 Mbit/s to 10 Gbit/s.
func TestRate(t *testing.T) {
	for _, bytes := range []uint64{125e3, 6.25e6, 125e6, 1.25e9} {
		c := Defaults()
		c.Rate = units.Rate(8 * bytes)
		got := float64(c.encode(14).NsPerByte) / (1 << rateShift)
		if want := 1e9 / float64(bytes); math.Abs(got/want-1) > 2e-6 {
			t.Errorf("%d bytes a second are %v ns a byte, not %v", bytes, got, want)
		}
	}
}

// bucketOf is what bpf/dualpi2.bpf.c does with a time, in ns.
func bucketOf(ns uint64) int {
	v := ns >> 7
	if v < 8 {
		return 0
	}
	octave := bits.Len64(v) - 4
	return min(1+octave*8+int(v>>octave)&7, histogramBuckets-1)
}

func TestQuantile(t *testing.T) {
	if q := (Histogram{}).quantile(0.5); q != 0 {
		t.Errorf("of none it is %v", q)
	}
	var h Histogram
	for i := range 1000 {
		ns := uint64(i+1) * 20000 // 20 us to 20 ms
		h.Count[bucketOf(ns)]++
		h.Packets++
		h.Sum += time.Duration(ns)
		h.Max = max(h.Max, time.Duration(ns))
	}
	for ns := uint64(1); ns < 1<<34; ns += 1 + ns/5 {
		if from, to := bucket(bucketOf(ns)); float64(ns) < from || float64(ns) >= to || from > 0 && to-from > from/8+1 {
			t.Errorf("%d ns is in a bucket from %v to %v", ns, from, to)
		}
	}
	for _, c := range []struct {
		q    float64
		want time.Duration
	}{{0.5, 10 * time.Millisecond}, {0.99, 19800 * time.Microsecond}, {0, 18432 * time.Nanosecond},
		{1, 20 * time.Millisecond}} {
		if got := h.quantile(c.q); math.Abs(float64(got)/float64(c.want)-1) > 0.005 {
			t.Errorf("quantile %v is %v, not %v", c.q, got, c.want)
		}
	}
	if h.mean() != 10010*time.Microsecond {
		t.Errorf("the mean is %v", h.mean())
	}
}

// No packet counts for more bytes on the wire than a note may say, however it is framed and whatever it is a segment
// of.
func TestWireBound(t *testing.T) {
	const leastWire, headers = 64, 28 // LEAST_WIRE of bpf/dualpi2.h; IPv4 and UDP
	for _, framing := range bpf.Framings() {
		for _, mpu := range []uint32{0, 84, 256} {
			for _, overhead := range []int32{-64, 0, 44, 256} {
				c := Defaults()
				c.ATM, c.MPU, c.Overhead, c.Raw = framing, mpu, overhead, false
				o := c.encode(14)
				for length := uint32(1); length < 2000; length++ {
					wire := uint32(max(int32(length)+o.Framing.Overhead, int32(mpu)))
					switch framing {
					case "atm":
						wire = (wire + 47) / 48 * 53
					case "ptm":
						wire += (wire + 63) / 64
					}
					if wire > leastWire+length*o.WirePerByte || length >= headers && wire > length*o.WirePerByte {
						t.Fatalf("framing %s, mpu %d, overhead %d: %d bytes are %d on the wire, and a note may say "+
							"%d a byte", framing, mpu, overhead, length, wire, o.WirePerByte)
					}
				}
			}
		}
	}
}
