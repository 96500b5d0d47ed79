// SPDX-License-Identifier: Apache-2.0

// Package bpf is what all BPF programs of Weir's need of a kernel: whether it can run them, why it does not, and how
// what runs is found again.
//
// It knows no program. It keeps nothing, loads nothing and attaches nothing: that is the packages' part whose
// programs they are.
package bpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// ErrNotSupported is in the chain of every error that says that this kernel cannot do it, or does not let us.
var ErrNotSupported = errors.New("not supported")

var errDenied = fmt.Errorf("%w: the kernel does not let this process load BPF programs (requires CAP_SYS_ADMIN and "+
	"CAP_NET_ADMIN, which root in a container may lack)", ErrNotSupported)

// Probe reports why this kernel cannot run programs that call a function of its own, or does not let this process: an
// ErrNotSupported that says what it takes; nil if it can, as far as can be told by looking. The function is one that
// came with what the programs need; without it the error has the words given.
func Probe(function, without string) error {
	types, err := os.ReadFile("/sys/kernel/btf/vmlinux")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: the kernel does not describe its types (requires CONFIG_DEBUG_INFO_BTF)",
			ErrNotSupported)
	case err != nil:
		return err
	case !bytes.Contains(types, []byte("\x00"+function+"\x00")):
		return fmt.Errorf("%w: %s", ErrNotSupported, without)
	}
	if traps(types) {
		return fmt.Errorf("%w: this kernel checks the types of functions that it calls by address (kCFI), and stops "+
			"itself where BPF lets go of a packet (requires upstream's c99d97b46631)", ErrNotSupported)
	}
	// A question that takes no less than an instance does, and leaves nothing.
	if _, err := ebpf.ProgramGetNextID(0); denied(err) {
		return errDenied
	}
	return nil
}

// traps reports whether a kernel whose types are these may stop itself when a BPF qdisc's map lets go of a packet: one
// that is built with kCFI, and calls a function there that has another type than is called for. Since c99d97b46631 it
// has one for that, bpf_kfree_skb_dtor.
func traps(types []byte) bool {
	has := func(function string) bool { return bytes.Contains(types, []byte("\x00"+function+"\x00")) }
	return has("report_cfi_failure") && !has("bpf_kfree_skb_dtor")
}

func denied(err error) bool { return errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) }

// Explain says what a kernel is missing that did not take a program, where that can be told: by a probe first.
func Explain(err error, probe func() error) error {
	if why := probe(); why != nil {
		return why
	}
	var verifier *ebpf.VerifierError
	switch {
	case errors.As(err, &verifier):
		return fmt.Errorf("%w: the kernel's verifier does not take the programs: %w", ErrNotSupported, err)
	case denied(err):
		return fmt.Errorf("%w: %w", errDenied, err)
	case errors.Is(err, ebpf.ErrNotSupported):
		return fmt.Errorf("%w: %w", ErrNotSupported, err)
	}
	return err
}

// SetID gives a struct_ops the name that the kernel is to know it by, of up to 15 bytes.
func SetID(ops *ebpf.MapSpec, id string) error {
	value, ok := btf.As[*btf.Struct](ops.Value)
	if !ok || len(ops.Contents) != 1 {
		return errors.New("the object has no struct_ops")
	}
	content, ok := ops.Contents[0].Value.([]byte)
	for _, m := range value.Members {
		if at := int(m.Offset.Bytes()); ok && m.Name == "id" && at+16 <= len(content) && len(id) < 16 {
			clear(content[at : at+16])
			copy(content[at:], id)
			return nil
		}
	}
	return errors.New("the object's struct_ops has no id")
}

// LinkHeader is the length of the header that a device puts before IP, in bytes, by its type (ifi_type, in netlink's
// words).
func LinkHeader(encapsulation string) uint32 {
	if encapsulation == "ether" || encapsulation == "loopback" {
		return 14
	}
	return 0
}

// Framings are what a link layer can make of a packet (tc-cake(8)): nothing; cells of 53 bytes that carry 48; 65 bytes
// for each 64. The place is what programs know it by (include/ip.h).
func Framings() []string { return []string{"noatm", "atm", "ptm"} }

// Opened is a program that the kernel holds, and its maps by the names that the kernel has for them.
type Opened struct {
	Name    string
	Program *ebpf.Program
	Maps    map[string]*ebpf.Map
}

// Open finds a program by its number. Of a program whose maps the kernel does not tell there are none.
func Open(id ebpf.ProgramID) (_ *Opened, err error) {
	program, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return nil, err
	}
	o := &Opened{Program: program, Maps: map[string]*ebpf.Map{}}
	defer func() {
		if err != nil {
			o.Close()
		}
	}()
	info, err := program.Info()
	if err != nil {
		return nil, err
	}
	o.Name = info.Name
	ids, _ := info.MapIDs()
	for _, id := range ids {
		held, err := ebpf.NewMapFromID(id)
		if err != nil {
			return nil, err
		}
		info, err := held.Info()
		if err != nil {
			held.Close()
			return nil, err
		}
		o.Maps[info.Name] = held
	}
	return o, nil
}

// Close lets go of all.
func (o *Opened) Close() {
	o.Program.Close()
	for _, held := range o.Maps {
		held.Close()
	}
}

// Take reads the only value of a map into v, whose length is that of the map's; false where there is no such map.
func (o *Opened) Take(name string, v any) (bool, error) {
	held := o.Maps[name]
	if held == nil || int(held.ValueSize()) != binary.Size(v) {
		return false, nil
	}
	err := held.Lookup(uint32(0), v)
	return err == nil, err
}
