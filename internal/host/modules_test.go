// SPDX-License-Identifier: Apache-2.0

package host

import "testing"

// Where the modules of a kernel are is told by whose it is; of one that nobody knows nothing is promised.
func TestAllModules(t *testing.T) {
	const unknown = "install the package with all of the kernel's modules"
	for release, want := range map[string]string{
		"5.14.0-427.13.1.el9_4.x86_64": "dnf install kernel-modules-extra-5.14.0-427.13.1.el9_4.x86_64",
		"6.11.4-301.fc41.x86_64":       "dnf install kernel-modules-extra-6.11.4-301.fc41.x86_64",
		"6.8.0-45-generic":             "apt-get install linux-modules-extra-6.8.0-45-generic",
		"6.8.0-1016-aws":               "apt-get install linux-modules-extra-6.8.0-1016-aws",
		"6.1.0-50-cloud-amd64":         "apt-get install --reinstall linux-image-6.1.0-50-cloud-amd64",
		"7.3.4+deb13-cloud-amd64":      "apt-get install --reinstall linux-image-7.3.4+deb13-cloud-amd64",
		"6.18.44-fc-v657":              unknown,
		"6.12.1":                       unknown,
		"6.6.31-0-virt":                unknown,
		"":                             unknown,
	} {
		if got := AllModules(release); got != want {
			t.Errorf("%s: %s, want %s", release, got, want)
		}
	}
}
