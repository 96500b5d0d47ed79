// SPDX-License-Identifier: Apache-2.0

package change

import (
	"testing"

	"weir/internal/journal"
	"weir/internal/kernel"
	"weir/internal/plan"
)

// Who is killed while less is sent leaves a queue that status names, up mends, and down takes for ours.
func TestKilledWhileItDrains(t *testing.T) {
	for _, back := range []string{"down", "recover", "up"} {
		s, m := newFake(t)
		goal := plan.Goal{Rate: 100e6, RTT: 50e6}
		before := kernel.QueueOf(m.f.Links[0].Tree).String()
		if _, err := s.Up(goal, 0); err != nil {
			t.Fatal(err)
		}
		set := kernel.QueueOf(m.f.Links[0].Tree)
		j, err := s.disk.Load()
		if err != nil {
			t.Fatal(err)
		}
		slower := kernel.Queue{Stack: plan.AtRate(set.Stack, 70e6)}
		j.Entry(journal.RootOf("eth0")).AddTemporary(slower)
		if err := s.disk.Save(j); err != nil {
			t.Fatal(err)
		}
		if st, err := s.Status(); err != nil || !st.InForce {
			t.Errorf("before it is slower: %+v, %v", st, err)
		}
		m.f.Links[0].Tree = single(t, slower.String())
		if st, err := s.Status(); err != nil || st.InForce {
			t.Errorf("slower, and in force: %+v, %v", st, err)
		}
		want := before
		switch back {
		case "down":
			_, err = s.Down(Undo{})
		case "recover":
			_, err = s.Recover()
			want = slower.String() // nothing is pending
		case "up":
			_, err = s.Up(goal, 0)
			want = set.String()
		}
		if got := kernel.QueueOf(m.f.Links[0].Tree).String(); err != nil || got != want {
			t.Errorf("%s: %s, want %s; %v", back, got, want, err)
		}
	}
}
