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
		// A weir can register no other version than its own, so an older one's comes back as that.
		Possible: func(f host.Facts, v Value) Value {
			if v == Absent || v == NotOurs {
				return v
			}
			return Version(f.Congestion.Brings)
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
				return m.RemoveBBR()
			}
			return m.RegisterBBR()
		},
	}
}

// Version is that of a congestion control in BPF: eight hexadecimal digits, Absent, NotOurs or Unseen.
type Version string

// What a kernel has in place of a version of Weir's.
const (
	Absent  Version = "none"
	NotOurs Version = "not weir's" // built in, or registered by another program
	Unseen  Version = "there"      // only root may look into it: it is taken for what it was set to
)

func (v Version) String() string { return string(v) }

// Meets compares the versions. One that was not seen may be any.
func (v Version) Meets(want Value) bool {
	return want == Value(v) || v == Unseen && want != Value(Absent) && want != Value(NotOurs)
}

// OtherVersion reports whether a host has the bpf_bbr of another weir, as of one before an upgrade, in place of the
// version that is wanted.
func OtherVersion(now, want Value) bool {
	known := func(v Value) bool {
		version, ok := v.(Version)
		return ok && version != Absent && version != NotOurs && version != Unseen
	}
	return known(now) && known(want) && now != want
}

// VersionOf is the bpf_bbr that a host has.
func VersionOf(f host.Facts) Version {
	switch {
	case !f.Congestion.Has(bbr.Name):
		return Absent
	case f.Congestion.Registered != "":
		return Version(f.Congestion.Registered)
	case !f.Admin:
		return Unseen
	}
	return NotOurs
}
