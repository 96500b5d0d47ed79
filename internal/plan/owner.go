// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"weir/internal/dualpi2"
	"weir/internal/host"
)

// Owner says to whom a setting's present value is due, as far as files and the kernel tell; "" if they do not.
func Owner(f host.Facts, t Target) string {
	switch {
	case t.Sysctl != "":
		return sysctlOwner(f, t.Sysctl)
	case t.Dev != "":
		return queueOwner(f, t.Dev)
	case f.Files[t.File].Kind == host.Regular && !IsOurs(f.Files[t.File]):
		return "somebody else wrote it"
	}
	return ""
}

func sysctlOwner(f host.Facts, name string) string {
	if f.Deep == nil {
		return ""
	}
	now := f.Sysctls[name].Value
	if s, ok := f.Deep.AtBoot(name); ok && s.Sets(now) {
		return "set by " + Where(s.File, s.Line)
	}
	for _, w := range slices.Backward(f.Deep.Writers) {
		if w.Sysctl == name && (host.Setting{Value: w.Value}).Sets(now) {
			return fmt.Sprintf("set by %s, %s", w.By, Where(w.File, w.Line))
		}
	}
	for _, s := range slices.Backward(f.Deep.Settings) {
		if s.Sysctl == name && s.Sets(now) {
			return "as in " + Where(s.File, s.Line)
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
			if w.Qdisc == root.Kind && w.By != "modules-load" && names(w.Dev, dev) {
				return fmt.Sprintf("set by %s, %s", w.By, Where(w.File, w.Line))
			}
		}
	}
	if strings.HasPrefix(root.Kind, dualpi2.Prefix) {
		return "weir dualpi2"
	}
	return "somebody set it, by hand or by a program"
}

// names tells whether the names that a file has could mean a device: patterns, or what a script or udev fills in.
func names(written, dev string) bool {
	return written == "" || strings.ContainsAny(written, "$%{") ||
		slices.ContainsFunc(strings.Fields(written), func(pattern string) bool {
			ok, _ := path.Match(pattern, dev)
			return ok
		})
}
