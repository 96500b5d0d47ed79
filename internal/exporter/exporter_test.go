// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/sys/unix"

	"weir/internal/change"
	"weir/internal/doctor"
	"weir/internal/dualpi2"
	"weir/internal/follow/presence"
	"weir/internal/host"
	"weir/internal/host/hosttest"
	"weir/internal/plan"
	"weir/internal/qdisc"
	"weir/internal/shaper"
	"weir/internal/tcp"
)

// full is a host with something of everything.
func full(t testing.TB) Look {
	spec, err := qdisc.Parse("cake bandwidth 48mbit diffserv4")
	if err != nil {
		t.Fatal(err)
	}
	cake := qdisc.Stats{Bytes: 1000, Packets: 10, Drops: 2, Marks: 3, Overlimits: 4, Requeues: 5, Backlog: 6000, Qlen: 4,
		X: qdisc.CakeStats{Tins: []qdisc.CakeTin{{SentBytes: 1, Drops: 2, Marks: 3, AvgDelay: 5300, SparseFlows: 7}, {}, {},
			{PeakDelay: 250}}}}
	at := func(major int) qdisc.Handle { return qdisc.Handle(major << 16) }
	return Look{
		Trees: map[string]qdisc.Tree{
			"ens3": {Qdiscs: []qdisc.Qdisc{{Kind: "cake", Handle: at(1), Parent: qdisc.Root, Spec: spec, Stats: cake}}},
			"ens4": {Qdiscs: []qdisc.Qdisc{{Kind: "mq", Parent: qdisc.Root},
				{Kind: "fq", Parent: qdisc.Handle(1)}, {Kind: "fq", Parent: qdisc.Handle(2)}}},
			"ens5": {Qdiscs: []qdisc.Qdisc{{Kind: "dualpi2", Handle: at(2), Parent: qdisc.Root, Stats: qdisc.Stats{
				X: qdisc.DualPI2Stats{PacketsC: 5, PacketsL: 6, DelayL: 900, StepMarks: 7, Probability: .25}}}}},
			"ens6": {Qdiscs: []qdisc.Qdisc{{Kind: "bpf_dualpi2", Handle: at(3), Parent: qdisc.Root, Stats: qdisc.Stats{
				X: dualpi2.Stats{PacketsC: 8, PacketsL: 9}}}}},
			"ens7": {Qdiscs: []qdisc.Qdisc{{Kind: "bpf_shaper", Handle: qdisc.Shaper, Parent: qdisc.Root,
				Stats: qdisc.Stats{X: shaper.Stats{Bytes: 5, Marks: 6, Drops: 7, Active: 1.5}}},
				{Kind: "fq", Handle: at(4), Parent: qdisc.Shaper}}},
			"lo": {Qdiscs: []qdisc.Qdisc{{Kind: "noqueue", Parent: qdisc.Root}}},
		},
		Clients: map[string][]shaper.ClientStats{"ens7": {
			{Client: netip.MustParsePrefix("192.0.2.7/32"), Bytes: 8, Marks: 9, Drops: 10},
			{Client: netip.MustParsePrefix("2001:db8::/64"), Bytes: 11}}},
		Findings: []doctor.Finding{{Code: "queue-at-provider", Severity: doctor.Harmful},
			{Code: "queue-at-provider", Severity: doctor.Harmful}, {Code: "kernel", Severity: doctor.Fine}},
		Goal: &change.Status{Up: true, Drift: []plan.Change{{}, {}}, Unconfirmed: true,
			Followed: []presence.Queue{{Dev: "eth0", Running: true}, {Dev: "eth1", Running: true, Rate: 5e6,
				Doing: presence.Doing{Waits: "its connections cannot be seen"}}}},
		Read: map[string]bool{"queues": true, "clients": true, "connections": true, "findings": true, "goal": true},
	}
}

