// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/internal/bbr"
	"weir/internal/hint"
	"weir/internal/lab/measure"
	"weir/internal/qdisc"
	"weir/internal/text"
	"weir/internal/units"
	"weir/internal/wire"
)

// Uplink is the name of the server's interface in the guest.
const Uplink = "eth0"

// The limits of what the lab can be asked: above them a run would take memory or time that a mistake in a file should
// not cost.
const (
	maxRate        = 10_000_000_000 // bit/s; packet by packet the guest's work grows with it
	minRate        = 100_000        // bit/s: below, a packet takes longer than what is measured
	maxRTT         = 10 * time.Second
	maxVirtual     = time.Hour
	maxConnections = 2000 // in all
	maxClients     = 200
	maxSeeds       = 1000
	maxPoints      = 1000
)

const congestionControl = "net.ipv4.tcp_congestion_control"

// congestionControls are those that the lab kernel has built in (internal/lab/uml/kernel/fragment.config), Weir's among
// them.
func congestionControls() []string {
	return []string{"bbr", "bic", bbr.Name, "cdg", "cubic", "dctcp", "highspeed", "htcp", "hybla", "illinois", "lp",
		"nv", "reno", "scalable", "vegas", "veno", "westwood", "yeah"}
}

// fillIn gives every value that was left out its default.
func (s *Scenario) fillIn() {
	setDefault(&s.Duration, units.Duration(20*time.Second))
	setDefault(&s.Engine, EngineNames()[0])
	setDefault(&s.Seeds, 1)
	setDefault(&s.Server.Addresses, 1)
	setDefault(&s.Server.Queues, 1)
	setDefault(&s.Server.Qdisc, "fq_codel") // Debian's DEFAULT_NET_SCH
	if s.Server.Queues > 1 && s.Server.Qdisc == "fq_codel" {
		s.Server.Qdisc = "mq | fq_codel"
	}
	setDefault(&s.Path.IP, 4)
	s.fillInRelay()
	setDefault(&s.Provider.Queue, "fifo")
	if s.Provider.Buffer == (Buffer{}) {
		s.Provider.Buffer.Time = units.Duration(200 * time.Millisecond)
	}
	setDefault(&s.Provider.Burst, units.Size(64<<10))
	if len(s.Client) == 0 {
		s.Client = []Client{{Name: "client"}}
	}
	for i := range s.Client {
		c := &s.Client[i]
		if c.Rate != 0 {
			setDefault(&c.Upload, c.Rate)
			setDefault(&c.Buffer, Buffer{Time: units.Duration(200 * time.Millisecond)})
		}
	}
	for i := range s.Flow {
		f := &s.Flow[i]
		setDefault(&f.Client, s.Client[0].Name)
		setDefault(&f.Count, 1)
		setDefault(&f.Direction, "down")
		setDefault(&f.Dial, "client")
		setDefault(&f.Address, 1)
		if f.Every != 0 {
			setDefault(&f.Sizes, fixedSizes)
		}
	}
	for i := range s.Probe {
		p := &s.Probe[i]
		setDefault(&p.Client, s.Client[0].Name)
		if kind, known := p.kind(); known {
			kind.fillIn(p)
		}
	}
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// findZero finds a value of nothing where nothing cannot be meant: left out, it would be the default, and so it is no
// way to write one.
func findZero(document map[string]any) *problem {
	never := map[string][]string{
		"": {"seeds", "duration"}, "server": {"addresses", "queues"}, "relay": {"cards", "ip", "txqueuelen"},
		"path": {"ip"}, "provider": {"buffer", "burst"},
		"client": {"rate", "upload", "buffer"}, "flow": {"count", "address", "every", "chunk", "interval"},
		"probe": {"interval", "size", "reply"}, "weir": {"rtt"},
	}
	nothing := func(v any) bool {
		switch v := v.(type) {
		case int64:
			return v == 0
		case string:
			return strings.Trim(v, "0.") != v && strings.Trim(strings.ToLower(v), "0.bkmgtinus") == ""
		}
		return false
	}
	look := func(section, entry string, table map[string]any) *problem {
		for _, key := range never[section] {
			if v, ok := table[key]; ok && nothing(v) {
				where := []string{key}
				if section != "" {
					where = slices.DeleteFunc([]string{section, entry, key}, func(s string) bool { return s == "" })
				}
				if section == "weir" { // which a candidate has
					where = []string{"candidate", entry, section}
				}
				return errAt("leave it out for the default", where, "%s = %v", key, v)
			}
		}
		return nil
	}
	within := look
	look = func(section, entry string, table map[string]any) *problem {
		if goal, ok := table["weir"].(map[string]any); ok && section == "candidate" {
			if p := within("weir", entry, goal); p != nil {
				return p
			}
		}
		return within(section, entry, table)
	}
	if p := look("", "", document); p != nil {
		return p
	}
	for _, section := range slices.Sorted(maps.Keys(document)) {
		switch v := document[section].(type) {
		case map[string]any:
			if p := look(section, "", v); p != nil {
				return p
			}
		case []any:
			for _, entry := range v {
				if table, ok := entry.(map[string]any); ok {
					name, _ := table["name"].(string)
					if p := look(section, name, table); p != nil {
						return p
					}
				}
			}
		}
	}
	return nil
}

// checkAll finds the first thing that cannot be run, at any point of the sweep.
func (s *Scenario) checkAll() *problem {
	if p := s.checkSweep(); p != nil {
		return p
	}
	points, p := s.points()
	if p != nil {
		return p
	}
	for i, point := range points {
		p := point.Scenario.check()
		if p == nil && i == 0 {
			p = s.checkClaims(&point.Scenario)
		}
		if p != nil {
			if len(point.Labels) > 0 {
				p.what = fmt.Sprintf("at %s: %s", strings.Join(point.Labels, ", "), p.what)
			}
			return p
		}
	}
	return nil
}

// check finds the first thing that cannot be run in a scenario without a sweep and with its defaults.
func (s *Scenario) check() *problem {
	for _, check := range []func() *problem{s.checkFrame, s.checkPath, s.checkTraffic, s.checkRelay,
		s.checkCandidates} {
		if p := check(); p != nil {
			return p
		}
	}
	return nil
}

func errAt(try string, where []string, format string, args ...any) *problem {
	return &problem{where, fmt.Sprintf(format, args...), try}
}

func (s *Scenario) checkFrame() *problem {
	at := func(k string) []string { return []string{k} }
	engine, known := EngineNamed(s.Engine)
	switch {
	case s.Title == "":
		return errAt(`begin the file with: title = "…"`, at("title"), "the scenario has no title")
	case time.Duration(s.Duration) < 10*time.Millisecond || time.Duration(s.Duration+s.Warmup) > maxVirtual:
		return errAt("", at("duration"), "warm-up %v and duration %v: a run lasts 10ms to 1h", s.Warmup, s.Duration)
	case !known:
		return errAt(engineHint(), at("engine"), "engine %q is not known", s.Engine)
	case engine.Most > 0 && s.Provider.Rate > engine.Most:
		return errAt(fmt.Sprintf("engine = %q, whose CPU costs nothing", UML), []string{"provider", "rate"},
			"rate %v is above what an emulated CPU carries (%v)", s.Provider.Rate, engine.Most)
	case s.Seeds < 1 || s.Seeds > maxSeeds:
		return errAt("", at("seeds"), "seeds = %d is out of range (1 to %d)", s.Seeds, maxSeeds)
	case s.Until != "" && s.Until != "fetched":
		return errAt("", at("until"), `until = %q: the only value is "fetched"`, s.Until)
	case s.Until == "fetched" && !slices.ContainsFunc(s.Flow, func(f Flow) bool { return f.Bytes > 0 }):
		return errAt("give a flow bytes", at("until"), `until = "fetched", and no flow has bytes to fetch`)
	case s.Until == "fetched" && s.Warmup > 0:
		return errAt(`warmup = "0s"`, at("until"),
			`until = "fetched" measures from the start, and there is a warm-up of %v`, s.Warmup)
	case s.Server.Addresses < 1 || s.Server.Addresses > 100:
		return errAt("", []string{"server", "addresses"}, "addresses = %d is out of range (1 to 100)",
			s.Server.Addresses)
	case s.Server.Queues < 1 || s.Server.Queues > 64:
		return errAt("", []string{"server", "queues"}, "queues = %d is out of range (1 to 64)", s.Server.Queues)
	case s.Server.GRO && !s.Server.Relay:
		return errAt("relay = true", []string{"server", "gro"},
			"gro is about what a relay forwards, and this server forwards nothing")
	}
	for _, column := range s.Columns {
		m, err := measure.ParseMetric(column)
		if err == nil {
			err = s.measures(m)
		}
		if err != nil {
			return errAt("", at("columns"), "%v", err)
		}
	}
	if _, err := qdisc.ParseStack(s.Server.Qdisc); err != nil {
		return errAt("", []string{"server", "qdisc"}, "%v", err)
	}
	return checkSysctls(s.Server.Sysctl, []string{"server", "sysctl"})
}

func (s *Scenario) checkPath() *problem {
	p := s.Provider
	at := func(k string) []string { return []string{"provider", k} }
	switch {
	case p.Rate == 0 && p.Queue != "none":
		return errAt(`rate = "50mbit", or queue = "none"`, at("queue"),
			"the provider has no rate, and its queue %q needs one", p.Queue)
	case max(p.Rate, p.Ingress) > maxRate:
		return errAt("", at("rate"), "rate %v is above what the lab can carry (10gbit)", max(p.Rate, p.Ingress))
	case p.Rate != 0 && p.Rate < minRate:
		return errAt("", at("rate"), "rate %v is below the lab's least (100kbit)", p.Rate)
	case p.Ingress != 0 && p.Ingress < minRate:
		return errAt("", at("ingress"), "rate %v is below the lab's least (100kbit)", p.Ingress)
	case p.Ingress != 0 && p.Rate == 0:
		return errAt("", at("ingress"), "the provider has a rate towards the server, and none from it")
	case s.Path.IP != 4 && s.Path.IP != 6:
		return errAt("4 or 6", []string{"path", "ip"}, "there is no version %d of IP", s.Path.IP)
	case time.Duration(s.Path.RTT) > maxRTT:
		return errAt("", []string{"path", "rtt"}, "rtt %v is absurd (0s to 10s)", s.Path.RTT)
	case s.Path.Jitter > s.Path.RTT:
		return errAt("", []string{"path", "jitter"}, "jitter %v is more than the RTT, %v", s.Path.Jitter, s.Path.RTT)
	case s.Path.Reorder >= 1:
		return errAt("", []string{"path", "reorder"}, "at reorder %v none is left to be overtaken", s.Path.Reorder)
	case s.Path.Reorder > 0 && s.Path.Jitter > 0:
		return errAt("one of them", []string{"path", "reorder"}, "under jitter packets stay in order")
	case s.Path.Reorder > 0 && time.Duration(s.Path.RTT) < ReorderLead:
		return errAt("", []string{"path", "reorder"}, "packets come %v early, and the RTT is %v", ReorderLead,
			s.Path.RTT)
	case s.Path.Loss >= 1:
		return errAt("", []string{"path", "loss"}, "at loss %v nothing arrives", s.Path.Loss)
	case s.Path.Burst < 0 || s.Path.Burst > 1000:
		return errAt("", []string{"path", "burst"}, "burst = %v packets is out of range (0 to 1000)", s.Path.Burst)
	}
	switch p.Queue {
	case "fifo", "bucket":
		if b := p.Buffer.Bytes(p.Rate); b < 3028 || b > 1<<31 {
			return errAt("", at("buffer"),
				"buffer %v is %v at %v: it must hold 2 packets (3028b) at least and 2gb at most", p.Buffer, b, p.Rate)
		}
	case "none":
	case "policer":
	default:
		if _, err := qdisc.ParseStack(Rated(p.Queue, p.Rate)); err != nil {
			return errAt("fifo, policer, bucket, none, or a qdisc as tc writes it", at("queue"), "%v", err)
		}
	}
	if bad := cmp.Or(s.checkPeak(), s.checkNewRates(), s.checkNewRTTs()); bad != nil {
		return bad
	}
	switch counted := p.Overhead != 0 || p.ATM; {
	case p.Overhead < -14 || p.Overhead > 256:
		return errAt("4 with FCS, 24 with all that is on a wire, -14 for the IP packet alone", at("overhead"),
			"overhead = %d bytes is out of range (-14 to 256)", p.Overhead)
	case counted && (p.Queue == "none" || p.Queue == "policer"):
		return errAt(`queue = "fifo"`, at("overhead"), "a policer here counts IP packets, and nothing else")
	case p.ATM && p.Queue != "fifo" && p.Queue != "bucket":
		return errAt(`queue = "fifo", or linklayer atm in tc's words`, at("atm"), "atm is of fifo and bucket")
	}
	if (p.Queue == "policer" || p.Queue == "bucket") && (p.Burst < wire.Frame || p.Burst > 1<<31) {
		return errAt("", at("burst"), "burst %v: must pass one packet (1514b) at least and 2gb at most", p.Burst)
	}
	return nil
}

// checkPeak finds a peak rate that is none.
func (s *Scenario) checkPeak() *problem {
	p := s.Provider
	at := []string{"provider", "peak"}
	highest := max(p.Rate, p.Inward())
	for _, change := range p.Change {
		highest = max(highest, change.Rate)
	}
	switch {
	case p.Peak == 0:
	case p.Queue != "bucket":
		return errAt(`queue = "bucket"`, at, "peak is how fast a bucket's burst passes, and the queue is %q", p.Queue)
	case p.Peak <= highest || p.Peak > maxRate:
		return errAt("", at, "peak %v must be above every rate (%v) and 10gbit at most", p.Peak, highest)
	}
	return nil
}

func (s *Scenario) checkNewRates() *problem {
	var before units.Duration
	for _, change := range s.Provider.Change {
		at := []string{"provider", "change"}
		switch {
		case s.Provider.Queue == "none" || s.Provider.Queue == "policer":
			return errAt(`queue = "fifo"`, at, "the provider's queue %q has no rate that can change", s.Provider.Queue)
		case s.Provider.Overhead != 0 && s.Provider.Queue != "fifo" && s.Provider.Queue != "bucket":
			return errAt(`queue = "fifo"`, at, "with an overhead the rate of %q cannot change", s.Provider.Queue)
		case change.Rate < minRate || change.Rate > maxRate:
			return errAt("", at, "the rate %v at %v is out of range (100kbit to 10gbit)", change.Rate, change.At)
		}
		if p := s.checkTime("", at, change.At, before); p != nil {
			return p
		}
		before = change.At
	}
	return nil
}

func (s *Scenario) checkNewRTTs() *problem {
	var before units.Duration
	for _, change := range s.Path.Change {
		at := []string{"path", "change"}
		own := slices.IndexFunc(s.Client, func(c Client) bool { return c.RTT != 0 })
		switch {
		case own >= 0:
			return errAt("path.rtt alone", at, "the path's RTT cannot change while client %q has its own",
				s.Client[own].Name)
		case min(change.RTT, s.Path.RTT) <= s.Path.ForwardDelay() || time.Duration(change.RTT) > maxRTT:
			return errAt("", at, "the RTT can change from %v to %v (at %v) only where both are above %v, at most 10s",
				s.Path.RTT, change.RTT, change.At, s.Path.ForwardDelay())
		}
		if p := s.checkTime("", at, change.At, before); p != nil {
			return p
		}
		before = change.At
	}
	return nil
}

// checkTime finds what is wrong with when a change comes, after another. Whose it is begins the message.
func (s *Scenario) checkTime(whose string, where []string, at, before units.Duration) *problem {
	switch {
	case s.Until != "":
		return errAt("", where, "%swith until the run may end before the change at %v", whose, at)
	case at <= before:
		return errAt("changes in their order, the first after 0s", where, "%sthe change at %v is not after %v", whose,
			at, before)
	case at >= s.Warmup+s.Duration:
		return errAt("", where, "%sthe change at %v is after the run's end", whose, at)
	}
	return nil
}

var nameOf = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9 +:,.%()/_-]{0,39}$`)

func (s *Scenario) checkTraffic() *problem {
	if len(s.Client) > maxClients {
		return errAt("", []string{"client"}, "%d clients are more than the lab has room for (%d)", len(s.Client),
			maxClients)
	}
	seen := map[string]bool{}
	name := func(section, n string) *problem {
		switch {
		case !nameOf.MatchString(n):
			return errAt(`name = "…": letters, digits and simple punctuation, at most 40`, []string{section, n},
				"a %s has the name %q", section, n)
		case seen[section+n]:
			return errAt("", []string{section, n}, "two entries of %s have the name %q", section, n)
		}
		seen[section+n] = true
		return nil
	}
	for _, c := range s.Client {
		if p := name("client", c.Name); p != nil {
			return p
		}
		if strings.Contains(c.Name, ".") {
			return errAt("", []string{"client", c.Name}, "client name %q: a dot separates the parts of a metric's name",
				c.Name)
		}
		if time.Duration(c.RTT) > maxRTT {
			return errAt("", []string{"client", c.Name, "rtt"}, "rtt %v is absurd (0s to 10s)", c.RTT)
		}
		if c.RTT != 0 && c.RTT < s.Path.ForwardDelay() {
			return errAt("", []string{"client", c.Name, "rtt"}, "rtt %v is less than jitter or reorder takes, %v",
				c.RTT, s.Path.ForwardDelay())
		}
		if p := checkAccess(c); p != nil {
			return p
		}
		if p := checkSysctls(c.Sysctl, []string{"client", c.Name, "sysctl"}); p != nil {
			return p
		}
	}
	for _, f := range s.Flow {
		if p := name("flow", f.Name); p != nil {
			return p
		}
	}
	if p := s.checkFlows(); p != nil {
		return p
	}
	for _, p := range s.Probe {
		if bad := name("probe", p.Name); bad != nil {
			return bad
		}
		if bad := s.checkProbe(p); bad != nil {
			return bad
		}
	}
	if p := s.checkPrograms(s.Program, map[string]bool{}); p != nil {
		return p
	}
	if len(s.Flow) == 0 && len(s.Probe) == 0 && len(s.Program) == 0 {
		return errAt("add a [[flow]] or a [[probe]]", []string{"flow"}, "the scenario has no traffic")
	}
	return nil
}

// checkAccess finds what is wrong with a client's own rate.
func checkAccess(c Client) *problem {
	at := func(k string) []string { return []string{"client", c.Name, k} }
	if c.Rate == 0 {
		if c.Upload != 0 || c.Buffer != (Buffer{}) {
			return errAt(`rate = "100mbit"`, at("upload"), "client %q: an access needs a rate", c.Name)
		}
		return nil
	}
	if least, most := min(c.Rate, c.Upload), max(c.Rate, c.Upload); least < minRate || most > maxRate {
		return errAt("", at("rate"), "client %q: rate %v and upload %v: an access has 100kbit to 10gbit", c.Name,
			c.Rate, c.Upload)
	}
	for _, rate := range []units.Rate{c.Rate, c.Upload} {
		if b := c.Buffer.Bytes(rate); b < 3028 || b > 1<<31 {
			return errAt("", at("buffer"), "client %q: buffer %v is %v at %v: it must hold 2 packets (3028b) at least "+
				"and 2gb at most", c.Name, c.Buffer, b, rate)
		}
	}
	return nil
}

// checkHost finds what is wrong with who sends a flow.
func (s *Scenario) checkHost(f Flow) *problem {
	at := func(k string) []string { return []string{"flow", f.Name, k} }
	switch {
	case f.Host == "" || f.Host == "server":
	case f.Host != Neighbour:
		return errAt(`"server" or "neighbour"`, at("host"), "flow %q: host %q is not known", f.Name, f.Host)
	case s.Server.Relay:
		return errAt("", at("host"), "flow %q: a relay has no neighbour here", f.Name)
	case s.Provider.Queue == "none" || s.Provider.Queue == "policer":
		return errAt(`queue = "fifo"`, at("host"), "flow %q: a neighbour shares the provider's queue, and %q is none",
			f.Name, s.Provider.Queue)
	case f.Direction != "down" || f.Dial != "client" || f.Address != 1:
		return errAt("", at("host"), "flow %q: a neighbour is called by a client that downloads from it", f.Name)
	}
	return nil
}

func (s *Scenario) hasClient(name string) bool {
	return slices.ContainsFunc(s.Client, func(c Client) bool { return c.Name == name })
}

func (s *Scenario) checkFlows() *problem {
	connections := 0
	for _, f := range s.Flow {
		at := func(k string) []string { return []string{"flow", f.Name, k} }
		switch {
		case !s.hasClient(f.Client):
			return errAt("clients: "+s.clientNames(), at("client"), "flow %q: no client is called %q", f.Name, f.Client)
		case f.Count < 1 || f.Count > maxConnections:
			return errAt("", at("count"), "flow %q: count = %d is out of range (1 to %d)", f.Name, f.Count,
				maxConnections)
		case f.Direction != "down" && f.Direction != "up":
			return errAt(`"down" is to the client, "up" from it`, at("direction"), "flow %q: direction %q", f.Name,
				f.Direction)
		case f.Dial != "client" && f.Dial != "server":
			return errAt(`who connects: "client" or "server"`, at("dial"), "flow %q: dial %q", f.Name, f.Dial)
		case f.Address < 1 || f.Address > s.Server.Addresses:
			return errAt("", at("address"), "flow %q: address %d, and the server has %d", f.Name, f.Address,
				s.Server.Addresses)
		case f.CC != "" && !slices.Contains(congestionControls(), f.CC):
			return errAt("known: "+strings.Join(congestionControls(), " "), at("cc"),
				"flow %q: unknown congestion control %q", f.Name, f.CC)
		case f.Stop != 0 && f.Stop <= f.Start:
			return errAt("", at("stop"), "flow %q stops at %v, before it starts at %v", f.Name, f.Stop, f.Start)
		case f.Start >= s.Warmup+s.Duration:
			return errAt("", at("start"), "flow %q starts at %v, after the run's end", f.Name, f.Start)
		case f.MSS != 0 && (f.MSS < 88 || f.MSS > 1460): // the kernel's least is 88 (TCP_MIN_MSS)
			return errAt("", at("mss"), "flow %q: mss %v is out of range (88b to 1460b)", f.Name, f.MSS)
		case f.Pace != 0 && f.Pace < minRate:
			return errAt("", at("pace"), "flow %q: pace %v is below the lab's least (100kbit)", f.Name, f.Pace)
		case f.Address > 1 && s.Server.Relay:
			return errAt("", at("address"), "flow %q: a relay forwards from one origin address", f.Name)
		}
		if p := cmp.Or(s.checkSource(f), s.checkHost(f)); p != nil {
			return p
		}
		connections += f.expected(s.Warmup + s.Duration)
	}
	if connections > maxConnections {
		return errAt("", []string{"flow"}, "%d connections are more than the lab has room for (%d)", connections,
			maxConnections)
	}
	return nil
}

func (s *Scenario) clientNames() string {
	return strings.Join(names(s.Client, func(c Client) string { return c.Name }), ", ")
}

func (s *Scenario) checkCandidates() *problem {
	if len(s.Candidate) == 0 {
		return errAt(`add a [[candidate]] with a name and a qdisc, sysctls, or weir = {}`, []string{"candidate"},
			"the scenario has no candidate")
	}
	seen := map[string]bool{}
	for _, c := range s.Candidate {
		at := func(k string) []string { return []string{"candidate", c.Name, k} }
		switch {
		case !nameOf.MatchString(c.Name):
			return errAt(`name = "…": letters, digits and simple punctuation, at most 40`, at(""),
				"a candidate has the name %q", c.Name)
		case seen[c.Name]:
			return errAt("", at(""), "two candidates have the name %q", c.Name)
		}
		seen[c.Name] = true
		if c.Tunnel != "" && !s.carries(WireGuard) && !s.carries(Tunnel) {
			return errAt("", at("tunnel"), "candidate %q: the relay has no tunnel", c.Name)
		}
		for _, q := range []struct{ key, text string }{{"qdisc", c.Qdisc}, {"ingress", c.Ingress},
			{"tunnel", c.Tunnel}} {
			if q.text == "" {
				continue
			}
			if _, p := s.stack(c, q.key, q.text); p != nil {
				return p
			}
		}
		if p := s.checkChanges(c); p != nil {
			return p
		}
		if p := checkSysctls(c.Sysctl, at("sysctl")); p != nil {
			return p
		}
		taken := map[string]bool{}
		for _, p := range s.Program {
			taken[p.Name] = true
		}
		if p := s.checkPrograms(c.Program, taken, "candidate", c.Name, "program"); p != nil {
			return p
		}
		if c.Weir != nil {
			if c.Weir.Dev != "" {
				return errAt("leave dev out", at("weir"), "candidate %q: weir: the device is the server's uplink",
					c.Name)
			}
			var refused *hint.Error
			if err := c.Weir.goal(s.Provider).Check(); errors.As(err, &refused) {
				return errAt(refused.Try, at("weir"), "candidate %q: weir: %s", c.Name, refused.What)
			}
		}
	}
	return nil
}

// stack reads a qdisc of a candidate's.
func (s *Scenario) stack(c candidate, key, text string) (qdisc.Stack, *problem) {
	at := []string{"candidate", c.Name, key}
	stack, err := qdisc.ParseStack(Rated(text, s.Provider.Rate))
	if key == "ingress" {
		var a qdisc.Arriving
		a, err = qdisc.ParseArriving(Rated(text, s.Provider.Inward()))
		stack = a.Stack
	}
	switch {
	case c.Weir != nil:
		return nil, errAt("", at, "candidate %q: either weir sets the qdisc, or %s does", c.Name, key)
	case strings.Contains(text, "{") && s.Provider.Rate == 0:
		return nil, errAt("", at, "candidate %q: %q wants a share of the provider's rate, and it has none", c.Name,
			text)
	case err != nil:
		return nil, errAt("", at, "candidate %q: %v", c.Name, err)
	}
	return stack, nil
}

func (s *Scenario) checkChanges(c candidate) *problem {
	var before units.Duration
	for _, change := range c.Change {
		at := []string{"candidate", c.Name, "change"}
		next, p := s.stack(c, "change", change.Qdisc)
		if p != nil {
			return p
		}
		first, _ := qdisc.ParseStack(Rated(c.Qdisc, s.Provider.Rate))
		switch {
		case c.Qdisc == "":
			return errAt("", at, "candidate %q has a change, and no qdisc to be changed", c.Name)
		case !slices.EqualFunc(first, next, func(a, b qdisc.Spec) bool { return a.Kind() == b.Kind() }):
			return errAt("", at, "candidate %q: in place, %q does not change into %q", c.Name, c.Qdisc, change.Qdisc)
		}
		if p := s.checkTime(fmt.Sprintf("candidate %q: ", c.Name), at, change.At, before); p != nil {
			return p
		}
		before = change.At
	}
	return nil
}

// findUnitless finds a bare number or truth where a quantity has a unit: TOML takes one for the other.
func findUnitless(v any, t reflect.Type, where ...string) *problem {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch v := v.(type) {
	case int64, float64, bool:
		if reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
			return errAt(quantities, where, "%s = %v has no unit", where[len(where)-1], v)
		}
	case []any:
		for _, entry := range v {
			at := slices.Clone(where)
			if table, ok := entry.(map[string]any); ok && table["name"] != nil {
				at = append(at, fmt.Sprint(table["name"]))
			}
			if t.Kind() != reflect.Slice {
				return nil
			}
			if p := findUnitless(entry, t.Elem(), at...); p != nil {
				return p
			}
		}
	case map[string]any:
		if t.Kind() != reflect.Struct { // a table of anything
			return nil
		}
		for i := range t.NumField() {
			if t.Field(i).Anonymous {
				if p := findUnitless(v, t.Field(i).Type, where...); p != nil {
					return p
				}
			}
			key, _, _ := strings.Cut(t.Field(i).Tag.Get("toml"), ",")
			if inner, ok := v[key]; ok && t.Field(i).Type.Kind() != reflect.Map {
				if p := findUnitless(inner, t.Field(i).Type, append(slices.Clone(where), key)...); p != nil {
					return p
				}
			}
		}
	}
	return nil
}

var sysctlName = regexp.MustCompile(`^[a-z0-9_]+(\.[a-zA-Z0-9_/-]+)+$`)

func checkSysctls(m map[string]string, where []string) *problem {
	for key, value := range m {
		if !sysctlName.MatchString(key) || strings.Contains(key, "..") {
			return errAt(`write it like "net.ipv4.tcp_ecn"`, where, "%q is not a sysctl", key)
		}
		if value == "" || strings.ContainsAny(value, "\n\x00") {
			return errAt("", where, "sysctl %s has no value", key)
		}
		if key == congestionControl && !slices.Contains(congestionControls(), value) {
			return errAt("known: "+strings.Join(congestionControls(), " "), where, "unknown congestion control %q",
				value)
		}
	}
	return nil
}

var share = regexp.MustCompile(`\{([^{}]*)\}`)

// Rated replaces {99.75%} by that share of rate, {101%} too: a shaper that is too fast is worth a try. What it leaves
// as it is the qdisc parser will name.
func Rated(text string, rate units.Rate) string {
	return share.ReplaceAllStringFunc(text, func(braced string) string {
		percent, err := strconv.ParseFloat(strings.TrimSuffix(strings.Trim(braced, "{}"), "%"), 64)
		if err != nil || !strings.HasSuffix(braced, "%}") || !(percent >= 0 && percent <= maxPercent) {
			return braced
		}
		return units.Rate(float64(rate)*(percent*0.01) + 0.5).String()
	})
}

// maxPercent of a rate is far above what anybody would shape to.
const maxPercent = 1000

// findHidden finds text with characters that a terminal obeys or that are not to be seen: names and titles are shown.
func findHidden(v any, where ...string) *problem {
	if len(where) > 8 { // no key of a scenario is as deep
		return nil
	}
	switch v := v.(type) {
	case string:
		if text.Plain(v) != v {
			return errAt("letters, digits and punctuation", where, "%s has a control character: %s",
				where[len(where)-1], text.Plain(v))
		}
	case []any:
		for _, entry := range v {
			at := where
			if table, ok := entry.(map[string]any); ok && table["name"] != nil {
				at = append(slices.Clone(where), fmt.Sprint(table["name"]))
			}
			if p := findHidden(entry, at...); p != nil {
				return p
			}
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if p := findHidden(key, append(slices.Clone(where), "a key")...); p != nil {
				return p
			}
			if p := findHidden(v[key], append(slices.Clone(where), key)...); p != nil {
				return p
			}
		}
	}
	return nil
}

func (s *Scenario) checkSweep() *problem {
	points := 1 // how many there will be
	swept := map[string]bool{}
	for _, axis := range s.Sweep {
		at := []string{"sweep", axis.Key}
		for _, key := range axis.keys() {
			if swept[key] {
				return errAt("", at, "%q is swept twice", key)
			}
			swept[key] = true
		}
		if len(axis.Values) == 0 {
			return errAt(`values = [ … ]`, at, "the sweep of %q has no values", axis.Key)
		}
		if len(axis.Labels) > 0 && len(axis.Labels) != len(axis.Values) {
			return errAt("", at, "the sweep of %q has %d values and %d labels", axis.Key, len(axis.Values),
				len(axis.Labels))
		}
		if points *= len(axis.Values); points > maxPoints {
			return errAt("", at, "the sweep has more than %d points", maxPoints)
		}
	}
	return nil
}

func (s *Scenario) checkClaims(filled *Scenario) *problem {
	for _, c := range s.Claim {
		if p := c.check(filled, s.Sweep); p != nil {
			p.where = []string{"claim", c.Says}
			return p
		}
	}
	return nil
}

// quantity formats a value for a label: 4, 0.5, 1:4.
func quantity(v any) string {
	switch n := v.(type) {
	case int64:
		return strconv.FormatInt(n, 10)
	case float64:
		return strconv.FormatFloat(n, 'g', -1, 64)
	case string:
		return n
	case bool:
		return strconv.FormatBool(n)
	case []any:
		var all []string
		for _, one := range n {
			all = append(all, quantity(one))
		}
		return strings.Join(all, ":")
	}
	return fmt.Sprint(v)
}
