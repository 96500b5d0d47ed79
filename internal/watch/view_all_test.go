// SPDX-License-Identifier: Apache-2.0

//go:build all

package watch

// In make test-all: frames are drawn by the clock.

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"regexp"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"weir/internal/meter/live"
	"weir/internal/stats"
)

// A slow line takes it: 2 kB a second, on a screen of 200 by 60 on which every figure changes each second.
func TestOutput(t *testing.T) {
	var out bytes.Buffer
	s := busy()
	random := rand.New(rand.NewPCG(1, 2))
	p := tea.NewProgram(screen{look: View{Words: words}, state: s}, tea.WithInput(nil), tea.WithOutput(&out),
		tea.WithFPS(120), tea.WithWindowSize(200, 60), tea.WithEnvironment([]string{"TERM=xterm-256color"}),
		tea.WithoutSignals())
	const seconds = 60
	go func() {
		for i := range seconds {
			q := s.Out.Queue
			x := s.Out.Seconds[len(s.Out.Seconds)-1]
			x.At, x.Bytes, x.Backlog = at(180+i), uint64(random.IntN(6_200_000)), uint64(random.IntN(60_000))
			x.Qlen, x.Drops = x.Backlog/1500, uint64(random.IntN(100))
			r := s.Clients
			r.Networks = nil
			for n := range 30 {
				r.Networks = append(r.Networks, live.Network{Network: fmt.Sprintf("192.0.%d.0/24", n),
					Out: 50 * random.Float64(), Added: stats.Dist{P50: 90 * random.Float64()}})
			}
			e := Event{Out: &Ended{q, x}}
			if i%2 == 0 { // as often as two seconds of connections come
				e.Clients = &r
			}
			p.Send(e)
			time.Sleep(20 * time.Millisecond) // longer than a frame
		}
		p.Quit()
	}()
	if _, err := p.Run(); err != nil {
		t.Fatal(err)
	}
	if each := out.Len() / seconds; each > 2000 || each < 20 {
		t.Errorf("%d bytes a second", each)
	}
	t.Logf("%d bytes a second", out.Len()/seconds)
	if colours := regexp.MustCompile(`\x1b\[[0-9;]+m`).FindString(out.String()); colours != "" {
		t.Errorf("there are colours: %q", colours)
	}
}
