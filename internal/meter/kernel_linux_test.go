// SPDX-License-Identifier: Apache-2.0

package meter

import "testing"

func TestReadSegments(t *testing.T) {
	const names = "Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens InSegs OutSegs RetransSegs InErrs\n"
	for _, x := range []struct {
		text        string
		sent, again float64
		ok          bool
	}{
		{"Ip: Forwarding\nIp: 2\n" + names + "Tcp: 1 200 120000 -1 5 100 900 30 0\nUdp: InDatagrams\nUdp: 5\n", 930, 30,
			true},
		{"Tcp: RtoAlgorithm OutSegs\nTcp: 1 900\n", 0, 0, false},
		{names, 0, 0, false},
		{names + "Tcp: 1 200 120000 -1 5 100 many 30 0\n", 0, 0, false},
		{"", 0, 0, false},
	} {
		sent, again, ok := readSegments(x.text)
		if ok != x.ok || ok && (sent != x.sent || again != x.again) {
			t.Errorf("%q: %v, %v, %v", x.text, sent, again, ok)
		}
	}
	if _, _, ok := segmentsSent(); !ok {
		t.Error("this kernel's cannot be read")
	}
}
