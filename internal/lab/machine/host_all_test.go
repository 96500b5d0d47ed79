// SPDX-License-Identifier: Apache-2.0

//go:build all

package machine

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Options are what a machine is made of besides its image.
type Options struct {
	Manager Manager           // of the uplink
	Files   map[string]string // laid in: path there → path here; they can be executed
	Wire    *os.File          // an end of a wire to another machine: a second card, ens8
}

// Machine is a running Debian. Its disk lives through reboots and power cuts, until Close.
type Machine struct {
	Retries int // boots that had to be done again, because the kernel did not come up

	image   Image
	options Options
	dir     string
	release func()

	qemu    *exec.Cmd
	ended   chan struct{} // closed when qemu has ended
	monitor *monitor
	line    net.Conn // to the agent
	answers *bufio.Reader
	changed bool // not as a snapshot would find it: Reset starts QEMU anew
	pulled  bool // the uplink's card is out
}

// Booted is the state of a machine as it was started.
const Booted = "booted"

// hardware is what every machine has. The features that -cpu max is made without are those whose instructions are
// random, slow to emulate or wrong: QEMU 7.2's cmpxchg16b (cx16) now and then spoils the flags, of which the kernel's
// allocator dies.
func (k Kind) hardware() []string {
	pace := []string{"-accel", "tcg"}
	if k == Relay {
		pace = []string{"-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off,align=off"}
	}
	return append(pace,
		"-machine", "pc", "-cpu", "max,-cx16,-rdrand,-rdseed,-erms,-fsrm", "-smp", "1", "-m", "768",
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-rtc", "clock=vm",
		"-append", "root=/dev/vda rw console=ttyS0 panic=-1 mitigations=off systemd.show_status=0",
		"-device", "virtio-blk-pci,drive=disk,addr=4", "-device", "virtio-blk-pci,drive=files,addr=5",
		"-device", "virtio-serial-pci,addr=6", "-device", "virtserialport,chardev=line,name=weir",
		"-device", "virtio-rng-pci,addr=7",
		"-netdev", "user,id=uplink,restrict=on,ipv6=off,hostfwd=tcp:127.0.0.1:0-:22",
	)
}

// up is a script that ends once all is started that is started at boot, and down one that begins a shutdown.
func (k Kind) up() string {
	if k == OpenRC { // which starts the agent as the last
		return "until [ -e /run/openrc/softlevel ] && ! [ -e /run/openrc/rc.starting ]; do sleep 0.5; done; " +
			"udevadm settle"
	}
	return "systemctl is-system-running --wait && udevadm settle"
}

func (k Kind) down() string {
	if k == OpenRC {
		return "reboot"
	}
	return "systemctl --no-block reboot"
}

// cache of the disk: what the guest has flushed is on it when QEMU is killed, and what it has not may be lost. Nobody
// takes the power of a Relay away, and while it waits for this host's disk its virtual time runs ahead.
func (k Kind) cache() string {
	if k == Relay {
		return "unsafe"
	}
	return "writeback"
}

// card is the uplink's.
func card() []string {
	return []string{"virtio-net-pci", "id=uplink", "netdev=uplink", "addr=3", "mac=52:54:00:00:00:03", "romfile="}
}

// filesSize is the size of the disk that files come on: a snapshot knows it.
const filesSize = 64 << 20

func (i Image) machine(o Options) (*Machine, error) {
	dir, release, err := scratch(filepath.Dir(i.dir))
	if err != nil {
		return nil, err
	}
	m := &Machine{image: i, options: o, dir: dir, release: release}
	if err := pack(m.path("files.tar"), o.Files); err != nil {
		release()
		return nil, err
	}
	return m, nil
}

func (m *Machine) path(name string) string { return filepath.Join(m.dir, name) }

func (m *Machine) disk() string { return m.path("disk.qcow2") }

