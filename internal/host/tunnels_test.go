// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"reflect"
	"testing"
	"testing/fstest"
)

func TestProgramPorts(t *testing.T) {
	const udp = `   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
  100: 00000000:04AA 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 11 2 0000000000000000 0
  101: 0100007F:1B58 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 12 2 0000000000000000 0
`
	const udp6 = `  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
  100: 00000000000000000000000000000000:CA6C 00000000000000000000000000000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 13 2 0000000000000000 0
  101: 00000000000000000000000001000000:1B58 00000000000000000000000000000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 14 2 0000000000000000 0
`
	const tcp = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0A000001:01BB 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 15 1 0000000000000000 100 0 0 10 0
`
	text := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	root := fstest.MapFS{
		"proc/thread-self/net/udp": text(udp), "proc/thread-self/net/udp6": text(udp6),
		"proc/thread-self/net/tcp": text(tcp),
		"proc/10/fd/3":             link("/dev/net/tun"),
		"proc/10/fdinfo/3":         text("pos:\t0\nflags:\t0104002\niff:\ttun0\n"),
		"proc/10/fd/4":             link("socket:[11]"), "proc/10/fd/5": link("socket:[12]"),
		"proc/10/fd/6": link("socket:[14]"),
		"proc/10/fd/7": link("socket:[99]"),
		"proc/20/fd/3": link("/dev/net/tun"), "proc/20/fdinfo/3": text("iff:\ttun1\n"),
		"proc/20/fd/4": link("socket:[13]"), "proc/20/fd/5": link("socket:[15]"),
		"proc/30/fd/3": link("/dev/net/tun"), "proc/30/fdinfo/3": text("iff:\ttap7\n"),
		"proc/30/fd/4": link("socket:[11]"),
		"proc/40/fd/4": link("socket:[15]"),
	}
	// What a program dials for itself, and one that only dials.
	for inode, lines := range map[string]string{
		"16": "   2: 0A000001:9C40 0A000002:01BB 01 00000000:00000000 00:00000000 00000000     0        0 16 1\n",
		"17": "   3: 0A000001:9C41 0A000002:01BB 01 00000000:00000000 00:00000000 00000000     0        0 17 1\n",
	} {
		root["proc/thread-self/net/tcp"].Data = append(root["proc/thread-self/net/tcp"].Data, lines...)
		root["proc/"+map[string]string{"16": "20", "17": "60"}[inode]+"/fd/9"] = link("socket:[" + inode + "]")
	}
	root["proc/60/fd/3"], root["proc/60/fdinfo/3"] = link("/dev/net/tun"), text("iff:\ttun4\n")
	// One program with two tunnels, a queue of a third, and a hundred clients at one port.
	for fd, name := range map[string]string{"3": "tun2", "4": "tun3", "5": "tun3", "6": "tun1"} {
		root["proc/50/fd/"+fd], root["proc/50/fdinfo/"+fd] = link("/dev/net/tun"), text("iff:\t"+name+"\n")
	}
	for i := range 100 {
		inode := fmt.Sprint(1000 + i)
		root["proc/50/fd/"+inode] = link("socket:[" + inode + "]")
		root["proc/thread-self/net/tcp"].Data = append(root["proc/thread-self/net/tcp"].Data, fmt.Sprintf(
			"   1: 0A000001:01BC 0A000002:%04X 01 00000000:00000000 00:00000000 00000000     0        0 %s 1\n",
			40000+i, inode)...)
	}
	want := map[string][]string{"tun0": {"udp/1194"}, "tun1": {"tcp/443", "tcp/444", "udp/51820"},
		"tun2": {"tcp/444"}, "tun3": {"tcp/444"},
		"tun4": {"tcp/40001"}}
	if got := programPorts(root, map[string]bool{"tun0": true, "tun1": true, "tun2": true, "tun3": true,
		"tun4": true}); !reflect.DeepEqual(got, want) {
		t.Errorf("ports %v, want %v", got, want)
	}
}

func FuzzSocketLine(f *testing.F) {
	f.Add("  100: 00000000:04AA 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 11 2 " +
		"0000000000000000 0")
	f.Add("sl 000000000000000000000000:CA6C a b c d e f g h")
	f.Fuzz(func(t *testing.T, line string) {
		if inode, local, ok := socketLine(line); ok && (inode == "" || !local.IsValid()) {
			t.Errorf("%q is %q at %v", line, inode, local)
		}
	})
}
