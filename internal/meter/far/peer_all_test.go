// SPDX-License-Identifier: Apache-2.0

//go:build all && linux

package far

// In make test-all: a connection is filled, and its kernel asked, in real time.

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

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

// testPeer fills the way to a host. The kernel tells of the connection that ssh speaks over, and the host's key is
// checked as ever.
func testPeer(t *testing.T, h Host) {
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
	strict := filepath.Join(t.TempDir(), "ssh")
	text := fmt.Sprintf("#!/bin/sh\nexec %s -o StrictHostKeyChecking=yes \"$@\"\n", h.Program)
	if err := os.WriteFile(strict, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	h.Program = strict
	if p, err = Open(ctx, h); err == nil {
		_, err = p.Fill(ctx, "", 0)
	}
	if err == nil || !strings.Contains(err.Error(), "cannot be reached by ssh") {
		t.Errorf("a host whose key is not known: %v", err)
	}
}
