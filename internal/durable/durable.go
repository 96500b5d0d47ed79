// SPDX-License-Identifier: Apache-2.0

// Package durable changes files so that a power cut leaves what was there before or what was to be there, whole.
//
// What a file is for, and who may have one, is not its affair.
package durable

import (
	"errors"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// Replace puts something there so that a crash leaves what was there before or this, whole. It is on disk when this
// returns. Until it is whole it has another name, by which fill makes it.
func Replace(name, half string, fill func() error) error {
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
	return SyncDir(path.Dir(name))
}

// Remove takes a file away, and half of another that was to take its place. It is no error if there is none.
func Remove(name, half string) error {
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
	return SyncDir(path.Dir(name))
}

// removeHalf takes away what a run that was killed has left.
func removeHalf(half string) error {
	err := os.Remove(half)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	return err
}

// File is a regular file.
type File struct {
	Text     string
	Mode     fs.FileMode
	UID, GID int
}

// Write makes a file that is not there. It is on disk when this returns.
func Write(name string, want File) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(want.Text)
	// The owner first: another one takes bits of the mode away.
	return errors.Join(err, f.Chown(want.UID, want.GID), unix.Fchmod(int(f.Fd()), uint32(want.Mode)),
		f.Sync(), f.Close())
}

// MakeDir makes a directory, and those above it that are not there. Each is on disk when this returns: else a power cut
// takes it away, and what is in it.
func MakeDir(dir string) error {
	above := path.Dir(dir)
	if _, err := os.Lstat(above); errors.Is(err, fs.ErrNotExist) {
		if err := MakeDir(above); err != nil {
			return err
		}
	}
	switch err := os.Mkdir(dir, 0o755); {
	case errors.Is(err, fs.ErrExist): // another run was faster
		return nil
	case err != nil:
		return err
	}
	return SyncDir(above)
}

// SyncDir puts on disk which files a directory has.
func SyncDir(dir string) error {
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
