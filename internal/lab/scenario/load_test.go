// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/units"
)

const minimal = `title = "t"
[provider]
rate = "50mbit"
[[flow]]
name = "f"
[[candidate]]
name = "c"
`

// changing is minimal with changes of an fq: times and qdiscs, in turns.
func changing(words ...string) string {
	text := minimal + "qdisc = \"fq\"\n"
	for pair := range slices.Chunk(words, 2) {
		text += "[[candidate.change]]\n"
		if pair[0] != "" {
			text += "at = \"" + pair[0] + "\"\n"
		}
		text += "qdisc = \"" + pair[1] + "\"\n"
	}
	return text
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDefaults(t *testing.T) {
	s, err := Load(write(t, "s.toml", minimal))
	if err != nil {
		t.Fatal(err)
	}
	points, bad := s.points()
	if bad != nil || len(points) != 1 {
		t.Fatal(bad, len(points))
	}
	s = points[0].Scenario
	if s.Duration != units.Duration(20*time.Second) || s.Seeds != 1 || s.Client[0].Name != "client" ||
		s.Flow[0].Client != "client" ||
		s.Flow[0].Count != 1 || s.Provider.Queue != "fifo" || s.Provider.Buffer.Bytes(s.Provider.Rate) != 1_250_000 {
		t.Errorf("got %+v", s)
	}
}

// Every mistake gives one line that names the file, the line and what is wrong there.
func TestBroken(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"syntax", "title = \"t\"\n[provider\n", ":2: "},
		{"a byte order mark", "\ufeff" + minimal, ":1: begins with a byte order mark"},
		{"a key of many parts", minimal + strings.Repeat("a.", 100000) + "a = 1\n", ":8: unknown key"},
		{"a time that is no number", "duration = nan\n" + minimal, ":1: duration = NaN has no unit"},
		{"an RTT of nothing", minimal + "weir = { rtt = \"0s\" }\n", ":8: rtt = 0s"},
		{"an RTT of nothing in a table", minimal + "[candidate.weir]\nrtt = \"0s\"\n", ":8: rtt = 0s"},
		{"all packets reordered", minimal + "[path]\nrtt = \"20ms\"\nreorder = \"100%\"\n", ":10: at reorder 100%"},
		{"reordered, and in order", minimal + "[path]\nrtt = \"20ms\"\nreorder = \"1%\"\njitter = \"1ms\"\n",
			":10: under jitter packets stay in order"},
		{"earlier than they were sent", minimal + "[path]\nrtt = \"1ms\"\nreorder = \"1%\"\n",
			":10: packets come 2ms early, and the RTT is 1ms"},
		{"a new RTT of nothing", minimal + "[path]\nrtt = \"20ms\"\n[[path.change]]\nat = \"5s\"\nrtt = \"0s\"\n",
			"the RTT can change from 20ms to 0s (at 5s) only where both are above 0s"},
		{"a new RTT after the end", minimal + "[path]\nrtt = \"20ms\"\n[[path.change]]\nat = \"60s\"\nrtt = \"30ms\"\n",
			"the change at 60s is after the run's end"},
		{"a new RTT beside a client's own", minimal + "[path]\nrtt = \"20ms\"\n[[path.change]]\nat = \"5s\"\n" +
			"rtt = \"30ms\"\n[[client]]\nname = \"client\"\nrtt = \"10ms\"\n",
			`cannot change while client "client" has its own`},
		{"a title that a terminal obeys", strings.Replace(minimal, `"t"`, `"t\u001b[31m"`, 1),
			`:1: title has a control character: t\u001b[31m`},
		{"a name that a terminal obeys", strings.Replace(minimal, `"f"`, `"f\u202e"`, 1),
			`name has a control character: f\u202e`},
		{"a share of the rate that is absurd", minimal + "qdisc = \"htb rate {1001%} | fq_codel\"\n",
			`:8: candidate "c": htb: rate: "{1001%}" is not a rate`},
		{"a share of the rate without its sign", minimal + "qdisc = \"htb rate {99.75} | fq_codel\"\n",
			`"{99.75}" is not a rate`},
		{"unknown key", "title = \"t\"\nspeed = 3\n", `:2: unknown key "speed"`},
		{"unknown key in a table", minimal + "[path]\nrttt = \"48ms\"\n", `:9: unknown key "path.rttt"`},
		{"unknown key in a weir goal", minimal + "weir = { speed = \"50mbit\" }\n",
			`:8: unknown key "candidate.speed"`},
		{"a sysctl that is no string", minimal + "sysctl = { \"net.ipv4.tcp_ecn\" = 1 }\n",
			":8: candidate.sysctl: the value is of type integer, and has to be a string"},
		{"a number in quotes", strings.Replace(minimal, "name = \"f\"", "name = \"f\"\ncount = \"4\"", 1),
			":6: flow.count: the value is of type string, and has to be a whole number"},
		{"a list without brackets", "columns = \"goodput\"\n" + minimal,
			":1: columns: the value is of type string, and has to be a list"},
		{"a word for true", minimal + "weir = { nat = \"yes\" }\n", "and has to be true or false"},
		{"a date for a time", "duration = 2026-01-01\n" + minimal, "and has to be a quantity"},
		{"a word for a table", "path = \"20ms\"\n" + minimal, "and has to be a table"},
		{"a word for tables", "probe = \"udp\"\n" + minimal, "and has to be tables"},
		{"a truth for a rate", minimal + "weir = { follow = true }\n", ":8: follow = true has no unit"},
		{"a sysctl of a congestion control that is none",
			minimal + "sysctl = { \"net.ipv4.tcp_congestion_control\" = \"bbrr\" }\n",
			`:8: unknown congestion control "bbrr"`},
		{"the same of the server's",
			minimal + "[server.sysctl]\n\"net.ipv4.tcp_congestion_control\" = \"bbrr\"\n",
			`:8: unknown congestion control "bbrr"`},
		{"a swept number in quotes", minimal + "[[sweep]]\nkey = \"flow.f.count\"\nvalues = [\"4\"]\n",
			":8: sweep of flow.f.count = 4: count: the value is of type string, and has to be a whole number"},
		{"a framing of a policer", strings.Replace(minimal, "rate = \"50mbit\"",
			"rate = \"50mbit\"\nqueue = \"policer\"\n"+
				"overhead = 4", 1), "a policer here counts IP packets"},
		{"a framing out of range", strings.Replace(minimal, "rate = \"50mbit\"", "rate = \"50mbit\"\noverhead = -15",
			1),
			"overhead = -15 bytes is out of range"},
		{"a change of no rate", strings.Replace(minimal, "[[flow]]", "[[provider.change]]\nat = \"1s\"\n[[flow]]", 1),
			":4: the rate 0bit at 1s is out of range"},
		{"a segment that is too small", strings.Replace(minimal, "name = \"f\"", "name = \"f\"\nmss = \"20b\"", 1),
			"mss 20b is out of range"},
		{"rate without unit", strings.Replace(minimal, "50mbit", "50", 1), `:3: provider.rate: rate "50" has no unit`},
		{"rate with a wrong unit", strings.Replace(minimal, "50mbit", "50mbps", 1),
			`:3: provider.rate: rate "50mbps" can be bits or bytes a second: write 50mbit or 400mbit`},
		{"rate zero", strings.Replace(minimal, "50mbit", "0mbit", 1),
			`:3: provider.rate: rate "0mbit" is out of range`},
		{"rate negative", strings.Replace(minimal, "50mbit", "-5mbit", 1), "negative"},
		{"rate NaN", strings.Replace(minimal, "50mbit", "NaNmbit", 1), "is not a rate"},
		{"rate a number", strings.Replace(minimal, `"50mbit"`, "50", 1), ":3: "},
		{"rate absurd", strings.Replace(minimal, "50mbit", "5tbit", 1), "above what the lab can carry"},
		{"no rate for a fifo", strings.Replace(minimal, `rate = "50mbit"`, "", 1), "has no rate"},
		{"gro of a server that forwards nothing", minimal + "[server]\ngro = true\n",
			":9: gro is about what a relay forwards"},
		{"relay of an unknown kind", minimal + "[relay]\nkind = \"vpn\"\n", `:9: relay: kind "vpn" is not known`},
		{"relay without a kind", minimal + "[relay]\nrtt = \"20ms\"\n", ":8: the relay has no kind"},
		{"relay with three cards", minimal + "[relay]\nkind = \"nat\"\ncards = 3\n", ":10: relay: cards = 3"},
		{"relay with no card", minimal + "[relay]\nkind = \"nat\"\ncards = 0\n", ":10: cards = 0"},
		{"proxy on two cards", minimal + "[relay]\nkind = \"proxy\"\ncards = 2\n",
			":10: relay: the lab's proxy is on one card"},
		{"tunnel on two cards", minimal + "[relay]\nkind = \"tunnel\"\ncards = 2\n",
			"the lab's tunnels are on one card"},
		{"route over one card", minimal + "[relay]\nkind = \"route\"\n", "the provider would route past the relay"},
		{"relay's RTT absurd", minimal + "[relay]\nkind = \"nat\"\nrtt = \"11s\"\n", ":10: rtt 11s is absurd"},
		{"another IP inside no tunnel", minimal + "[relay]\nkind = \"nat\"\nip = 6\n",
			":10: relay: another version of IP inside is for tunnels"},
		{"IP inside of no version", minimal + "[relay]\nkind = \"wireguard\"\nip = 5\n",
			":10: there is no version 5 of IP"},
		{"txqueuelen absurd", minimal + "[relay]\nkind = \"tunnel\"\ntxqueuelen = 1000000\n",
			":10: txqueuelen = 1000000 is out of range"},
		{"gro on one card", minimal + "[relay]\nkind = \"nat\"\n[server]\ngro = true\n",
			":11: gro is about what comes by a card of its own"},
		{"via without a relay", minimal + "[[client]]\nname = \"a\"\nvia = \"nat\"\n",
			":10: client \"a\": via \"nat\", and there is no relay"},
		{"via of no kind", minimal + "[relay]\nkind = \"nat\"\n[[client]]\nname = \"a\"\nvia = \"vpn\"\n",
			`:12: client "a": via "vpn" is not known`},
		{"leg without a relay", strings.Replace(minimal, "name = \"f\"", "name = \"f\"\nleg = \"client\"", 1),
			":6: flow \"f\": leg \"client\" is of a relay"},
		{"leg of no kind", strings.Replace(minimal, "name = \"f\"", "name = \"f\"\nleg = \"left\"", 1),
			":6: flow \"f\": leg \"left\" is not known"},
		{"a client of a relay that is called", strings.Replace(minimal, "name = \"f\"",
			"name = \"f\"\ndial = \"server\"", 1) + "[relay]\nkind = \"wireguard\"\n",
			":6: flow \"f\": through wireguard nobody can call a client"},
		{"UDP through a proxy", minimal + "[relay]\nkind = \"proxy\"\n[[probe]]\nname = \"p\"\nkind = \"udp\"\n",
			":12: probe \"p\": a proxy carries TCP alone"},
		{"a tunnel's qdisc without a tunnel", minimal + "tunnel = \"fq\"\n",
			":8: candidate \"c\": the relay has no tunnel"},
		{"what is unpacked from nothing", minimal + "ingress = \"fq_codel, unpacked tun0\"\n", ":8: candidate \"c\": "},
		{"ingress rate without a rate", "title = \"t\"\n[provider]\nqueue = \"none\"\ningress = " +
			"\"5mbit\"\n[[flow]]\nname = \"f\"\n[[candidate]]\nname = \"c\"\n", ":4: "},
		{"ingress rate absurd", strings.Replace(minimal, "[[flow]]", "ingress = \"1kbit\"\n[[flow]]", 1),
			":4: rate 1kbit is below the lab's least"},
		{"a goal that carries for nobody", minimal + "weir = { carries = \"proxy\" }\n",
			":8: candidate \"c\": weir: --carries"},
		{"rtt without unit", minimal + "[path]\nrtt = \"48.3\"\n", `:9: path.rtt: time "48.3" has no unit`},
		{"rtt absurd", minimal + "[path]\nrtt = \"11s\"\n", ":9: rtt 11s is absurd"},
		{"loss over 100%", minimal + "[path]\nloss = \"101%\"\n", "out of range"},
		{"loss of all", minimal + "[path]\nloss = \"100%\"\n", ":9: at loss 100% nothing arrives"},
		{"buffer of less than two packets", strings.Replace(minimal, "[[flow]]", "buffer = \"1000b\"\n[[flow]]", 1),
			":4: buffer 1000b"},
		{"buffer of an unknown unit", strings.Replace(minimal, "[[flow]]", "buffer = \"3 cars\"\n[[flow]]", 1),
			"neither a size"},
		{"unknown provider queue", strings.Replace(minimal, "[[flow]]", "queue = \"fifi\"\n[[flow]]", 1), ":4: "},
		{"policer that passes nothing", strings.Replace(minimal, "[[flow]]",
			"queue = \"policer\"\nburst = \"100b\"\n[[flow]]", 1), ":5: burst 100b"},
		{"no title", strings.Replace(minimal, `title = "t"`, "", 1), "no title"},
		{"no traffic", "title = \"t\"\n[provider]\nrate = \"1mbit\"\n[[candidate]]\nname = \"c\"\n", "no traffic"},
		{"no candidate", "title = \"t\"\n[provider]\nrate = \"1mbit\"\n[[flow]]\nname = \"f\"\n", "no candidate"},
		{"flow to nobody", strings.Replace(minimal, "name = \"f\"", "name = \"f\"\nclient = \"bob\"", 1),
			`:6: flow "f": no client is called "bob"`},
		{"unknown congestion control", strings.Replace(minimal, "name = \"f\"", "name = \"f\"\ncc = \"bbr9\"", 1),
			`:6: flow "f": unknown congestion control "bbr9"`},
		{"direction", strings.Replace(minimal, "name = \"f\"", "name = \"f\"\ndirection = \"left\"", 1), ":6: "},
		{"stop before start", strings.Replace(minimal, "name = \"f\"", "name = \"f\"\nstart = \"3s\"\nstop = \"2s\"",
			1), ":7: "},
		{"too many connections", strings.Replace(minimal, "name = \"f\"", "name = \"f\"\ncount = 1000000", 1), ":6: "},
		{"address that the server lacks", strings.Replace(minimal, "name = \"f\"", "name = \"f\"\naddress = 2", 1),
			":6: "},
		{"flow twice", minimal + "[[flow]]\nname = \"f\"\n", `two entries of flow have the name "f"`},
		{"candidate twice", minimal + "[[candidate]]\nname = \"c\"\n", `two candidates have the name "c"`},
		{"hostile name", strings.Replace(minimal, `name = "c"`, `name = "c\u001b[2J"`, 1),
			"name has a control character"},
		{"unknown qdisc", minimal + "qdisc = \"cakee\"\n", `:8: candidate "c": unknown queueing discipline "cakee"`},
		{"unknown qdisc option", minimal + "qdisc = \"cake bandwith 5mbit\"\n", `bandwith`},
		{"qdisc rate without unit", minimal + "qdisc = \"cake bandwidth 50\"\n", ":8: "},
		{"qdisc and weir", minimal + "qdisc = \"fq\"\nweir = {}\n", ":8: "},
		{"not a sysctl", minimal + "[candidate.sysctl]\n\"/etc/passwd\" = \"1\"\n", "is not a sysctl"},
		{"sysctl that climbs", minimal + "[candidate.sysctl]\n\"net.../etc\" = \"1\"\n", "is not a sysctl"},
		{"sweep of nothing", minimal + "[[sweep]]\nkey = \"flow.g.count\"\nvalues = [1]\n",
			`"flow.g.count" names nothing`},
		{"sweep over a wrong value", minimal + "[[sweep]]\nkey = \"path.rtt\"\nvalues = [\"5ms\", \"5\"]\n",
			`time "5" has no unit`},
		{"sweep to an impossible point", minimal + "[[sweep]]\nkey = \"path.rtt\"\nvalues = [\"5ms\", \"20s\"]\n",
			"rtt 20s is absurd"},
		{"sweep of two keys with one value", minimal + "[[sweep]]\nkey = \"flow.f.count, path.rtt\"\nvalues = [1]\n",
			"1 is not a value for each of the 2 keys"},
		{"sweep of two keys with three values", minimal +
			"[[sweep]]\nkey = \"flow.f.count, path.rtt\"\nvalues = [[1, \"5ms\", 3]]\n",
			"1:5ms:3 is not a value for each"},
		{"sweep of a key twice", minimal + "[[sweep]]\nkey = \"flow.f.count,flow.f.count\"\nvalues = [[1, 2]]\n",
			`"flow.f.count" is swept twice`},
		{"sweep over a bare number", minimal + "[[sweep]]\nkey = \"path.rtt\"\nvalues = [5]\n", "rtt = 5 has no unit"},
		{"a sweep over tables of bare numbers", minimal + "[[sweep]]\nkey = \"path\"\nvalues = [{ rtt = 5 }]\n",
			"rtt = 5 has no unit"},
		{"a bare number for a time", minimal + "[path]\nrtt = 5\n", ":9: rtt = 5 has no unit"},
		{"a bare number in a flow", strings.Replace(minimal, "name = \"f\"", "name = \"f\"\nstart = 5", 1),
			":6: start = 5 has no unit"},
		{"a bare number in a change", minimal + "qdisc = \"fq\"\n[[candidate.change]]\nat = 4\nqdisc = \"fq\"\n",
			"at = 4 has no unit"},
		{"a change in a run that may end before", "until = \"fetched\"\n" +
			strings.Replace(minimal, "name = \"f\"", "name = \"f\"\nbytes = \"1mb\"", 1) +
			"qdisc = \"fq\"\n[[candidate.change]]\nat = \"4s\"\nqdisc = \"fq\"\n", "with until the run may end"},
		{"sweep without values", minimal + "[[sweep]]\nkey = \"path.rtt\"\nvalues = []\n", "has no values"},
		{"claim on an unknown metric", minimal + "[[claim]]\nsource = \"s\"\nsays = \"x\"\nmetric = " +
			"\"speed\"\ncandidate = \"c\"\nexpect = \">= 1\"\n", "there is no metric"},
		{"claim in a wrong unit", minimal + "[[claim]]\nsource = \"s\"\nsays = \"x\"\nmetric = \"srtt\"\ncandidate " +
			"= \"c\"\nexpect = \"<= 5\"\n", "has no unit"},
		{"claim on a client that is not there", minimal +
			"[[claim]]\nsource = \"s\"\nsays = \"x\"\nmetric = \"goodput.client.typo\"\ncandidate = \"c\"\nexpect " +
			"= \">= 1mbit\"\n", `no client is called "typo" (there are: client)`},
		{"claim on a probe that is not there", minimal +
			"[[claim]]\nsource = \"s\"\nsays = \"x\"\nmetric = \"ssh.p50\"\ncandidate = \"c\"\nexpect = \"<= 1ms\"\n",
			"no probe of kind ssh"},
		{"column on a flow that is not there", "columns = [\"goodput.flow.typo\"]\n" + minimal,
			`:1: metric "goodput.flow.typo": no flow is called "typo"`},
		{"column of fetches without any", "columns = [\"fetch\"]\n" + minimal, "no flow has bytes to fetch"},
		{"count zero", strings.Replace(minimal, "name = \"f\"", "name = \"f\"\ncount = 0", 1), ":6: count = 0"},
		{"buffer zero", strings.Replace(minimal, "[[flow]]", "buffer = \"0b\"\n[[flow]]", 1), ":4: buffer = 0b"},
		{"buffer of no time", strings.Replace(minimal, "[[flow]]", "buffer = \"0.0ms\"\n[[flow]]", 1),
			":4: buffer = 0.0ms"},
		{"seeds zero", "seeds = 0\n" + minimal, ":1: seeds = 0"},
		{"engine", "engine = \"kvm\"\n" + minimal, `:1: engine "kvm" is not known`},
		{"duration zero", "duration = \"0s\"\n" + minimal, ":1: duration = 0s"},
		{"sweep to zero", minimal + "[[sweep]]\nkey = \"flow.f.count\"\nvalues = [1, 0]\n",
			":8: sweep of flow.f.count: count = 0"},
		{"congestion control of a datagram", minimal + "[[probe]]\nname = \"p\"\nkind = \"udp\"\ncc = \"bbr\"\n",
			"a udp has no congestion control"},
		{"unknown congestion control of a probe", minimal + "[[probe]]\nname = \"p\"\nkind = \"ssh\"\ncc = \"bbr9\"\n",
			`probe "p": unknown congestion control "bbr9"`},
		{"probe with a rate that is none of its own", minimal +
			"[[probe]]\nname = \"p\"\nkind = \"udp\"\nrate = \"1mbit\"\n", "a rate is for kind stream"},
		{"probe with a reply that is none of its own", minimal +
			"[[probe]]\nname = \"p\"\nkind = \"udp\"\nreply = \"1kb\"\n", "has no reply of its own size"},
		{"jitter above the RTT", minimal + "[path]\nrtt = \"5ms\"\njitter = \"6ms\"\n",
			":10: jitter 6ms is more than the RTT"},
		{"a warm-up before a fetch", "until = \"fetched\"\nwarmup = \"1s\"\n" +
			strings.Replace(minimal, "name = \"f\"", "name = \"f\"\nbytes = \"1mb\"", 1), "measures from the start"},
		{"weir goal that no host could reach", minimal + "weir = { role = \"nonsense\" }\n",
			`:8: candidate "c": weir: --role "nonsense" is not known`},
		{"weir goal with a wrong qdisc", minimal + "weir = { qdisc = \"cark\" }\n",
			`:8: candidate "c": weir: --qdisc: unknown queueing discipline`},
		{"IP of no version", minimal + "[path]\nip = 5\n", ":9: there is no version 5 of IP"},
		{"IP zero", minimal + "[path]\nip = 0\n", ":9: ip = 0"},
		{"datagram too long for IPv6", minimal + "[path]\nip = 6\n[[probe]]\nname = \"p\"\nkind = \"udp\"\nsize = " +
			"\"1453b\"\n", ":13: probe \"p\": size 1453b is out of range"},
		{"change at the beginning", changing("", "fq"), `:9: candidate "c": the change at 0s is not after 0s`},
		{"change before the one before", changing("2s", "fq", "2s", "fq"),
			`:9: candidate "c": the change at 2s is not after 2s`},
		{"change after the end", changing("20s", "fq"), `:9: candidate "c": the change at 20s is after the run's end`},
		{"change to another kind", changing("2s", "fq_codel"),
			`:9: candidate "c": in place, "fq" does not change into "fq_codel"`},
		{"change to another shape", changing("2s", "htb rate 5mbit | fq"), `:9: candidate "c": in place, "fq"`},
		{"change to nothing", changing("2s", ""), `:9: candidate "c": no queueing discipline given`},
		{"change of an unknown key", changing("2s", "fq") + "rate = \"5mbit\"\n",
			`:12: unknown key "candidate.change.rate"`},
		{"change of no qdisc", strings.Replace(changing("2s", "fq"), "qdisc = \"fq\"\n", "", 1),
			`:8: candidate "c" has a change, and no qdisc`},
		{"change of what weir sets", strings.Replace(changing("2s", "fq"), "qdisc = \"fq\"", "weir = {}", 1),
			":9: candidate \"c\": either weir sets the qdisc, or change does"},
		{"claim on nobody", minimal + "[[claim]]\nsource = \"s\"\nsays = \"x\"\nmetric = \"goodput\"\ncandidate = " +
			"\"d\"\nexpect = \">= 1mbit\"\n", `no candidate is called "d"`},
		{"empty file", "", "no title"},
		{"binary", "\x00\x01\x02", ":1: "},
		{"inherits nothing", "inherit = \"gone.toml\"\n", "no such file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := write(t, "s.toml", c.text)
			_, err := Load(path)
			var bad *FileError
			if !errors.As(err, &bad) {
				t.Fatalf("got %v, want a FileError", err)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("got  %v\nwant …%s…", err, c.want)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %q", err)
			}
			if strings.Contains(err.Error(), "scenario.") {
				t.Errorf("a name of Go's: %q", err)
			}
		})
	}
	dir := t.TempDir()
	for _, path := range []string{dir, filepath.Join(dir, "missing.toml"), "/dev/null"} {
		if _, err := Load(path); err == nil {
			t.Errorf("Load(%s) succeeded", path)
		}
	}
}

