// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// libraryFolders are where the dynamic linker looks by itself: Debian's for each of its architectures, and those of
// everybody else (ld.so(8)).
func libraryFolders() []string {
	var all []string
	for _, pattern := range []string{"/lib/*-linux-gnu", "/usr/lib/*-linux-gnu", "/lib64", "/usr/lib64", "/lib",
		"/usr/lib"} {
		found, _ := filepath.Glob(pattern)
		all = append(all, found...)
	}
	return all
}

// HostFiles reads files of the host for a guest, each under its own path, and of programs all that the dynamic linker
// will ask for: itself, and their libraries. What a program loads later by itself has to be among the names.
func HostFiles(names ...string) ([]File, error) {
	c := collection{have: map[string]bool{}, folders: libraryFolders()}
	for _, name := range names {
		if err := c.take(filepath.Clean(name), ""); err != nil {
			return nil, err
		}
	}
	return c.files, nil
}

type collection struct {
	files   []File
	have    map[string]bool
	folders []string // where libraries are
}

// take reads a file and, if it is a program or a library, all that it needs.
func (c *collection) take(name, by string) error {
	if c.have[name] {
		return nil
	}
	c.have[name] = true
	info, err := os.Stat(name)
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("not a file")
	}
	if err != nil {
		return fmt.Errorf("%s%s: %w", name, by, reason(err))
	}
	body, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("%s: %w", name, reason(err))
	}
	c.files = append(c.files, File{Name: name, Body: body, Program: info.Mode()&0o111 != 0})
	object, err := elf.NewFile(bytes.NewReader(body))
	if err != nil { // not a program: a script, or data
		return nil
	}
	needs, err := c.needs(object, name)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for _, path := range needs {
		if err := c.take(path, ", which "+name+" needs"); err != nil {
			return err
		}
	}
	return nil
}

// needs are the linker and the libraries that an object names, by their paths where they were found.
func (c *collection) needs(object *elf.File, name string) (paths []string, err error) {
	for _, part := range object.Progs {
		if part.Type == elf.PT_INTERP {
			linker := make([]byte, part.Filesz)
			if _, err := part.ReadAt(linker, 0); err != nil {
				return nil, err
			}
			paths = append(paths, strings.TrimRight(string(linker), "\x00"))
		}
	}
	own, err := searched(object, name)
	if err != nil {
		return nil, err
	}
	libraries, err := object.ImportedLibraries()
	if err != nil {
		return nil, err
	}
	for _, library := range libraries {
		found := library
		for _, folder := range append(own, c.folders...) {
			if path := filepath.Join(folder, library); ofKind(path, object.Machine) {
				found = path
				break
			}
		}
		paths = append(paths, found)
	}
	return paths, nil
}

// searched are the folders that an object names itself.
func searched(object *elf.File, name string) ([]string, error) {
	var all []string
	for _, tag := range []elf.DynTag{elf.DT_RUNPATH, elf.DT_RPATH} {
		paths, err := object.DynString(tag)
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			path = strings.ReplaceAll(path, "${ORIGIN}", "$ORIGIN")
			path = strings.ReplaceAll(path, "$ORIGIN", filepath.Dir(name))
			all = append(all, strings.Split(path, ":")...)
		}
	}
	return all, nil
}

// ofKind reports whether a library is for a machine.
func ofKind(path string, machine elf.Machine) bool {
	object, err := elf.Open(path)
	if err != nil {
		return false
	}
	defer object.Close()
	return object.Machine == machine
}

// reason is an error without the path that it repeats.
func reason(err error) error {
	var path *os.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}
