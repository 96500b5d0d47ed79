// SPDX-License-Identifier: Apache-2.0

// Package qemu boots a stock Debian kernel under emulation: for what the lab kernel cannot do, such as BPF, or be, such
// as the kernel that users have. No root, no KVM, no network of the host.
//
// It knows nothing of scenarios: a job goes in and a reply comes out, both as bytes. The guest's side of that is in
// inside.go. Whatever ends a boot — a result, a panic, a hang, ^C — nothing of it is left behind, no process and no
// file.
package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"weir/internal/lab/boot"
)

const emulator = "qemu-system-x86_64"

// ErrNoEmulator means that this host cannot run a stock kernel.
var ErrNoEmulator = errors.New(emulator + " is missing")

// ErrNoClock means that the library is missing without which the emulator looks at the host's clock.
var ErrNoClock = errors.New("the emulator's clock is missing")

// Boot is one run of a kernel.
type Boot struct {
	Kernel    Kernel
	Program   string      // becomes process 1; linked statically. It calls Begin first, and End when it is done
	Job       []byte      // what Begin gives it
	Files     []boot.File // more that it is to find
	Stock     bool        // without the reference, where there is one
	Env       []string
	CPUs      int // of the guest; 0: one. More than one excludes Exact
	MemoryMiB int // 0: 1024
	// Exact makes time virtual: an instruction takes a nanosecond, waiting takes none, and the same job with the same
	// seed gives the same reply, bit for bit. Otherwise the guest's time is that of the host, and means nothing.
	Exact   bool
	Seed    uint64            // of all randomness in the guest, if it is Exact
	CPU     int               // of the host, to pin to; -1: none. An Exact boot wants one
	Scratch string            // folder for the boot's files; "": the system's
	Limit   time.Duration     // of wall-clock time
	OnLine  func(line string) // each line of the console; may be nil
}

// The features that -cpu max is made without are those whose instructions are random, slow to emulate or wrong (see
// package machine).
const processor = "max,-cx16,-rdrand,-rdseed,-erms,-fsrm"

// arguments of QEMU. What the guest sees must not depend on anything but b.
func (b Boot) arguments(initrd, console, reply string) []string {
	args := []string{
		"-machine", "pc", "-cpu", processor, "-smp", fmt.Sprint(max(1, b.CPUs)), "-m", fmt.Sprint(b.memory()),
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-kernel", filepath.Join(b.Kernel.Dir, "vmlinuz"), "-initrd", initrd, "-append", b.commandLine(),
		"-serial", "file:" + console, "-serial", "file:" + reply,
	}
	if !b.Exact {
		return append(args, "-accel", "tcg", "-rtc", "clock=vm")
	}
	// QEMU hands a random number to the kernel at boot: it comes from the seed, too.
	return append(args, "-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off,align=off", "-rtc",
		"base=2026-01-01,clock=vm",
		"-seed", fmt.Sprint(uint32(b.Seed^b.Seed>>32)))
}

func (b Boot) memory() int {
	if b.MemoryMiB == 0 {
		return 1024
	}
	return b.MemoryMiB
}

// commandLine of the kernel. It stirs all of it into its random numbers, and with the other sources off that is the
// seed.
func (b Boot) commandLine() string {
	words := []string{
		"console=ttyS0", "quiet", "panic=-1", "rdinit=/init", "mitigations=off", "tsc=reliable", "nokaslr",
		"norandmaps", "randomize_kstack_offset=off",
		"random.trust_cpu=off", "random.trust_bootloader=off",
		// The runtime's monitor would interrupt the program every 10 ms.
		"GODEBUG=asyncpreemptoff=1", marker + "=1",
	}
	if b.Exact {
		// A CPU that halts is woken by a race of the emulator's threads (neverIdle, which is there from process 1
		// on): until then it polls.
		words = append(words, fmt.Sprintf("%s=%d", exact, b.Seed), "idle=poll")
	} else {
		// Its CPUs get what this machine has left, and may stand still for a minute: that is no bug of the kernel's.
		words = append(words, "nowatchdog", "rcupdate.rcu_cpu_stall_suppress=1", "workqueue.watchdog_thresh=0")
	}
	for _, e := range b.Env { // what the kernel does not know it hands to process 1
		name, value, _ := strings.Cut(e, "=")
		words = append(words, fmt.Sprintf("%s=%q", name, value))
	}
	return strings.Join(words, " ")
}

