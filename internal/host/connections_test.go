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
		open := OpenConnections
		if inside {
			open = OpenAllConnections
		}
		c, err := open()
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

// Some connections are looked at again by themselves, whatever their version of IP; one that has ended is not there.
func TestConnectionsAgain(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0", "[::]:0"} {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			t.Logf("%s: %v", address, err) // no IPv6 here
			continue
		}
		defer listener.Close()
		to := listener.Addr().(*net.TCPAddr)
		if to.IP.IsUnspecified() {
			to.IP = net.IPv4(127, 0, 0, 1) // IPv4 by a socket of IPv6
		}
		dialled, err := net.Dial("tcp", to.String())
		if err != nil {
			t.Fatal(err)
		}
		defer dialled.Close()
		accepted, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer accepted.Close()
		c, err := OpenAllConnections()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		all, err := c.Read()
		if err != nil {
			t.Skipf("skipped, not passed: no sock_diag: %v", err)
		}
		var both []Connection
		for _, x := range all {
			if x.Remote.Port() == uint16(to.Port) || x.Port == uint16(to.Port) {
				both = append(both, x)
			}
		}
		if len(both) != 2 {
			t.Fatalf("%s: %d ends", address, len(both))
		}
		if _, err := dialled.Write(make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		if n, err := accepted.Read(make([]byte, 1000)); err != nil || n != 1000 {
			t.Fatal(n, err)
		}
		again, err := c.Again(both)
		if err != nil || len(again) != 2 {
			t.Fatalf("%s: %d again, %v", address, len(again), err)
		}
		received := uint64(0)
		for i, x := range again {
			if x.Cookie != both[i].Cookie || x.Accepted != both[i].Accepted || x.Remote != both[i].Remote {
				t.Errorf("%s: %+v is another than %+v", address, x, both[i])
			}
			received += x.Info.Bytes_received
		}
		if received != 1000 {
			t.Errorf("%s: %d bytes received", address, received)
		}
		both[0].Cookie++
		if again, err := c.Again(both[:1]); err != nil || len(again) != 0 {
			t.Errorf("%s: of another cookie: %v, %v", address, again, err)
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

// What a look at eight connections costs, as weir follow takes fifty times a second.
func BenchmarkConnectionsAgain(b *testing.B) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer listener.Close()
	for range 4 { // each has two ends
		dialled, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		defer dialled.Close()
	}
	c, err := OpenAllConnections()
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	all, err := c.Read()
	if err != nil {
		b.Skipf("skipped, not passed: no sock_diag: %v", err)
	}
	all = all[:min(8, len(all))]
	for b.Loop() {
		if _, err := c.Again(all); err != nil {
			b.Fatal(err)
		}
	}
}
