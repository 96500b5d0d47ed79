// SPDX-License-Identifier: Apache-2.0

package bbr

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/rlimit"

	"weir/internal/bpf"
)

// ErrNone is for a kernel in which nobody has registered it.
var ErrNone = errors.New(Name + " is not registered")

// prefix begins the name of the map that the kernel keeps it in: a version follows.
const prefix = "wbbr_"

// Version tells this program's congestion control from another's: it is the same where its code is. It is eight
// hexadecimal digits.
func Version() string {
	sum := sha256.Sum256(_ObjectBytes)
	return hex.EncodeToString(sum[:4])
}

// Probe reports why this kernel cannot have it, or does not let this process: an error that is a bpf.ErrNotSupported
// and says what it takes.
func Probe() error {
	return bpf.Probe("bpf_struct_ops_tcp_congestion_ops",
		"the kernel takes no congestion controls in BPF (requires CONFIG_BPF_JIT and CONFIG_BPF_SYSCALL)")
}

// Load registers it: every network namespace can choose it from then on, and nothing does so by itself. Where one of
// the name is there already the error is an os.ErrExist, whichever version that is.
func Load() error {
	_ = rlimit.RemoveMemlock() // kernels before 5.11 count maps as locked memory
	types := btf.NewCache()
	kernel, err := types.Kernel()
	if err != nil {
		return explain(err)
	}
	var ops *btf.Struct
	if err := kernel.TypeByName("tcp_congestion_ops", &ops); err != nil {
		return explain(err)
	}
	// A kernel before 6.6 or so does not let app_limited be written: its verifier says so.
	for _, mayLimit := range []uint32{1, 0} {
		if err = load(kernel, types, ops, mayLimit); err == nil || errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return explain(err)
}

func explain(err error) error { return bpf.Explain(err, Probe) }

func load(kernel *btf.Spec, types *btf.Cache, ops *btf.Struct, mayLimit uint32) error {
	spec, err := loadObject()
	if err != nil {
		return err
	}
	if err := fit(spec, ops); err != nil {
		return err
	}
	if err := spec.Variables[objectVarMayLimit].Set(mayLimit); err != nil {
		return err
	}
	m := spec.Maps[objectMapBpfBbr]
	m.Flags = 0 // no BPF_F_LINK: 6.1 has none, and without it the kernel holds what it is given
	m.Name = prefix + Version()
	objects, err := ebpf.NewCollectionWithOptions(spec,
		ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{KernelTypes: kernel}, Cache: types})
	if err != nil {
		return err
	}
	objects.Close()
	return nil
}

// fit leaves out the programs of members that the kernel does not have, and of the two of cong_control the one whose
// parameters it does not give.
func fit(spec *ebpf.CollectionSpec, ops *btf.Struct) error {
	parameters := 0
	members := map[string]bool{}
	for _, m := range ops.Members {
		members[m.Name] = true
		if m.Name != "cong_control" {
			continue
		}
		pointer, ok := m.Type.(*btf.Pointer)
		if !ok {
			return fmt.Errorf("%w: the kernel's cong_control is no function", bpf.ErrNotSupported)
		}
		function, ok := pointer.Target.(*btf.FuncProto)
		if !ok {
			return fmt.Errorf("%w: the kernel's cong_control is no function", bpf.ErrNotSupported)
		}
		parameters = len(function.Params)
	}
	for name, p := range spec.Programs {
		if _, member, attached := strings.Cut(p.AttachTo, ":"); attached && !members[member] {
			delete(spec.Programs, name)
		}
	}
	const short = objectProgCongControl2
	switch parameters {
	case 2:
		spec.Programs[short].AttachTo = spec.Programs[objectProgCongControl].AttachTo
		delete(spec.Programs, objectProgCongControl)
	case 4:
		delete(spec.Programs, short)
	default:
		return fmt.Errorf("%w: the kernel gives cong_control %d parameters", bpf.ErrNotSupported, parameters)
	}
	return nil
}

// Registered returns the version of the one that the kernel has now: "" of one that no Weir registered. Where there is
// none that is held by its map alone the error is ErrNone; if Load then says that there is one, it is another's, which
// only that can take away.
func Registered() (version string, err error) {
	m, name, err := find()
	if err != nil {
		return "", err
	}
	version, own := strings.CutPrefix(name, prefix)
	if !own {
		version = ""
	}
	return version, m.Close()
}

// Remove takes the name away. Connections that have it keep it, and so does a network namespace whose default it is,
// for new ones too, until its sysctl is written: that comes first. Where there is none the error is ErrNone.
func Remove() error {
	m, _, err := find()
	if err != nil {
		return err
	}
	return errors.Join(m.Delete(uint32(0)), m.Close())
}

// State of a struct_ops, the second word of its map's value (kernel/bpf/bpf_struct_ops.c, bpf_struct_ops_state). One
// that was removed lives on with its connections, and is of another state.
const stateInUse = 1

// find gives the map by which one was registered, and its name.
func find() (*ebpf.Map, string, error) {
	for id := ebpf.MapID(0); ; {
		next, err := ebpf.MapGetNextID(id)
		if errors.Is(err, os.ErrNotExist) {
			return nil, "", ErrNone
		}
		if err != nil {
			return nil, "", explain(err)
		}
		id = next
		m, err := ebpf.NewMapFromID(id)
		if errors.Is(err, os.ErrNotExist) {
			continue // it has gone meanwhile
		}
		if err != nil {
			return nil, "", explain(err)
		}
		info, err := m.Info()
		if err != nil || info.Type != ebpf.StructOpsMap {
			_ = m.Close() // another's, of a type that is not known here
			continue
		}
		value := make([]byte, m.ValueSize())
		err = m.Lookup(uint32(0), value)
		if err == nil && len(value) >= 8 && binary.NativeEndian.Uint32(value[4:]) == stateInUse && named(value) {
			return m, info.Name, nil
		}
		_ = m.Close()
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil, "", explain(err)
		}
	}
}

// named reports whether a struct_ops is a congestion control of our name: that is the only text in it.
func named(value []byte) bool {
	text := append([]byte(Name), 0)
	for i := 0; i+16 <= len(value); i += 8 {
		if slices.Equal(value[i:i+len(text)], text) {
			return true
		}
	}
	return false
}