func TestInherit(t *testing.T) {
	dir := t.TempDir()
	parent := filepath.Join(dir, "parent.toml")
	child := filepath.Join(dir, "child.toml")
	os.WriteFile(parent, []byte(minimal+"[[candidate]]\nname = \"d\"\nqdisc = \"fq\"\n[path]\nrtt = \"10ms\"\nloss "+
		"= \"1%\"\n"), 0o600)
	os.WriteFile(child, []byte("inherit = \"parent.toml\"\ntitle = \"u\"\n[path]\nrtt = "+
		"\"20ms\"\n[[candidate]]\nname = \"d\"\nqdisc = \"sfq\"\n[[candidate]]\nname = \"e\"\n"), 0o600)
	s, err := Load(child)
	if err != nil {
		t.Fatal(err)
	}
	if s.Title != "u" || s.Path.RTT.String() != "20ms" || s.Path.Loss.String() != "1%" || len(s.Candidate) != 3 ||
		s.Candidate[1].Qdisc != "sfq" || len(s.Flow) != 1 {
		t.Errorf("got %+v", s)
	}
	// Who inherits what is no scenario has the mistake.
	orphan := filepath.Join(dir, "orphan.toml")
	for _, nothing := range []string{"gone.toml", "."} {
		os.WriteFile(orphan, []byte("title = \"u\"\ninherit = \""+nothing+"\"\n"), 0o600)
		if _, err := Load(orphan); err == nil || !strings.HasPrefix(err.Error(), orphan+":2: inherits ") {
			t.Errorf("it inherits %s: %v", nothing, err)
		}
	}
	os.WriteFile(parent, []byte("inherit = \"child.toml\"\n"), 0o600)
	if _, err := Load(child); err == nil || !strings.Contains(err.Error(), "inherits itself") {
		t.Errorf("a loop: %v", err)
	}
}

