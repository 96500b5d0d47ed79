// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"errors"
	"fmt"
	"strings"
)

// Stack is a root and what hangs below it, one level after the other: {cake}, {htb, fq_codel}, {mq, fq}. Below mq each
// queue has the same. Its text is the levels with bars between them: "htb rate 49.875mbit | fq_codel". A lone mq leaves
// its queues to the kernel, and reads back with what the kernel chose.
type Stack []Spec

// ParseStack reads what String writes.
func ParseStack(text string) (Stack, error) {
	var s Stack
	for _, level := range strings.Split(text, "|") {
		spec, err := Parse(level)
		if err != nil {
			return nil, err
		}
		s = append(s, spec)
	}
	return s.Check()
}

// Check rounds each level as the kernel will, and refuses what the kernel would.
func (s Stack) Check() (Stack, error) {
	if len(s) == 0 {
		return nil, errors.New("no queueing discipline given")
	}
	var checked Stack
	for i, level := range s {
		if level == nil {
			return nil, errors.New("a level of the stack is empty")
		}
		spec, err := check(level)
		if err != nil {
			return nil, err
		}
		k, ok := find(spec.Kind())
		switch {
		case !ok:
			return nil, unknown("queueing discipline", spec.Kind(), Kinds())
		case i < len(s)-1 && k.slots == noSlots:
			return nil, fmt.Errorf("nothing can hang below %s", k.name)
		case i > 0 && k.rootOnly && !(i == 1 && s[0].Kind() == BPFShaping):
			return nil, fmt.Errorf("%s can only be the root", k.name)
		case k.slots == onTop && !s[1:].keepsTimes():
			return nil, fmt.Errorf("below %s goes fq, or mq | fq on a device with several queues: %s | fq", k.name,
				spec)
		}
		checked = append(checked, spec)
	}
	return checked, nil
}

// keepsTimes reports whether a stack holds each packet until the time that it was given.
func (s Stack) keepsTimes() bool {
	if len(s) == 2 && s[0] != nil && s[0].Kind() == "mq" {
		s = s[1:]
	}
	return len(s) == 1 && s[0] != nil && s[0].Kind() == "fq"
}

func (s Stack) String() string {
	var levels []string
	for _, level := range s {
		levels = append(levels, level.String())
	}
	return strings.Join(levels, " | ")
}

// Equal reports whether both configure the same. Values that the kernel cannot tell apart are equal, and netem's seed
// only counts where both sides name one.
func (s Stack) Equal(other Stack) bool {
	if len(s) != len(other) {
		return false
	}
	for i := range s {
		if !alike(s[i], other[i]) {
			return false
		}
	}
	return true
}

func alike(a, b Spec) bool {
	if a == nil || b == nil {
		return a == b
	}
	a, b = rounded(a), rounded(b)
	if loose, ok := a.(interface{ alike(Spec) bool }); ok {
		return loose.alike(b)
	}
	return a == b
}

// rounded is a Spec with the values that the kernel would have of it, where it has a meaning.
func rounded(s Spec) Spec {
	if x, err := s.edit().finish(); err == nil {
		return x
	}
	return s
}

// MarshalText lets JSON and TOML carry what a person would write.
func (s Stack) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (s *Stack) UnmarshalText(b []byte) (err error) {
	*s, err = ParseStack(string(b))
	return err
}
