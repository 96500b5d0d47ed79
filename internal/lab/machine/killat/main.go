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
//
// A filter of seccomp(2) stops the command where a step may be, and nowhere else. Stopped at every system call, an
// emulated machine takes seven times as long. Processes that the command starts inherit the filter. Without a tracer
// their calls would fail, so killat ends once all of them have ended. It is not for a command that leaves one behind.
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

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// statusKilled is what a shell gives for a command that SIGKILL ended.
const statusKilled = 128 + int(unix.SIGKILL)

func main() {
	if os.Args[0] == tracee {
		fmt.Fprintln(os.Stderr, "killat:", become(os.Args[1], os.Args[2:]))
		os.Exit(125)
	}
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
	begun      bool         // the command, by the process that was started to become it
	held       bool         // before its last step
	threads    map[int]bool // that have been seen to stop
}

// tracee is how this program is called to become the command that it watches.
const tracee = "killat-tracee"

// become puts the filter on this thread, and the command in this process's place. It does not return but with an error.
func become(path string, args []string) error {
	runtime.LockOSThread() // a filter is a thread's
	filter, err := filter()
	if err != nil {
		return err
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	install := func() error {
		return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
	}
	err = install()
	if errors.Is(err, unix.EACCES) { // who has no right to filter a set-user-ID program may not start one
		if err = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err == nil {
			err = install()
		}
	}
	if err != nil {
		return fmt.Errorf("seccomp: %w", err)
	}
	return fmt.Errorf("%s: %w", path, unix.Exec(path, args, os.Environ()))
}

// filter stops at what may be a step. The number is the first word of struct seccomp_data of linux/seccomp.h.
func filter() ([]unix.SockFilter, error) {
	program := []bpf.Instruction{bpf.LoadAbsolute{Off: 0, Size: 4}}
	for nr := range calls {
		program = append(program, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: nr, SkipTrue: 1},
			bpf.RetConstant{Val: unix.SECCOMP_RET_TRACE})
	}
	raw, err := bpf.Assemble(append(program, bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}))
	filter := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		filter[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	return filter, err
}

