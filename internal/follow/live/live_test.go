// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/internal/change"
	"weir/internal/follow"
	"weir/internal/follow/presence"
	"weir/internal/host"
	"weir/internal/qdisc"
	"weir/internal/units"
)

// While the journal cannot be read, that is told and tried again.
func TestRunWithoutJournal(t *testing.T) {
	dir := t.TempDir()
	journal := filepath.Join(dir, "journal.json")
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	told, ended := make(chan Event, 16), make(chan error, 1)
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(journal, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("{")
	go func() {
		ended <- Run(ctx, change.Open(dir), func(e Event) { told <- e }, func(string, presence.Doing) {})
	}()
	for i, want := range []string{"is damaged: unexpected end", "is empty", "is damaged: version 0"} {
		select {
		case e := <-told:
			if e.Dev != "" || e.Rate != 0 || !strings.Contains(e.Why, want) {
				t.Fatalf("told is %+v, want %q", e, want)
			}
		case err := <-ended:
			t.Fatalf("it has ended: %v", err)
		}
		write([]string{"", "{}", "{"}[i])
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("its end: %v", err)
	}
}

// A journal that this process may not read does not become readable by waiting.
func TestRunMayNotRead(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("skipped, not passed: root may read everything")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "journal.json"), []byte("{}"), 0); err != nil {
		t.Fatal(err)
	}
	err := Run(context.Background(), change.Open(dir), func(e Event) { t.Errorf("told is %+v", e) }, nil)
	if !errors.Is(err, fs.ErrPermission) {
		t.Errorf("a journal of somebody else: %v", err)
	}
}

// What a CAKE has sent is counted as its shaper counts it.
func TestCounted(t *testing.T) {
	thousand := qdisc.Stats{Bytes: 1_514_000, Packets: 1000}
	for text, want := range map[string]float64{
		"cake bandwidth 50mbit raw":                   1_514_000,
		"cake bandwidth 50mbit overhead 38":           1_538_000,
		"cake bandwidth 50mbit overhead 0":            1_500_000,
		"cake bandwidth 50mbit ethernet":              1_538_000,
		"cake bandwidth 50mbit atm overhead 40":       (1_540_000. + 24_000) * 53 / 48,
		"cake bandwidth 50mbit overhead 38 diffserv4": 1_538_000,
	} {
		stack, err := qdisc.ParseStack(text)
		if err != nil {
			t.Fatal(err)
		}
		e := eye{counts: qdisc.FramingOf(stack[0])}
		if got := e.sent(thousand); math.Abs(got-want) > 1 {
			t.Errorf("%s: %.0f, want %.0f", text, got, want)
		}
	}
	for name, c := range map[string]struct {
		seen uint32
		bare bool
		want float64
	}{
		"a VLAN's header":                {18, false, 1_534_000},
		"before the mean has come there": {9, false, 1_538_000},
		"PPP":                            {0, true, 1_552_000},
	} {
		thousand.X = qdisc.CakeStats{AvgOverhead: c.seen}
		e := eye{counts: qdisc.Framing{Overhead: 38}, bare: c.bare}
		if got := e.sent(thousand); got != c.want {
			t.Errorf("with %s: %.0f", name, got)
		}
	}
}

// A queue of this host's own counts while something waits in it.
func TestOwnDelay(t *testing.T) {
	stats := qdisc.Stats{X: qdisc.CakeStats{Tins: []qdisc.CakeTin{
		{Backlog: 0, PeakDelay: 90_000}, {Backlog: 1514, PeakDelay: 3000, AvgDelay: 1000},
		{Backlog: 1514, PeakDelay: 1000, AvgDelay: 5000},
	}}}
	if got := ownDelay(stats); got != 5*time.Millisecond {
		t.Errorf("%s", got)
	}
	if got := ownDelay(qdisc.Stats{}); got != 0 {
		t.Errorf("of no CAKE: %s", got)
	}
}

func connection(cookie uint64, to string, delivered, least uint32) host.Connection {
	return host.Connection{Cookie: cookie, Remote: netip.MustParseAddrPort(to),
		Info: unix.TCPInfo{Delivered: delivered, Min_rtt: least, Rtt: 50_000}}
}

