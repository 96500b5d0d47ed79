// SPDX-License-Identifier: Apache-2.0

package text

import (
	"slices"
	"strings"
)

// Package is what distributions call the package of one program.
type Package struct{ Debian, Fedora, SUSE, Alpine, Arch string }

// Install is the command that installs it, by what is in /etc/os-release (os-release(5)).
func (p Package) Install(release string) string {
	var ids []string
	for line := range strings.Lines(release) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		value = strings.Trim(value, `"'`)
		switch key {
		case "ID":
			ids = append([]string{value}, ids...) // before those that it is like
		case "ID_LIKE":
			ids = append(ids, strings.Fields(value)...)
		}
	}
	for _, id := range ids {
		for _, d := range []struct {
			ids     []string
			command string
		}{
			{[]string{"debian", "ubuntu"}, "apt-get install " + p.Debian},
			{[]string{"fedora", "rhel", "centos"}, "dnf install " + p.Fedora},
			{[]string{"suse", "opensuse"}, "zypper install " + p.SUSE},
			{[]string{"alpine"}, "apk add " + p.Alpine},
			{[]string{"arch"}, "pacman -S " + p.Arch},
		} {
			if slices.Contains(d.ids, id) {
				return d.command
			}
		}
	}
	return "install what Debian calls " + p.Debian
}
