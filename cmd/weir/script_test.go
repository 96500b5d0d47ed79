// SPDX-License-Identifier: Apache-2.0

package main

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/internal/cli/clitest"
	"weir/internal/host"
	"weir/internal/lab/qemu"
	"weir/internal/lab/qemu/kerneltest"
	"weir/internal/lab/uml/umltest"
	"weir/internal/qdisc"
)

// The command line as a person meets it. Each script has a network namespace of its own, in which the device up0 is
// the uplink, down0 has no carrier and multi0 has four queues, and a state directory $STATE. OTHER_NETNS is another
// namespace, to be WEIR_NETNS for a while. In it:
//
//	weir ARGS        the program; WEIR_UID=65534 in the environment makes it nobody's
//	                 WEIR_FULL=1: its output goes where there is no room.
//	                 WEIR_KILL=1: it is killed when its timer is armed.
//	                 WEIR_SYSTEMD=FILE: there is a systemd, which notes in FILE what it is asked for
//	facts            prints all that weir could have changed, to compare before and after
//	sysctl NAME VAL  somebody else sets NAME
//	stays            is a process of the namespace until it is killed
//	root DEV QDISC   somebody else replaces the root qdisc
//	unroot DEV       somebody else deletes the root qdisc, as tc does: the kernel puts its default there
//	clsact DEV       somebody else adds a clsact, for filters
//	unlink DEV       somebody else deletes a device
//	rename DEV NEW   somebody else renames a device; downed DEV and upped DEV take it down and up
//	refused STATUS REGEXP ARGS
//	                 runs weir ARGS, which must end with STATUS, print nothing, and say on stderr one line that
//	                 matches and one with what to try
//	locked DIR REFUSED…
//	                 the same while DIR is locked, as by another weir
//	eventually FILE  waits until facts prints what is in FILE
//	shown REGEXP ARGS
//	                 runs weir ARGS again and again, until what it prints matches
//	settled DIR      waits until DIR's journal says that nothing is pending
//	detached DIR     the process that waits to put back what DIR's journal says leads a session, and a hangup or a
//	                 request to end does not end it
//	gone FILE        makes the journal FILE one of another network namespace
//	kills FILE ARGS  runs weir ARGS again and again, and kills it each time a little later; after weir recover
//	                 facts must print what is in FILE
//	called LINE…     what the systemd was asked for since the last time: patterns, in which $UNIT is a timer's name
//
// The programs are this test binary, under another name.
func programs() map[string]func() {
	return map[string]func(){
		"weir": func() {
			enter()
			if os.Getenv("WEIR_SYSTEMD") != "" {
				underSystemd()
			}
			if os.Getenv("WEIR_UID") != "" {
				check(unix.Setresuid(65534, 65534, 65534))
			}
			if os.Getenv("WEIR_KILL") != "" && slices.Contains(os.Args, "--detached") {
				check(unix.Kill(os.Getppid(), unix.SIGKILL))
			}
			stdout := os.Stdout
			if os.Getenv("WEIR_FULL") != "" {
				var err error
				stdout, err = os.OpenFile("/dev/full", os.O_WRONLY, 0)
				check(err)
			}
			os.Exit(run(os.Args[1:], stdout, os.Stderr))
		},
		"systemd-run": noteCall,
		"systemctl":   noteCall,
		"facts":       func() { enter(); printFacts() },
		"sysctl":      func() { enter(); check(os.WriteFile(host.SysctlPath(os.Args[1]), []byte(os.Args[2]), 0)) },
		"stays": func() {
			if os.Getenv("WEIR_NETNS") == "" {
				_ = unix.Pause()
				return
			}
			enter() // with this thread: all of the process is there once it is a program anew
			os.Unsetenv("WEIR_NETNS")
			check(unix.Exec("/proc/self/exe", os.Args, os.Environ()))
		},
		"root": func() { enter(); setRoot(os.Args[1], os.Args[2]) },
		"unroot": func() {
			enter()
			at := netlink.QdiscAttrs{LinkIndex: linkOf(os.Args[1]).Attrs().Index, Parent: netlink.HANDLE_ROOT}
			check(netlink.QdiscDel(&netlink.GenericQdisc{QdiscAttrs: at, QdiscType: "any"}))
		},
		"far":    func() { acceptAll(number(1)) },
		"near":   func() { connectAll(number(1), number(2), time.Duration(number(3))*time.Second) },
		"clsact": func() { enter(); addClsact(os.Args[1]) },
		"unlink": func() { enter(); check(netlink.LinkDel(linkOf(os.Args[1]))) },
		"rename": func() { enter(); check(netlink.LinkSetName(linkOf(os.Args[1]), os.Args[2])) },
		"downed": func() { enter(); check(netlink.LinkSetDown(linkOf(os.Args[1]))) },
		"upped":  func() { enter(); setUp(linkOf(os.Args[1])) },
	}
}

