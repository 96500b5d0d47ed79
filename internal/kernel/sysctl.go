// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"slices"
	"strings"

	"weir/internal/host"
)

// Sysctl is a setting, by its name with dots.
const Sysctl Kind = "sysctl"

func sysctl() Object {
	return Object{
		Kind:  Sysctl,
		Parse: func(text string) (Value, error) { return Setting(text), nil },
		Now: func(f host.Facts, name string) (Value, bool) {
			s, ok := f.Sysctls[name]
			return Setting(s.Value), ok
		},
		Owner: SysctlOwner,
		Valid: func(name string, _ Value) bool {
			return strings.HasPrefix(name, "net.") && !strings.ContainsAny(name, "/\x00")
		},
		Undo: func(f *host.Facts, at Place) {
			s := f.Sysctls[at.Name]
			s.Value = at.Was.String()
			f.Sysctls[at.Name] = s
		},
		Put: func(m Machine, at Place, want Value) error { return m.SetSysctl(at.Name, want.String()) },
	}
}

// Setting is a sysctl's value, as the kernel writes it.
type Setting string

func (s Setting) String() string { return string(s) }

// Meets compares the texts.
func (s Setting) Meets(want Value) bool { return want == Value(s) }

// SysctlOwner is Owner of the sysctl of this name.
func SysctlOwner(f host.Facts, name string) string {
	if f.Deep == nil {
		return ""
	}
	now := f.Sysctls[name].Value
	if s, ok := f.Deep.AtBoot(name); ok && f.Leaves(name, s.Value, now) {
		return "set by " + s.Where()
	}
	for _, w := range slices.Backward(f.Deep.Writers) {
		if w.Sysctl == name && f.Leaves(name, w.Value, now) {
			return fmt.Sprintf("set by %s, %s", w.By, w.Where())
		}
	}
	for _, s := range slices.Backward(f.Deep.Settings) {
		if s.Sysctl == name && f.Leaves(name, s.Value, now) {
			return "as in " + s.Where()
		}
	}
	return ""
}
