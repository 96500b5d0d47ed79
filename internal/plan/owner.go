// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"

	"weir/internal/dualpi2"
	"weir/internal/host"
)

// Owner says to whom a setting's present value is due, as far as files and the kernel tell; "" if they do not.
func Owner(f host.Facts, t Target) string {
	switch t.Kind {
	case Sysctl:
		return SysctlOwner(f, t.Name)
	case Root:
		return queueOwner(f, t.Name)
	case File:
		if now := f.Files[t.Name]; now.Kind == host.Regular && !IsOurs(now) {
			return "somebody else wrote it"
		}
	}
	return ""
}

// SysctlOwner is Owner of the sysctl of this name.
func SysctlOwner(f host.Facts, name string) string {
	if f.Deep == nil {
		return ""
	}
	now := f.Sysctls[name].Value
	if s, ok := f.Deep.AtBoot(name); ok && s.Sets(now) {
		return "set by " + s.Where()
	}
	for _, w := range slices.Backward(f.Deep.Writers) {
		if w.Sysctl == name && (host.Setting{Value: w.Value}).Sets(now) {
			return fmt.Sprintf("set by %s, %s", w.By, w.Where())
		}
	}
	for _, s := range slices.Backward(f.Deep.Settings) {
		if s.Sysctl == name && s.Sets(now) {
			return "as in " + s.Where()
		}
	}
	return ""
}

func queueOwner(f host.Facts, dev string) string {
	link, _ := f.Link(dev)
	root, ok := link.Tree.Root()
	switch {
	case !ok:
		return ""
	case root.Handle == 0:
		return "the kernel made it by itself"
	case f.Deep != nil:
		for _, w := range slices.Backward(f.Deep.Writers) {
			if w.Qdisc == root.Kind && w.By != "modules-load" && w.Means(dev) {
				return fmt.Sprintf("set by %s, %s", w.By, w.Where())
			}
		}
	}
	if strings.HasPrefix(root.Kind, dualpi2.Prefix) {
		return "weir dualpi2"
	}
	return "somebody set it, by hand or by a program"
}
