// SPDX-License-Identifier: Apache-2.0

package host

import (
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.zx2c4.com/wireguard/wgctrl"
)

// readTunnels finds the ports at which tunnels' packets come in. The kernel tells root alone.
func readTunnels(root fs.FS, f *Facts) {
	if !f.Admin {
		return
	}
	names := map[string]bool{}
	for i, l := range f.Links {
		switch l.Kind {
		case "wireguard":
			f.Links[i].Ports, f.Links[i].Peers = wireGuard(l.Name)
		case "tuntap":
			names[l.Name] = true
		}
	}
	if len(names) == 0 {
		return
	}
	for name, ports := range programPorts(root, names) {
		for i, l := range f.Links {
			if l.Name == name {
				f.Links[i].Ports = ports
			}
		}
	}
}

// wireGuard asks the kernel for a tunnel's port and peers; nothing if it does not say. It is asked only about a device
// that there is: so no module is loaded for it.
func wireGuard(name string) (ports []string, peers []Peer) {
	c, err := wgctrl.New()
	if err != nil {
		return nil, nil
	}
	defer c.Close()
	d, err := c.Device(name)
	if err != nil {
		return nil, nil
	}
	if d.ListenPort != 0 {
		ports = []string{fmt.Sprintf("udp/%d", d.ListenPort)}
	}
	for _, p := range d.Peers {
		peer := Peer{Key: p.PublicKey.String(), Allowed: []string{}}
		for _, a := range p.AllowedIPs {
			peer.Allowed = append(peer.Allowed, a.String())
		}
		slices.Sort(peer.Allowed)
		peers = append(peers, peer)
	}
	slices.SortFunc(peers, func(a, b Peer) int { return strings.Compare(a.Key, b.Key) })
	return ports, peers
}

// Bounds of a look at what processes have open.
const (
	maxFiles = 65536 // in all
	maxPorts = 64    // of a program that makes a tunnel: one that has more is something else
)

// programPorts returns, by the name of a tun or tap device, the ports of the sockets of the program that has it open:
// on each such file the kernel says which device it is of (drivers/net/tun.c, tun_chr_show_fdinfo).
func programPorts(root fs.FS, names map[string]bool) map[string][]string {
	ports := map[string][]string{}
	var sockets map[string]localPort
	left := maxFiles
	entries, _ := fs.ReadDir(root, "proc")
	for _, e := range entries {
		dir := path.Join("proc", e.Name())
		if pid := e.Name(); pid[0] < '0' || pid[0] > '9' {
			continue
		}
		files, _ := fs.ReadDir(root, path.Join(dir, "fd"))
		if left -= len(files); left < 0 {
			break
		}
		var devices, inodes []string // a program may have several tunnels, and of one several queues
		for _, file := range files {
			target, err := fs.ReadLink(root, path.Join(dir, "fd", file.Name()))
			if err != nil {
				continue
			}
			if inode, ok := strings.CutPrefix(target, "socket:["); ok {
				inodes = append(inodes, strings.TrimSuffix(inode, "]"))
			}
			if target == "/dev/net/tun" {
				if name := tunOf(root, path.Join(dir, "fdinfo", file.Name())); names[name] &&
					!slices.Contains(devices, name) {
					devices = append(devices, name)
				}
			}
		}
		if len(devices) == 0 {
			continue
		}
		if sockets == nil {
			sockets = localPorts(root)
		}
		// Of one that waits for others only that counts: what it dials for itself is another port each time.
		waits := slices.ContainsFunc(inodes, func(inode string) bool { return sockets[inode].waits })
		var own []string
		for _, inode := range inodes {
			if s := sockets[inode]; s.port != "" && s.waits == waits && !slices.Contains(own, s.port) {
				own = append(own, s.port)
			}
		}
		if len(own) > maxPorts {
			continue
		}
		for _, device := range devices {
			ports[device] = slices.Concat(ports[device], own)
			slices.Sort(ports[device])
			ports[device] = slices.Compact(ports[device])
		}
	}
	return ports
}

// tunOf reads the name of the device that a file of /dev/net/tun is of: "iff:\ttun0".
func tunOf(root fs.FS, name string) string {
	text, _ := fs.ReadFile(root, name)
	for l := range strings.Lines(string(text)) {
		if device, ok := strings.CutPrefix(l, "iff:"); ok {
			return strings.TrimSpace(device)
		}
	}
	return ""
}

// localPort is a socket's.
type localPort struct {
	port  string // "udp/1194"
	waits bool   // for whoever comes: it is not connected
}

// localPorts are those of all sockets in this network namespace that others than this host can reach, by inode.
func localPorts(root fs.FS) map[string]localPort {
	all := map[string]localPort{}
	for _, table := range []string{"udp", "udp6", "tcp", "tcp6"} {
		text, _ := fs.ReadFile(root, "proc/thread-self/net/"+table)
		for l := range strings.Lines(string(text)) {
			if inode, addr, ok := socketLine(l); ok && !addr.Addr().IsLoopback() && addr.Port() != 0 {
				all[inode] = localPort{fmt.Sprintf("%s/%d", strings.TrimSuffix(table, "6"), addr.Port()),
					strings.HasSuffix(strings.Fields(l)[2], ":0000")}
			}
		}
	}
	return all
}

// socketLine reads a line of /proc/net/udp and its like (net/ipv4/udp.c, udp4_format_sock): "sl: local:port
// remote:port … inode", in hexadecimal digits; addresses in words of the machine's byte order.
func socketLine(line string) (inode string, local netip.AddrPort, ok bool) {
	fields := strings.Fields(line)
	if len(fields) < 10 {
		return "", local, false
	}
	address, number, found := strings.Cut(fields[1], ":")
	port, err := strconv.ParseUint(number, 16, 16)
	raw, hexErr := hex.DecodeString(address)
	if !found || err != nil || hexErr != nil || len(raw) != 4 && len(raw) != 16 {
		return "", local, false
	}
	for i := 0; i < len(raw); i += 4 {
		slices.Reverse(raw[i : i+4])
	}
	addr, _ := netip.AddrFromSlice(raw)
	return fields[9], netip.AddrPortFrom(addr.Unmap(), uint16(port)), true
}
