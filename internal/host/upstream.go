// SPDX-License-Identifier: Apache-2.0

package host

import (
	"regexp"
	"strings"
)

// Builder is how those who build kernels mend them; empty where that is not known, or where it is something between.
type Builder string

const (
	StableBuilder   Builder = "stable"    // takes the stable releases of Linux as they come: Debian
	BackportBuilder Builder = "backports" // keeps the first release of a series, and adds mends to it: RHEL, SLES
)

// build is what a kernel's builder says of it beside its release: Ubuntu in a file of its own
// (/proc/version_signature), Debian in the version (uname -v). Both name the release of Linux that it is made from.
func build(version, signature string) string {
	if signature != "" {
		return signature
	}
	if _, debian, ok := strings.Cut(version, "Debian "); ok {
		word, _, _ := strings.Cut(debian, " ")
		return "Debian " + word
	}
	return ""
}

var (
	ofDebian = regexp.MustCompile(`^Debian (\d+\.\d+(?:\.\d+)?)`)      // "Debian 6.12.107-1"
	ofUbuntu = regexp.MustCompile(`^Ubuntu \S+ (\d+\.\d+(?:\.\d+)?)$`) // "Ubuntu 6.8.0-31.31-generic 6.8.1"
	// Releases of RHEL and what is made from its source, and of SLES, which has its service pack there in six digits:
	// "6.12.0-55.9.1.el10_0.x86_64", "6.4.0-150600.23.25-default"
	ofBackports = regexp.MustCompile(`\.el\d|^\d+\.\d+\.0-\d{6}\.`)
)

// Upstream is the release of Linux that the kernel is made from, as far as it says so, and how its builder mends it.
func (f Facts) Upstream() (release string, by Builder) {
	if m := ofDebian.FindStringSubmatch(f.Build); m != nil {
		return m[1], StableBuilder
	}
	if m := ofUbuntu.FindStringSubmatch(f.Build); m != nil {
		return m[1], ""
	}
	if ofBackports.MatchString(f.Kernel) {
		return f.Kernel, BackportBuilder
	}
	return f.Kernel, ""
}
