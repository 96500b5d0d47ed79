// SPDX-License-Identifier: Apache-2.0

package change

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"weir/internal/host"
	"weir/internal/plan"
)

// timer is what puts a run back that nobody confirms. It must outlive this process, its session, and whatever ends
// them.
type timer interface {
	now() time.Duration // on the clock of this boot
	sleep(time.Duration)
	arm(unit, dir string) error
	disarm(unit string)
}

// timerName is that of the unit which waits for a deadline. It carries the journal's directory, so that no other store
// has one of that name; nor has the one that it takes the place of.
func timerName(dir string, until time.Duration, before string) string {
	sum := sha256.Sum256([]byte(dir))
	name := fmt.Sprintf("weir-revert-%x-%x", sum[:4], until.Milliseconds())
	if name == before {
		name += "-2"
	}
	return name
}

// disarm stops a timer that has nothing to do any more. Should that fail, it finds that out by itself.
func (s Store) disarm(unit string) {
	if unit != "" && !s.expires { // it would end itself
		s.later(func() { s.timer.disarm(unit) })
	}
}

// waitingProcess is a process that waits: a service of systemd's or, without systemd, one in a session of its own. It
// runs from the start, so that it needs no file of the program when the time is over.
type waitingProcess struct{}

// now is the time since the boot, suspended or not, in the first time namespace (time_namespaces(7)).
func (waitingProcess) now() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano()) - bootOffset(os.DirFS("/proc/self"))
}

// bootOffset is by how much the clock is shifted in the time namespace of a process, given its directory in /proc.
func bootOffset(proc fs.FS) time.Duration {
	// The file is about the namespace of children, which is another after unshare(2).
	own, errOwn := fs.ReadLink(proc, "ns/time")
	childrens, err := fs.ReadLink(proc, "ns/time_for_children")
	f, errFile := proc.Open("timens_offsets")
	if errors.Join(errOwn, err, errFile) != nil {
		return 0 // a kernel without time namespaces
	}
	defer f.Close()
	if own != childrens {
		return 0
	}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var s, ns int64
		if n, _ := fmt.Sscanf(lines.Text(), "boottime %d %d", &s, &ns); n == 2 {
			return time.Duration(s)*time.Second + time.Duration(ns)
		}
	}
	return 0
}

func (waitingProcess) sleep(d time.Duration) { time.Sleep(d) }

func (waitingProcess) arm(unit, dir string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	recover := []string{"recover", "--unconfirmed", "--state", dir}
	p := process{proc: os.DirFS("/proc"), pid: os.Getpid(), booted: booted()}
	switch how, err := p.keeper(self, dir); {
	case err != nil:
		return err
	case how == bySession:
		return detach(self, recover)
	}
	properties := []string{"OOMScoreAdjust=-900", "IgnoreOnIsolate=yes",
		"SyslogIdentifier=weir"} // whatever its file is called
	namespace, stays := p.network()
	if namespace != "" {
		properties = append(properties, "NetworkNamespacePath="+namespace)
	}
	if stays {
		// Killed by whomever it goes on, unless systemd itself was told to stop it; and not once its work is done.
		properties = append(properties, "Restart=on-failure", "RestartSec=1", "StartLimitIntervalSec=0",
			"RestartForceExitStatus=SIGTERM SIGINT SIGHUP SIGPIPE", "RestartPreventExitStatus=0")
	}
	run := func(properties []string) error {
		args := []string{"--collect", "--quiet", "--unit", unit, "--service-type=notify",
			"--description=weir: puts back what is not confirmed"}
		for _, line := range properties {
			args = append(args, "--property="+line)
		}
		return ofInit().run("systemd-run", append(append(args, self), recover...)...)
	}
	err = run(append(plan.Sandbox(self, dir), properties...))
	if err == nil || errors.As(err, new(hangs)) {
		return err
	}
	// An older systemd may not know all of the sandbox, or a container not let it make one: going back does not need
	// it. The unit that failed would still be started again by then, and has the name.
	_ = ofInit().run("systemctl", "stop", unit+".service")
	return run(properties)
}

// disarm stops the process, which has nothing to do any more: it puts back only what the journal calls pending.
func (waitingProcess) disarm(unit string) {
	if booted() {
		_ = ofInit().run("systemctl", "--no-block", "stop", unit+".service")
	}
}

// programs are those of the host's init. Each may hang when that does, or leave something behind that holds its output.
type programs struct {
	dirs     []string // not $PATH, which is the caller's
	patience time.Duration
}

func ofInit() programs {
	return programs{[]string{"/usr/bin", "/bin", "/run/current-system/sw/bin", "/sbin", "/usr/sbin"}, 20 * time.Second}
}

// hangs is why a program of the host's init did nothing: it was given up.
type hangs string

func (h hangs) Error() string { return string(h) + " does not answer" }

func (p programs) run(name string, args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), p.patience)
	defer cancel()
	for _, dir := range p.dirs {
		path := filepath.Join(dir, name)
		if unix.Access(path, unix.X_OK) != nil {
			continue
		}
		program := exec.CommandContext(ctx, path, args...)
		program.WaitDelay = time.Second // its children are not waited for
		said, err := program.CombinedOutput()
		switch {
		case err == nil, errors.Is(err, exec.ErrWaitDelay):
			return nil
		case ctx.Err() != nil:
			return hangs(name)
		}
		return fmt.Errorf("%s: %w: %s", name, err, strings.Join(strings.Fields(string(said)), " "))
	}
	return fmt.Errorf("there is no %s", name)
}

