// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"

	"weir/internal/bpf"
	"weir/internal/qdisc"
)

// support says which queueing disciplines the kernel has.
//
// Where the kernel's modules are listed on disk, the list is the answer: asking the kernel for a kind makes it load the
// module, and a reader must not change what it reads. Where there is no list each kind is tried, but only on a kernel
// that can load nothing: a container without /lib/modules has the host's kernel, which loads the host's.
func support(root fs.FS, release string, try func([]string) (map[string]bool, error)) map[string]Support {
	answers, kinds := map[string]Support{}, qdisc.Kinds()
	kinds = slices.DeleteFunc(kinds, func(kind string) bool { // in no kernel and no module
		return slices.Contains(qdisc.BPFKinds(), kind)
	})
	if index := modules(root, release); index.known() {
		for _, kind := range kinds {
			answers[kind] = No
			if index.qdisc(kind) {
				answers[kind] = Yes
			}
		}
		return answers
	}
	var tried map[string]bool
	err := error(fs.ErrPermission)
	if !loads(root) {
		tried, err = try(kinds)
	}
	for _, kind := range kinds {
		has, ok := tried[kind]
		switch {
		case err != nil || !ok:
			answers[kind] = Unknown
		case has:
			answers[kind] = Yes
		default:
			answers[kind] = No
		}
	}
	return answers
}

// readObjects asks the kernel by these probes, by name, which objects it takes.
func (f *Facts) readObjects(probes map[string]func() error) {
	f.Objects, f.Lacks = map[string]Support{}, map[string]string{}
	for name, probe := range probes {
		support, why := supportOf(f.Admin, probe)
		f.Objects[name] = support
		if why != "" {
			f.Lacks[name] = why
		}
	}
}

// supportOf returns whether the kernel takes an object that this program brings along, and else why not. Who may load
// no programs need not ask.
func supportOf(admin bool, probe func() error) (Support, string) {
	if !admin {
		return Unknown, "whether it does is for root to find out"
	}
	switch err := probe(); {
	case err == nil:
		return Yes, ""
	case errors.Is(err, bpf.ErrNotSupported):
		return No, strings.TrimPrefix(err.Error(), bpf.ErrNotSupported.Error()+": ")
	default:
		return Unknown, err.Error()
	}
}

// loads reports whether the kernel could load a module when it is asked for what it lacks.
func loads(root fs.FS) bool {
	if _, err := fs.Stat(root, "proc/modules"); err != nil {
		return false // built without modules
	}
	if line(root, "proc/sys/kernel/modules_disabled") == "1" {
		return false
	}
	helper, err := fs.ReadFile(root, "proc/sys/kernel/modprobe")
	return err != nil || len(bytes.TrimSpace(helper)) > 0
}

// index is what /lib/modules says of a kernel: its modules, built in or not, and their aliases.
type index struct {
	files  []string // "kernel/net/sched/sch_cake.ko.xz"
	alias  []byte   // modules.alias and modules.builtin.modinfo
	loaded []byte   // /proc/modules and modules.builtin: what is there whether or not it has an alias
}

func modules(root fs.FS, release string) index {
	dir := path.Join("lib/modules", path.Base(release))
	var x index
	for _, name := range []string{"modules.dep", "modules.builtin"} {
		text, _ := fs.ReadFile(root, path.Join(dir, name))
		for l := range bytes.Lines(text) {
			file, _, _ := bytes.Cut(bytes.TrimSpace(l), []byte(":"))
			if len(file) > 0 && bytes.Contains(file, []byte("net/")) {
				x.files = append(x.files, string(file))
			}
		}
	}
	for _, name := range []string{"modules.alias", "modules.builtin.modinfo"} {
		text, _ := fs.ReadFile(root, path.Join(dir, name))
		x.alias = append(x.alias, text...)
	}
	builtin, _ := fs.ReadFile(root, path.Join(dir, "modules.builtin"))
	there, _ := fs.ReadFile(root, "proc/modules")
	x.loaded = slices.Concat(there, builtin)
	return x
}

func (x index) known() bool { return len(x.files) > 0 }

// qdisc reports whether a kind is there. Those that every kernel with traffic control has are in no module.
func (x index) qdisc(kind string) bool {
	switch kind {
	case "bfifo", "mq", "noqueue", "pfifo", "pfifo_fast":
		return true
	case "cake_mq": // in the module of cake, since Linux 7.0; its alias tells
		return bytes.Contains(x.alias, []byte("net-sch-cake_mq"))
	case "dualpi2": // 6.17 to 7.1 have no alias for it, by which it would be loaded (upstream ee1ba0add3fb)
		return bytes.Contains(x.alias, []byte("net-sch-dualpi2")) || bytes.Contains(x.loaded, []byte("sch_dualpi2"))
	}
	return slices.ContainsFunc(x.files, func(file string) bool { return module(file) == "sch_"+kind })
}

// others are the queueing disciplines among the modules that are none of these.
func (x index) others(kinds map[string]Support) (names []string) {
	for _, file := range x.files {
		name, ok := strings.CutPrefix(module(file), "sch_")
		if _, known := kinds[name]; ok && !known {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// IngressModules are what it takes to redirect what arrives at a device to another, which has a queue.
func IngressModules() []string { return []string{"ifb", "sch_ingress", "cls_matchall", "act_mirred"} }

// UnpackModules are what it takes besides to tell a tunnel's packets from the others.
func UnpackModules() []string { return []string{"cls_flower", "cls_u32"} }

func (x index) ingress() Support { return x.all(IngressModules()...) }

// all reports whether all of some modules are there.
func (x index) all(names ...string) Support {
	if !x.known() {
		return Unknown
	}
	for _, name := range names {
		if !slices.ContainsFunc(x.files, func(file string) bool { return module(file) == name }) {
			return No
		}
	}
	return Yes
}

// loadable lists the congestion controls among the modules.
func loadable(root fs.FS, release string) []string {
	var names []string
	for _, file := range modules(root, release).files {
		name, ok := strings.CutPrefix(module(file), "tcp_")
		if ok && path.Base(path.Dir(file)) == "ipv4" && name != "diag" && name != "sigpool" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// module is the name of a module by its file; the kernel takes - and _ for the same.
func module(file string) string {
	name, _, _ := strings.Cut(path.Base(file), ".ko")
	return strings.ReplaceAll(name, "-", "_")
}
