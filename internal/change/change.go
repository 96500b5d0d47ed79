// SPDX-License-Identifier: Apache-2.0

// Package change carries plans out, and takes them back. It is the only code that changes a host.
//
// Nothing is changed before it is known, on disk, how to go back: a journal holds the host as it was. Nothing is
// believed before it is read back, and the goal is in force only when the plan made from new facts is empty. What to
// change is not decided here.
package change

import (
	"encoding/json"
	"path/filepath"
	"time"

	"weir/internal/host"
	"weir/internal/journal"
	"weir/internal/plan"
	"weir/internal/units"
)

// Dir is where the journal of a goal is that outlasts a reboot. One in another directory ends with the boot.
const Dir = "/var/lib/weir"

// Store is where the journal is kept, the host that it is about, and what puts that back when nobody confirms.
type Store struct {
	disk  journal.Store
	host  machine
	timer timer
	log   func([]string) // lines of what was done, for whoever looks later
	held  *lock          // while it has that

	// Elsewhere is asked by Status about each goal in force: it tells that connections wait, and not in the goal's
	// queue, or nothing. The facts have the live connections. Nil is that nobody wants to know.
	Elsewhere func(plan.Goal, host.Facts) string
	// Filtered is asked likewise: it names the filters that have dropped some of what leaves by the goal's device.
	Filtered func(plan.Goal, host.Facts) []string

	unprinted bool // nobody prints what a run did, so the log has to have it

	expires bool           // it is what puts back a run that nobody confirms
	done    *time.Duration // the deadline of the run that it has put back, where the journal could not be told
}

// lock is held by one run at a time, with what waits until it is given back: programs of others', which may take their
// time.
type lock struct {
	unlock func()
	after  []func()
}

func (s Store) later(do func()) {
	if s.held == nil {
		do()
		return
	}
	s.held.after = append(s.held.after, do)
}

// end gives the lock back.
func (s Store) end() {
	s.held.unlock()
	for _, do := range s.held.after {
		do()
	}
}

// Open gives the store in a directory, which need not exist, for the host that this process runs on.
func Open(dir string) Store {
	if absolute, err := filepath.Abs(dir); err == nil {
		dir = absolute
	}
	return Store{host: live{}, timer: waitingProcess{}, log: syslogged,
		disk: journal.Store{Dir: dir, Files: dir == Dir, Held: "/run/weir/held", Sleep: time.Sleep}}
}

// Dir is the directory of the journal.
func (s Store) Dir() string { return s.disk.Dir }

// Changed gives a function that reports whether the journal has been written, or removed, since it was called last.
func (s Store) Changed() func() bool {
	before := s.disk.Edition()
	return func() bool {
		was := before
		before = s.disk.Edition()
		return before != was
	}
}

// Outcome is what a run did.
type Outcome struct {
	Goal   plan.Goal     `json:"goal"`
	Done   []plan.Change `json:"done"`
	Failed []Failure     `json:"failed,omitempty"` // not in force, and why
	Left   []Failure     `json:"left,omitempty"`   // somebody else's since, and not put back
	Notes  []plan.Note   `json:"notes,omitempty"`

	RevertsIn units.Duration `json:"reverts_in,omitempty"` // unless it is confirmed; 0: it stays
	Kept      bool           `json:"kept,omitempty"`       // over a reboot, once it is confirmed
}

// Failure is a change that is not in force.
type Failure struct {
	plan.Change
	Error string
}

// MarshalJSON writes the change and, beside it, the error.
func (f Failure) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		plan.ChangeText
		Error string `json:"error"`
	}{f.Text(), f.Error})
}
