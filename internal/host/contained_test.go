// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
)

// What containers are given when they start, by whoever starts them.
func TestContained(t *testing.T) {
	const bbr, ecn = "net.ipv4.tcp_congestion_control", "net.ipv4.tcp_ecn"
	docker := func(dir string) fstest.MapFS {
		return fstest.MapFS{
			dir + "/containers/a/hostconfig.json": file(`{"Memory":0,"Sysctls":{"` + bbr + `":"cubic","` + ecn +
				`":"1","net.ipv4.ping_group_range":"0 0"}}`),
			dir + "/containers/a/config.v2.json":  file(`{"Name":"/web"}`),
			dir + "/containers/b/hostconfig.json": file(`{"Sysctls":null}`),
			dir + "/containers/c/hostconfig.json": file(`{`),
		}
	}
	moved := docker("srv/docker")
	moved["etc/docker/daemon.json"] = file(`{"data-root":"/srv/docker/"}`)
	for name, test := range map[string]struct {
		files fstest.MapFS
		want  string // "BY NAME FILE:LINE SYSCTL=VALUE", separated by "; "
	}{
		"docker": {docker("var/lib/docker"), "docker web /var/lib/docker/containers/a/hostconfig.json " + bbr +
			"=cubic; docker web /var/lib/docker/containers/a/hostconfig.json " + ecn + "=1"},
		"docker's root elsewhere": {moved, "docker web /srv/docker/containers/a/hostconfig.json " + bbr +
			"=cubic; docker web /srv/docker/containers/a/hostconfig.json " + ecn + "=1"},
		"podman": {fstest.MapFS{
			"usr/share/containers/containers.conf": file("[containers]\ndefault_sysctls = [\"" + ecn + "=3\"]\n"),
			"etc/containers/containers.conf": file("[containers]\ndefault_sysctls = [\n \"" + ecn +
				"=1\",\n \"net.ipv4.ping_group_range=0 0\",\n]\n"),
			"etc/containers/containers.conf.d/a.conf": file("[engine]\nx = 1\n")},
			"podman  /etc/containers/containers.conf " + ecn + "=1"},
		"a unit of podman's": {fstest.MapFS{
			"etc/containers/systemd/db.container": file("[Container]\nImage=x\nSysctl=" + ecn +
				"=1 " + bbr + "=reno\n")},
			"podman db /etc/containers/systemd/db.container:3 " + ecn + "=1; podman db " +
				"/etc/containers/systemd/db.container:3 " + bbr + "=reno"},
		"LXC": {fstest.MapFS{"var/lib/lxc/web/config": file("lxc.uts.name = web\nlxc.sysctl." + bbr + " = cubic\n")},
			"LXC web /var/lib/lxc/web/config:2 " + bbr + "=cubic"},
		"Incus": {fstest.MapFS{"run/incus/web/lxc.conf": file("lxc.sysctl." + ecn + "=1\n")},
			"LXC web /run/incus/web/lxc.conf:1 " + ecn + "=1"},
		"Proxmox": {fstest.MapFS{"etc/pve/lxc/101.conf": file("hostname: web\nlxc.sysctl." + bbr + ": cubic\n\n" +
			"[before]\nlxc.sysctl." + ecn + ": 1\n")}, "Proxmox 101 /etc/pve/lxc/101.conf:2 " + bbr + "=cubic"},
	} {
		var got []string
		for _, c := range settings(test.files).Contained {
			got = append(got, fmt.Sprintf("%s %s %s %s=%s", c.By, c.Name, c.Where(), c.Sysctl, c.Value))
		}
		if all := strings.Join(got, "; "); all != test.want {
			t.Errorf("%s:\n%s, want\n%s", name, all, test.want)
		}
	}
}
