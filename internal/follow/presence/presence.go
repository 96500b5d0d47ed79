// SPDX-License-Identifier: Apache-2.0

// Package presence is how a follower lets others know that it is at work, and what it does: a file that everybody may
// read, which it keeps locked.
//
// It may not follow anything, nor read a journal. Where the file is, and that there is one follower, is the caller's.
package presence

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"weir/internal/text"
	"weir/internal/units"
)

// Doing is what a follower tells of a queue.
type Doing struct {
	Waits string `json:"waits,omitempty"` // why it has not found the rate yet
	Tries string `json:"tries,omitempty"` // why the rate is another for a moment
	Last  *Step  `json:"last,omitempty"`  // the last change that stayed
}

// Step is a change of the rate that stayed.
type Step struct {
	At   time.Time  `json:"at"`
	From units.Rate `json:"from,omitempty"` // bit/s; 0: it was not known
	To   units.Rate `json:"to"`
	Why  string     `json:"why"`
}

// Queue is one whose rate a follower may choose, and what the follower does there.
type Queue struct {
	Dev           string     `json:"dev"`
	AfterProvider bool       `json:"behind,omitempty"` // the provider's queue: of incoming traffic, or of a relay
	Rate          units.Rate `json:"rate"`             // bit/s, of the shaper now; 0: it is to be found
	Low           units.Rate `json:"low"`              // and between which it may be
	High          units.Rate `json:"high"`
	Running       bool       `json:"running"`          // a follower is at work
	Hidden        string     `json:"hidden,omitempty"` // why that cannot be told
	Doing                    // what it tells of itself
	Start         string     `json:"start"`         // the command that starts it
	Ask           string     `json:"ask,omitempty"` // the one that tells why a service is not at work
}

// Announcement is the file of the follower that is at work.
type Announcement struct {
	f   *os.File
	one sync.Mutex
	all map[string]Doing // by device
}