// expand reads a scenario and gives its points.
func expand(t *testing.T, text string) (Scenario, []Point) {
	t.Helper()
	s, err := Load(write(t, "s.toml", text))
	if err != nil {
		t.Fatal(err)
	}
	points, bad := s.points()
	if bad != nil {
		t.Fatal(bad)
	}
	return s, points
}

func TestSweep(t *testing.T) {
	s, points := expand(t, minimal+`[[sweep]]
key = "provider.queue"
values = ["fifo", "policer"]
[[sweep]]
key = "flow.f.count"
values = [1, 4, 16]
`)
	if len(points) != 6 {
		t.Fatalf("%d points", len(points))
	}
	p := points[4]
	if p.Scenario.Provider.Queue != "policer" || p.Scenario.Flow[0].Count != 4 ||
		!reflect.DeepEqual(p.Labels, []string{"queue policer", "count 4"}) {
		t.Errorf("got %v, %+v", p.Labels, p.Scenario)
	}
	if s.Flow[0].Count != 0 || points[0].Scenario.Flow[0].Count != 1 {
		t.Error("points share their flows")
	}
}

// A key that says nothing of a run would be swept without any effect.
func TestSweptInVain(t *testing.T) {
	for _, axis := range []string{`key = "inherit"` + "\nvalues = [\"x.toml\"]", `key = "sweep"` + "\nvalues = [[]]",
		`key = "claim"` + "\nvalues = [[]]"} {
		_, err := Load(write(t, "s.toml", minimal+"[[sweep]]\n"+axis+"\n"))
		if err == nil || !strings.Contains(err.Error(), "is of the file, and of no run") {
			t.Errorf("%s: %v", axis, err)
		}
	}
}

