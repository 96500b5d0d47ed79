// SPDX-License-Identifier: Apache-2.0

package far

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"

	"weir/internal/hint"
	"weir/internal/meter"
)

// maxAtOnce is how many connections may log in at once: sshd refuses some of more than ten (MaxStartups).
const maxAtOnce = 4

// Open makes a peer of a host that has ssh, for a calibration. Each load is an ssh of its own. Its TCP connection is
// made here and handed to it over loopback, so that this host's kernel tells of it.
func Open(ctx context.Context, h Host) (*meter.Peer, error) {
	if err := Check(h.Name); err != nil {
		return nil, err
	}
	to, err := h.resolve(ctx)
	if err != nil {
		return nil, err
	}
	room := make(chan struct{}, maxAtOnce)
	return &meter.Peer{Name: h.Name, Addr: to.addr,
		Note: "The load went through ssh. Where its cipher or a CPU is slower than the link, the rate is that.",
		Fill: func(ctx context.Context, cc string, packet int) (*meter.Filling, error) {
			select {
			case room <- struct{}{}:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			defer func() { <-room }()
			return h.fill(ctx, to, cc, packet)
		},
		Ask: h.startEcho}, nil
}

// endpoint is where ssh connects to.
type endpoint struct {
	addr string // host:port
	key  string // the name under which it knows the host's key
}

// resolve asks ssh where its configuration leads.
func (h Host) resolve(ctx context.Context) (endpoint, error) {
	var said tail
	c := exec.CommandContext(ctx, h.program(), append([]string{"-G"}, h.args("")...)...)
	c.Stderr = &said
	out, err := c.Output()
	if errors.Is(err, exec.ErrNotFound) {
		return endpoint{}, noSSH()
	}
	if err != nil {
		return endpoint{}, &hint.Error{What: fmt.Sprintf("%s cannot be reached by ssh: %s", h.Name, said.line()),
			Try: "ssh " + h.Name + " true"}
	}
	return parseConfig(h.Name, string(out))
}

// parseConfig reads what ssh -G prints: an option and its value, one a line.
func parseConfig(name, text string) (endpoint, error) {
	said := map[string]string{}
	for line := range strings.Lines(text) {
		if option, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			said[option] = value
		}
	}
	for _, around := range []string{"proxyjump", "proxycommand"} {
		if v := said[around]; v != "" && v != "none" {
			return endpoint{}, &hint.Error{What: fmt.Sprintf("ssh reaches %s through another host (%s), so the "+
				"way to it cannot be filled from here", name, around), Try: "a host that is reached straight"}
		}
	}
	host, port := said["hostname"], said["port"]
	if host == "" || port == "" {
		return endpoint{}, &hint.Error{What: "ssh -G does not say where " + name + " is", Try: "ssh -G " + name}
	}
	e := endpoint{addr: net.JoinHostPort(host, port), key: said["hostkeyalias"]}
	if e.key == "" || e.key == "none" {
		if e.key = host; port != "22" {
			e.key = "[" + host + "]:" + port // as known_hosts has it
		}
	}
	return e, nil
}

// fill connects, and lets ssh speak over that connection.
func (h Host) fill(ctx context.Context, to endpoint, cc string, packet int) (*meter.Filling, error) {
	inner, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	out, err := meter.Dial(ctx, to.addr, cc, packet)
	if err != nil {
		inner.Close()
		return nil, &hint.Error{What: fmt.Sprintf("nobody answers at %s by TCP: %v", to.addr, err),
			Try: "ssh " + h.Name + " true"}
	}
	meter.SetUnsent(out, 128<<10)
	go join(inner, out)
	_, port, _ := net.SplitHostPort(inner.Addr().String())
	h.via = []string{"-o", "HostName=127.0.0.1", "-o", "Port=" + port, "-o", "HostKeyAlias=" + to.key,
		"-o", "CheckHostIP=no", "-o", "AddressFamily=inet", "-o", "ProxyJump=none"}
	s, err := h.start(ctx, "cat >/dev/null")
	if err != nil {
		inner.Close()
		out.Close()
		return nil, err
	}
	send := func() {
		for zeros := make([]byte, block); ; {
			if _, err := s.stdin.Write(zeros); err != nil {
				return
			}
		}
	}
	end := func() {
		if t, ok := out.(*net.TCPConn); ok {
			t.SetLinger(0)
		}
		out.Close()
		s.end()
	}
	return &meter.Filling{Conn: out, Send: send, End: end}, nil
}

// join carries bytes between the one connection that is accepted and another, until either ends.
func join(inner net.Listener, out net.Conn) {
	c, err := inner.Accept()
	inner.Close()
	if err != nil {
		return
	}
	go func() {
		io.Copy(c, out)
		c.Close()
	}()
	io.Copy(out, c)
	out.Close()
	c.Close()
}
