// SPDX-License-Identifier: Apache-2.0

//go:build all

// Package machine runs scripts on a whole Debian, with systemd or OpenRC, under QEMU: for what only a whole system can
// show, such as a timer that outlives its process, a reboot, a power cut.
//
// A machine starts in a second from a snapshot of a booted one, and can go back to it at any time. An emulated machine
// has no time that means anything: nothing here may assert one, but of a Relay.
package machine

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

//go:embed build
var recipe string

// Suites are the releases of Debian that machines are made of, with systemd 252, 257 and the newest.
func Suites() []string { return []string{"bookworm", "trixie", "sid"} }

// Manager is what configures the uplink.
type Manager string

const (
	Networkd       Manager = "networkd"
	NetworkManager Manager = "NetworkManager"
	Ifupdown       Manager = "ifupdown"
)

// Managers are all of them.
func Managers() []Manager { return []Manager{Networkd, NetworkManager, Ifupdown} }

// Kind is what an image is for.
type Kind string

const (
	Plain Kind = "" // nothing more than a host needs
	// Relay has the programs that make a host a relay. Its time is virtual: an instruction takes a nanosecond.
	// Waiting takes no time of the host's, whose load is not in what a Relay measures. The host's disk is: see cache.
	Relay Kind = "relay"
	// OpenRC has no systemd: sysvinit's init starts OpenRC, and that the services. Its Manager is Ifupdown.
	OpenRC Kind = "openrc"
)

// Image is a Debian on disk.
type Image struct {
	Suite string
	kind  Kind
	dir   string
}

// ErrNoTools means that this host cannot make or run one.
var ErrNoTools = errors.New("a program is missing (scripts/need machines)")

// longestBuild and longestBoot are hard limits, for hosts that are slow and busy.
const (
	longestBuild = time.Hour
	longestBoot  = time.Hour
)

// Build gives the image of a suite and kind, from the user's cache if it is there.
func Build(ctx context.Context, suite string, kind Kind) (Image, error) {
	for _, tool := range []string{"mmdebstrap", "mke2fs", "fakeroot", "qemu-img", "qemu-system-x86_64"} {
		if _, err := exec.LookPath(tool); err != nil {
			return Image{}, fmt.Errorf("%s: %w", tool, ErrNoTools)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, longestBuild)
	defer cancel()
	script, err := os.CreateTemp("", "weir-build-")
	if err != nil {
		return Image{}, err
	}
	defer os.Remove(script.Name())
	_, err = script.WriteString(recipe)
	if err := errors.Join(err, script.Close()); err != nil {
		return Image{}, err
	}
	var said bytes.Buffer
	command := exec.CommandContext(ctx, "bash", script.Name(), suite, string(kind))
	command.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGTERM}
	command.WaitDelay = time.Second
	command.Stderr = &said
	out, err := command.Output()
	if err != nil {
		return Image{}, fmt.Errorf("%s: %w: %s", suite, err, strings.TrimSpace(said.String()))
	}
	return Image{suite, kind, strings.TrimSpace(string(out))}, nil
}

// Uplink is the name of a machine's network card, and the address that its manager is told to give it.
const (
	Uplink     = "ens3"
	uplinkCIDR = "10.0.2.15/24"
	gateway    = "10.0.2.2"
)

// enable makes a manager the one that configures the uplink, as an administrator would: its own file, its own unit.
func (m Manager) enable() string {
	file, mode, text := "", "644", ""
	switch m {
	case Networkd:
		file = "/etc/systemd/network/10-uplink.network"
		text = "[Match]\nName=" + Uplink + "\n\n[Network]\nAddress=" + uplinkCIDR + "\nGateway=" + gateway + "\n"
	case NetworkManager:
		file, mode = "/etc/NetworkManager/system-connections/uplink.nmconnection", "600" // it refuses others
		text = "[connection]\nid=uplink\ntype=ethernet\ninterface-name=" + Uplink +
			"\n\n[ipv4]\nmethod=manual\naddress1=" + uplinkCIDR + "," + gateway + "\n\n[ipv6]\nmethod=disabled\n"
	case Ifupdown:
		file = "/etc/network/interfaces"
		text = "auto lo\niface lo inet loopback\n\nauto " + Uplink + "\niface " + Uplink + " inet static\n\taddress " +
			uplinkCIDR + "\n\tgateway " + gateway + "\n"
	}
	return "cat >" + file + " <<'END'\n" + text + "END\nchmod " + mode + " " + file +
		"\nif command -v systemctl >/dev/null; then systemctl --quiet enable " + m.unit() +
		"; else rc-update --quiet add " + m.unit() + " sysinit; fi\n"
}

