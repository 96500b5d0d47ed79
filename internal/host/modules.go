// SPDX-License-Identifier: Apache-2.0

package host

import "regexp"

// AllModules is how to get the modules that a kernel is without, by its release: distributions put most of them into a
// package of their own.
func AllModules(release string) string {
	for _, d := range []struct {
		release *regexp.Regexp
		command string
	}{
		{regexp.MustCompile(`\.(el|fc)\d+`), "dnf install kernel-modules-extra-"},
		{regexp.MustCompile(`^\d+\.\d+\.\d+-\d+-(generic|aws|azure|gcp|gke|ibm|oracle|kvm)$`),
			"apt-get install linux-modules-extra-"},
		// Debian's has all of them: they were taken away.
		{regexp.MustCompile(`^\d+\.\d+\.\d+(-\d+|\+deb\d+)\S*-(amd64|arm64)$`),
			"apt-get install --reinstall linux-image-"},
	} {
		if d.release.MatchString(release) {
			return d.command + release
		}
	}
	return "install the package with all of the kernel's modules"
}
