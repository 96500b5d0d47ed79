// SPDX-License-Identifier: Apache-2.0

package text

import "testing"

func TestInstall(t *testing.T) {
	ssh := Package{Debian: "openssh-client", Fedora: "openssh-clients", SUSE: "openssh-clients",
		Alpine: "openssh-client", Arch: "openssh"}
	for release, want := range map[string]string{
		"PRETTY_NAME=\"Debian GNU/Linux 13 (trixie)\"\nID=debian\n": "apt-get install openssh-client",
		"ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n":                 "apt-get install openssh-client",
		"ID=fedora\n": "dnf install openssh-clients",
		"ID_LIKE=\"rhel centos fedora\"\nID=\"rocky\"\n": "dnf install openssh-clients",
		"ID='opensuse-leap'\nID_LIKE='suse opensuse'\n":  "zypper install openssh-clients",
		"ID=alpine\n":       "apk add openssh-client",
		"ID=arch\n":         "pacman -S openssh",
		"ID=nixos\n":        "install what Debian calls openssh-client",
		"":                  "install what Debian calls openssh-client",
		"ID\n=\nID_LIKE=\n": "install what Debian calls openssh-client",
	} {
		if got := ssh.Install(release); got != want {
			t.Errorf("%q: %s, want %s", release, got, want)
		}
	}
}

func FuzzInstall(f *testing.F) {
	f.Add("ID=debian\nID_LIKE=\"a b\"")
	f.Fuzz(func(t *testing.T, release string) {
		if (Package{Debian: "x"}).Install(release) == "" {
			t.Error("nothing to do")
		}
	})
}
