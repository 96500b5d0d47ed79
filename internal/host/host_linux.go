// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"weir/internal/bpf"
	"weir/internal/qdisc"
)

// Read reads the host in the network namespace of the calling thread.
func Read() (Facts, error) {
	f, _, err := read()
	return f, err
}

func read() (Facts, processes, error) {
	// A namespace belongs to a thread, and so do /proc/sys and every socket that is opened below.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	root := os.DirFS("/")
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return Facts{}, processes{}, fmt.Errorf("uname: %w", err)
	}
	f := Facts{Kernel: unix.ByteSliceToString(uts.Release[:]), Admin: Admin(),
		Build: build(unix.ByteSliceToString(uts.Version[:]), line(root, "proc/version_signature"))}
	f.Namespace, _ = os.Readlink("/proc/thread-self/ns/net")
	f.Cookie, _ = bpf.NetnsCookie()
	readFiles(root, &f)
	if len(f.Sysctls) == 0 {
		return Facts{}, processes{}, fmt.Errorf("/proc/sys/net cannot be read: is /proc mounted?")
	}
	if err := readLinks(&f); err != nil {
		return Facts{}, processes{}, err
	}
	f.Qdiscs = support(root, f.Kernel, probe)
	f.readObjects(objects())
	for _, kind := range qdisc.BPFKinds() {
		f.Qdiscs[kind] = f.Objects[kind]
	}
	f.readBBR()
	index := modules(root, f.Kernel)
	f.OtherQdiscs = index.others(f.Qdiscs)
	f.Ingress, f.Unpack = index.ingress(), index.all(UnpackModules()...)
	readTunnels(root, &f)
	f.readKept()
	return f, readRelay(root, &f), nil
}

// Admin reports whether this process may change networks (CAP_NET_ADMIN).
func Admin() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false
	}
	return data[0].Effective&(1<<unix.CAP_NET_ADMIN) != 0
}