// Those that carry most are looked at, and their base is the least of all to the same address.
func TestChoose(t *testing.T) {
	e := eye{few: maxLooked, least: map[netip.Addr]time.Duration{}}
	many := func(more uint32) (all []host.Connection) {
		for i := range uint64(20) {
			all = append(all, connection(i, "192.0.2.1:443", 1000+uint32(i)*more, 40_000+1000*uint32(i)))
		}
		return all
	}
	e.choose(many(0))
	e.at = e.at.Add(-time.Second)
	e.choose(many(10))
	if len(e.chosen) != maxLooked || e.chosen[0].Cookie != 19 || e.chosen[maxLooked-1].Cookie != 20-maxLooked {
		t.Errorf("%d, from %d on", len(e.chosen), e.chosen[0].Cookie)
	}
	if rate := e.rates[19]; rate <= 0 || rate > 200 {
		t.Errorf("%g packets a second", rate)
	}
	for _, c := range e.chosen {
		if base := e.base(c.Remote.Addr(), leastOf(c)); base != 40*time.Millisecond {
			t.Errorf("%s", base)
		}
	}
	none := leastOf(connection(99, "192.0.2.2:443", 1, math.MaxUint32))
	if base := e.base(netip.MustParseAddr("192.0.2.2"), none); base != 0 {
		t.Errorf("of one that knows none: %s", base)
	}
}

// A client that has most of the connections leaves places to others that carry something.
func TestSpread(t *testing.T) {
	type carried struct {
		to   string
		much uint64
	}
	var all []carried
	for i := range uint64(300) {
		all = append(all, carried{fmt.Sprint("198.51.100.", i%250), 10_000 + i})
	}
	all = append(all, carried{"192.0.2.1", 500}, carried{"2001:db8::1", 400}, carried{"2001:db8:0:ff00::1", 450},
		carried{"203.0.113.1", 100}, carried{"192.0.2.2", 300})
	got := spread(all, func(c carried) (uint64, netip.Addr) { return c.much, netip.MustParseAddr(c.to) })
	if len(got) != len(all) {
		t.Fatalf("%d of %d", len(got), len(all))
	}
	for i, want := range []uint64{10_299, 500, 450, 10_298, 400, 300, 10_297} {
		if got[i].much != want {
			t.Errorf("the %d. place has %v, want what carried %d", i+1, got[i], want)
		}
	}
	if last := got[len(got)-1]; last.much != 100 {
		t.Errorf("the last is %v", last)
	}
}

// Of what a follower does, the changes that stay are told, and meanwhile what it tries.
func TestSteps(t *testing.T) {
	at := time.Unix(1e9, 0)
	s := steps{rate: 99.75e6}
	for i, c := range []struct {
		rate units.Rate
		why  string
		calm bool
		new  bool
		want string
	}{
		{99.75e6, "", true, false, ""},
		{101e6, "more is tried", false, true, "more is tried"},
		{101e6, "", false, false, "more is tried"},
		{90e6, "packets wait 1 ms", false, true, "packets wait 1 ms"},
		{99.8e6, "packets waited 2 ms", true, true, ""}, // nearly as it was
		{101.5e6, "more was tried", true, false, ""},
		{70e6, "packets wait 12 ms", false, true, "packets wait 12 ms"},
		{36e6, "", false, false, "packets wait 12 ms"},
		{59.5e6, "packets waited 42 ms", true, true, ", 99.75mbit to 59.5mbit: packets waited 42 ms"},
		{60e6, "more is tried", false, true, "more is tried, 99.75mbit to 59.5mbit: packets waited 42 ms"},
		{62e6, "", true, true, ", 59.5mbit to 62mbit: more is tried"}, // forgotten on the way
	} {
		if got := s.add(at, c.rate, c.why, c.calm); got != c.new {
			t.Errorf("%d: new %v", i, got)
		}
		got := s.does.Tries
		if l := s.does.Last; l != nil {
			got += fmt.Sprintf(", %s to %s: %s", l.From, l.To, l.Why)
		}
		if got != c.want {
			t.Errorf("%d: %q, want %q", i, got, c.want)
		}
	}
}

