// SPDX-License-Identifier: Apache-2.0

package change

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

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
	return short(unix.Access(dir, unix.W_OK))
}

func (live) setFile(name string, want host.File, at time.Time) error {
	if isFile(name, want, at) {
		return nil // also on a disk that has become read-only
	}
	if err := short(setFile(name, want)); err != nil {
		return err
	}
	if !at.IsZero() && want.Kind == host.Regular {
		if err := os.Chtimes(name, at, at); err != nil {
			return short(err)
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
		if err := makeDir(dir); err != nil {
			return err
		}
	}
	half := name + halfWritten
	switch want.Kind {
	case host.NoFile:
		return removeFile(name, half)
	case host.Symlink:
		return writeWhole(name, half, func() error { return os.Symlink(want.Text, half) })
	case host.Regular:
		return writeWhole(name, half, func() error { return write(half, want) })
	}
	return fmt.Errorf("%s cannot be put there", want.Kind)
}

// writeWhole puts something there so that a crash leaves what was there before or this, whole. It is on disk when this
// returns. Until it is whole it has another name, by which fill makes it.
func writeWhole(name, half string, fill func() error) error {
	if err := removeHalf(half); err != nil {
		return err
	}
	err := fill()
	if err == nil {
		err = os.Rename(half, name)
	}
	if err != nil {
		os.Remove(half)
		return err
	}
	return syncDir(path.Dir(name))
}

func removeFile(name, half string) error {
	if err := removeHalf(half); err != nil {
		return err
	}
	err := os.Remove(name)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return nil
	case err != nil:
		return err
	}
	return syncDir(path.Dir(name))
}

// removeHalf takes away what a run that was killed has left.
func removeHalf(half string) error {
	err := os.Remove(half)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	return err
}

func write(name string, want host.File) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(want.Text)
	// The owner first: another one takes bits of the mode away.
	return errors.Join(err, f.Chown(int(want.UID), int(want.GID)), unix.Fchmod(int(f.Fd()), uint32(want.Mode)),
		f.Sync(), f.Close())
}

// makeDir makes a directory, and those above it that are not there. Each is on disk when this returns: else a power cut
// takes it away, and what is in it.
func makeDir(dir string) error {
	above := path.Dir(dir)
	if _, err := os.Lstat(above); errors.Is(err, fs.ErrNotExist) {
		if err := makeDir(above); err != nil {
			return err
		}
	}
	switch err := os.Mkdir(dir, 0o755); {
	case errors.Is(err, fs.ErrExist): // another run was faster
		return nil
	case err != nil:
		return err
	}
	return syncDir(above)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, unix.EINVAL) { // some file systems cannot, and need not
		return err
	}
	return nil
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
		if c.Kind != plan.File || c.Name != openRC.FollowLink {
			continue
		}
		err := ofInit().run("rc-service", path.Base(openRC.Follow), verb(c))
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

// verb is what is to become of a service whose link was changed.
func verb(c plan.Change) string {
	if isNoFile(c.New) {
		return "stop"
	}
	return "start"
}

// toSystemd is what systemd is told of files that were changed, as systemctl takes it. A follower that runs begins anew
// with another unit: what it may see is written there.
func toSystemd(done []plan.Change) (all [][]string) {
	for _, c := range done {
		if c.Kind != plan.File || !strings.HasPrefix(c.Name, path.Dir(host.UnitFile)+"/") {
			continue
		}
		if all == nil {
			all = [][]string{{"daemon-reload"}}
		}
		switch {
		case c.Name == host.UnitLink || c.Name == host.FollowLink:
			all = append(all, []string{"--no-block", verb(c), path.Base(c.Name)})
		case c.Name == host.FollowFile && !isNoFile(c.New):
			all = append(all, []string{"--no-block", "try-restart", path.Base(c.Name)})
		}
	}
	return all
}