// Announce makes the file that everybody may read. It has its lock before anybody can open it: whatever another user
// holds is of an earlier one.
func Announce(name string) (*Announcement, error) {
	half := name + ".new"
	_ = os.Remove(half) // of a run that was killed
	f, err := os.OpenFile(half, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	_, err = writeLock(f, unix.F_OFD_SETLK, unix.F_WRLCK)
	if err == nil {
		err = f.Chmod(0o644) // whatever the umask: a service has a strict one
	}
	if err == nil {
		err = os.Rename(half, name)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return &Announcement{f: f, all: map[string]Doing{}}, nil
}

// writeLock is a lock of a whole file that takes a descriptor which can write to it (fcntl_locking(2)). Who may only
// read a file can see it, and can neither hold one nor, while it is held, keep it from anybody.
func writeLock(f *os.File, cmd int, kind int16) (held bool, err error) {
	lock := unix.Flock_t{Type: kind, Whence: io.SeekStart}
	err = unix.FcntlFlock(f.Fd(), cmd, &lock)
	return lock.Type == unix.F_WRLCK, err
}

// Close ends it: nobody is at work any more.
func (a *Announcement) Close() error { return a.f.Close() }

// Tell says what is done about a device. The last change stays until there is another, or the rate is
// waited for.
func (a *Announcement) Tell(dev string, now Doing) {
	a.one.Lock()
	defer a.one.Unlock()
	before := a.all[dev]
	if now.Last == nil && now.Waits == "" {
		now.Last = before.Last
	}
	if now == before {
		return
	}
	a.all[dev] = now
	text, _ := json.Marshal(a.all)
	// What cannot be told is told by the log. Whoever reads meanwhile finds the end of what was there after it.
	if _, err := a.f.WriteAt(text, 0); err == nil {
		_ = a.f.Truncate(int64(len(text)))
	}
}

// Idle is why a follower that runs does not follow a rate that is known: it cannot see what it takes. "" where it does.
func (q Queue) Idle() string {
	if !q.Running || q.Rate == 0 {
		return ""
	}
	return q.Waits
}

// Says is what a person should know of a queue whose rate may move, in a line or two.
func (q Queue) Says(now time.Time) []string {
	rate := units.Rounded(float64(q.Rate)).String()
	switch {
	case q.Hidden != "":
		return []string{"Whether anybody follows the rate cannot be seen: " + q.Hidden}
	case q.Rate == 0 && !q.Running:
		return []string{"The rate is not known, and nobody looks for it. To look:  " + q.Start}
	case q.Rate == 0:
		return []string{"The rate is not known yet: " + cmp.Or(q.Waits, "weir follow has just begun") + "."}
	case !q.Running:
		return []string{"The follower does not run: the rate stays " + rate + ".", "To start it:  " + q.Start}
	case q.Idle() != "":
		return []string{"The follower runs, and cannot follow " + q.Dev + ": the rate stays " + rate + ".",
			"Why:  " + q.Idle()}
	}
	what := "Followed:  " + rate + " now,"
	if q.AfterProvider {
		what = "Learnt:    " + rate + " now on " + q.Dev + ","
	}
	says := []string{fmt.Sprintf("%s of %s to %s", what, q.Low, q.High)}
	if q.Tries != "" {
		says[0] += ": " + q.Tries
	}
	if q.Last != nil {
		says = append(says, q.Last.says(now))
	}
	return says
}

// says is when a rate changed, and why.
func (s Step) says(now time.Time) string {
	passed := ago(now.Sub(s.At))
	switch from := units.Rounded(float64(s.From)).String(); {
	case s.From == 0:
		return fmt.Sprintf("Found %s: %s", passed, s.Why)
	case s.To < s.From:
		return fmt.Sprintf("Lowered %s, from %s: %s", passed, from, s.Why)
	default:
		return fmt.Sprintf("Raised %s, from %s: %s", passed, from, s.Why)
	}
}

// ago writes a time that has passed. A clock may have been set back since.
func ago(d time.Duration) string {
	switch d = max(d, 0); {
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0f s ago", d.Seconds())
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0f min ago", d.Minutes())
	}
	return fmt.Sprintf("%.0f h ago", d.Hours())
}

// Fill adds to queues whether a follower is at work, and what it does there, as its file of this name says.
func Fill(name string, all []Queue) []Queue {
	if len(all) == 0 {
		return nil
	}
	running, doing, err := Read(name)
	filled := make([]Queue, len(all))
	for i, q := range all {
		q.Running, q.Doing = running, doing[q.Dev]
		if err != nil {
			q.Hidden = err.Error()
		}
		filled[i] = q
	}
	return filled
}

// Read reports whether a follower is at work and what it does, by device. An error is that this cannot be told.
func Read(name string) (running bool, doing map[string]Doing, err error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil, nil
	}
	if errors.Is(err, fs.ErrPermission) {
		return false, nil, fmt.Errorf("%w (sudo weir status tells)", err)
	}
	if err != nil {
		return false, nil, err
	}
	defer f.Close()
	// The question is what would keep this one from reading: a follower alone can have that.
	running, err = writeLock(f, unix.F_OFD_GETLK, unix.F_RDLCK)
	if err != nil {
		return false, nil, fmt.Errorf("lock of %s: %w", name, err)
	}
	if !running {
		return false, nil, nil
	}
	const maxSize = 1 << 16
	// In one piece, since it is written meanwhile; what was there before may follow. Of an older program it is another.
	said, _ := io.ReadAll(io.LimitReader(f, maxSize))
	_ = json.NewDecoder(bytes.NewReader(said)).Decode(&doing)
	for dev, d := range doing {
		d.Waits, d.Tries = text.OneLine(d.Waits), text.OneLine(d.Tries)
		if d.Last != nil {
			d.Last.Why = text.OneLine(d.Last.Why)
		}
		doing[dev] = d
	}
	return true, doing, nil
}
