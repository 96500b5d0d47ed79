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
	text, err := os.ReadFile(host.SysctlPath(defaultControl))
	if err != nil {
		return short(err)
	}
	// This namespace's is put back already, unless it is somebody else's by now.
	if instead := strings.TrimSpace(string(text)); instead != bbr.Name {
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

// namespacesWith are the files of those network namespaces, this thread's among them, whose new connections have a
// congestion control. Those that cannot be entered, or that no process and no file of ip-netns(8) or a container engine
// shows, are left out.
func namespacesWith(control string) (files []string) {
	seen := map[string]bool{}
	for _, pattern := range []string{"/proc/thread-self/ns/net", "/proc/[0-9]*/ns/net", "/run/netns/*",
		"/run/docker/netns/*"} {
		found, _ := filepath.Glob(pattern)
		for _, file := range found {
			var stat unix.Stat_t
			if unix.Stat(file, &stat) != nil || seen[fmt.Sprint(stat.Dev, stat.Ino)] {
				continue
			}
			seen[fmt.Sprint(stat.Dev, stat.Ino)] = true
			_ = withNamespace(file, func() error {
				text, err := os.ReadFile(host.SysctlPath(defaultControl))
				if err == nil && strings.TrimSpace(string(text)) == control {
					files = append(files, file)
				}
				return err
			})
		}
	}
	return files
}

// withNamespace runs a function on a thread of its own that is in a network namespace, which a file is of. One that has
// ended meanwhile, or cannot be entered, is passed over.
func withNamespace(file string, do func() error) error {
	if file == "/proc/thread-self/ns/net" {
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
