// SPDX-License-Identifier: Apache-2.0

//go:build linux && amd64

// Command killat runs a command and kills it just before the N-th thing that it does to the world outside it. For tests
// alone: with every N in turn they see the command end at each of its steps, without a hook in it.
//
//	killat [-at N | -hang N] COMMAND [ARGUMENT]…
//
// A step is a system call that changes a file, sends something, loads something into the kernel, or starts a process.
// All threads of the process count in one order, and processes that it starts do not: a SIGKILL would not end those
// either. Killed, the status is 137; with fewer than N steps it is the command's own, and the last line on standard
// error says how many steps there were. With -hang the command is not killed but stays where it is, for ever: for a
// machine that is then switched off.
package main

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// statusKilled is what a shell gives for a command that SIGKILL ended.
const statusKilled = 128 + int(unix.SIGKILL)

func main() {
	at := flag.Int("at", 0, "kill it before the `N`-th step")
	hang := flag.Int("hang", 0, "leave it standing before the `N`-th step")
	list := flag.Bool("list", false, "print every step")
	flag.Parse()
	if flag.NArg() == 0 || *at != 0 && *hang != 0 {
		flag.Usage()
		os.Exit(2)
	}
	t := tracer{at: max(*at, *hang), hang: *hang != 0, list: *list, threads: map[int]bool{}}
	status, err := t.run(flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "killat:", err)
		os.Exit(125)
	}
	os.Exit(status)
}

type tracer struct {
	at         int
	hang, list bool
	steps      int
	pid        int
	threads    map[int]bool // that have been seen to stop
}

func (t *tracer) run(args []string) (int, error) {
	runtime.LockOSThread() // a tracer is a thread
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &unix.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	t.pid = cmd.Process.Pid
	var ws unix.WaitStatus
	if _, err := unix.Wait4(t.pid, &ws, 0, nil); err != nil {
		return 0, err
	}
	t.threads[t.pid] = true
	// Not TRACEFORK and not TRACEVFORK: what it starts is not it.
	if err := unix.PtraceSetOptions(t.pid,
		unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_TRACECLONE|unix.PTRACE_O_EXITKILL); err != nil {
		return 0, err
	}
	thread, signal := t.pid, 0
	for {
		// A thread that is gone meanwhile has nothing to go on with.
		if err := unix.PtraceSyscall(thread, signal); err != nil && !errors.Is(err, unix.ESRCH) {
			return 0, err
		}
		for {
			var err error
			if thread, err = unix.Wait4(-1, &ws, unix.WALL, nil); err != nil {
				return 0, err
			}
			if ws.Stopped() {
				break
			}
			if thread != t.pid {
				continue
			}
			if ws.Signaled() {
				return 128 + int(ws.Signal()), nil
			}
			fmt.Fprintf(os.Stderr, "killat: %d steps\n", t.steps)
			return ws.ExitStatus(), nil
		}
		signal = 0
		switch first := !t.threads[thread]; {
		case ws.StopSignal() == unix.SIGTRAP|0x80: // PTRACE_O_TRACESYSGOOD
			what, err := t.entered(thread)
			if err != nil || what == "" {
				break // an exit, or no step
			}
			if t.steps++; t.list {
				fmt.Fprintf(os.Stderr, "killat: %d: %s\n", t.steps, what)
			}
			if t.steps != t.at {
				break
			}
			if t.hang {
				fmt.Fprintf(os.Stderr, "killat: hangs before step %d: %s\n", t.steps, what)
				for {
					unix.Pause()
				}
			}
			fmt.Fprintf(os.Stderr, "killat: killed before step %d: %s\n", t.steps, what)
			if err := unix.Kill(t.pid, unix.SIGKILL); err != nil {
				return 0, err
			}
			return statusKilled, t.reap()
		case ws.StopSignal() == unix.SIGTRAP: // an event of ptrace's
		case ws.StopSignal() == unix.SIGSTOP && first: // how a new thread begins
		default:
			signal = int(ws.StopSignal())
		}
		t.threads[thread] = true
	}
}

