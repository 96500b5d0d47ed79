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
	var all []File
	have := map[string]bool{}
	var take func(name, by string, folders []string) error
	take = func(name, by string, folders []string) error {
		if have[name] {
			return nil
		}
		have[name] = true
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
		all = append(all, File{Name: name, Body: body, Program: info.Mode()&0o111 != 0})
		object, err := elf.NewFile(bytes.NewReader(body))
		if err != nil { // not a program: a script, or data
			return nil
		}
		by = ", which " + name + " needs"
		for _, part := range object.Progs {
			if part.Type == elf.PT_INTERP {
				linker := make([]byte, part.Filesz)
				if _, err := part.ReadAt(linker, 0); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				if err := take(strings.TrimRight(string(linker), "\x00"), by, folders); err != nil {
					return err
				}
			}
		}
		own, err := searched(object, name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		libraries, err := object.ImportedLibraries()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		for _, library := range libraries {
			found := library
			for _, folder := range append(own, folders...) {
				if info, err := os.Stat(filepath.Join(folder, library)); err == nil && info.Mode().IsRegular() &&
					ofKind(filepath.Join(folder, library), object.Machine) {
					found = filepath.Join(folder, library)
					break
				}
			}
			if err := take(found, by, folders); err != nil {
				return err
			}
		}
		return nil
	}
	for _, name := range names {
		if err := take(filepath.Clean(name), "", libraryFolders()); err != nil {
			return nil, err
		}
	}
	for i := range all { // the linker itself and libraries may have lost their x; a guest's kernel asks for the first's
		all[i].Program = all[i].Program || strings.Contains(filepath.Base(all[i].Name), "ld-linux")
	}
	return all, nil
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

// ofKind tells whether a library is for a machine.
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
