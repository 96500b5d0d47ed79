// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"weir/internal/kernel"
	"weir/internal/plan"
)

// How a journal is written down. Going back must not depend on what only going on takes. A newer version's goal that
// this one does not understand is kept as it was written. So is every member that it does not know.

// record is a journal's file. The first uplink stands in the middle of it, as the only one did before there were
// several.
type record struct {
	Version   int    `json:"version"`
	Boot      string `json:"boot"`
	Namespace string `json:"namespace"`
	Cookie    uint64 `json:"cookie,omitempty"`
	uplinkRecord
	More     []uplinkRecord  `json:"more,omitempty"`
	Entries  []entryRecord   `json:"entries"`
	Pending  *Pending        `json:"pending,omitempty"`
	Reverted *reverted       `json:"reverted,omitempty"`
	Promised []promiseRecord `json:"promised,omitempty"`
}

// entryRecord is an entry, with its values as text.
type entryRecord struct {
	kernel.TargetText
	Was     string    `json:"was"`
	Set     []string  `json:"set"`
	WasTime time.Time `json:"was_time,omitzero"`
	Back    *string   `json:"back,omitempty"`
	Theirs  bool      `json:"theirs,omitempty"`
}

func (r entryRecord) entry() (e Entry, err error) {
	e = Entry{Target: r.Target(), WasTime: r.WasTime, Theirs: r.Theirs}
	parse := func(text string) kernel.Value {
		value, bad := e.Target.Parse(text)
		err = errors.Join(err, bad)
		return value
	}
	e.Was = parse(r.Was)
	for _, set := range r.Set {
		e.Set = append(e.Set, parse(set))
	}
	if r.Back != nil {
		e.Back = parse(*r.Back)
	}
	return e, err
}

func (e Entry) record() entryRecord {
	r := entryRecord{TargetText: e.Target.Text(), Was: e.Was.String(), Set: []string{}, WasTime: e.WasTime,
		Theirs: e.Theirs}
	for _, set := range e.Set {
		r.Set = append(r.Set, set.String())
	}
	if e.Back != nil {
		back := e.Back.String()
		r.Back = &back
	}
	return r
}

type promiseRecord struct {
	kernel.TargetText
	Value string `json:"value"`
}

// reverted is a Reverted, whose goal nobody needs to go back.
type reverted struct {
	Goal  StoredGoal  `json:"goal"`
	Notes []plan.Note `json:"notes,omitempty"`
}

type uplinkRecord struct {
	Goal StoredGoal `json:"goal"`
	Uplink
}

// StoredGoal is a goal as it is in a file, of whatever version.
type StoredGoal struct {
	plan.Goal
	unreadable error           // why this version does not understand it
	text       json.RawMessage // as another has written it
}

func (w *StoredGoal) UnmarshalJSON(text []byte) error {
	var of struct {
		Dev string `json:"dev"`
	}
	if err := json.Unmarshal(text, &of); err != nil {
		return err
	}
	err := json.Unmarshal(text, &w.Goal)
	if err == nil {
		err = w.Check()
	}
	if more := unknown(text, w.Goal); err == nil && len(more) > 0 {
		err = fmt.Errorf("it says %s, of a newer version", strings.Join(slices.Sorted(maps.Keys(more)), ", "))
	}
	if err != nil {
		w.Goal, w.unreadable, w.text = plan.Goal{Dev: of.Dev}, err, slices.Clone(text)
	}
	return nil
}

func (w StoredGoal) MarshalJSON() ([]byte, error) {
	if w.text != nil {
		return w.text, nil
	}
	return json.Marshal(w.Goal)
}

// StoredGoals are those to go back to. One is written without a list, as it was when there were no others.
type StoredGoals []StoredGoal

func (g *StoredGoals) UnmarshalJSON(text []byte) error {
	if len(text) > 0 && text[0] == '[' {
		return json.Unmarshal(text, (*[]StoredGoal)(g))
	}
	*g = make(StoredGoals, 1)
	return json.Unmarshal(text, &(*g)[0])
}

func (g StoredGoals) MarshalJSON() ([]byte, error) {
	if len(g) == 1 {
		return json.Marshal(g[0])
	}
	return json.Marshal([]StoredGoal(g))
}

// Plain are the goals as far as this version understands them.
func (g StoredGoals) Plain() (all []plan.Goal) {
	for _, w := range g {
		all = append(all, w.Goal)
	}
	return all
}

// Readable is an error if this version does not understand one of them.
func (g StoredGoals) Readable() error {
	for _, w := range g {
		if w.unreadable != nil {
			return notUnderstood(w.Dev, w.unreadable)
		}
	}
	return nil
}

// unknown are the members of an object that a value of its kind does not have.
func unknown(text []byte, known any) map[string]json.RawMessage {
	var all map[string]json.RawMessage
	_ = json.Unmarshal(text, &all)
	var drop func(reflect.Type)
	drop = func(t reflect.Type) {
		for i := range t.NumField() {
			f := t.Field(i)
			if f.Anonymous {
				drop(f.Type)
				continue
			}
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			delete(all, name)
		}
	}
	drop(reflect.TypeOf(known))
	return all
}

func (j *Journal) UnmarshalJSON(text []byte) error {
	var r record
	if err := json.Unmarshal(text, &r); err != nil {
		return err
	}
	*j = Journal{Version: r.Version, Boot: r.Boot, Namespace: r.Namespace, Cookie: r.Cookie, Pending: r.Pending,
		unknown: unknown(text, r)}
	for _, as := range r.Entries {
		e, err := as.entry()
		if err != nil {
			return err
		}
		j.Entries = append(j.Entries, e)
	}
	for _, p := range r.Promised {
		value, err := p.Target().Parse(p.Value)
		if err != nil {
			return err
		}
		j.Promised = append(j.Promised, Promise{p.Target(), value})
	}
	if r.Reverted != nil {
		j.Reverted = &Reverted{r.Reverted.Goal.Goal, r.Reverted.Notes}
	}
	for i, u := range append([]uplinkRecord{r.uplinkRecord}, r.More...) {
		if i == 0 && u.Goal.Goal == (plan.Goal{}) && u.Goal.unreadable == nil {
			continue // that there is none
		}
		u.Uplink.Goal, u.Uplink.unreadable, u.Uplink.text = u.Goal.Goal, u.Goal.unreadable, u.Goal.text
		j.Uplinks = append(j.Uplinks, u.Uplink)
	}
	return nil
}

func (j *Journal) MarshalJSON() ([]byte, error) {
	r := record{Version: j.Version, Boot: j.Boot, Namespace: j.Namespace, Cookie: j.Cookie, Pending: j.Pending}
	for _, e := range j.Entries {
		r.Entries = append(r.Entries, e.record())
	}
	for _, p := range j.Promised {
		r.Promised = append(r.Promised, promiseRecord{p.Target.Text(), p.Value.String()})
	}
	if j.Reverted != nil {
		r.Reverted = &reverted{StoredGoal{Goal: j.Reverted.Goal}, j.Reverted.Notes}
	}
	for i, u := range j.Uplinks {
		as := uplinkRecord{Uplink: u, Goal: StoredGoal{Goal: u.Goal}}
		if u.unreadable != nil {
			as.Goal.text = u.text
		}
		if i == 0 {
			r.uplinkRecord = as
		} else {
			r.More = append(r.More, as)
		}
	}
	text, err := json.Marshal(r)
	if err != nil || len(j.unknown) == 0 {
		return text, err
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, err
	}
	for name, value := range j.unknown {
		if _, there := all[name]; !there {
			all[name] = value
		}
	}
	return json.Marshal(all)
}