// run starts QEMU, from a snapshot if one is named.
func (m *Machine) run(ctx context.Context, snapshot string) error {
	m.Stop()
	lineOurs, lineTheirs, err := pair(unix.SOCK_STREAM)
	if err != nil {
		return err
	}
	defer lineTheirs.Close()
	monitorOurs, monitorTheirs, err := pair(unix.SOCK_STREAM)
	if err != nil {
		return err
	}
	defer monitorTheirs.Close()
	args := append(m.image.kind.hardware(),
		"-kernel", filepath.Join(m.image.dir, "vmlinuz"), "-initrd", filepath.Join(m.image.dir, "initrd"),
		"-drive", "file="+m.disk()+",format=qcow2,if=none,id=disk,cache="+m.image.kind.cache(),
		"-drive", "file="+m.path("files.tar")+",format=raw,if=none,id=files,readonly=on",
		"-chardev", "socket,id=line,fd=3", "-chardev", "socket,id=monitor,fd=4", "-mon", "chardev=monitor,mode=control",
		"-serial", "file:"+m.path("console"))
	if snapshot != "" {
		args, m.pulled = append(args, "-loadvm", snapshot), false
	}
	if !m.pulled {
		args = append(args, "-device", strings.Join(card(), ","))
	}
	files := []*os.File{lineTheirs, monitorTheirs}
	if m.options.Wire != nil {
		args = append(args, "-netdev", "dgram,id=wire,local.type=fd,local.str=5")
		files = append(files, m.options.Wire)
	}
	qemu := exec.Command("qemu-system-x86_64", args...)
	qemu.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	qemu.ExtraFiles = files
	qemu.WaitDelay = time.Second
	var said bytes.Buffer
	qemu.Stderr = &said
	if err := qemu.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() { _ = qemu.Wait(); close(ended) }()
	m.qemu, m.ended, m.changed = qemu, ended, m.pulled
	fail := func(err error) error {
		m.Stop() // before what it said is read
		return fmt.Errorf("%w: %s%s", err, said.String(), m.console())
	}
	conn, err := connection(monitorOurs)
	if err != nil {
		return fail(err)
	}
	if m.line, err = connection(lineOurs); err != nil {
		return fail(err)
	}
	m.answers = bufio.NewReader(m.line)
	if m.monitor, err = newMonitor(conn); err != nil {
		return fail(err)
	}
	if m.options.Wire != nil { // plugged in, since the snapshot is of a machine without it
		mac := sha256.Sum256([]byte(m.dir))
		m.changed = true
		err = m.plug(map[string]any{"driver": "virtio-net-pci", "id": "wire", "netdev": "wire", "addr": "8",
			"romfile": "",
			"mac":     fmt.Sprintf("52:54:00:%x:%x:08", mac[:1], mac[1:2])})
		if err != nil {
			return fail(err)
		}
	}
	return nil
}

func (m *Machine) plug(card map[string]any) error {
	_, err := m.monitor.do("device_add", card)
	return err
}

// boot starts the machine from its disk, and waits until it is up. What is tried again is this alone.
func (m *Machine) boot(ctx context.Context) error {
	const attempts = 3
	var err error
	for range attempts {
		if err = m.run(ctx, ""); err != nil {
			return err
		}
		within, cancel := context.WithTimeout(ctx, longestBoot)
		_, err = m.Run(within, m.image.kind.up())
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
		m.Retries++
	}
	return fmt.Errorf("%d boots failed: %w", attempts, err)
}

// Result is what a script printed, on both its outputs, and its exit status.
type Result struct {
	Out    string
	Status int
}

// longestRun is the limit of a script that has no other.
const longestRun = time.Hour

// Run runs a bash script as root, over a line that is no network. The error is for a machine that does not answer.
func (m *Machine) Run(ctx context.Context, script string) (Result, error) {
	var r Result
	deadline, ok := ctx.Deadline()
	if limit := time.Now().Add(longestRun); !ok || deadline.After(limit) {
		deadline = limit
	}
	if m.line == nil {
		return r, errors.New("the machine is off")
	}
	if err := m.line.SetDeadline(deadline); err != nil {
		return r, err
	}
	err := func() error {
		if _, err := fmt.Fprintf(m.line, "%d\n%s", len(script), script); err != nil {
			return err
		}
		var size int64
		answer, err := m.answers.ReadString('\n')
		if err != nil {
			return err
		}
		if _, err := fmt.Sscanf(answer, "%d %d", &r.Status, &size); err != nil {
			return fmt.Errorf("%q: %w", answer, err)
		}
		text, err := io.ReadAll(io.LimitReader(m.answers, size))
		r.Out = string(text)
		return err
	}()
	if err != nil {
		m.changed = true // its answer may still come, and would be taken for the next script's
		return r, fmt.Errorf("%w, in:\n%s\n%s", err, script, m.console())
	}
	return r, nil
}

// Must runs a script whose status has to be 0.
func (m *Machine) Must(ctx context.Context, script string) error {
	r, err := m.Run(ctx, script)
	if err == nil && r.Status != 0 {
		err = fmt.Errorf("status %d of\n%s\n%s", r.Status, script, r.Out)
	}
	return err
}

// console is the end of what the kernel said.
func (m *Machine) console() string {
	text, _ := os.ReadFile(m.path("console"))
	const enough = 1500
	return string(text[max(0, len(text)-enough):])
}

// Reboot shuts the machine down in good order, and starts it again.
func (m *Machine) Reboot(ctx context.Context) error {
	if err := m.Shutdown(ctx); err != nil {
		return err
	}
	return m.Boot(ctx)
}