func (t *tracer) run(args []string) (status int, err error) {
	runtime.LockOSThread() // a tracer is a thread
	path, err := exec.LookPath(args[0])
	if err != nil {
		return 0, err
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = append([]string{tracee, path}, args...)
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
	const follow = unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEFORK | unix.PTRACE_O_TRACEVFORK
	if err := unix.PtraceSetOptions(t.pid,
		follow|unix.PTRACE_O_TRACEEXEC|unix.PTRACE_O_TRACESECCOMP|unix.PTRACE_O_EXITKILL); err != nil {
		return 0, err
	}
	for thread, signal, on := t.pid, 0, true; ; {
		// A thread that is gone meanwhile has nothing to go on with.
		if on {
			if err := unix.PtraceCont(thread, signal); err != nil && !errors.Is(err, unix.ESRCH) {
				return 0, err
			}
		}
		if thread, err = unix.Wait4(-1, &ws, unix.WALL, nil); errors.Is(err, unix.ECHILD) {
			if !t.held {
				fmt.Fprintf(os.Stderr, "killat: %d steps\n", t.steps)
			}
			return status, nil
		} else if err != nil {
			return 0, err
		}
		signal, on = 0, true
		if !ws.Stopped() {
			delete(t.threads, thread)
			if thread == t.pid {
				if status = ws.ExitStatus(); ws.Signaled() {
					status = 128 + int(ws.Signal())
				}
			}
			on = false
			continue
		}
		switch ws.TrapCause() {
		case unix.PTRACE_EVENT_SECCOMP:
			if on, err = t.goesOn(thread); err != nil {
				return 0, err
			}
		case unix.PTRACE_EVENT_EXEC:
			t.begun = true
		case unix.PTRACE_EVENT_CLONE, unix.PTRACE_EVENT_FORK, unix.PTRACE_EVENT_VFORK:
		default:
			if first := !t.threads[thread]; ws.StopSignal() != unix.SIGSTOP || !first { // a new thread begins with one
				signal = int(ws.StopSignal())
			}
		}
		t.threads[thread] = true
		if t.held && t.hang && t.owns(thread) {
			on = false
		}
	}
}

// owns tells a thread of the command from one of what it has started.
func (t *tracer) owns(thread int) bool { return unix.Tgkill(t.pid, thread, 0) == nil }

// goesOn counts a step, if it is one that a thread stands before, and reports whether the thread is to take it.
func (t *tracer) goesOn(thread int) (bool, error) {
	if !t.begun || !t.owns(thread) {
		return true, nil
	}
	what, err := t.entered(thread)
	if err != nil || what == "" {
		if errors.Is(err, unix.ESRCH) {
			err = nil // gone meanwhile
		}
		return true, err
	}
	if t.held {
		return false, nil
	}
	if t.steps++; t.list {
		fmt.Fprintf(os.Stderr, "killat: %d: %s\n", t.steps, what)
	}
	if t.steps != t.at {
		return true, nil
	}
	t.held = true
	if t.hang {
		fmt.Fprintf(os.Stderr, "killat: hangs before step %d: %s\n", t.steps, what)
		for other := range t.threads {
			_ = unix.Tgkill(t.pid, other, unix.SIGSTOP) // which each is held at; what it has started is no thread of it
		}
		return false, nil
	}
	fmt.Fprintf(os.Stderr, "killat: killed before step %d: %s\n", t.steps, what)
	return false, unix.Kill(t.pid, unix.SIGKILL)
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
	syscallInfoSeccomp   = 3
)

// entered says what step a thread is about to take; "" for none.
func (t *tracer) entered(thread int) (string, error) {
	var info syscallInfo
	if _, _, errno := unix.Syscall6(unix.SYS_PTRACE, ptraceGetSyscallInfo, uintptr(thread), unsafe.Sizeof(info),
		uintptr(unsafe.Pointer(&info)), 0, 0); errno != 0 {
		return "", errno
	}
	says := calls[uint32(info.Nr)]
	if info.Op != syscallInfoSeccomp || says == nil {
		return "", fmt.Errorf("stopped at system call %d, operation %d", info.Nr, info.Op)
	}
	return says(call{t, thread, info.Nr, info.Args}), nil
}

// call is a system call that a thread is about to make.
type call struct {
	*tracer
	thread int
	nr     uint64
	args   [6]uint64
}

// calls are the system calls that may be a step, and what says which: "" for none.
var calls = map[uint32]func(call) string{
	unix.SYS_WRITE: file("write", 0), unix.SYS_PWRITE64: file("write", 0), unix.SYS_WRITEV: file("write", 0),
	unix.SYS_PWRITEV: file("write", 0), unix.SYS_PWRITEV2: file("write", 0),
	unix.SYS_FTRUNCATE: file("truncate", 0), unix.SYS_FALLOCATE: file("truncate", 0),
	unix.SYS_FSYNC: file("fsync", 0), unix.SYS_FDATASYNC: file("fsync", 0),
	unix.SYS_FCHMOD: file("fchmod", 0), unix.SYS_FCHOWN: file("fchmod", 0),
	unix.SYS_COPY_FILE_RANGE: file("copy", 2), unix.SYS_SENDFILE: file("copy", 0),
	unix.SYS_FLOCK:  file("flock", 0),
	unix.SYS_SENDTO: func(c call) string { return c.message(c.args[1]) },
	// struct msghdr: name, its length, iov; struct iovec: base, length.
	unix.SYS_SENDMSG: func(c call) string { return c.message(c.word(c.word(c.args[1] + 16))) },
	unix.SYS_CREAT:   path("create", 0),
	unix.SYS_OPEN:    func(c call) string { return c.create(0, c.args[1]) },
	unix.SYS_OPENAT:  func(c call) string { return c.create(1, c.args[2]) },
	// struct open_how: flags.
	unix.SYS_OPENAT2: func(c call) string { return c.create(1, c.word(c.args[2])) },
	unix.SYS_RENAME:  path("rename", 1), unix.SYS_RENAMEAT: path("rename", 3), unix.SYS_RENAMEAT2: path("rename", 3),
	unix.SYS_LINK: path("link", 1), unix.SYS_LINKAT: path("link", 3),
	unix.SYS_SYMLINK: path("link", 1), unix.SYS_SYMLINKAT: path("link", 2),
	unix.SYS_UNLINK: path("unlink", 0), unix.SYS_RMDIR: path("unlink", 0), unix.SYS_UNLINKAT: path("unlink", 1),
	unix.SYS_MKDIR: path("mkdir", 0), unix.SYS_MKDIRAT: path("mkdir", 1),
	unix.SYS_TRUNCATE: path("chmod", 0), unix.SYS_CHMOD: path("chmod", 0), unix.SYS_CHOWN: path("chmod", 0),
	unix.SYS_LCHOWN: path("chmod", 0), unix.SYS_FCHMODAT: path("chmod", 1), unix.SYS_FCHOWNAT: path("chmod", 1),
	unix.SYS_UTIMENSAT:    path("chmod", 1),
	unix.SYS_FINIT_MODULE: numbered, unix.SYS_INIT_MODULE: numbered, unix.SYS_DELETE_MODULE: numbered,
	unix.SYS_MOUNT: numbered, unix.SYS_UMOUNT2: numbered,
	unix.SYS_BPF:   func(c call) string { return command(c.args[0]) },
	unix.SYS_CLONE: func(c call) string { return process(c.args[0]) },
	// struct clone_args: flags.
	unix.SYS_CLONE3: func(c call) string { return process(c.word(c.args[0])) },
	unix.SYS_FORK:   func(call) string { return process(0) }, unix.SYS_VFORK: func(call) string { return process(0) },
	unix.SYS_KILL: signals, unix.SYS_PIDFD_SEND_SIGNAL: signals,
}

func path(what string, arg int) func(call) string {
	return func(c call) string { return what + " " + c.text(c.args[arg]) }
}

func (c call) create(arg int, flags uint64) string {
	if flags&(unix.O_CREAT|unix.O_TRUNC) == 0 {
		return ""
	}
	return path("create", arg)(c)
}

func numbered(c call) string { return fmt.Sprintf("system call %d", c.nr) }

func signals(call) string { return "signal a process" }

// process says what clone(2) with flags starts; "" for a thread.
func process(flags uint64) string {
	if flags&unix.CLONE_THREAD != 0 {
		return ""
	}
	return "start a process"
}

// command says what a command of bpf(2) does; "" for one that only asks.
func command(command uint64) string {
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
func file(what string, arg int) func(call) string {
	return func(c call) string {
		const standardError = 2
		fd := int32(c.args[arg])
		name, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", c.pid, fd))
		if err != nil || fd <= standardError || strings.HasPrefix(name, "anon_inode:") ||
			strings.HasPrefix(name, "pipe:") {
			return ""
		}
		return what + " " + name
	}
}

// message says that something is sent; "" for a message to rtnetlink that only asks.
func (c call) message(at uint64) string {
	header := make([]byte, unix.SizeofNlMsghdr)
	if n, err := unix.PtracePeekData(c.thread, uintptr(at), header); err != nil || n < len(header) {
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

func (c call) word(at uint64) uint64 {
	var b [8]byte
	_, _ = unix.PtracePeekData(c.thread, uintptr(at), b[:])
	return binary.NativeEndian.Uint64(b[:])
}

func (c call) text(at uint64) string {
	var text []byte
	for b := make([]byte, 1); at != 0 && len(text) < unix.PathMax; at++ {
		if _, err := unix.PtracePeekData(c.thread, uintptr(at), b); err != nil || b[0] == 0 {
			break
		}
		text = append(text, b[0])
	}
	return string(text)
}