func TestSweepOfTwoKeys(t *testing.T) {
	_, points := expand(t, minimal+`[[sweep]]
key = "flow.f.count,provider.queue"
values = [[1, "fifo"], [4, "policer"]]
`)
	if len(points) != 2 {
		t.Fatalf("%d points", len(points))
	}
	p := points[1]
	if p.Scenario.Flow[0].Count != 4 || p.Scenario.Provider.Queue != "policer" || p.Values[0] != "4:policer" {
		t.Errorf("got %v, %+v", p.Values, p.Scenario)
	}
}

// What is swept decides the defaults that follow from it.
func TestSweepBeforeDefaults(t *testing.T) {
	_, points := expand(t, minimal+"[[probe]]\nname = \"p\"\nkind = \"stream\"\n[[sweep]]\nkey = "+
		"\"probe.p.rate\"\nvalues = [\"1mbit\", \"10mbit\"]\n[[sweep]]\nkey = \"server.queues\"\nvalues = [1, 4]\n")
	if a, b := points[0].Scenario.Probe[0].Interval, points[2].Scenario.Probe[0].Interval; a != 10*b {
		t.Errorf("at ten times the rate the interval is %v, and was %v", b, a)
	}
	if a, b := points[0].Scenario.Server.Qdisc, points[1].Scenario.Server.Qdisc; a != "fq_codel" ||
		b != "mq | fq_codel" {
		t.Errorf("with 1 and with 4 queues the server has %q and %q", a, b)
	}
}