func TestLoaded(t *testing.T) {
	for name, c := range map[string]struct {
		sent, backlog float64
		want          bool
	}{"idle": {0, 0, false}, "half": {40_000, 0, false}, "much": {90_000, 0, true}, "it waits": {10_000, 1, true}} {
		e := eye{before: follow.Look{At: time.Second, Sent: 1e6}}
		l := follow.Look{At: time.Second + 10*time.Millisecond, Sent: 1e6 + c.sent, Backlog: c.backlog}
		if got := e.loaded(l, 100e6); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Neighbours in a network may share a line.
func TestNetwork(t *testing.T) {
	for a, want := range map[string]string{"192.0.2.7": "192.0.2.0", "2001:db8:1:2::3": "2001:db8:1::",
		"fe80::1%eth0": "fe80::"} {
		if got := network(netip.MustParseAddr(a)); got.WithZone("") != netip.MustParseAddr(want) {
			t.Errorf("%s: %s", a, got)
		}
	}
}

// A full packet is as long as the shaper says, whatever IP and TCP it is of.
func TestSize(t *testing.T) {
	const mss = 1448
	for _, c := range []struct {
		counts  qdisc.Framing
		to      string
		options uint8
		want    float64
	}{
		{qdisc.Framing{Raw: true}, "192.0.2.1:443", 1, 1514},
		{qdisc.Framing{Raw: true}, "[::ffff:192.0.2.1]:443", 1, 1514},
		{qdisc.Framing{Raw: true}, "192.0.2.1:443", 0, 1502},
		{qdisc.Framing{Raw: true}, "[2001:db8::1]:443", 1, 1534},
		{qdisc.Framing{Overhead: 38}, "192.0.2.1:443", 1, 1538},
		{qdisc.Framing{MPU: 1600}, "192.0.2.1:443", 1, 1600},
		{qdisc.Framing{ATM: "atm", Overhead: 32}, "192.0.2.1:443", 1, 32 * 53},
	} {
		to := netip.MustParseAddrPort(c.to).Addr()
		e := eye{counts: c.counts}
		if got := e.size(to, mss, c.options&timestampsOption != 0); got != c.want {
			t.Errorf("%+v to %s: %g, and not %g", c.counts, c.to, got, c.want)
		}
	}
	e := eye{counts: qdisc.Framing{Raw: true}, bare: true}
	if got := e.size(netip.MustParseAddr("192.0.2.1"), mss, true); got != 1500 {
		t.Errorf("by PPP: %g", got)
	}
}

// What is seen of forwarded connections may end. The follower goes on, and says why.
func TestBlind(t *testing.T) {
	e := eye{}
	e.see(nil)
	if e.blind != "" {
		t.Errorf("it says %q", e.blind)
	}
	e.see(errors.New("no such map"))
	if e.forwarded != nil || !strings.Contains(e.blind, "not seen: no such map") {
		t.Errorf("it says %q", e.blind)
	}
}

// What a connection has carried is counted over the end of its counters, and one that has ended tells nothing.
func TestMoved(t *testing.T) {
	began := connection(1, "192.0.2.1:443", math.MaxUint32-4, 40_000)
	began.Info.Total_retrans = math.MaxUint32
	wrapped := connection(1, "192.0.2.1:443", 95, 40_000)
	wrapped.Info.Total_retrans = 2
	wrapped.Info.Segs_in = 50
	for name, c := range map[string]struct {
		before, now     []host.Connection
		connections     int
		delivered, lost float64
	}{
		"counters of 32 bits wrap": {[]host.Connection{began}, []host.Connection{wrapped}, 1, 100, 3},
		"no connection":            {nil, nil, 0, 0, 0},
		"it has ended":             {[]host.Connection{began}, nil, 0, 0, 0},
		"another has come": {[]host.Connection{began},
			[]host.Connection{connection(2, "192.0.2.2:1", 9, 1000)}, 0, 0, 0},
		"it stands": {[]host.Connection{began}, []host.Connection{began}, 0, 0, 0},
		"a kernel that tells nothing delivered": {[]host.Connection{connection(1, "192.0.2.1:443", 0, 40_000)},
			[]host.Connection{connection(1, "192.0.2.1:443", 0, 40_000)}, 0, 0, 0},
		"a kernel that tells no shortest RTT": {[]host.Connection{connection(1, "192.0.2.1:443", 1, 0)},
			[]host.Connection{connection(1, "192.0.2.1:443", 9, 0)}, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			e := eye{few: maxLooked, least: map[netip.Addr]time.Duration{}, chosen: c.before}
			all := e.moved(c.now)
			if len(all) != c.connections || len(e.chosen) != len(c.now) {
				t.Fatalf("%+v", all)
			}
			if len(all) > 0 && (all[0].Delivered != c.delivered || all[0].Lost != c.lost || all[0].ID != 1 ||
				all[0].Acks != 50) {
				t.Errorf("%+v", all[0])
			}
		})
	}
}

// What is lost while nothing is delivered counts once something is.
func TestLostInBetween(t *testing.T) {
	now := func(delivered, lost uint32) []host.Connection {
		c := connection(1, "192.0.2.1:443", delivered, 40_000)
		c.Info.Total_retrans = lost
		return []host.Connection{c}
	}
	e := eye{few: maxLooked, least: map[netip.Addr]time.Duration{}, chosen: now(10, 0)}
	if all := e.moved(now(10, 2)); len(all) != 0 {
		t.Errorf("nothing was delivered: %+v", all)
	}
	if all := e.moved(now(15, 3)); len(all) != 1 || all[0].Lost != 3 || all[0].Delivered != 5 {
		t.Errorf("3 of 8 were lost: %+v", all)
	}
}

// What is carried between a look and the choice of those that are looked at counts.
func TestCarriedWhileChosen(t *testing.T) {
	at := func(delivered uint32) []host.Connection {
		return []host.Connection{connection(1, "192.0.2.1:443", delivered, 40_000)}
	}
	e := eye{few: maxLooked, least: map[netip.Addr]time.Duration{}, chosen: at(10)}
	e.choose(at(14))
	if all := e.moved(at(15)); len(all) != 1 || all[0].Delivered != 5 {
		t.Errorf("5 were delivered: %+v", all)
	}
}

// With a hundred thousand connections as few are looked at as with ten, and as many addresses are kept as ever.
func TestManyConnections(t *testing.T) {
	const many = 100_000
	e := eye{few: maxLooked, least: map[netip.Addr]time.Duration{}}
	all := make([]host.Connection, many)
	for i := range all {
		to := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		all[i] = connection(uint64(i), netip.AddrPortFrom(to, 443).String(), uint32(i), 40_000)
	}
	e.choose(all)
	if len(e.chosen) != maxLooked || e.chosen[0].Cookie != many-1 {
		t.Errorf("%d are looked at", len(e.chosen))
	}
	if len(e.least) > maxKnownAddresses || len(e.carried) != many {
		t.Errorf("%d addresses and %d counters are kept", len(e.least), len(e.carried))
	}
	e.choose(nil)
	if len(e.chosen) != 0 || len(e.carried) != 0 {
		t.Errorf("once all have ended, %d are looked at, and %d counters are kept", len(e.chosen), len(e.carried))
	}
}

// Behind the provider's queue the shaper's counters are enough: what left, waits and was dropped has come. With tunnels
// the link has delivered what came in by the card, in packets of the shaper's framing.
func TestCame(t *testing.T) {
	e := eye{begin: sinceBoot(), counts: qdisc.Framing{Raw: true}}
	l, err := e.look(qdisc.Stats{Bytes: 1_000_000, Packets: 700, Backlog: 3028, Drops: 2})
	if err != nil || l.Came != 1_000_000+3028+2*1514 || l.Here != l.Came || len(l.Connections) != 0 {
		t.Errorf("%+v, %v", l, err)
	}
	e = eye{begin: sinceBoot(), counts: qdisc.Framing{Overhead: 38}, received: func() (qdisc.Received, error) {
		return qdisc.Received{Packets: 1000, Bytes: 1_514_000}, nil
	}}
	l, err = e.look(qdisc.Stats{Bytes: 1_000_000, Packets: 1000, X: qdisc.CakeStats{AvgOverhead: 18}})
	if err != nil || l.Here != 1_020_000 || l.Came != 1_538_000 {
		t.Errorf("with tunnels: %+v, %v", l, err)
	}
	e.received = func() (qdisc.Received, error) { return qdisc.Received{}, unix.ENODEV }
	if _, err := e.look(qdisc.Stats{}); err != unix.ENODEV {
		t.Errorf("of a card that is gone: %v", err)
	}
}

// A look uses a clock that only goes forward: a step of the clock on the wall is not in it.
func TestClock(t *testing.T) {
	e := eye{begin: sinceBoot(), counts: qdisc.Framing{Raw: true}}
	var boot unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot); err != nil ||
		(time.Duration(boot.Nano())-e.begin).Abs() > time.Minute {
		t.Fatalf("the beginning is %s, and the boot was %s ago, %v", e.begin, time.Duration(boot.Nano()), err)
	}
	before, err := e.look(qdisc.Stats{})
	if err != nil {
		t.Fatal(err)
	}
	after, err := e.look(qdisc.Stats{})
	if err != nil || after.At < before.At {
		t.Errorf("%s, then %s, %v", before.At, after.At, err)
	}
}