func TestMain(m *testing.M) {
	if program := programs()[filepath.Base(os.Args[0])]; program != nil {
		program()
		return
	}
	if qemu.Inside() {
		kerneltest.Main(m)
	}
	umltest.Main(m)
}

// The scripts, on a kernel that has every queue.
func TestLabKernel(t *testing.T) { umltest.Run(t, "^TestScripts$") }

//go:embed testdata/script
var scripts embed.FS // the lab kernel has no other files

func TestScripts(t *testing.T) {
	if !umltest.Inside() && !qemu.Inside() {
		t.Skip("skipped here: TestLabKernel runs it in the lab's kernel, and TestStockKernel in a stock one")
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, scripts); err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join(dir, "testdata/script"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			self, err := os.Executable()
			if err != nil {
				return err
			}
			bin := filepath.Join(env.WorkDir, ".bin")
			if err := os.Mkdir(bin, 0o755); err != nil {
				return err
			}
			env.Setenv("SELF", self)
			for name := range programs() {
				if err := os.Symlink(self, filepath.Join(bin, name)); err != nil {
					return err
				}
			}
			env.Setenv("PATH", bin)
			namespace, err := newNamespace()
			if err != nil {
				return err
			}
			env.Defer(func() { unix.Close(namespace) })
			env.Setenv("WEIR_NETNS", fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), namespace))
			other, err := newNamespace()
			if err != nil {
				return err
			}
			env.Defer(func() { unix.Close(other) })
			env.Setenv("OTHER_NETNS", fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), other))
			// Not below the script's own directory, which nobody else may enter.
			state, err := os.MkdirTemp("", "weir-state-")
			if err != nil {
				return err
			}
			env.Defer(func() { os.RemoveAll(state) })
			env.Setenv("STATE", state+"/weir")
			return os.Chmod(state, 0o755)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"refused": clitest.Refused("weir"), "locked": locked, "eventually": eventually, "settled": settled,
			"gone": gone, "shown": shown,
			"detached": detached, "kills": kills, "called": called,
		},
		Condition: func(condition string) (bool, error) {
			if condition == "root" {
				return os.Geteuid() == 0, nil
			}
			if condition == "ingress" {
				facts, err := host.Read()
				return facts.Ingress != host.No, err
			}
			if condition == "pidns" {
				_, err := os.Stat("/proc/self/ns/pid")
				return err == nil, nil
			}
			if control, ok := strings.CutPrefix(condition, "cc:"); ok {
				facts, err := host.Read()
				return facts.Congestion.Has(control), err
			}
			if object, ok := strings.CutPrefix(condition, "takes:"); ok {
				facts, err := host.Read()
				return facts.Objects[object] == host.Yes, err
			}
			kind, ok := strings.CutPrefix(condition, "qdisc:")
			if !ok {
				return false, fmt.Errorf("unknown condition %q", condition)
			}
			facts, err := host.Read()
			return facts.Qdiscs[kind] == host.Yes, err
		},
	})
}

func locked(ts *testscript.TestScript, neg bool, args []string) {
	ts.Check(os.MkdirAll(args[0], 0o755))
	f, err := os.Create(filepath.Join(args[0], "lock"))
	ts.Check(err)
	defer f.Close()
	ts.Check(unix.Flock(int(f.Fd()), unix.LOCK_EX))
	clitest.Refused("weir")(ts, neg, args[1:])
}

// wait is patient: a machine may be busy, and none of this is about how fast it is.
func wait(ts *testscript.TestScript, what string, until func() bool) {
	for start := time.Now(); !until(); time.Sleep(100 * time.Millisecond) {
		if time.Since(start) > 2*time.Minute {
			ts.Fatalf("%s: not in two minutes", what)
		}
	}
}

func eventually(ts *testscript.TestScript, _ bool, args []string) {
	want := ts.ReadFile(args[0])
	wait(ts, "the facts as in "+args[0], func() bool {
		ts.Check(ts.Exec("facts"))
		return ts.ReadFile("stdout") == want
	})
	// The journal is written after the facts are right.
	settled(ts, false, []string{ts.Getenv("STATE")})
}

func shown(ts *testscript.TestScript, _ bool, args []string) {
	want := regexp.MustCompile(args[0])
	wait(ts, args[0], func() bool {
		_ = ts.Exec("weir", args[1:]...)
		return want.MatchString(ts.ReadFile("stdout"))
	})
}

func settled(ts *testscript.TestScript, _ bool, args []string) {
	wait(ts, "nothing pending", func() bool {
		text, err := os.ReadFile(filepath.Join(args[0], "journal.json"))
		return err != nil || !strings.Contains(string(text), `"pending"`)
	})
}

