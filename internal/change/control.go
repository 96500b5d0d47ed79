// SPDX-License-Identifier: Apache-2.0

package change

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"weir/internal/bbr"
	"weir/internal/host"
	"weir/internal/text"
)

// RegisterBBR registers it. A namespace whose default it is keeps the one that it had, for new connections too, until
// its sysctl is written.
func (l live) RegisterBBR() error {
	users := namespacesWith(bbr.Name)
	if err := bbr.Remove(); err != nil && !errors.Is(err, bbr.ErrNone) {
		return err
	}
	if err := bbr.Load(); err != nil {
		return err
	}
	return l.setDefaults(users, bbr.Name)
}

// RemoveBBR takes it away last: who is killed before finds it, and does all of it again.
func (l live) RemoveBBR() error {
	content, err := os.ReadFile(host.SysctlPath(defaultControl))
	if err != nil {
		return withoutPath(err)
	}
	// This namespace's is put back already, unless it is somebody else's by now.
	if instead := strings.TrimSpace(string(content)); instead != bbr.Name {
		if err := l.setDefaults(namespacesWith(bbr.Name), instead); err != nil {
			return err
		}
	}
	if err := bbr.Remove(); !errors.Is(err, bbr.ErrNone) {
		return err
	}
	return nil
}

// setDefaults chooses a congestion control in network namespaces.
func (l live) setDefaults(namespaces []string, control string) error {
	var failed []error
	for _, ns := range namespaces {
		failed = append(failed, withNamespace(ns, func() error { return l.SetSysctl(defaultControl, control) }))
	}
	return errors.Join(failed...)
}

const defaultControl = "net.ipv4.tcp_congestion_control"

// ControlUse is who uses Weir's congestion control.
type ControlUse struct {
	// connections by the version that they have: "" of one that no Weir registered
	Connections map[string]int `json:"connections"`
	Namespaces  []string       `json:"namespaces,omitempty"` // others whose new connections use it
}

// ReadControlUse looks at every network namespace that can be entered. Where Weir's is not registered, or this process
// may not see that, it is nil.
func ReadControlUse() *ControlUse {
	if version, err := bbr.Registered(); err != nil || version == "" {
		return nil
	}
	use := &ControlUse{Connections: map[string]int{}}
	for _, file := range namespaces() {
		_ = withNamespace(file, func() error {
			if file != ownNamespace && isDefault(bbr.Name) {
				use.Namespaces = append(use.Namespaces, namespaceName(file))
			}
			all, err := bbr.Connections()
			for _, c := range all {
				use.Connections[c.Version]++
			}
			return err
		})
	}
	return use
}

// namespaceName is what people call a network namespace whose file this is.
func namespaceName(file string) string {
	pid, isProcess := strings.CutPrefix(strings.TrimSuffix(file, "/ns/net"), "/proc/")
	if !isProcess {
		return filepath.Base(file)
	}
	name, _ := os.ReadFile(filepath.Join("/proc", pid, "comm"))
	return fmt.Sprintf("that of process %s (%s)", pid, text.OneLine(strings.TrimSpace(string(name))))
}

// namespacesWith are the files of those network namespaces whose new connections have a congestion control.
func namespacesWith(control string) (files []string) {
	for _, file := range namespaces() {
		_ = withNamespace(file, func() error {
			if isDefault(control) {
				files = append(files, file)
			}
			return nil
		})
	}
	return files
}

// isDefault reports whether new connections in the thread's network namespace have a congestion control.
func isDefault(control string) bool {
	content, err := os.ReadFile(host.SysctlPath(defaultControl))
	return err == nil && strings.TrimSpace(string(content)) == control
}

const ownNamespace = "/proc/thread-self/ns/net"

// namespaces are files of network namespaces, this thread's first. Those that no process and no file of ip-netns(8) or
// a container engine shows are left out.
func namespaces() (files []string) {
	seen := map[string]bool{}
	for _, pattern := range []string{ownNamespace, "/run/netns/*", "/run/docker/netns/*", "/proc/[0-9]*/ns/net"} {
		found, _ := filepath.Glob(pattern)
		for _, file := range found {
			var stat unix.Stat_t
			if unix.Stat(file, &stat) != nil || seen[fmt.Sprint(stat.Dev, stat.Ino)] {
				continue
			}
			seen[fmt.Sprint(stat.Dev, stat.Ino)] = true
			files = append(files, file)
		}
	}
	return files
}

// withNamespace runs a function on a thread of its own that is in a network namespace, which a file is of. One that has
// ended meanwhile, or cannot be entered, is passed over.
func withNamespace(file string, do func() error) error {
	if file == ownNamespace {
		return do()
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this
		ns, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			err = unix.Setns(ns, unix.CLONE_NEWNET)
			unix.Close(ns)
		}
		if err != nil {
			done <- nil
			return
		}
		done <- do()
	}()
	return <-done
}
