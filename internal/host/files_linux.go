// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ReadFile reads what is at a path. A link is not followed.
func ReadFile(name string) File {
	info, err := os.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return File{Kind: NoFile}
	case err != nil:
		return File{Kind: Other}
	}
	f := File{Kind: Other}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		f.Mode, f.UID, f.GID = fs.FileMode(stat.Mode&0o7777), stat.Uid, stat.Gid
	}
	switch info.Mode().Type() {
	case fs.ModeSymlink:
		if to, err := os.Readlink(name); err == nil {
			return File{Kind: Symlink, Text: to}
		}
	case 0:
		if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Nlink > 1 {
			break // what is written anew has one name, and the others would go their own way
		}
		// Neither a link nor a pipe that took its place meanwhile may hold this up.
		in, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		if err != nil {
			break
		}
		defer in.Close()
		text, err := io.ReadAll(io.LimitReader(in, maxText+1))
		if err == nil && len(text) <= maxText {
			f.Kind, f.Text = Regular, string(text)
		}
	}
	return f
}

// readKept reads all that a plan may write to keep a goal. It is the first network namespace's: of another one there is
// nothing to keep.
func (f *Facts) readKept() {
	its, err := os.Readlink("/proc/1/ns/net")
	f.Hidden = err != nil && f.Admin
	if err == nil && its != f.Namespace || f.Hidden {
		return // without root it is not to be read; up, which needs root, reads it
	}
	f.Init = initOf(os.DirFS("/"))
	f.Program = program()
	_, err = os.Stat("/run/udev/control")
	f.Udev = err == nil
	f.Deep, _ = readOwners(os.DirFS("/"))
	f.Files = map[string]File{}
	f.Modified = map[string]time.Time{}
	for _, name := range append(KeptFiles(), PackageUnit) {
		f.Files[name] = ReadFile(name)
		if info, err := os.Lstat(name); err == nil {
			f.Modified[name] = info.ModTime()
		}
	}
	if starter, known := StarterOf(f.Init); known {
		if path := startedProgram(f.Files[starter.File].Text); path != "" && unix.Access(path, unix.X_OK) == nil {
			f.UnitProgram = path
		}
	}
}

// program is this program's file.
func program() (p Program) {
	p.Path, _ = os.Executable()
	p.RootOnly = p.Path != ""
	for path := p.Path; ; path = filepath.Dir(path) {
		info, err := os.Stat(path)
		if err != nil {
			p.RootOnly = false
			break
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		p.RootOnly = p.RootOnly && ok && rootOnly(info.Mode(), stat.Uid, stat.Gid)
		if path == "/" || path == "." {
			break
		}
	}
	return p
}