func (m Manager) unit() string {
	return map[Manager]string{Networkd: "systemd-networkd", NetworkManager: "NetworkManager", Ifupdown: "networking"}[m]
}

// Shown is a command that succeeds if, by its own account, the manager has configured the uplink.
func (m Manager) Shown() string {
	switch m {
	case Networkd:
		return "networkctl --no-pager status " + Uplink + " | grep -q 'State: routable (configured)'"
	case NetworkManager:
		return "nmcli -t -f DEVICE,STATE,CONNECTION device | grep -q '^" + Uplink + ":connected:uplink$'"
	default:
		return "ifquery --state " + Uplink + " | grep -q '^" + Uplink + "=" + Uplink + "$'"
	}
}

// booted gives the disk of a machine that has been started twice with a manager. It has a snapshot of it running, and
// comes from the user's cache if it is there.
func (i Image) booted(ctx context.Context, manager Manager) (string, error) {
	version, err := exec.CommandContext(ctx, "qemu-system-x86_64", "--version").Output()
	if err != nil {
		return "", err
	}
	key := sha256.Sum256(fmt.Append(version, i.kind.hardware(), card(), manager.enable(), snapshotRecipe))
	path := filepath.Join(i.dir, fmt.Sprintf("%s-%x.qcow2", manager, key[:6]))
	lock, err := os.Create(filepath.Join(i.dir, string(manager)+".lock"))
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	old, err := filepath.Glob(filepath.Join(i.dir, string(manager)+"-*.qcow2"))
	for _, o := range old {
		err = errors.Join(err, os.Remove(o))
	}
	if err != nil {
		return "", err
	}
	m, err := i.machine(Options{Manager: manager})
	if err != nil {
		return "", err
	}
	defer m.Close()
	if out, err := exec.CommandContext(ctx, "qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b",
		filepath.Join(i.dir, "disk.img"), m.disk()).CombinedOutput(); err != nil {
		return "", fmt.Errorf("qemu-img: %w: %s", err, out)
	}
	if err := m.boot(ctx); err != nil {
		return "", err
	}
	if err := m.Must(ctx, manager.enable()); err != nil {
		return "", err
	}
	if err := m.Reboot(ctx); err != nil {
		return "", err
	}
	if err := m.Must(ctx,
		"for i in {1..20}; do if "+manager.Shown()+"; then "+snapshotRecipe+"; exit; fi; sleep 1; done; systemctl "+
			"status "+manager.unit()+"; exit 1"); err != nil {
		return "", err
	}
	if err := m.Save(Booted); err != nil {
		return "", err
	}
	m.Stop()
	return path, os.Rename(m.disk(), path)
}

// snapshotRecipe is what a machine does before its first snapshot.
const snapshotRecipe = "sync"

// Start starts a machine in the state of one that has booted.
func (i Image) Start(ctx context.Context, o Options) (*Machine, error) {
	from, err := i.booted(ctx, o.Manager)
	if err != nil {
		return nil, fmt.Errorf("%s with %s: %w", i.Suite, o.Manager, err)
	}
	m, err := i.machine(o)
	if err != nil {
		return nil, err
	}
	started := false
	defer func() {
		if !started {
			m.Close()
		}
	}()
	if err := copyFile(m.disk(), from); err != nil {
		return nil, err
	}
	if err := m.run(ctx, Booted); err != nil {
		return nil, err
	}
	if len(o.Files) > 0 {
		if err := m.Must(ctx, "tar -x -f /dev/vdb -C / --no-overwrite-dir && sync -f /"); err != nil {
			return nil, err
		}
		if err := m.Save(Booted); err != nil {
			return nil, err
		}
	}
	started = true
	return m, nil
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// scratch makes a folder beside the images that is removed by its owner or, if that was killed, by the next who wants
// one.
func scratch(cache string) (dir string, release func(), err error) {
	all, err := os.Open(cache)
	if err != nil {
		return "", nil, err
	}
	defer all.Close()
	if err := unix.Flock(int(all.Fd()), unix.LOCK_EX); err != nil {
		return "", nil, err
	}
	lock := func(dir string) (*os.File, error) {
		f, err := os.Open(dir)
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			f.Close()
			return nil, err
		}
		return f, nil
	}
	const prefix = "run-"
	old, err := filepath.Glob(filepath.Join(cache, prefix+"*"))
	if err != nil {
		return "", nil, err
	}
	for _, o := range old {
		if f, err := lock(o); err == nil {
			os.RemoveAll(o)
			f.Close()
		}
	}
	if dir, err = os.MkdirTemp(cache, prefix); err != nil {
		return "", nil, err
	}
	held, err := lock(dir)
	if err != nil {
		return "", nil, err
	}
	return dir, func() { os.RemoveAll(dir); held.Close() }, nil
}