// loopback connects this process with itself, by plain sockets, which take none of its memory.
func loopback(must func(error), connections int) (all []int) {
	listener, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	must(err)
	must(unix.Bind(listener, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	must(unix.Listen(listener, 16))
	to, err := unix.Getsockname(listener)
	must(err)
	all = append(all, listener)
	for range connections {
		dialled, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		must(err)
		must(unix.Connect(dialled, to))
		accepted, _, err := unix.Accept(listener)
		must(err)
		all = append(all, dialled, accepted)
	}
	return all
}

// BenchmarkFollow10000 is what weir follow takes with 10,000 connections, of this process with itself: all are listed
// as often as it allows itself, and a few looked at fifty times a second.
func BenchmarkFollow10000(b *testing.B) {
	const ends = 10_000
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // as weir follow does
	defer debug.SetGCPercent(debug.SetGCPercent(50))
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: ends + 1000, Max: ends + 1000}); err != nil {
		b.Skipf("skipped, not passed: %v", err)
	}
	must := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	for _, fd := range loopback(must, ends/2) {
		defer unix.Close(fd)
	}
	debug.FreeOSMemory() // what it took to connect them is not weir's
	connections, err := host.OpenAllConnections()
	must(err)
	defer connections.Close()
	e := &eye{connections: connections, few: maxLooked, ofAll: maxListCPU, begin: sinceBoot(),
		counts: qdisc.Framing{Raw: true},
		least:  map[netip.Addr]time.Duration{}}
	f := follow.New(100e6, 20e6, 400e6)
	cpu := func() time.Duration {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	for b.Loop() {
		began, used := time.Now(), cpu()
		for time.Since(began) < 10*time.Second {
			before := time.Now()
			l, err := e.look(qdisc.Stats{Bytes: 1, Backlog: 1})
			if err != nil {
				b.Fatal(err)
			}
			f.Look(l)
			time.Sleep(max(minLookInterval, min(maxLookInterval,
				time.Duration(float64(time.Since(before))/maxLookCPU))))
		}
		b.ReportMetric(100*(cpu()-used).Seconds()/time.Since(began).Seconds(), "%core")
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b.ReportMetric(float64(m.HeapInuse)/(1<<20), "MiB-heap")
	resident, err := os.ReadFile("/proc/self/statm")
	must(err)
	pages, err := strconv.Atoi(strings.Fields(string(resident))[1])
	must(err)
	b.ReportMetric(float64(pages*os.Getpagesize())/(1<<20), "MiB-rss")
}