func gone(ts *testscript.TestScript, _ bool, args []string) {
	path := ts.MkAbs(args[0])
	text, err := os.ReadFile(path)
	ts.Check(err)
	ts.Check(os.WriteFile(path, regexp.MustCompile(`net:\[[0-9]+\]`).ReplaceAll(text, []byte("net:[1]")), 0o644))
}

func detached(ts *testscript.TestScript, _ bool, args []string) {
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	ts.Check(err)
	for _, line := range lines {
		text, _ := os.ReadFile(line)
		if !strings.Contains(string(text), "\x00--unconfirmed\x00--state\x00"+args[0]+"\x00--detached\x00") {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(line)))
		ts.Check(err)
		session, err := unix.Getsid(pid)
		ts.Check(err)
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		ts.Check(err)
		_, ignored, _ := strings.Cut(string(status), "\nSigIgn:\t")
		mask, err := strconv.ParseUint(strings.Fields(ignored)[0], 16, 64)
		ts.Check(err)
		for _, signal := range []syscall.Signal{syscall.SIGHUP, syscall.SIGTERM, syscall.SIGINT} {
			if session != pid || mask&(1<<(signal-1)) == 0 {
				ts.Fatalf("process %d is of session %d, and %v may end it (SigIgn %x)", pid, session, signal, mask)
			}
		}
		return
	}
	ts.Fatalf("no process waits to put back what is in %s", args[0])
}

func kills(ts *testscript.TestScript, _ bool, args []string) {
	want := ts.ReadFile(args[0])
	weir := filepath.Join(ts.Getenv("PATH"), "weir")
	for after := time.Duration(0); after < 60*time.Millisecond; after += 4 * time.Millisecond {
		cmd := exec.Command(weir, append(args[1:], "--state", ts.Getenv("STATE"))...)
		cmd.Env = append(os.Environ(), "WEIR_NETNS="+ts.Getenv("WEIR_NETNS"), "PATH="+ts.Getenv("PATH"))
		ts.Check(cmd.Start())
		time.Sleep(after)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		ts.Check(ts.Exec("weir", "recover", "--state", ts.Getenv("STATE")))
		ts.Check(ts.Exec("facts"))
		if got := ts.ReadFile("stdout"); got != want {
			ts.Fatalf("killed after %v, recovered, and the facts are\n%s", after, got)
		}
	}
}

func called(ts *testscript.TestScript, _ bool, args []string) {
	file := ts.Getenv("WEIR_SYSTEMD")
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		ts.Fatalf("%v", err)
	}
	want := ""
	for _, line := range args {
		want += os.Expand(line, func(name string) string {
			if name == "UNIT" { // of this run
				return `weir-revert-[0-9a-f]{8}-[0-9a-f]+(?:-2)?`
			}
			return regexp.QuoteMeta(ts.Getenv(name))
		}) + "\n"
	}
	if !regexp.MustCompile("^" + want + "$").Match(text) {
		ts.Fatalf("systemd was asked for\n%swant\n%s", text, want)
	}
	_ = os.Remove(file)
}

