// SPDX-License-Identifier: Apache-2.0

package dualpi2

import (
	"bytes"
	_ "embed"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"weir/internal/lab/qemu/kerneltest"
	"weir/internal/units"
)

// controller steps pi2.h in the kernel.
type controller struct {
	t       *testing.T
	program *ebpf.Program
	x       controlController
	last    uint32 // p' before the last step
}

func newController(t *testing.T, c Config) *controller {
	t.Helper()
	spec, err := loadControl()
	if err != nil {
		t.Fatal(err)
	}
	objects, err := ebpf.NewCollection(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(objects.Close)
	k := &controller{t: t, program: objects.Programs["controller_step"]}
	o := c.encode(0)
	k.x.Params.Target, k.x.Params.Tupdate = o.Pi2.Target, o.Pi2.Tupdate
	k.x.Params.Alpha, k.x.Params.Beta = o.Pi2.Alpha, o.Pi2.Beta
	k.x.Params.GainShift, k.x.Params.MaxProb = o.Pi2.GainShift, o.Pi2.MaxProb
	return k
}

func (k *controller) step(now, head uint64) {
	k.t.Helper()
	k.x.Now, k.x.Head = now, head
	var in bytes.Buffer
	if err := binary.Write(&in, binary.NativeEndian, &k.x); err != nil {
		k.t.Fatal(err)
	}
	context := in.Bytes()
	if _, err := k.program.Run(&ebpf.RunOptions{Context: context, ContextOut: context}); err != nil {
		k.t.Fatal(err)
	}
	if err := binary.Read(bytes.NewReader(context), binary.NativeEndian, &k.x); err != nil {
		k.t.Fatal(err)
	}
}

// model is the RFC's controller with the same parameters and state.
func (c Config) model() *model {
	m := &model{Max: 1}
	m.Target, m.TUpdate = time.Duration(c.Target).Seconds(), time.Duration(c.TUpdate).Seconds()
	m.Alpha, m.Beta, m.K = float64(c.Alpha)/256, float64(c.Beta)/256, float64(c.CouplingFactor)
	if !c.DropOverload {
		m.Max = 1 / m.K
	}
	return m
}

//go:embed testdata/delays.txt
var delays string

// recorded are delays that were measured; one that was lost is as the last.
func recorded(t *testing.T) (list []time.Duration) {
	t.Helper()
	for line := range strings.Lines(delays) {
		us, err := strconv.Atoi(strings.TrimSpace(line))
		switch {
		case strings.HasPrefix(line, "#"):
		case err != nil:
			t.Fatal(err)
		case us < 0:
			list = append(list, list[len(list)-1])
		default:
			list = append(list, time.Duration(us)*time.Microsecond)
		}
	}
	return list
}

// traces are queue delays, one for each update: a step, a decay, random ones, a random walk, and what was recorded.
func traces(t *testing.T) map[string]func(r *rand.Rand, i int, last time.Duration) time.Duration {
	measured := recorded(t)
	return map[string]func(*rand.Rand, int, time.Duration) time.Duration{
		"step": func(_ *rand.Rand, i int, _ time.Duration) time.Duration {
			return time.Duration(i/50%2) * 40 * time.Millisecond
		},
		"decay": func(_ *rand.Rand, i int, _ time.Duration) time.Duration {
			return time.Duration(200e6 * math.Exp(-float64(i)/40))
		},
		"random": func(r *rand.Rand, _ int, _ time.Duration) time.Duration { return time.Duration(r.Int64N(60e6)) },
		"walk": func(r *rand.Rand, _ int, last time.Duration) time.Duration {
			return max(0, last+time.Duration(r.Int64N(6e6)-3e6))
		},
		"recorded": func(_ *rand.Rand, i int, _ time.Duration) time.Duration { return measured[i%len(measured)] },
	}
}

// TestInController: the controller's arithmetic is the RFC's, step by step. One update is exact but for half a unit
// of 2^-32 and for the gains' 29 bits, so 300 of them from the same start differ by no more than 300 times as much.
func TestInController(t *testing.T) {
	kerneltest.In(t)
	configs := map[string]Config{"defaults": defaults(), "overflow": defaults(), "slow": defaults(), "fast": defaults()}
	set := func(name string, f func(*Config)) { c := configs[name]; f(&c); configs[name] = c }
	set("overflow", func(c *Config) { c.DropOverload = false })
	set("slow", func(c *Config) {
		c.Alpha, c.Beta, c.TUpdate, c.Target = 1, 16, units.Duration(100e6), units.Duration(100e6)
	})
	set("fast", func(c *Config) {
		c.Alpha, c.Beta, c.TUpdate, c.Target = 25600, 76800, units.Duration(50e3), units.Duration(50e3)
	})
	for name, c := range configs {
		for trace, next := range traces(t) {
			k, m := newController(t, c), c.model()
			r := rand.New(rand.NewPCG(1, 2))
			now, delay := uint64(1e12), time.Duration(0)
			k.step(now, 0) // the first call only starts the clock
			worst := 0.0
			for i := range 300 {
				now += uint64(c.TUpdate)
				delay = next(r, i, delay)
				head := now - uint64(delay)
				if delay == 0 {
					head = 0
				}
				change := math.Abs(m.Beta*(delay.Seconds()-m.Prev)) + math.Abs(m.Alpha*(delay.Seconds()-m.Target))
				k.step(now+7, head) // a packet comes a little after the update is due
				m.P = float64(k.last) / maxProb
				m.update(delay.Seconds())
				off := math.Abs(float64(k.x.State.Prob)/maxProb-m.P) * maxProb
				if limit := 1 + change*maxProb/(1<<28); off > limit {
					t.Fatalf("%s, %s, update %d: p' is %d, the RFC's %.2f (off by %.2f, and %.2f are allowed)", name,
						trace, i, k.x.State.Prob, m.P*maxProb, off, limit)
				}
				worst = max(worst, off)
				k.last = k.x.State.Prob
			}
			t.Logf("%s, %s: off by %.3f units of 2^-32 at most", name, trace, worst)
		}
	}
}

// TestInCatchUp: updates that were missed while nothing came or went are made up for, to what a timer would have made
// of them.
func TestInCatchUp(t *testing.T) {
	kerneltest.In(t)
	c := defaults()
	for _, missed := range []int{1, 2, 3, 10, 100, 1000, 100000} {
		for _, standing := range []bool{false, true} {
			late, prompt := newController(t, c), newController(t, c)
			start := uint64(1e12)
			for _, k := range []*controller{late, prompt} {
				k.step(start, 0)
				k.x.State.Prob, k.x.State.LastDelay = 1<<30, 20e6
			}
			head := uint64(0)
			if standing {
				head = start - 1e6
			}
			end := start + uint64(missed)*uint64(c.TUpdate)
			late.step(end, head)
			for i := range min(missed, 5000) {
				prompt.step(start+uint64(i+1)*uint64(c.TUpdate), head)
			}
			if late.x.State.Due != end+uint64(c.TUpdate) {
				t.Errorf("%d missed: the next is due %d ns late", missed, late.x.State.Due-end-uint64(c.TUpdate))
			}
			off := math.Abs(float64(late.x.State.Prob) - float64(prompt.x.State.Prob))
			if limit := float64(missed) + 1; off > limit {
				t.Errorf("%d missed, standing %v: p' is %d, and with a timer %d", missed, standing, late.x.State.Prob,
					prompt.x.State.Prob)
			}
		}
	}
}