// booted reports whether systemd is there (sd_booted(3)).
func booted() bool {
	info, err := os.Stat("/run/systemd/system")
	return err == nil && info.IsDir()
}

// keeper is what keeps the process that waits.
type keeper int

const (
	bySystemd keeper = iota
	bySession        // nobody ends a session of its own but who ends the machine, the container, or everybody
)

// process is who would arm the timer.
type process struct {
	proc   fs.FS // /proc
	pid    int
	booted bool // systemd is there
}

// link is the namespace of a process; "" where it cannot be told.
func (p process) link(pid, namespace string) string {
	text, _ := fs.ReadLink(p.proc, pid+"/ns/"+namespace)
	return text
}

// firstPIDNamespace is that of a boot (include/linux/proc_ns.h).
const firstPIDNamespace = "pid:[4026531836]"

// keeper tells who can keep the process, or why nobody can: for all that is known it would end with whoever started
// this one, and leave the host as it is.
func (p process) keeper(program, dir string) (keeper, error) {
	text, _ := fs.ReadFile(p.proc, "1/comm")
	init := strings.TrimSpace(string(text))
	pids := p.link("self", "pid")
	switch {
	case p.booted && (p.link("self", "user") == host.FirstUserNamespace || init == "systemd"):
		return bySystemd, p.seen(program, dir)
	case (pids == firstPIDNamespace || pids == "") && !p.elsewhere(): // or a kernel without
		return bySession, nil
	// A container's processes end with its first one, and that with what it was started for, unless it is an init of a
	// whole system. So does what docker exec starts, and the host's network would stay as it was made.
	case pids != firstPIDNamespace && slices.Contains([]string{"init", "openrc-init", "runit", "dinit"}, init):
		return bySession, nil
	}
	return 0, errors.New("this container ends with the program that it was started for, and all of its processes " +
		"with it")
}

// elsewhere reports whether process 1 has another root, as it has where a container sees the processes of its host.
func (p process) elsewhere() bool {
	theirs, err := fs.Stat(p.proc, "1/root")
	ours, errOurs := os.Stat("/")
	return err == nil && errOurs == nil && !os.SameFile(theirs, ours)
}

// network is where systemd finds the network namespace of this process; "" is that of systemd. One without a name is
// this process's: once it has ended there is no way back in, so what is killed there cannot be started again.
func (p process) network() (path string, stays bool) {
	if ours := p.link("self", "net"); ours != "" && ours == p.link("1", "net") {
		return "", true
	}
	own, err := fs.Stat(p.proc, "self/ns/net")
	// Where ip-netns(8) and container engines keep them.
	for _, dir := range []string{"run/netns", "run/docker/netns", "var/run/netns"} {
		names, _ := fs.ReadDir(p.proc, "1/root/"+dir)
		for _, name := range names {
			at := dir + "/" + name.Name()
			if there, errThere := fs.Stat(p.proc, "1/root/"+at); err == nil && errThere == nil &&
				os.SameFile(own, there) {
				return "/" + at, true
			}
		}
	}
	return fmt.Sprintf("/proc/%d/ns/net", p.pid), false
}

// seen is why systemd could not start a program that is about a directory: for it they must be there, and be the same.
func (p process) seen(paths ...string) error {
	for _, path := range paths {
		theirs, err := fs.Stat(p.proc, filepath.Join("1/root", path))
		ours, errOurs := os.Stat(path)
		if err != nil || errOurs != nil || !os.SameFile(theirs, ours) {
			return fmt.Errorf("%s is in a mount namespace that systemd does not see", path)
		}
	}
	return nil
}

// DetachedReady is the file descriptor on which a process in a session of its own says that it waits.
const DetachedReady = 3

// Ready tells whoever has armed the timer that it runs: systemd (sd_notify(3)), or the one that started this process.
func Ready(detached bool) error {
	if detached {
		f := os.NewFile(DetachedReady, "ready")
		_, err := f.Write([]byte{1})
		return errors.Join(err, f.Close())
	}
	socket := os.Getenv("NOTIFY_SOCKET")
	if socket == "" {
		return nil
	}
	c, err := net.Dial("unixgram", socket)
	if err != nil {
		return err
	}
	_, err = c.Write([]byte("READY=1"))
	return errors.Join(err, c.Close())
}

// detach starts this program in a session of its own, and returns when it waits.
func detach(self string, args []string) error {
	ready, says, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	cmd := exec.Command(self, append(args, "--detached")...)
	cmd.Args[0] = "weir"
	cmd.Dir = "/" // it holds no file system
	cmd.ExtraFiles = []*os.File{says}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	says.Close()
	if err != nil {
		return err
	}
	const patience = 10 * time.Second
	if err := ready.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return errors.Join(err, cmd.Process.Kill())
	}
	if _, err := ready.Read(make([]byte, 1)); err != nil {
		_ = cmd.Process.Kill()
		return fmt.Errorf("the process that would do it did not start: %w", err)
	}
	return cmd.Process.Release()
}
