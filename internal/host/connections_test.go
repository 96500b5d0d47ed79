// SPDX-License-Identifier: Apache-2.0

package host

import (
	"encoding/binary"
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// A connection of this process with itself is seen from both its ends, if those inside the host are wanted.
func TestConnections(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	dialled, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer dialled.Close()
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	for _, inside := range []bool{true, false} {
		c, err := OpenConnections(inside)
		if err != nil {
			t.Fatal(err)
		}
		all, err := c.Read()
		if err != nil {
			t.Skipf("skipped, not passed: no sock_diag: %v", err)
		}
		ends := map[string]Connection{}
		for _, x := range all {
			ends[x.Remote.String()] = x
		}
		from, there := ends[accepted.RemoteAddr().String()]
		to, also := ends[dialled.RemoteAddr().String()]
		if there != inside || also != inside {
			t.Errorf("inside %v: seen %v, %v", inside, there, also)
		}
		if inside && (!from.Accepted || to.Accepted || from.Cookie == to.Cookie || from.Cookie == 0 || from.CC == "" ||
			from.Local.String() != "127.0.0.1" || from.Info.Snd_mss == 0) {
			t.Errorf("%+v\n%+v", from, to)
		}
	}
}

func FuzzConnection(f *testing.F) {
	msg := make([]byte, diagLen+8)
	msg[0], msg[diagState] = unix.AF_INET, tcpEstablished
	binary.NativeEndian.PutUint16(msg[diagLen:], 8)
	binary.NativeEndian.PutUint16(msg[diagLen+2:], inetDiagInfo)
	f.Add(msg)
	f.Add(msg[:diagLen-1])
	f.Fuzz(func(t *testing.T, msg []byte) {
		a := &aggregate{Sockets: &Sockets{Congestion: map[string]int{}}}
		if c, ok := a.connection(msg); ok && !c.Remote.Addr().IsValid() {
			t.Errorf("%+v", c)
		}
	})
}
