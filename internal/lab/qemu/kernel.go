// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"weir/internal/lab/boot"
)

// Kernel is a stock kernel on disk, with the modules that the lab needs.
type Kernel struct {
	Dir     string
	Release string // as uname -r says it: 7.3.4+deb13-cloud-amd64
}

// ErrNoKernel means that no kernel, or none of the wanted series, has been fetched.
var ErrNoKernel = errors.New("there is no stock kernel")

// kernels are those that internal/lab/qemu/kernels has put into the user's cache, oldest first.
func kernels() ([]Kernel, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoKernel, err)
	}
	return kernelsIn(filepath.Join(cache, "weir", "kernels"))
}

func kernelsIn(dir string) ([]Kernel, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var all []Kernel
	for _, e := range entries {
		k := Kernel{filepath.Join(dir, e.Name()), e.Name()}
		if _, err := os.Stat(filepath.Join(k.Dir, "vmlinuz")); e.IsDir() && err == nil && k.version() != nil {
			all = append(all, k)
		}
	}
	slices.SortFunc(all, func(a, b Kernel) int {
		return cmp.Or(slices.Compare(a.version(), b.version()), cmp.Compare(a.Release, b.Release))
	})
	return all, nil
}

// clock is the library that internal/lab/qemu/clock has put beside the kernels.
func (k Kernel) clock() string { return filepath.Join(filepath.Dir(k.Dir), "clock.so") }

// Newest stands for the series of the newest kernel.
const Newest = "newest"

// Find returns the newest kernel of a series, as 6.17, or of all: Newest.
func Find(series string) (Kernel, error) {
	all, err := kernels()
	if err != nil {
		return Kernel{}, err
	}
	return find(all, series)
}

func find(all []Kernel, series string) (Kernel, error) {
	for _, k := range slices.Backward(all) {
		if series == Newest || strings.HasPrefix(k.Release, series+".") {
			return k, nil
		}
	}
	if series == Newest {
		return Kernel{}, ErrNoKernel
	}
	return Kernel{}, fmt.Errorf("%w of series %s", ErrNoKernel, series)
}

// version is the numbers that a release begins with; nil if it does not.
func (k Kernel) version() []int {
	upstream := k.Release
	if i := strings.IndexFunc(upstream, func(r rune) bool { return r != '.' && (r < '0' || r > '9') }); i >= 0 {
		upstream = upstream[:i]
	}
	var numbers []int
	for _, part := range strings.Split(upstream, ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return nil
		}
		numbers = append(numbers, n)
	}
	return numbers
}

// modules are the names of its modules, in the order to load them in.
func (k Kernel) modules() ([]string, error) {
	text, err := os.ReadFile(filepath.Join(k.Dir, "modules"))
	return strings.Fields(string(text)), err
}

// referenceModule is the one that Debian does not build, and internal/lab/qemu/reference does.
const referenceModule = "sch_dualpi2"

// files are the modules as the guest has them, with or without the reference.
func (k Kernel) files(reference bool) ([]boot.File, error) {
	names, err := k.modules()
	if err != nil {
		return nil, err
	}
	if !reference {
		names = slices.DeleteFunc(names, func(name string) bool { return name == referenceModule })
	}
	files := []boot.File{{Name: moduleFolder + "order", Body: []byte(strings.Join(names, "\n"))}}
	for _, name := range names {
		body, err := os.ReadFile(filepath.Join(k.Dir, name+".ko"))
		if err != nil {
			return nil, err
		}
		files = append(files, boot.File{Name: moduleFolder + name + ".ko", Body: unsigned(body)})
	}
	return files, nil
}

// unsigned is a module without its signature (kernel/module/signing.c), which the kernel does not ask for: to check one
// takes 50 million instructions, and to boot with all of them twice as long.
func unsigned(module []byte) []byte {
	const info = 12 // bytes, the last four of them the signature's length
	body, signed := bytes.CutSuffix(module, []byte("~Module signature appended~\n"))
	if !signed || len(body) < info {
		return module
	}
	length := info + int64(binary.BigEndian.Uint32(body[len(body)-4:]))
	if length > int64(len(body)) {
		return module
	}
	return body[:int64(len(body))-length]
}