// longestCommandLine is the kernel's limit on amd64 (COMMAND_LINE_SIZE).
const longestCommandLine = 2047

func (b Boot) check() error {
	switch {
	case b.Exact && b.CPUs > 1:
		return errors.New("only one CPU can be exact")
	case len(b.commandLine()) > longestCommandLine:
		return errors.New("the environment does not fit on the kernel's command line")
	}
	for _, e := range b.Env {
		if name, value, ok := strings.Cut(e, "="); !ok || strings.ContainsAny(name, ". \"") ||
			strings.ContainsAny(value, "\"\n\\") {
			return fmt.Errorf("%q cannot be said on a kernel's command line", e)
		}
	}
	return nil
}

// Run boots, waits for the guest to power off, and cleans up after it. It returns the guest's reply and the
// console's last lines.
//
// The emulator has bugs of its own with several CPUs, by which a kernel panics now and then while it boots (QEMU 7.2).
// One that panics before process 1 has begun is booted again; what panics later is the guest's affair.
func (b Boot) Run(ctx context.Context) (reply []byte, lines []string, err error) {
	const attempts = 4
	say := b.OnLine
	for range attempts {
		up := false
		b.OnLine = func(line string) {
			if line == begunLine {
				up = true
			} else if say != nil {
				say(line)
			}
		}
		reply, lines, err = b.run(ctx)
		if failure := (*boot.Failure)(nil); b.CPUs < 2 || up || !errors.As(err, &failure) || ctx.Err() != nil {
			break
		}
	}
	return reply, lines, err
}

func (b Boot) run(ctx context.Context) (reply []byte, lines []string, err error) {
	if err := b.check(); err != nil {
		return nil, nil, err
	}
	if _, err := exec.LookPath(emulator); err != nil {
		return nil, nil, ErrNoEmulator
	}
	ctx, cancel := context.WithTimeoutCause(ctx, b.Limit, fmt.Errorf("no result after %v of real time", b.Limit))
	defer cancel()
	scratch, err := os.MkdirTemp(b.Scratch, "weir-qemu-")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(scratch)
	initrd, answer := filepath.Join(scratch, "initrd"), filepath.Join(scratch, "reply")
	if err := b.writeInitrd(initrd); err != nil {
		return nil, nil, fmt.Errorf("initrd: %w", err)
	}

	command := exec.Command(emulator, b.arguments(initrd, "/dev/stdout", answer)...)
	command.Env = []string{"TMPDIR=" + scratch, "HOME=" + scratch, "PATH=/nonexistent"}
	if b.Exact {
		clock := b.Kernel.clock()
		if _, err := os.Stat(clock); err != nil {
			return nil, nil, ErrNoClock
		}
		command.Env = append(command.Env, "LD_PRELOAD="+clock)
	}
	// A group of its own, so that ^C reaches us alone and we end it; and no orphan if we are killed.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	console := &boot.Console{OnLine: b.OnLine}
	command.Stdout, command.Stderr = console, console
	command.WaitDelay = time.Second
	fail := func(what string) ([]byte, []string, error) {
		return nil, console.Last(), &boot.Failure{What: what, Console: console.Last()}
	}
	// The parent-death signal is tied to the thread that forks: it has to live as long as the child.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := boot.StartPinned(command, b.CPU); err != nil {
		return nil, nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL)
		<-ended
		if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
			return fail(cause.Error())
		}
		return nil, console.Last(), ctx.Err()
	}
	if what := console.Disaster(); what != "" {
		return fail(what)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return nil, console.Last(), err
	}
	if err != nil {
		return fail("the emulator ended with " + exit.ProcessState.String())
	}
	text, err := os.ReadFile(answer)
	if err != nil {
		return nil, console.Last(), err
	}
	if reply, err = unframe(text); err != nil {
		return fail(err.Error())
	}
	return reply, console.Last(), nil
}

func (b Boot) writeInitrd(path string) error {
	files, err := b.Kernel.files(!b.Stock)
	if err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(boot.WriteInitrd(f, b.Program,
		append(append(files, b.Files...), boot.File{Name: jobFile, Body: b.Job})...), f.Close())
}
