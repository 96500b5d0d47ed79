// SPDX-License-Identifier: Apache-2.0

// Package boot says what boots a kernel for a run of the lab, and is what the engines share: the guest's first file
// system, a process on a core of its own, and what the guest's console tells of a bad end.
//
// It knows no engine and no scenario. Each engine is a package of its own, with both sides of it: what boots, and what
// process 1 calls inside.
package boot

import (
	"bytes"
	"debug/elf"
	"errors"
	"io"
	"os"
	"path"

	"github.com/cavaliergopher/cpio"
)

// File is one more file of the guest's first file system.
type File struct {
	Name    string // absolute
	Body    []byte
	Program bool // it may be run
}

// WriteInitrd makes the guest's whole first file system: the given program as /init, and the files, with their folders.
// (Its console comes with the kernel, whose built-in initramfs has /dev/console: usr/default_cpio_list.)
func WriteInitrd(to io.Writer, program string, files ...File) error {
	body, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	if program, err := elf.NewFile(bytes.NewReader(body)); err == nil {
		for _, part := range program.Progs {
			if part.Type == elf.PT_INTERP {
				return errors.New("the program is linked dynamically, and the guest has no libraries: build it with " +
					"CGO_ENABLED=0")
			}
		}
	}
	w := cpio.NewWriter(to)
	entry := func(name string, mode cpio.FileMode, body []byte) error {
		// Every time stamp is zero: what is in an archive is all that it depends on.
		if err := w.WriteHeader(&cpio.Header{Name: name[1:], Mode: mode, Links: 1,
			Size: int64(len(body))}); err != nil {
			return err
		}
		_, err := w.Write(body)
		return err
	}
	if err := entry("/init", cpio.TypeReg|0o755, body); err != nil {
		return err
	}
	made := map[string]bool{"/": true}
	var folder func(name string) error
	folder = func(name string) error { // the kernel makes no folder by itself, and wants each before what is in it
		if made[name] {
			return nil
		}
		made[name] = true
		if err := folder(path.Dir(name)); err != nil {
			return err
		}
		return entry(name, cpio.TypeDir|0o755, nil)
	}
	for _, f := range files {
		name := path.Clean("/" + f.Name)
		mode := cpio.TypeReg | cpio.FileMode(0o644)
		if f.Program {
			mode = cpio.TypeReg | 0o755
		}
		if err := errors.Join(folder(path.Dir(name)), entry(name, mode, f.Body)); err != nil {
			return err
		}
	}
	return w.Close()
}
