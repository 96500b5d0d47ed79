// SPDX-License-Identifier: Apache-2.0

// Package qdisc knows Linux's queueing disciplines: it reads and writes their configuration as tc(8) spells it,
// installs, changes and restores them over rtnetlink, and decodes their statistics.
//
// A Spec is a value: what one discipline is configured to do. A Conn is the only thing here that touches a host. A
// new discipline is one file with a struct, its defaults, its table of options and its statistics, and one row in
// kinds.
package qdisc

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"weir/internal/text"
)

// Spec is one queueing discipline's configuration. It is complete: each option that the kernel would report has its
// value, so two specs can be compared with ==. Its dynamic types are structs of this package, by value; those that
// other packages look into are exported.
//
// Where the kernel's default follows the device (its MTU, its queue length), zero stands for "as the kernel chooses for
// this device": such a default reads back as zero, too.
type Spec interface {
	// Kind is the name that the kernel knows it by.
	Kind() string
	// String is tc's syntax, kind first, with only what differs from the kernel's defaults.
	String() string

	// edit gives a copy that its options point into.
	edit() editor
	// encode gives the content of TCA_OPTIONS, with only what differs from base: the defaults for a new discipline,
	// what is in force for a change. Nil means that there is nothing to send.
	encode(base Spec) ([]byte, error)
}

// editor is a Spec while it is being written.
type editor interface {
	// options is the discipline's language: the order is the one in which tc sends the attributes.
	options() []option
	// decode takes over what the kernel reports; an error means that tc's language has no words for it.
	decode(b []byte, d device) error
	// finish checks what no single option can, and rounds each value as the kernel will, so that it reads back as the
	// same.
	finish() (Spec, error)
}

// Default is the kernel's own configuration of a kind, from which a caller sets the fields it wants. That of htb and
// tbf has no rate and is not complete before it has one.
func Default(name string) (Spec, bool) {
	k, ok := find(name)
	if !ok {
		return nil, false
	}
	if spec, err := k.fresh().finish(); err == nil {
		return spec, true
	}
	return k.fresh().(interface{ draft() Spec }).draft(), true
}

// New returns a discipline as it is by default: Default of a type, not of a name.
func New[T Spec]() (spec T) {
	for _, k := range kinds() {
		if k.fresh == nil {
			continue
		}
		if p, is := any(k.fresh()).(*T); is {
			return *p
		}
	}
	return spec
}

// Parse reads one discipline in tc's syntax: "cake bandwidth 49.875mbit besteffort dual-dsthost".
func Parse(text string) (Spec, error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return nil, errors.New("no queueing discipline given: write it like \"cake bandwidth 50mbit\"")
	}
	k, ok := find(words[0])
	if !ok {
		return nil, unknown("queueing discipline", words[0], Kinds())
	}
	return edit(k.name, k.fresh(), words[1:])
}

// Words are all that a kind's options are called, sorted.
func Words(name string) (words []string) {
	if k, ok := find(name); ok {
		for _, o := range k.fresh().options() {
			words = append(words, o.words...)
		}
	}
	slices.Sort(words)
	return words
}

// Edit gives a Spec other options, as Parse reads them; what is not named stays.
func Edit(s Spec, words []string) (Spec, error) {
	return edit(s.Kind(), s.edit(), words)
}

func edit(name string, e editor, words []string) (Spec, error) {
	spec, err := finish(e, words)
	if err != nil {
		return nil, &OptionError{name, err}
	}
	return spec, nil
}

func finish(e editor, words []string) (Spec, error) {
	if err := parse(e.options(), words); err != nil {
		return nil, err
	}
	return e.finish()
}

// decode makes a Spec of what the kernel reports; nil if this package has no type for the kind or no words for what it
// does.
func decode(name string, options []byte, d device) Spec {
	k, ok := find(name)
	if !ok {
		return nil
	}
	e := k.fresh()
	if err := e.decode(options, d); err != nil {
		return nil
	}
	spec, _ := sayable(e)
	return spec
}

// sayable finishes a Spec that nobody has typed in, and makes sure that somebody could: else a plan with it could not
// be read back, and its values might be out of the kernel's range.
func sayable(e editor) (Spec, error) {
	spec, err := e.finish()
	if err != nil {
		return nil, err
	}
	k, ok := find(spec.Kind())
	if !ok {
		return nil, unknown("queueing discipline", spec.Kind(), Kinds())
	}
	again, err := finish(k.fresh(), strings.Fields(spec.String())[1:])
	if err == nil && again != spec {
		err = fmt.Errorf("%s is not all that it says", spec)
	}
	if err != nil {
		return nil, err
	}
	return spec, nil
}

// check rounds a Spec that was put together field by field as Parse does, or says what is wrong with it.
func check(s Spec) (Spec, error) {
	spec, err := sayable(s.edit())
	if err != nil {
		return nil, &OptionError{s.Kind(), err}
	}
	return spec, nil
}

// OptionError is what is wrong with the options of a discipline.
type OptionError struct {
	Kind string
	Err  error
}

func (e *OptionError) Error() string { return e.Kind + ": " + e.Err.Error() }

// Unwrap returns what is wrong without the discipline's name.
func (e *OptionError) Unwrap() error { return e.Err }

// UnknownWord is the error for a word that is not in a list.
type UnknownWord struct {
	Short string // names the word, and suggests the likely one
	list  string // those that are known
}

func (e *UnknownWord) Error() string { return e.Short + "; " + e.list }

func unknown(what, word string, known []string) error {
	best := text.Nearest(word, known)
	hint := ""
	if best != "" {
		hint = fmt.Sprintf(" (did you mean %q?)", best)
	}
	known = slices.Clone(known)
	slices.Sort(known)
	list := "it takes none"
	if len(known) > 0 {
		list = "known: " + strings.Join(known, ", ")
	}
	return &UnknownWord{fmt.Sprintf("unknown %s %q%s", what, word, hint), list}
}