// reap waits until the process is gone: what comes next must not meet its remains.
func (t *tracer) reap() error {
	for {
		var ws unix.WaitStatus
		thread, err := unix.Wait4(-1, &ws, unix.WALL, nil)
		if errors.Is(err, unix.ECHILD) || err == nil && thread == t.pid && !ws.Stopped() {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// syscallInfo is struct ptrace_syscall_info of linux/ptrace.h, of an entry.
type syscallInfo struct {
	Op      uint8
	_       [3]byte
	Arch    uint32
	IP, SP  uint64
	Nr      uint64
	Args    [6]uint64
	RetData uint32
}

const (
	ptraceGetSyscallInfo = 0x420e
	syscallInfoEntry     = 1
)

// entered says what step a thread is about to take; "" for none.
func (t *tracer) entered(thread int) (string, error) {
	var info syscallInfo
	if _, _, errno := unix.Syscall6(unix.SYS_PTRACE, ptraceGetSyscallInfo, uintptr(thread), unsafe.Sizeof(info),
		uintptr(unsafe.Pointer(&info)), 0, 0); errno != 0 {
		return "", errno
	}
	if info.Op != syscallInfoEntry {
		return "", nil
	}
	a := info.Args
	path := func(name string, arg int) string { return name + " " + t.text(thread, a[arg]) }
	switch info.Nr {
	case unix.SYS_WRITE, unix.SYS_PWRITE64, unix.SYS_WRITEV, unix.SYS_PWRITEV, unix.SYS_PWRITEV2:
		return t.file("write", a[0]), nil
	case unix.SYS_FTRUNCATE, unix.SYS_FALLOCATE:
		return t.file("truncate", a[0]), nil
	case unix.SYS_FSYNC, unix.SYS_FDATASYNC:
		return t.file("fsync", a[0]), nil
	case unix.SYS_FCHMOD, unix.SYS_FCHOWN:
		return t.file("fchmod", a[0]), nil
	case unix.SYS_COPY_FILE_RANGE:
		return t.file("copy", a[2]), nil
	case unix.SYS_SENDFILE:
		return t.file("copy", a[0]), nil
	case unix.SYS_FLOCK:
		return t.file("flock", a[0]), nil
	case unix.SYS_SENDTO:
		return t.message(thread, a[1]), nil
	case unix.SYS_SENDMSG:
		// struct msghdr: name, its length, iov; struct iovec: base, length.
		iov := t.word(thread, a[1]+16)
		return t.message(thread, t.word(thread, iov)), nil
	case unix.SYS_OPEN, unix.SYS_CREAT:
		if info.Nr == unix.SYS_CREAT || a[1]&(unix.O_CREAT|unix.O_TRUNC) != 0 {
			return path("create", 0), nil
		}
	case unix.SYS_OPENAT:
		if a[2]&(unix.O_CREAT|unix.O_TRUNC) != 0 {
			return path("create", 1), nil
		}
	case unix.SYS_OPENAT2:
		if t.word(thread, a[2])&(unix.O_CREAT|unix.O_TRUNC) != 0 { // struct open_how: flags
			return path("create", 1), nil
		}
	case unix.SYS_RENAME:
		return path("rename", 1), nil
	case unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2:
		return path("rename", 3), nil
	case unix.SYS_LINK, unix.SYS_SYMLINK:
		return path("link", 1), nil
	case unix.SYS_LINKAT:
		return path("link", 3), nil
	case unix.SYS_SYMLINKAT:
		return path("link", 2), nil
	case unix.SYS_UNLINK, unix.SYS_RMDIR:
		return path("unlink", 0), nil
	case unix.SYS_UNLINKAT:
		return path("unlink", 1), nil
	case unix.SYS_MKDIR:
		return path("mkdir", 0), nil
	case unix.SYS_MKDIRAT:
		return path("mkdir", 1), nil
	case unix.SYS_TRUNCATE, unix.SYS_CHMOD, unix.SYS_CHOWN, unix.SYS_LCHOWN:
		return path("chmod", 0), nil
	case unix.SYS_FCHMODAT, unix.SYS_FCHOWNAT, unix.SYS_UTIMENSAT:
		return path("chmod", 1), nil
	case unix.SYS_FINIT_MODULE, unix.SYS_INIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_MOUNT, unix.SYS_UMOUNT2:
		return fmt.Sprintf("system call %d", info.Nr), nil
	case unix.SYS_BPF:
		return bpf(a[0]), nil
	case unix.SYS_CLONE:
		if a[0]&unix.CLONE_THREAD == 0 {
			return "start a process", nil
		}
	case unix.SYS_CLONE3:
		if t.word(thread, a[0])&unix.CLONE_THREAD == 0 { // struct clone_args: flags
			return "start a process", nil
		}
	case unix.SYS_FORK, unix.SYS_VFORK:
		return "start a process", nil
	case unix.SYS_KILL, unix.SYS_PIDFD_SEND_SIGNAL:
		return "signal a process", nil
	}
	return "", nil
}

// bpf says what a command of bpf(2) does; "" for one that only asks.
func bpf(command uint64) string {
	switch command {
	case unix.BPF_MAP_LOOKUP_ELEM, unix.BPF_MAP_GET_NEXT_KEY, unix.BPF_PROG_GET_NEXT_ID, unix.BPF_MAP_GET_NEXT_ID,
		unix.BPF_PROG_GET_FD_BY_ID, unix.BPF_MAP_GET_FD_BY_ID,
		unix.BPF_OBJ_GET_INFO_BY_FD, unix.BPF_PROG_QUERY, unix.BPF_BTF_GET_FD_BY_ID, unix.BPF_BTF_GET_NEXT_ID,
		unix.BPF_LINK_GET_NEXT_ID, unix.BPF_LINK_GET_FD_BY_ID:
		return ""
	}
	return fmt.Sprintf("bpf command %d", command)
}

// file says what is done to an open file; "" where that is no part of the world outside: output, and what a process
// tells itself.
func (t *tracer) file(what string, fd uint64) string {
	const standardError = 2
	name, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", t.pid, int32(fd)))
	if err != nil || fd <= standardError || strings.HasPrefix(name, "anon_inode:") || strings.HasPrefix(name, "pipe:") {
		return ""
	}
	return what + " " + name
}

// message says that something is sent; "" for a message to rtnetlink that only asks.
func (t *tracer) message(thread int, at uint64) string {
	header := make([]byte, unix.SizeofNlMsghdr)
	if n, err := unix.PtracePeekData(thread, uintptr(at), header); err != nil || n < len(header) {
		return "send"
	}
	kind := binary.NativeEndian.Uint16(header[4:])
	switch kind {
	case unix.RTM_GETLINK, unix.RTM_GETADDR, unix.RTM_GETROUTE, unix.RTM_GETQDISC, unix.RTM_GETTCLASS,
		unix.RTM_GETTFILTER:
		return ""
	}
	return fmt.Sprintf("send (netlink type %d)", kind)
}

func (t *tracer) word(thread int, at uint64) uint64 {
	var b [8]byte
	_, _ = unix.PtracePeekData(thread, uintptr(at), b[:])
	return binary.NativeEndian.Uint64(b[:])
}

func (t *tracer) text(thread int, at uint64) string {
	var text []byte
	for b := make([]byte, 1); at != 0 && len(text) < unix.PathMax; at++ {
		if _, err := unix.PtracePeekData(thread, uintptr(at), b); err != nil || b[0] == 0 {
			break
		}
		text = append(text, b[0])
	}
	return string(text)
}
