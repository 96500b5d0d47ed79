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
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/internal/host"
	"weir/internal/lab/uml/umltest"
	"weir/internal/qdisc"
)

// The command line as a person meets it. Each script has a network namespace of its own, in which the device up0 is the uplink, down0 has
// no carrier and multi0 has four queues, and a state directory $STATE. In it:
//
//	weir ARGS        the program; WEIR_UID=65534 in the environment makes it nobody's
//	facts            prints all that weir could have changed, to compare before and after
//	sysctl NAME VAL  somebody else sets NAME
//	root DEV QDISC   somebody else replaces the root qdisc
//	rename DEV NEW   somebody else renames a device; downed DEV and upped DEV take it down and up
//	refused STATUS REGEXP ARGS
//	                 runs weir ARGS, which must end with STATUS, print nothing, and say on stderr one line that matches and one with what to try
//	locked DIR REFUSED…
//	                 the same while DIR is locked, as by another weir
//
// The programs are this test binary, under another name.
func programs() map[string]func() {
	return map[string]func(){
		"weir": func() {
			enter()
			if os.Getenv("WEIR_UID") != "" {
				check(unix.Setresuid(65534, 65534, 65534))
			}
			os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
		},
		"facts":  func() { enter(); printFacts() },
		"sysctl": func() { enter(); check(os.WriteFile(host.SysctlPath(os.Args[1]), []byte(os.Args[2]), 0)) },
		"root":   func() { enter(); setRoot(os.Args[1], os.Args[2]) },
		"rename": func() { enter(); check(netlink.LinkSetName(device(os.Args[1]), os.Args[2])) },
		"downed": func() { enter(); check(netlink.LinkSetDown(device(os.Args[1]))) },
		"upped":  func() { enter(); setUp(device(os.Args[1])) },
	}
}

func TestMain(m *testing.M) {
	if program := programs()[filepath.Base(os.Args[0])]; program != nil {
		program()
		return
	}
	umltest.Main(m)
}

// The same scripts on a kernel that has every queue.
func TestLabKernel(t *testing.T) { umltest.Run(t, "^TestScripts$") }

//go:embed testdata/script
var scripts embed.FS // the lab kernel has no other files

func TestScripts(t *testing.T) {
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
			// Not below the script's own directory, which nobody else may enter.
			state, err := os.MkdirTemp("", "weir-state-")
			if err != nil {
				return err
			}
			env.Defer(func() { os.RemoveAll(state) })
			env.Setenv("STATE", state+"/weir")
			return os.Chmod(state, 0o755)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"refused": refused, "locked": locked},
		Condition: func(condition string) (bool, error) {
			if condition == "root" {
				return os.Geteuid() == 0, nil
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

func refused(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec("weir", args[2:]...)
	stdout, stderr := ts.ReadFile("stdout"), ts.ReadFile("stderr")
	status := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		status = exit.ExitCode()
	}
	if fmt.Sprint(status) != args[0] {
		ts.Fatalf("exit status %d, want %s", status, args[0])
	}
	if stdout != "" {
		ts.Fatalf("a refusal prints nothing to stdout")
	}
	lines := strings.Split(stderr, "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[0], "weir: ") || !strings.HasPrefix(lines[1], "  try: ") || lines[2] != "" {
		ts.Fatalf("not one line that says what is wrong and one that says what to try")
	}
	if !regexp.MustCompile(args[1]).MatchString(lines[0]) {
		ts.Fatalf("the error does not match %q", args[1])
	}
}

func locked(ts *testscript.TestScript, neg bool, args []string) {
	ts.Check(os.MkdirAll(args[0], 0o755))
	d, err := os.Open(args[0])
	ts.Check(err)
	defer d.Close()
	ts.Check(unix.Flock(int(d.Fd()), unix.LOCK_EX))
	refused(ts, neg, args[1:])
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
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine, and has changed nothing for others
		fd, err := func() (int, error) {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return 0, err
			}
			// Addresses that come by themselves would make the facts differ.
			if err := os.WriteFile(host.SysctlPath("net.ipv6.conf.default.disable_ipv6"), []byte("1"), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
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
					if err := netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.IPv4(192, 0, 2, 1)}); err != nil {
						return 0, fmt.Errorf("default route: %w", err)
					}
				}
			}
			// The kernel tells of a carrier a little later.
			for _, name := range []string{"up0", "far0", "multi0", "far2"} {
				for link, err := netlink.LinkByName(name); err != nil || link.Attrs().OperState != netlink.OperUp; link, err = netlink.LinkByName(name) {
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
	if strings.HasSuffix(path, "/-1") {
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

func device(name string) netlink.Link {
	link, err := netlink.LinkByName(name)
	check(err)
	return link
}

// setUp waits for the carrier, which the kernel tells of a little later, and brings back the route that went with the link.
func setUp(link netlink.Link) {
	check(netlink.LinkSetUp(link))
	for device(link.Attrs().Name).Attrs().OperState != netlink.OperUp {
		time.Sleep(time.Millisecond)
	}
	check(netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.IPv4(192, 0, 2, 1)}))
}

func setRoot(dev, text string) {
	stack, err := qdisc.ParseStack(text)
	check(err)
	conn, err := qdisc.Dial(0)
	check(err)
	defer conn.Close()
	check(conn.Replace(device(dev).Attrs().Index, stack))
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