// connected adds connections of which each has been answered since the look before, 20 ms above a minimum of 30.
func connected(t *Tally, l Look, connections []host.Connection, round int) Look {
	for i := range connections {
		connections[i].Info = unix.TCPInfo{Rtt: 50_000, Min_rtt: 30_000, Bytes_acked: uint64(1000 * round),
			Busy_time: uint64(950_000 * round)}
	}
	l.Connections, _ = t.Add(func(f func(host.Connection)) error {
		for _, x := range connections {
			f(x)
		}
		return nil
	}, time.Unix(1000+int64(round), 0),
		map[netip.Addr]string{netip.MustParseAddr("192.0.2.2"): "ens3"})
	return l
}

// dialled are that many connections.
func dialled(n int, controls ...string) (all []host.Connection) {
	for i := range n {
		all = append(all, host.Connection{Cookie: uint64(i), CC: controls[i%len(controls)],
			Local: netip.MustParseAddr("192.0.2.2")})
	}
	return all
}

func registry(t testing.TB, look *Look) *prometheus.Registry {
	r := prometheus.NewPedanticRegistry()
	if err := r.Register(New(func() Look { return *look }, "v1")); err != nil {
		t.Fatal(err)
	}
	return r
}

var update = flag.Bool("update", false, "write testdata/metrics.txt")

// All that is told, as Prometheus gets it; and promlint finds nothing in it. testdata/metrics.txt is the whole.
func TestMetrics(t *testing.T) {
	tally, connections := NewTally(), dialled(3, "bbr", "cubic")
	connected(tally, full(t), connections, 1) // before it, no connection has been seen
	look := connected(tally, full(t), connections, 2)
	r := registry(t, &look)
	if problems, err := testutil.GatherAndLint(r); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
	look = connected(tally, full(t), connections, 3)
	file := filepath.Join(t.TempDir(), "weir.prom")
	if err := prometheus.WriteToTextfile(file, r); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("../../docs/fleet.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range regexp.MustCompile(`(?m)^# TYPE (\S+)`).FindAllSubmatch(got, -1) {
		if !bytes.Contains(doc, []byte("`"+string(name[1])+"`")) {
			t.Errorf("docs/fleet.md, \"The metrics\", has no row for %s", name[1])
		}
	}
	hosttest.Golden(t, "testdata/metrics.txt", string(got), *update)
}