// Shutdown shuts the machine down in good order.
func (m *Machine) Shutdown(ctx context.Context) error {
	// The end of QEMU is the answer (-no-reboot); the machine may be gone before it has said that it goes.
	_, said := m.Run(ctx, m.image.kind.down())
	select {
	case <-m.ended:
	case <-ctx.Done():
		return errors.Join(said, ctx.Err())
	case <-time.After(longestBoot):
		return fmt.Errorf("the machine does not go down: %w: %s", said, m.console())
	}
	m.Stop()
	return nil
}

// Boot starts a machine that is off.
func (m *Machine) Boot(ctx context.Context) error { return m.boot(ctx) }

// Stop is a power cut.
func (m *Machine) Stop() {
	if m.qemu == nil {
		return
	}
	_ = m.qemu.Process.Kill()
	<-m.ended
	if m.monitor != nil {
		m.monitor.conn.Close()
	}
	if m.line != nil {
		m.line.Close()
	}
	m.qemu, m.monitor, m.line = nil, nil, nil
}

// PowerCut takes the power away and gives it back: the machine starts from what was on its disk.
func (m *Machine) PowerCut(ctx context.Context) error {
	m.Stop()
	return m.boot(ctx)
}

// Save keeps the present state, the disk's too, under a name. The machine must be one that was Reset or Started, with
// nothing pulled out since.
func (m *Machine) Save(name string) error {
	if m.pulled {
		return errors.New("a machine without its card is not the one that a snapshot starts")
	}
	said, err := m.monitor.human("savevm " + name)
	if err == nil && said != "" {
		err = fmt.Errorf("savevm: %s", said)
	}
	return err
}

// Reset makes the machine, its disk too, what it was when it was saved.
func (m *Machine) Reset(ctx context.Context, name string) error {
	if m.qemu == nil || m.changed || m.over() {
		return m.run(ctx, name)
	}
	said, err := m.monitor.human("loadvm " + name)
	if err == nil && said != "" {
		err = fmt.Errorf("loadvm: %s", said)
	}
	return err
}

// over reports whether QEMU has ended by itself.
func (m *Machine) over() bool {
	select {
	case <-m.ended:
		return true
	default:
		return false
	}
}

// Unplug pulls the uplink's card out, of a machine that is on or off.
func (m *Machine) Unplug() error {
	m.changed, m.pulled = true, true
	if m.qemu == nil {
		return nil
	}
	if _, err := m.monitor.do("device_del", map[string]any{"id": "uplink"}); err != nil {
		return err
	}
	return m.monitor.await("DEVICE_DELETED")
}

// Plug puts it back in.
func (m *Machine) Plug() error {
	m.changed, m.pulled = true, false
	if m.qemu == nil {
		return nil
	}
	properties := map[string]any{}
	for i, p := range card() {
		if i == 0 {
			p = "driver=" + p
		}
		name, value, _ := strings.Cut(p, "=")
		properties[name] = value
	}
	return m.plug(properties)
}

// Forwarded is the address, on this host's loopback, that is the machine's port 22.
func (m *Machine) Forwarded() (port string, err error) {
	said, err := m.monitor.human("info usernet")
	if err != nil {
		return "", err
	}
	for l := range strings.Lines(said) {
		// "  TCP[HOST_FORWARD]  12       127.0.0.1 38383       10.0.2.15    22     0     0"
		if f := strings.Fields(l); len(f) > 3 && f[0] == "TCP[HOST_FORWARD]" {
			return f[3], nil
		}
	}
	return "", fmt.Errorf("no port is forwarded: %s", said)
}

// Close ends the machine and leaves nothing behind.
func (m *Machine) Close() {
	m.Stop()
	m.release()
}

// Wire gives both ends of a link between two machines.
func Wire() (a, b *os.File, err error) { return pair(unix.SOCK_DGRAM) }

func pair(kind int) (a, b *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs"), nil
}

// connection takes the file over.
func connection(f *os.File) (net.Conn, error) {
	defer f.Close()
	return net.FileConn(f)
}

func pack(path string, files map[string]string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	w := tar.NewWriter(f)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		body, err := os.ReadFile(files[name])
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Name: strings.TrimPrefix(name, "/"), Mode: 0o755,
			Size: int64(len(body))}); err != nil {
			return err
		}
		if _, err := w.Write(body); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	if at, err := f.Seek(0, io.SeekCurrent); err != nil || at > filesSize {
		return fmt.Errorf("%d bytes of files, and there is room for %d: %w", at, filesSize, err)
	}
	return f.Truncate(filesSize)
}
