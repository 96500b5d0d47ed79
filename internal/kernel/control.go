// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"slices"

	"weir/internal/bbr"
	"weir/internal/host"
)

// Control is a congestion control in BPF, by the name that programs and sysctls have for it. The kernel has it for all
// of its network namespaces.
const Control Kind = "cc"

func control() Object {
	return Object{
		Kind:  Control,
		Parse: func(text string) (Value, error) { return Version(text), nil },
		Now:   func(f host.Facts, name string) (Value, bool) { return VersionOf(f), name == bbr.Name },
		Owner: func(host.Facts, string) string { return "" },
		Hidden: func(f host.Facts, _ string) string {
			if f.Congestion.Has(bbr.Name) {
				return "a congestion control in BPF"
			}
			return ""
		},
		// One of another weir's is ours as well.
		Ours:   func(now Value, _ []Value) bool { return now != Absent && now != NotOurs },
		Valid:  func(name string, was Value) bool { return name == bbr.Name && was == Absent },
		Before: func(Value) Value { return Absent },
		Undo: func(f *host.Facts, _ Place) {
			f.Congestion.Registered = ""
			f.Congestion.Available = slices.DeleteFunc(slices.Clone(f.Congestion.Available),
				func(name string) bool { return name == bbr.Name })
		},
		Put: func(m Machine, _ Place, want Value) error {
			if want == Absent {
				return m.SetBBR("")
			}
			return m.SetBBR(want.String())
		},
	}
}

// Version is that of a congestion control in BPF: eight hexadecimal digits, Absent or NotOurs.
type Version string

// What a kernel has in place of a version of Weir's.
const (
	Absent  Version = "none"
	NotOurs Version = "not weir's" // built in, or registered by another program
)

func (v Version) String() string { return string(v) }

// Meets compares the versions.
func (v Version) Meets(want Value) bool { return want == Value(v) }

// VersionOf is the bpf_bbr that a host has.
func VersionOf(f host.Facts) Version {
	switch {
	case !f.Congestion.Has(bbr.Name):
		return Absent
	case f.Congestion.Registered != "":
		return Version(f.Congestion.Registered)
	}
	return NotOurs
}
