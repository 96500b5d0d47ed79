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

// SetBBR registers it, or takes it away. A namespace whose default it is keeps the one that it had, for new connections
// too, until its sysctl is written.
func (l live) SetBBR(version string) error {
	if version != "" && version != bbr.Version() {
		return fmt.Errorf("this weir brings version %s along", bbr.Version())
	}
	var users []string
	if _, err := bbr.Registered(); err == nil {
		users = namespacesWith(bbr.Name)
		if err := bbr.Remove(); err != nil && !errors.Is(err, bbr.ErrNone) {
			return err
		}
	}
	instead := bbr.Name
	if version != "" {
		if err := bbr.Load(); err != nil {
			return err
		}
	} else {
		text, err := os.ReadFile(host.SysctlPath(defaultControl))
		if err != nil {
			return short(err)
		}
		instead = strings.TrimSpace(string(text)) // put back already, unless it is somebody else's
	}
	var failed []error
	for _, ns := range users {
		if instead == bbr.Name && version == "" {
			break // there is nothing better
		}
		failed = append(failed, withNamespace(ns, func() error { return l.SetSysctl(defaultControl, instead) }))
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
			var at unix.Stat_t
			if unix.Stat(file, &at) != nil || seen[fmt.Sprint(at.Dev, at.Ino)] {
				continue
			}
			seen[fmt.Sprint(at.Dev, at.Ino)] = true
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

// withNamespace runs a function on a thread of its own that is in a network namespace, which a file is of.
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
		if err == nil {
			err = do()
		}
		done <- err
	}()
	return <-done
}