// noteCall is systemd-run, and systemctl.
func noteCall() {
	f, err := os.OpenFile(os.Getenv("WEIR_SYSTEMD"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	check(err)
	_, err = fmt.Fprintln(f, strings.Join(append([]string{filepath.Base(os.Args[0])}, os.Args[1:]...), " "))
	check(err)
	if os.Getenv("WEIR_SYSTEMD_FAILS") != "" {
		fatal("Failed to start transient timer unit")
	}
}

// underSystemd goes on as process 1 of a PID namespace, in which systemd's directory is there and process 1 in this
// network namespace.
func underSystemd() {
	if os.Getpid() != 1 {
		cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
		cmd.Args[0] = "weir"
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS}
		err := cmd.Run()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			os.Exit(exit.ExitCode())
		}
		check(err)
		os.Exit(0)
	}
	check(unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	check(unix.Mount("proc", "/proc", "proc", 0, ""))
	check(unix.Mount("tmpfs", "/run", "tmpfs", 0, ""))
	check(os.MkdirAll("/run/systemd/system", 0o755))
	// Its programs are called by their whole paths.
	self, err := os.Readlink("/proc/self/exe")
	check(err)
	check(os.MkdirAll("/usr/bin", 0o755))
	check(unix.Mount("tmpfs", "/usr/bin", "tmpfs", 0, ""))
	for _, name := range []string{"systemd-run", "systemctl"} {
		check(os.Symlink(self, "/usr/bin/"+name))
	}
}

// newNamespace makes a network namespace with the devices of the scripts. Without root there is none: -1.
func newNamespace() (int, error) {
	if os.Geteuid() != 0 {
		return -1, nil
	}
	type result struct {
		fd  int
		err error
	}
	done := make(chan result)
	go func() {
		// and never unlocked: the thread ends with the goroutine, and has changed nothing for others
		runtime.LockOSThread()
		fd, err := func() (int, error) {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return 0, err
			}
			// Addresses that come by themselves would make the facts differ.
			if err := os.WriteFile(host.SysctlPath("net.ipv6.conf.default.disable_ipv6"), []byte("1"), 0); err != nil &&
				!errors.Is(err, os.ErrNotExist) {
				return 0, err
			}
			for _, pair := range [][2]string{{"up0", "far0"}, {"down0", "far1"}, {"multi0", "far2"}} {
				attrs := netlink.NewLinkAttrs()
				attrs.Name = pair[0]
				attrs.NumTxQueues, attrs.NumRxQueues = 1, 1 // so that it cannot have mq
				if attrs.Name == "multi0" {
					attrs.NumTxQueues, attrs.NumRxQueues = 4, 4
				}
				if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: pair[1]}); err != nil {
					return 0, err
				}
			}
			for _, name := range []string{"lo", "up0", "far0", "down0", "multi0", "far2"} {
				link, err := netlink.LinkByName(name)
				if err != nil {
					return 0, err
				}
				if err := netlink.LinkSetUp(link); err != nil {
					return 0, err
				}
				if name == "up0" {
					addr, _ := netlink.ParseAddr("192.0.2.2/24")
					if err := netlink.AddrAdd(link, addr); err != nil {
						return 0, err
					}
					if err := netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index,
						Gw: net.IPv4(192, 0, 2, 1)}); err != nil {
						return 0, fmt.Errorf("default route: %w", err)
					}
				}
			}
			// The kernel tells of a carrier a little later.
			for _, name := range []string{"up0", "far0", "multi0", "far2"} {
				for link, err := netlink.LinkByName(name); err != nil || link.Attrs().OperState != netlink.OperUp; link,
					err = netlink.LinkByName(name) {
					if err != nil {
						return 0, err
					}
					time.Sleep(time.Millisecond)
				}
			}
			return unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		}()
		done <- result{fd, err}
	}()
	r := <-done
	return r.fd, r.err
}

// enter moves this process's main thread into the script's namespace.
func enter() {
	path := os.Getenv("WEIR_NETNS")
	if path == "" || strings.HasSuffix(path, "/-1") { // as it is
		return
	}
	runtime.LockOSThread()
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	check(err)
	check(unix.Setns(fd, unix.CLONE_NEWNET))
}

// printFacts leaves out what changes by itself: counters.
func printFacts() {
	facts, err := host.Read()
	check(err)
	for i, l := range facts.Links {
		for j := range l.Tree.Qdiscs {
			facts.Links[i].Tree.Qdiscs[j].Stats = qdisc.Stats{}
		}
		for j := range l.Tree.Classes {
			facts.Links[i].Tree.Classes[j].Stats = qdisc.Stats{}
		}
	}
	text, err := json.MarshalIndent(facts, "", " ")
	check(err)
	fmt.Println(string(text))
}

func linkOf(name string) netlink.Link {
	link, err := netlink.LinkByName(name)
	check(err)
	return link
}

// setUp waits for the carrier, which the kernel tells of a little later, and brings back the route that went with the
// link.
func setUp(link netlink.Link) {
	check(netlink.LinkSetUp(link))
	// of the pair: its carrier goes and comes with this one's
	other, err := netlink.LinkByIndex(link.Attrs().ParentIndex)
	check(err)
	for _, end := range []netlink.Link{link, other} {
		for linkOf(end.Attrs().Name).Attrs().OperState != netlink.OperUp {
			time.Sleep(time.Millisecond)
		}
	}
	check(netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.IPv4(192, 0, 2, 1)}))
}

func setRoot(dev, text string) {
	stack, err := qdisc.ParseStack(text)
	check(err)
	conn, err := qdisc.Dial(0)
	check(err)
	defer conn.Close()
	check(conn.Replace(linkOf(dev).Attrs().Index, stack))
}

func addClsact(dev string) {
	attrs := netlink.QdiscAttrs{LinkIndex: linkOf(dev).Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0),
		Parent: netlink.HANDLE_CLSACT}
	check(netlink.QdiscAdd(&netlink.GenericQdisc{QdiscAttrs: attrs, QdiscType: "clsact"}))
}

// number is an argument of the program's.
func number(i int) int {
	n, err := strconv.Atoi(os.Args[i])
	check(err)
	return n
}

func check(err error) {
	if err != nil {
		fatal(err)
	}
}

func fatal(v any) {
	fmt.Fprintln(os.Stderr, v)
	os.Exit(1)
}