// What goes to the guest reads back as it was.
func TestScenarioJSON(t *testing.T) {
	s, err := Load(write(t, "s.toml", minimal+"[candidate.weir]\nrate = \"40mbit\"\nrole = \"relay\"\nnat = "+
		"true\n[candidate.sysctl]\n\"net.ipv4.tcp_ecn\" = \"1\"\n[[probe]]\nname = \"p\"\nkind = \"stream\"\nrate "+
		"= \"1mbit\"\n"+
		"[path]\nip = 6\n[[candidate]]\nname = \"d\"\nqdisc = \"fq\"\n[[candidate.change]]\nat = \"2s\"\nqdisc = "+
		"\"fq quantum 3028\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var back Scenario
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(s, back) {
		t.Errorf("got  %+v\nwant %+v", back, s)
	}
}

func FuzzLoad(f *testing.F) {
	f.Add([]byte(minimal))
	f.Add([]byte("inherit = \"s.toml\"\n"))
	f.Add([]byte(minimal + "[[sweep]]\nkey = \"a.b.c\"\nvalues = [1, \"x\", {a = 1}]\n"))
	path := filepath.Join(f.TempDir(), "s.toml")
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Load(path)
		var bad *FileError
		if err != nil && !errors.As(err, &bad) {
			t.Fatalf("not a FileError: %v", err)
		}
		if err == nil {
			if _, bad := s.points(); bad != nil {
				t.Fatalf("accepted, but: %v", bad.what)
			}
		}
	})
}

