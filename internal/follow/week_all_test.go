// SPDX-License-Identifier: Apache-2.0

//go:build all

package follow

// In make test-all: a week of looks takes CPU time.

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"testing"
	"time"
)

// What is remembered does not grow: in a week, with a million connections, each of which goes to another network.
func TestWeek(t *testing.T) {
	const (
		step  = time.Second
		lives = 5 * time.Second
		base  = 48 * time.Millisecond
	)
	f := New(50e6, 10e6, 100e6)
	dice := rand.New(rand.NewPCG(1, 2))
	var all [8]Connection
	var born [len(all)]time.Duration
	var to [4]byte
	sent, count, largest := 0., uint64(0), [7]int{} // bytes, by the day
	for at := step; at < 7*24*time.Hour; at += step {
		wait := time.Duration(dice.Int64N(int64(time.Millisecond)))
		if every(60, 3, at.Seconds()) { // the link carries less for a moment
			wait += 60 * time.Millisecond
		}
		for i := range all {
			c := &all[i]
			if c.ID == 0 || at-born[i] > lives {
				count++
				binary.BigEndian.PutUint32(to[:], 1<<24+uint32(count)<<8%(200<<24))
				born[i], *c = at-time.Duration(dice.Int64N(int64(lives))), Connection{ID: count, Base: base, Rate: 200,
					To: netip.AddrFrom4(to), Size: 1514, Past: i%4 == 0}
			}
			c.RTT, c.Delivered, c.Lost = base+wait, 100, float64(dice.IntN(200)/199)
			c.Acks, c.Samples, c.Sum = c.Acks+100, c.Samples+100, c.Sum+100*c.RTT
		}
		sent += f.rate / 8 * step.Seconds()
		f.Look(Look{At: at, Sent: sent, Backlog: 1e4, Own: time.Millisecond, Connections: all[:]})
		if day := at / (24 * time.Hour); at%time.Minute < 5*time.Second {
			largest[day] = max(largest[day], size(reflect.ValueOf(f)))
		}
	}
	t.Logf("%d connections; bytes on each day: %v", count, largest)
	if count < 1e6 || largest[0] < 1000 {
		t.Fatal("too few for a test")
	}
	if largest[6] > largest[0]*11/10 {
		t.Error("it grows")
	}
}

// size is what a value and all that it leads to take, in bytes, without what maps take for themselves.
func size(v reflect.Value) (bytes int) {
	bytes = int(v.Type().Size())
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			bytes += size(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			bytes += size(v.Field(i)) - int(v.Field(i).Type().Size())
		}
	case reflect.Slice:
		bytes += (v.Cap() - v.Len()) * int(v.Type().Elem().Size())
		for i := range v.Len() {
			bytes += size(v.Index(i))
		}
	case reflect.Map:
		for i := v.MapRange(); i.Next(); {
			bytes += size(i.Key()) + size(i.Value())
		}
	}
	return bytes
}
