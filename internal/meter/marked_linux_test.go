// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"net"
	"testing"
)

// A reader that is late knows how many packets it has missed.
func TestMissed(t *testing.T) {
	there, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	m, err := Mark(there)
	if err != nil {
		t.Fatal(err)
	}
	there.SetReadBuffer(1) // as few as the kernel allows
	here, err := net.Dial("udp", there.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	const sent = 1000
	b := make([]byte, 1400)
	for range sent {
		here.Write(b)
	}
	// Those that wait were told of what was missed before they came. The next one is told of all.
	read := 0
	for before := uint32(0); read == 0 || m.Missed() == before; read++ {
		if _, _, _, err := m.Read(b); err != nil {
			t.Fatal(err)
		}
		if read == 0 {
			if before = m.Missed(); before != 0 {
				t.Errorf("%d were missed before the first", before)
			}
			here.Write(b)
		}
	}
	if all := int(m.Missed()) + read; all < sent || all > sent+1 {
		t.Errorf("%d were missed, and %d read, of %d and one", m.Missed(), read, sent)
	}
}