// A shaper may be tried that is faster than the provider, and every key of a goal may be swept.
func TestSweptGoal(t *testing.T) {
	s, err := Load(write(t, "s.toml", minimal+"qdisc = \"htb rate {101%} | fq_codel\"\n[[candidate]]\nname = "+
		"\"w\"\nweir = { prefer = \"latency\" }\n"+
		"[[sweep]]\nkey = \"candidate.w.weir.rtt\"\nvalues = [\"10ms\", \"20ms\"]\n"))
	if err != nil {
		t.Fatal(err)
	}
	points, bad := s.points()
	if bad != nil || len(points) != 2 {
		t.Fatal(bad, len(points))
	}
	for i, want := range []time.Duration{10 * time.Millisecond, 20 * time.Millisecond} {
		p := points[i].Scenario
		if w := p.Candidate[1].Weir; w.RTT != units.Duration(want) || w.Prefer != "latency" {
			t.Errorf("point %d has %+v", i, *w)
		}
		if got := Rated(p.Candidate[0].Qdisc, p.Provider.Rate); got != "htb rate 50.5mbit | fq_codel" {
			t.Errorf("the candidate is %s", got)
		}
	}
	_, err = Load(write(t, "s.toml", minimal+"weir = {}\n[[sweep]]\nkey = \"candidate.c.weir.rtt\"\nvalues = [\"0s\"]\n"))
	if err == nil || !strings.Contains(err.Error(), "rtt = 0s") {
		t.Errorf("an RTT of nothing: %v", err)
	}
}

// Points have nothing in common that one of them could change.
func TestPointsAreApart(t *testing.T) {
	s, err := Load(write(t, "s.toml", minimal+`
[[program]]
name = "p"
run = ["/bin/a"]
[[provider.change]]
at = "5s"
rate = "20mbit"
[[sweep]]
key = "provider.change"
values = [[{ at = "5s", rate = "30mbit" }], [{ at = "5s", rate = "40mbit" }]]
[[sweep]]
key = "program.p.run"
values = [["/bin/b"], ["/bin/c"]]
`))
	if err != nil {
		t.Fatal(err)
	}
	points, err := s.Points()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range points {
		got = append(got, p.Scenario.Provider.Change[0].Rate.String()+" "+p.Scenario.Program[0].Run[0])
	}
	want := []string{"30mbit /bin/b", "30mbit /bin/c", "40mbit /bin/b", "40mbit /bin/c"}
	if !slices.Equal(got, want) || s.Provider.Change[0].Rate != 20_000_000 || s.Program[0].Run[0] != "/bin/a" {
		t.Errorf("got %q, want %q; the scenario itself has %v", got, want, s.Provider.Change)
	}
}
