// SPDX-License-Identifier: Apache-2.0

package far

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestParseConfig(t *testing.T) {
	for text, want := range map[string]endpoint{
		"user me\nhostname 192.0.2.1\nport 22\n":                           {"192.0.2.1:22", "192.0.2.1"},
		"hostname 2001:db8::1\r\nport 2222\r\nproxyjump none\r\n":          {"[2001:db8::1]:2222", "[2001:db8::1]:2222"},
		"hostname there\nport 22\nhostkeyalias other\nproxycommand none\n": {"there:22", "other"},
		"hostname there\nport 22\nproxyjump gate\n":                        {},
		"hostname there\nport 22\nproxycommand nc %h %p\n":                 {},
		"port 22\n":        {},
		"hostname\nport\n": {},
		"":                 {},
		"hostname there\nport 22\nlocalcommand hostname elsewhere\nuser a b\n": {"there:22", "there"},
	} {
		got, err := parseConfig("me@there", text)
		if got != want || (err == nil) != (want != endpoint{}) {
			t.Errorf("%q: %+v, %v, want %+v", text, got, err, want)
		}
	}
}

// sshd runs one on loopback, and gives a host that leads to it.
func sshd(t *testing.T) Host {
	t.Helper()
	if _, err := os.Stat("/usr/sbin/sshd"); err != nil || os.Getuid() != 0 {
		t.Skip("skipped, not passed: it needs root and sshd (apt-get install openssh-server)")
	}
	dir := t.TempDir()
	for _, name := range []string{"host", "id"} {
		if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, name)).
			CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	if err := os.MkdirAll("/run/sshd", 0o755); err != nil { // as its unit does
		t.Fatal(err)
	}
	write := func(name, text string, mode os.FileMode) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.ReplaceAll(text, "DIR", dir)), mode); err != nil {
			t.Fatal(err)
		}
	}
	write("sshd_config", fmt.Sprintf("ListenAddress 127.0.0.1\nPort %s\nHostKey DIR/host\nStrictModes no\nUsePAM no\n"+
		"AuthorizedKeysFile DIR/id.pub\nPidFile none\n", port), 0o600)
	write("ssh_config", fmt.Sprintf("Host there\nHostName 127.0.0.1\nPort %s\nUser root\nIdentityFile DIR/id\n"+
		"UserKnownHostsFile DIR/known\nIdentitiesOnly yes\n", port), 0o600)
	key, err := os.ReadFile(filepath.Join(dir, "host.pub"))
	if err != nil {
		t.Fatal(err)
	}
	write("known", fmt.Sprintf("[127.0.0.1]:%s %s", port, key), 0o600)
	write("ssh", "#!/bin/sh\nexec ssh -F DIR/ssh_config \"$@\"\n", 0o755)
	server := exec.Command("/usr/sbin/sshd", "-D", "-f", filepath.Join(dir, "sshd_config"))
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Process.Kill(); server.Wait() })
	for range 100 {
		if c, err := net.Dial("tcp", "127.0.0.1:"+port); err == nil {
			c.Close()
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	return Host{Name: "there", Program: filepath.Join(dir, "ssh")}
}

// counted is what the kernel has sent by a connection.
func counted(t *testing.T, c net.Conn) (bytes uint64, packets uint32) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			t.Error(err)
			return
		}
		bytes, packets = info.Bytes_sent, info.Data_segs_out
	})
	return bytes, packets
}

// The host's key is checked as ever, and the kernel tells of the connection that ssh speaks over.
func TestPeer(t *testing.T) {
	h := sshd(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	p, err := Open(ctx, h)
	if err != nil {
		t.Fatal(err)
	}
	asker, err := p.Ask(ctx)
	if err != nil {
		t.Fatal(err)
	}
	asking, stop := context.WithCancel(ctx)
	asked := make(chan struct{})
	go func() { defer close(asked); asker.Run(asking) }()
	f, err := p.Fill(ctx, "", 600)
	if err != nil {
		t.Fatal(err)
	}
	go f.Send()
	const enough = 4 << 20
	sent, packets := uint64(0), uint32(0)
	for sent < enough && ctx.Err() == nil {
		time.Sleep(20 * time.Millisecond)
		sent, packets = counted(t, f.Conn)
	}
	f.End()
	stop()
	<-asked
	if sent < enough || sent/uint64(packets) > 600 {
		t.Errorf("%d bytes in %d packets", sent, packets)
	}
	if len(asker.Seen()) == 0 {
		t.Error("no key was typed")
	}
	// Somebody else's key is none.
	if err := os.WriteFile(filepath.Join(filepath.Dir(h.Program), "known"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Fill(ctx, "", 0); err == nil || !strings.Contains(err.Error(), "cannot be reached by ssh") {
		t.Errorf("a host whose key is not known: %v", err)
	}
}
