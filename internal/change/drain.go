// SPDX-License-Identifier: Apache-2.0

package change

import (
	"errors"
	"time"

	"weir/internal/journal"
	"weir/internal/kernel"
	"weir/internal/plan"
	"weir/internal/qdisc"
	"weir/internal/units"
)

// Slow gives a device's queue of ours that share of its rate, for a moment that Restore ends. It is in the journal
// before, so that whoever goes back meanwhile takes it for ours. Nil is a device without such a queue, or with none in
// which packets wait.
func (s Store) Slow(dev string, share float64) (*Shaper, error) {
	t, err := s.begin("up")
	if err != nil {
		return nil, err
	}
	defer t.end()
	goal, there := plan.GoalOf(t.journal.Goals(), dev)
	if !there || goal.Follow != "" && t.hasFollower() { // which drains it by itself
		return nil, nil
	}
	shaper, _ := t.shaper(goal, journal.RootOf(dev))
	if shaper == nil {
		return nil, nil
	}
	if shaper.conn, err = qdisc.Dial(0); err != nil {
		return nil, err
	}
	shaper.store, shaper.High, shaper.AfterProvider = s, shaper.Rate(), false
	shaper.Low = units.Rate(share * float64(shaper.High))
	full, err := t.isFull(shaper)
	if err == nil && full {
		slower := plan.AtRate(shaper.stack, shaper.Low)
		t.journal.Entry(journal.RootOf(dev)).AddTemporary(kernel.Queue{Stack: slower})
		if err = t.disk.Save(t.journal); err == nil {
			err = shaper.Set(shaper.Low)
		}
	}
	if err != nil || !full {
		shaper.Close()
		return nil, err
	}
	return shaper, nil
}

// Restore gives a queue that Slow has slowed its rate again, and closes it. It is false where somebody has changed that
// queue meanwhile, which is left then.
func (s Store) Restore(shaper *Shaper) (still bool, err error) {
	defer shaper.Close()
	const patience = 5 * time.Second // while another weir is at work; then without its lock
	for begun := time.Now(); time.Since(begun) < patience; {
		unlock, err := s.disk.Lock(journal.Patience)
		if err == nil {
			defer unlock()
			break
		}
		if !errors.Is(err, journal.ErrBusy) {
			break // of a journal that cannot be reached
		}
	}
	facts, err := s.readFacts()
	if err != nil {
		return true, errors.Join(err, shaper.Set(shaper.High))
	}
	for _, l := range facts.Links {
		root, _ := l.Tree.Root()
		if l.Index == shaper.Link && root.Handle == shaper.root.Handle && root.Spec != nil &&
			root.Spec.String() == shaper.root.Spec.String() {
			return true, shaper.Set(shaper.High)
		}
	}
	return false, nil
}

// isFull reports whether packets wait in a queue, at one of a few looks.
func (s Store) isFull(shaper *Shaper) (bool, error) {
	const looks, pause = 4, 5 * time.Millisecond
	for range looks {
		stats, err := shaper.Stats()
		if err != nil || stats.Backlog > 0 {
			return err == nil, err
		}
		s.timer.sleep(pause)
	}
	return false, nil
}
