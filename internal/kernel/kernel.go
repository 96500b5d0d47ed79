// SPDX-License-Identifier: Apache-2.0

// Package kernel is what Weir can put into a kernel, and into files for its next boot. It is one table, with a row for
// each kind of object.
//
// A row finds such an object in the facts of a host, puts it there and takes it out again. It says when that is in
// force, and what a journal keeps of it. Whether one is wanted is not decided here.
package kernel

import (
	"slices"
	"time"

	"weir/internal/host"
	"weir/internal/qdisc"
)

// Kind is the name of a kind of object, as JSON has it.
type Kind string

// Object is a kind of thing that can be put into a kernel: a row of the table.
type Object struct {
	Kind  Kind
	Title string // of one on a device, behind the name of that: "root qdisc"; "" of one on the host
	File  bool   // it is not in the kernel, and outlasts a reboot

	// Parse reads what a Value of the kind has written. Only a file can be past reading: of a queue that this version
	// has no words for the text is kept.
	Parse func(text string) (Value, error)
	// Now is what a host has. It is false where there is no such place: no such device, no such setting.
	Now func(f host.Facts, name string) (Value, bool)
	// Owner says to whom the present value is due, as far as files and the kernel tell; "" if they do not.
	Owner func(f host.Facts, name string) string
	// Hidden says what it is that only root can look into; "" if there is none. Nil is that there never is.
	Hidden func(f host.Facts, name string) string
	// Possible is what can be put of a value on a host as it is now. Nil is all of it.
	Possible func(f host.Facts, v Value) Value

	// Outlives reports whether a value remains when its device is gone. Nil is that none does.
	Outlives func(Value) bool
	// Ours reports whether a value is one that this program has set, though it meets none of those. Nil is never.
	Ours func(now Value, set []Value) bool
	// Valid reports whether a journal may name an object and what was there before it: names become paths and devices.
	Valid func(name string, was Value) bool
	// Before is what to go back to, of what was found. Nil is just that.
	Before func(found Value) Value
	// Undo takes out of the facts what was put there. Of their maps and slices the Sysctls, Links and Files are its own
	// to change; what it changes of others it clones.
	Undo func(f *host.Facts, at Place)
	// Whole is that what was there is more than its Value says: the journal keeps the device's qdiscs as they were
	// read.
	Whole bool
	// Foreign is that what is there is taken out whoever has changed it since.
	Foreign bool

	// Put puts a value there, or what was there before, and reads it back.
	Put func(m Machine, at Place, want Value) error
	// Optional is that a boot goes on without it.
	Optional bool
	// Leaves reports whether a value leaves something on its device when somebody else takes it away, and Clean takes
	// that away. Nil is that none does.
	Leaves func(Value) bool
	Clean  func(m Machine, at Place, gsoSegs int) error

	// Counters is what the kernel counts of a queueing discipline, if that belongs to an object of the kind. Nil is
	// nothing beside what it counts of each.
	Counters func(q qdisc.Qdisc) []Counter
}

// Place is where an object is put, and what is known of what was there.
type Place struct {
	Name    string     // of the device, the sysctl or the file
	Link    int        // index of the device; 0 of the host's
	Tree    qdisc.Tree // what the device had, if Object.Whole
	Was     Value      // before the first change
	WasTime time.Time  // when a file was written that is to come back
	Set     []Value    // everything that was put there since
}

// Machine is the host on which objects are put. Tests have one that fails when told to.
type Machine interface {
	SetTree(link int, stack qdisc.Stack) error   // replaces the root, and reads it back
	RestoreTree(link int, tree qdisc.Tree) error // puts back what was read
	// CleanQueue takes away what a BPF queue has left that somebody else has taken away, or that was never whole.
	CleanQueue(link int, before qdisc.Tree, gsoSegs int) error
	// SetIngress has what arrives pass it first; empty: takes that away; and reads it back.
	SetIngress(link int, a qdisc.Arriving) error
	// RegisterBBR registers this program's bpf_bbr, in place of another weir's, also for each network namespace that
	// has it as its default and can be entered.
	RegisterBBR() error
	// RemoveBBR gives those namespaces the default that this one has, and takes the name away.
	RemoveBBR() error
	SetSysctl(name, value string) error // writes, and reads it back
	// SetFile puts it there whole or not at all, and on disk; as written at a time, if one is given.
	SetFile(path string, file host.File, at time.Time) error
}

// Objects is the table. Changes are carried out in its order: without the queues the rest is not wanted, and files come
// last.
func Objects() []Object { return []Object{root(), ingress(), control(), sysctl(), file()} }

// Object is the row of a kind. It is false of a kind of a later version.
func (k Kind) Object() (Object, bool) {
	all := Objects()
	i := slices.IndexFunc(all, func(o Object) bool { return o.Kind == k })
	if i < 0 {
		return Object{}, false
	}
	return all[i], true
}

// Order is the place of a kind in the table.
func (k Kind) Order() int {
	return slices.IndexFunc(Objects(), func(o Object) bool { return o.Kind == k })
}

// Target is one object of a host.
type Target struct {
	Kind Kind
	Name string // of the device, the sysctl or the file
}

func (t Target) String() string {
	if o, _ := t.Kind.Object(); o.Title != "" {
		return t.Name + "  " + o.Title
	}
	return t.Name
}

// Object is the row of its kind; an empty one of a kind of a later version.
func (t Target) Object() Object {
	o, _ := t.Kind.Object()
	return o
}

// Parse reads what a value of the target has written. Of a kind of a later version it is taken as it is.
func (t Target) Parse(text string) (Value, error) {
	if o, known := t.Kind.Object(); known {
		return o.Parse(text)
	}
	return Setting(text), nil
}

// Dev is the device that a target is on; "" where it is the host's.
func (t Target) Dev() string {
	if t.Object().Title != "" {
		return t.Name
	}
	return ""
}

// IsFile reports whether it is no part of the running kernel.
func (t Target) IsFile() bool { return t.Object().File }

// Value is what a target has, or is to have: a Queue, an Incoming, a Version, a Setting or a Content. Nil is one that
// is not known.
type Value interface {
	// String writes it as tc, sysctl or host.File does.
	String() string
	// Meets reports whether it is what is wanted.
	Meets(want Value) bool
}

// Equal reports whether two values are the same in each respect.
func Equal(a, b Value) bool { return a.Meets(b) && b.Meets(a) }