// Connections make no series, whoever they are from and whatever controls them.
func TestCardinality(t *testing.T) {
	var controls []string
	for i := range 64 {
		controls = append(controls, fmt.Sprint("cc", i))
	}
	count := func(connections []host.Connection) int {
		tally := NewTally()
		connected(tally, full(t), connections, 1)
		look := connected(tally, full(t), connections, 2)
		n, err := testutil.GatherAndCount(registry(t, &look))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	a, b := count(dialled(64, controls...)), count(dialled(100_000, controls...))
	if a != b || b > 250 {
		t.Errorf("%d series with 64 connections, %d with 100,000", a, b)
	}
}

// A device's name may be any bytes. Prometheus takes UTF-8 alone, and one name is not to cost all the others.
func TestDeviceNameInNoEncoding(t *testing.T) {
	look := full(t)
	look.Trees["q\xff\"x"] = look.Trees["ens3"]
	if n, err := testutil.GatherAndCount(registry(t, &look), "weir_qdisc_backlog_bytes"); err != nil || n != 9 {
		t.Errorf("%d queues, %v", n, err)
	}
}

// A look that breaks off tells nothing. The next one goes by the look before it.
func TestBrokenOff(t *testing.T) {
	tally, connections := NewTally(), dialled(3, "bbr")
	connected(tally, Look{}, connections, 1)
	broken := func(f func(host.Connection)) error { f(host.Connection{CC: "cubic"}); return unix.ETIMEDOUT }
	if c, err := tally.Add(broken, time.Unix(1002, 0), nil); c != nil || err != unix.ETIMEDOUT {
		t.Errorf("%+v, %v", c, err)
	}
	look := connected(tally, Look{}, connections, 3)
	want := map[key]int{{"ens3", "bbr"}: 3}
	if got := look.Connections; !maps.Equal(got.count, want) || got.limits[tcp.Network] != 3 {
		t.Errorf("%+v", got)
	}
}

// Queues have a bound, and what is above it is counted.
func TestManyQueues(t *testing.T) {
	look := full(t)
	for i := range 1000 {
		look.Trees[fmt.Sprintf("z%d", i)] = qdisc.Tree{Qdiscs: []qdisc.Qdisc{{Kind: "fq_codel", Parent: qdisc.Root}}}
	}
	r := registry(t, &look)
	n, err := testutil.GatherAndCount(r, "weir_qdisc_sent_bytes_total")
	if err != nil || n != maxQueues {
		t.Errorf("%d, %v", n, err)
	}
	left := strings.NewReader("# HELP weir_qdiscs_left_out Queueing disciplines above the number that is told.\n" +
		"# TYPE weir_qdiscs_left_out gauge\nweir_qdiscs_left_out 496\n")
	if err := testutil.GatherAndCompare(r, left, "weir_qdiscs_left_out"); err != nil {
		t.Error(err)
	}
}

// A host that cannot be read says so, and is no zero.
func TestUnread(t *testing.T) {
	look := Look{Read: map[string]bool{"queues": false}}
	r := registry(t, &look)
	for name, want := range map[string]int{"weir_read_success": 1, "weir_goal_in_force": 0, "weir_tcp_connections": 0,
		"weir_tcp_limited_connections": 0} {
		if n, err := testutil.GatherAndCount(r, name); err != nil || n != want {
			t.Errorf("%s: %d, %v", name, n, err)
		}
	}
}

// Why a part cannot be read is said once for each reason, and once when it can be read again.
func TestSaysWhyUnread(t *testing.T) {
	dir := t.TempDir()
	var goal []string
	r, err := Open(change.Open(dir), func(line string) {
		if strings.HasPrefix(line, "goal") {
			goal = append(goal, line)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	r.readAll()
	if len(goal) != 0 {
		t.Errorf("of a host without a goal it says %q", goal)
	}
	if err := os.WriteFile(dir+"/journal.json", []byte("no\njournal"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.readAll()
	r.readAll()
	if r.last.Read["goal"] || len(goal) != 1 || !strings.HasPrefix(goal[0], "goal: cannot be read: ") ||
		!strings.Contains(goal[0], "journal.json") || strings.Contains(goal[0], "\n") {
		t.Errorf("of a journal that is none it says %q", goal)
	}
	if err := os.Remove(dir + "/journal.json"); err != nil {
		t.Fatal(err)
	}
	r.readAll()
	r.readAll()
	if !r.last.Read["goal"] || len(goal) != 2 || goal[1] != "goal: can be read again" {
		t.Errorf("in the end it has said %q", goal)
	}
}

// Connections that are not asked for are missing for a reason, too.
func TestSaysWhyNotAsked(t *testing.T) {
	var said []string
	r := &Reader{say: func(line string) { said = append(said, line) }, why: map[string]string{},
		unread: errors.New("tcp_diag is not loaded"), last: Look{Read: map[string]bool{}}}
	r.readConnections()
	r.readConnections()
	if len(said) != 1 || said[0] != "connections: cannot be read: tcp_diag is not loaded" ||
		r.last.Read["connections"] {
		t.Errorf("it says %q", said)
	}
}

// What it costs to sum up 10,000 connections, but for what the kernel takes to list them.
func BenchmarkTally10000(b *testing.B) {
	tally, connections := NewTally(), dialled(10_000, "bbr", "cubic")
	before := cpu()
	for round := 1; b.Loop(); round++ {
		connected(tally, Look{}, connections, round)
	}
	b.ReportMetric(float64((cpu()-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
}

// cpu is the CPU time that this process has taken.
func cpu() time.Duration {
	var r unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
