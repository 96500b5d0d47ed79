// SPDX-License-Identifier: Apache-2.0

package uml

import (
	"bytes"
	"debug/elf"
	"errors"
	"io"
	"os"

	"github.com/cavaliergopher/cpio"
)

// WriteInitrd makes the guest's whole first file system: the given program as /init. (Its console comes with the kernel, whose built-in
// initramfs has /dev/console: usr/default_cpio_list.)
func WriteInitrd(to io.Writer, program string) error {
	body, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	if program, err := elf.NewFile(bytes.NewReader(body)); err == nil {
		for _, part := range program.Progs {
			if part.Type == elf.PT_INTERP {
				return errors.New("the program is linked dynamically, and the guest has no libraries: build it with CGO_ENABLED=0")
			}
		}
	}
	w := cpio.NewWriter(to)
	if err := w.WriteHeader(&cpio.Header{Name: "init", Mode: cpio.TypeReg | 0o755, Links: 1, Size: int64(len(body))}); err != nil {
		return err
	}
	if _, err := w.Write(body); err != nil {
		return err
	}
	return w.Close()
}
