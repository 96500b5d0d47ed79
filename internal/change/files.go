// SPDX-License-Identifier: Apache-2.0

package change

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"weir/internal/durable"
	"weir/internal/host"
	"weir/internal/plan"
)

// halfWritten is what a file is called until it is whole. None of those who read the directory takes a file with such a
// name for theirs.
const halfWritten = ".weir-new"

func (live) writable(name string) error {
	dir := path.Dir(name)
	for dir != "/" && errors.Is(unix.Access(dir, unix.F_OK), unix.ENOENT) {
		dir = path.Dir(dir)
	}
	return withoutPath(unix.Access(dir, unix.W_OK))
}

func (live) SetFile(name string, want host.File, at time.Time) error {
	if isFile(name, want, at) {
		return nil // also on a disk that has become read-only
	}
	if err := withoutPath(setFile(name, want)); err != nil {
		return err
	}
	if !at.IsZero() && want.Kind == host.Regular {
		if err := os.Chtimes(name, at, at); err != nil {
			return withoutPath(err)
		}
	}
	if host.ReadFile(name) != want {
		return errors.New("was written, and is another")
	}
	return nil
}

// isFile reports whether a file is as it is to be, and was written when that was, if that matters.
func isFile(name string, want host.File, at time.Time) bool {
	info, err := os.Lstat(name)
	written := at.IsZero() || want.Kind != host.Regular || err == nil && info.ModTime().Equal(at)
	return written && host.ReadFile(name) == want
}

func (live) sweep(name string) { os.Remove(name + halfWritten) }

func setFile(name string, want host.File) error {
	if dir := path.Dir(name); want.Kind != host.NoFile && errors.Is(unix.Access(dir, unix.F_OK), unix.ENOENT) {
		if err := durable.MakeDir(dir); err != nil {
			return err
		}
	}
	half := name + halfWritten
	switch want.Kind {
	case host.NoFile:
		return durable.Remove(name, half)
	case host.Symlink:
		return durable.Replace(name, half, func() error { return os.Symlink(want.Text, half) })
	case host.Regular:
		return durable.Replace(name, half, func() error {
			return durable.Write(half, durable.File{Text: want.Text, Mode: want.Mode, UID: int(want.UID),
				GID: int(want.GID)})
		})
	}
	return fmt.Errorf("%s cannot be put there", want.Kind)
}

// endUnscripted stops a service of OpenRC's whose script is gone, as Weir's own is by then: rc-service knows it no
// more. Its supervisor does; and that it was started is forgotten, or it could not be started anew.
func endUnscripted(service string) {
	_ = ofInit().run("env", "RC_SVCNAME="+service, "/sbin/supervise-daemon", service, "--stop")
	if started := "/run/openrc/started/" + service; errors.Is(unix.Access(started, unix.F_OK), unix.ENOENT) {
		os.Remove(started) // a link that leads nowhere
	}
}

// reload lets systemd read its units again, and know whether a goal is kept: the service is active while it is. udev
// sees by itself what has changed. OpenRC is told to follow the rate, and needs to know nothing else before the next
// boot. What fails now that boot does.
func (live) reload(done []plan.Change) {
	openRC, _ := host.StarterOf(host.OpenRC)
	for _, c := range done {
		if !c.IsFile() || c.Name != openRC.FollowLink {
			continue
		}
		err := ofInit().run("rc-service", path.Base(openRC.Follow), serviceVerb(c))
		if err != nil && isNoFile(c.New) {
			endUnscripted(path.Base(openRC.Follow))
		}
	}
	if booted() {
		for _, args := range toSystemd(done) {
			_ = ofInit().run("systemctl", args...)
		}
	}
}

// serviceVerb is what is to become of a service whose link was changed.
func serviceVerb(c plan.Change) string {
	if isNoFile(c.New) {
		return "stop"
	}
	return "start"
}

// toSystemd is what systemd is told of files that were changed, as systemctl takes it. A follower that runs begins anew
// with another unit: what it may see is written there.
func toSystemd(done []plan.Change) (all [][]string) {
	for _, c := range done {
		if !c.IsFile() || !strings.HasPrefix(c.Name, path.Dir(host.UnitFile)+"/") {
			continue
		}
		if all == nil {
			all = [][]string{{"daemon-reload"}}
		}
		switch {
		case c.Name == host.UnitLink || c.Name == host.FollowLink:
			all = append(all, []string{"--no-block", serviceVerb(c), path.Base(c.Name)})
		case c.Name == host.FollowFile && !isNoFile(c.New):
			all = append(all, []string{"--no-block", "try-restart", path.Base(c.Name)})
		}
	}
	return all
}
