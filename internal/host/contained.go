// SPDX-License-Identifier: Apache-2.0

package host

import (
	"encoding/json"
	"path"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// Contained is a sysctl that a container is given when it starts, whatever this host has.
type Contained struct {
	By     string `json:"by"`             // docker, podman, LXC, Proxmox
	Name   string `json:"name,omitempty"` // of the container; "": of each that has none of its own
	File   string `json:"file"`
	Line   int    `json:"line,omitempty"` // 0: the whole file is one
	Sysctl string `json:"sysctl"`
	Value  string `json:"value"`
}

// Where says where it is, as compilers do: "FILE:LINE".
func (c Contained) Where() string { return location(c.File, c.Line) }

// contained are the sysctls of containers that plans set, too.
func (t *tree) contained() []Contained {
	all := slices.Concat(t.docker(), t.podman(), t.lxc())
	return slices.DeleteFunc(all, func(c Contained) bool { return !slices.Contains(sysctls, c.Sysctl) })
}

// docker reads what dockerd keeps of each container (--sysctl, and sysctls of Compose).
func (t *tree) docker() (found []Contained) {
	dir := "/var/lib/docker"
	var daemon struct {
		Root string `json:"data-root"`
	}
	if json.Unmarshal(t.read("etc/docker/daemon.json"), &daemon) == nil && path.IsAbs(daemon.Root) {
		dir = path.Clean(daemon.Root)
	}
	dir = path.Join(dir, "containers")
	for _, id := range t.subdirectories(dir[1:]) {
		var config struct{ Name string }
		var host struct{ Sysctls map[string]string }
		file := path.Join(dir, id, "hostconfig.json")
		if json.Unmarshal(t.read(file[1:]), &host) != nil || len(host.Sysctls) == 0 {
			continue
		}
		_ = json.Unmarshal(t.read(path.Join(dir, id, "config.v2.json")[1:]), &config)
		for key, value := range host.Sysctls {
			found = append(found, Contained{By: "docker", Name: strings.TrimPrefix(config.Name, "/"), File: file,
				Sysctl: key, Value: joinFields(value)})
		}
	}
	slices.SortFunc(found, func(a, b Contained) int { return strings.Compare(a.File+a.Sysctl, b.File+b.Sysctl) })
	return found
}

// podman reads what root's containers get (containers.conf(5)), where the last file that says something counts, and
// what single ones do (podman-systemd.unit(5)).
func (t *tree) podman() (found []Contained) {
	const dir = "etc/containers"
	files := []string{"usr/share/containers/containers.conf", dir + "/containers.conf"}
	for _, name := range t.list(dir+"/containers.conf.d", ".conf") {
		files = append(files, path.Join(dir, "containers.conf.d", name))
	}
	for _, file := range files {
		var conf struct {
			Containers struct {
				Sysctls []string `toml:"default_sysctls"`
			}
		}
		if toml.Unmarshal(t.read(file), &conf) != nil || conf.Containers.Sysctls == nil {
			continue
		}
		found = nil
		for _, assignment := range conf.Containers.Sysctls {
			key, value, _ := strings.Cut(assignment, "=")
			found = append(found, Contained{By: "podman", File: "/" + file, Sysctl: key, Value: joinFields(value)})
		}
	}
	for _, name := range t.list(dir+"/systemd", ".container") {
		file := path.Join(dir, "systemd", name)
		for number, l := range logicalLines(t.read(file)) {
			key, list, _ := strings.Cut(l, "=")
			if strings.TrimSpace(key) != "Sysctl" {
				continue
			}
			for assignment := range strings.FieldsSeq(list) {
				key, value, _ := strings.Cut(assignment, "=")
				found = append(found, Contained{By: "podman", Name: strings.TrimSuffix(name, ".container"),
					File: "/" + file, Line: number, Sysctl: key, Value: value})
			}
		}
	}
	return found
}

// lxc reads the configuration of LXC's containers (lxc.container.conf(5)), which LXD, Incus and Proxmox have written,
// too. What follows the first heading of Proxmox's is a snapshot's.
func (t *tree) lxc() (found []Contained) {
	scan := func(by, name, file string) {
		for number, l := range logicalLines(t.read(file)) {
			if section.MatchString(l) {
				return
			}
			key, ours := strings.CutPrefix(l, "lxc.sysctl.")
			if at := strings.IndexAny(key, ":="); ours && at > 0 {
				found = append(found, Contained{By: by, Name: name, File: "/" + file, Line: number,
					Sysctl: strings.TrimSpace(key[:at]), Value: joinFields(key[at+1:])})
			}
		}
	}
	for _, at := range [][2]string{{"var/lib/lxc", "config"}, {"var/log/lxd", "lxc.conf"},
		{"var/snap/lxd/common/lxd/logs", "lxc.conf"}, {"var/log/incus", "lxc.conf"}, {"run/incus", "lxc.conf"}} {
		for _, name := range t.subdirectories(at[0]) {
			scan("LXC", name, path.Join(at[0], name, at[1]))
		}
	}
	for _, name := range t.list("etc/pve/lxc", ".conf") {
		scan("Proxmox", strings.TrimSuffix(name, ".conf"), path.Join("etc/pve/lxc", name))
	}
	return found
}
