// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"weir/internal/bbr"
	"weir/internal/host"
	"weir/internal/qdisc"
	"weir/internal/text"
	"weir/internal/units"
)

// Goal is what a person wants of a host and knows of its path. The zero value of a field is "not said".
type Goal struct {
	// the uplink; the device of the default route when empty
	Dev string `json:"dev,omitempty" toml:"dev,omitempty"`
	// provisioned for what leaves Dev, bits per second
	Rate units.Rate `json:"rate,omitempty" toml:"rate,omitempty"`
	// between which rates a follower may choose another than Rate, as the link changes; "": none does
	Follow Span `json:"follow,omitempty" toml:"follow,omitempty"`
	// provisioned for what arrives at Dev, bits per second; 0: it is left alone
	Ingress units.Rate `json:"ingress,omitempty" toml:"ingress,omitempty"`
	// what one CAKE carries on this host, as weir doctor --bench measures it; 0: it was not
	OneCAKE units.Rate `json:"one_cake,omitempty" toml:"one_cake,omitempty"`
	// of those whose rate or weight is their own; and the rate that each other client may not exceed
	Client        Clients    `json:"client,omitempty" toml:"client,omitempty"`
	ClientDefault units.Rate `json:"client_default,omitempty" toml:"client_default,omitempty"`
	// what the provider counts of a packet besides its IP part; as the device is seen to be when not said
	Overhead qdisc.Framing  `json:"overhead,omitzero" toml:"overhead,omitempty"`
	RTT      units.Duration `json:"rtt,omitempty" toml:"rtt,omitempty"` // to the farthest clients that matter
	// of packets on the path, with no queue to blame
	Loss units.Share `json:"loss,omitempty" toml:"loss,omitempty"`
	Role string      `json:"role,omitempty" toml:"role,omitempty"` // server (the default) or relay
	// tcp (the default) or udp: by what a server sends most of what it sends itself
	Serves string `json:"serves,omitempty" toml:"serves,omitempty"`
	// how a relay passes on: several with commas between; as the host is seen to when empty
	Carries Kinds `json:"carries,omitempty" toml:"carries,omitempty"`
	NAT     bool  `json:"nat,omitempty" toml:"nat,omitempty"` // the relay translates addresses on Dev
	// dst (the default) or src: whose hosts share evenly
	FairTo string `json:"fair_to,omitempty" toml:"fair_to,omitempty"`
	Prefer string `json:"prefer,omitempty" toml:"prefer,omitempty"` // latency (the default) or l4s
	// auto (the default), keep, or a congestion control's name
	CC string `json:"cc,omitempty" toml:"cc,omitempty"`
	// instead of the rules' choice, as tc writes it, children after |
	Qdisc string `json:"qdisc,omitempty" toml:"qdisc,omitempty"`
	// a seed's, to the letter, instead of the rules
	Recipe string `json:"recipe,omitempty" toml:"recipe,omitempty"`

	Runtime bool `json:"runtime,omitempty" toml:"-"` // not over a reboot
	Only    bool `json:"only,omitempty" toml:"-"`    // Qdisc and nothing else, nor over a reboot: as tc would
}

// servesUDP is a server whose own UDP is not negligible.
const servesUDP = "udp"

// The values that Role, Serves, FairTo and Prefer can take, the default first.
var (
	roles       = []string{"server", "relay"}
	services    = []string{"tcp", "udp"}
	sides       = []string{"dst", "src"}
	preferences = []string{"latency", "l4s"}
)

// Field is one part of a goal, as it is said on a command line and in files.
type Field struct {
	Name     string // of the option; in files, with an underscore for a hyphen
	Type     string // what it takes, as in "rate"; "bool" of a switch
	Help     string // what takes its place in usage stands between back quotes, as pflag has it
	Quantity bool   // its text has a unit
	Seldom   bool   // few need it: help has it behind the others

	Values   []string                  // all that it can be; nil where that is open
	Several  bool                      // of Values, with commas between
	Repeats  bool                      // may be given again, which adds to it
	Suggests func(host.Facts) []string // what a shell may offer on a host; nil for Values

	Set func(*Goal, string) error // reads a text as a person types it
	Get func(Goal) string         // writes one; "" where the field is not said
}

// key is what a field is called in /etc/weir.toml and in scenarios.
func (f Field) key() string { return strings.ReplaceAll(f.Name, "-", "_") }

// fieldOf makes a field of what a goal has, and of how its text is read. The zero value is not said.
func fieldOf[T comparable](f Field, at func(*Goal) *T, parse func(string) (T, error)) Field {
	f.Set = func(g *Goal, text string) (err error) {
		*at(g), err = parse(text)
		return err
	}
	f.Get = func(g Goal) string {
		var unsaid T
		if v := *at(&g); v != unsaid {
			return fmt.Sprint(v)
		}
		return ""
	}
	return f
}

// Fields is the table of all that a goal can say. Options, files, completions and their documents follow it.
func Fields() []Field {
	word := parseNonEmpty("no value is given")
	return []Field{
		fieldOf(Field{Name: "dev", Type: "device", Help: "`device` of the uplink (default: the default route's)",
			Suggests: DeviceNames},
			func(g *Goal) *string { return &g.Dev }, parseNonEmpty("no device is named")),
		rateField(),
		followField(),
		fieldOf(Field{Name: "ingress", Type: "rate", Quantity: true,
			Help: "what the provider sold for incoming traffic, which is then shaped, too " +
				"(default: it is left alone; for a relay, the rate)"},
			func(g *Goal) *units.Rate { return &g.Ingress }, units.ParseRate),
		fieldOf(Field{Name: "one-cake", Type: "rate", Quantity: true, Seldom: true,
			Help: "what one CAKE carries on this host, as weir doctor --bench says: `4gbit`; for links above 2 Gbit/s"},
			func(g *Goal) *units.Rate { return &g.OneCAKE }, units.ParseRate),
		clientField(),
		fieldOf(Field{Name: "client-default", Type: "rate", Quantity: true, Seldom: true,
			Help: "what each client may have at most that has no rate by --client: 50mbit"},
			func(g *Goal) *units.Rate { return &g.ClientDefault }, units.ParseRate),
		fieldOf(Field{Name: "overhead", Type: "framing",
			Help: "what the provider counts of a packet besides its IP part, in tc-cake's `words`: 38, ethernet, " +
				"\"pppoe-vcmux mpu 53\" (default: as the device suggests)",
			Suggests: func(host.Facts) []string { return qdisc.Framings() }},
			func(g *Goal) *qdisc.Framing { return &g.Overhead }, qdisc.ParseFraming),
		fieldOf(Field{Name: "rtt", Type: "time", Quantity: true,
			Help: "to the farthest clients when idle: 48.3ms (default: as live connections say)"},
			func(g *Goal) *units.Duration { return &g.RTT }, parseRTT),
		fieldOf(Field{Name: "loss", Type: "share", Quantity: true,
			Help: "what the path loses with no queue to blame: 10%"},
			func(g *Goal) *units.Share { return &g.Loss }, units.ParseShare),
		fieldOf(Field{Name: "role", Type: "string", Values: roles,
			Help: "`what` the host is: server, or relay: it carries for others (default: as its traffic shows)"},
			func(g *Goal) *string { return &g.Role }, word),
		fieldOf(Field{Name: "serves", Type: "string", Values: services, Seldom: true,
			Help: "`what` a server sends by: tcp, or udp, as QUIC (HTTP/3) does (default: as its counters show)"},
			func(g *Goal) *string { return &g.Serves }, word),
		fieldOf(Field{Name: "carries", Type: "string", Values: knownKinds(), Several: true, Seldom: true,
			Help: "`how` a relay does that: " + strings.Join(knownKinds(), ", ") +
				"; several with commas between (default: as it is seen to)"},
			func(g *Goal) *Kinds { return &g.Carries }, func(s string) (Kinds, error) {
				s, err := word(s)
				return Kinds(s), err
			}),
		fieldOf(Field{Name: "fair-to", Type: "string", Values: sides, Seldom: true,
			Help: "hosts on this `side` share evenly: dst (default), the receivers, or src"},
			func(g *Goal) *string { return &g.FairTo }, word),
		fieldOf(Field{Name: "prefer", Type: "string", Values: preferences, Seldom: true,
			Help: "`what` to prefer: latency (default), or l4s"},
			func(g *Goal) *string { return &g.Prefer }, word),
		fieldOf(Field{Name: "cc", Type: "string", Suggests: congestionControls, Seldom: true,
			Help: "congestion control: auto (default), keep, or a `name`"},
			func(g *Goal) *string { return &g.CC }, word),
		fieldOf(Field{Name: "qdisc", Type: "queue", Seldom: true,
			Help:     "another `queue`, as tc writes it: \"htb rate 49mbit | fq_codel\"",
			Suggests: func(host.Facts) []string { return qdisc.Kinds() }},
			func(g *Goal) *string { return &g.Qdisc }, parseNonEmpty("no queue is named")),
		fieldOf(Field{Name: "recipe", Type: "string", Values: recipeNames(), Seldom: true,
			Help: "a published recipe by `name`: " + strings.Join(recipeNames(), ", ")},
			func(g *Goal) *string { return &g.Recipe }, word),
		fieldOf(Field{Name: "nat", Type: "bool", Seldom: true,
			Help: "the relay translates addresses on the device"},
			func(g *Goal) *bool { return &g.NAT }, strconv.ParseBool),
		fieldOf(Field{Name: "runtime", Type: "bool", Seldom: true,
			Help: "keep nothing over a reboot, and write no file"},
			func(g *Goal) *bool { return &g.Runtime }, strconv.ParseBool),
	}
}

// unless leaves a field unsaid of some goals, where another field says it.
func (f Field) unless(said func(Goal) bool) Field {
	get := f.Get
	f.Get = func(g Goal) string {
		if said(g) {
			return ""
		}
		return get(g)
	}
	return f
}

// rateField is also told a span, --rate 20mbit..100mbit, or that nobody knows it: --rate auto.
func rateField() Field {
	f := fieldOf(Field{Name: "rate", Type: "rate", Quantity: true,
		Help:     "what the provider sold for outgoing traffic: 50mbit, or auto: weir follow finds it",
		Suggests: func(host.Facts) []string { return []string{string(Auto)} }},
		func(g *Goal) *units.Rate { return &g.Rate }, units.ParseRate)
	f.Set = setRate
	get := f.Get
	f.Get = func(g Goal) string {
		if g.Unknown() {
			return string(Auto)
		}
		return get(g)
	}
	return f
}

// clientField may be given several times.
func clientField() Field {
	f := fieldOf(Field{Name: "client", Type: "client", Seldom: true, Repeats: true,
		Help: "a rate or a weight for one client, for each in a prefix, or for a WireGuard peer by its key: " +
			"`10.8.0.7=20mbit`, 10.8.0.0/24=weight:2; several times, or with commas between"},
		func(g *Goal) *Clients { return &g.Client }, parseClients)
	f.Set = func(g *Goal, text string) (err error) {
		if strings.TrimSpace(text) == "" {
			return errors.New("no client is named")
		}
		if g.Client != "" {
			text = string(g.Client) + "," + text
		}
		g.Client, err = parseClients(text)
		return err
	}
	return f
}

func followField() Field {
	f := fieldOf(Field{Name: "follow", Type: "span", Quantity: true,
		Help: "let weir follow find the rate between these: `20mbit..100mbit`, or auto (a quarter to four times " +
			"the rate)", Suggests: func(host.Facts) []string { return []string{string(Auto)} }},
		func(g *Goal) *Span { return &g.Follow }, parseSpan)
	f.Set = setFollow
	return f.unless(Goal.Unknown)
}

// parseNonEmpty reads a text that has to say something: an empty one is a variable that nobody has set.
func parseNonEmpty(otherwise string) func(string) (string, error) {
	return func(s string) (string, error) {
		if strings.TrimSpace(s) == "" {
			return "", errors.New(otherwise)
		}
		return s, nil
	}
}

func parseRTT(s string) (units.Duration, error) {
	d, err := units.ParseDuration(s)
	if err == nil && d == 0 {
		err = errors.New("RTT must be above 0")
	}
	return units.Duration(d), err
}

// DeviceNames are the devices that have a queue of their own to choose.
func DeviceNames(f host.Facts) (names []string) {
	for _, l := range f.Links {
		if !l.Loopback && l.Kind != "ifb" {
			names = append(names, l.Name)
		}
	}
	return names
}

func congestionControls(f host.Facts) []string {
	known := slices.Concat([]string{"auto", "keep"}, f.Congestion.Available, f.Congestion.Loadable)
	if f.Objects[bbr.Name] != host.No && !slices.Contains(known, bbr.Name) {
		known = append(known, bbr.Name)
	}
	return known
}

// Args is a goal as the arguments of a command line.
func (g Goal) Args() (args []string) {
	for _, f := range Fields() {
		switch value := f.Get(g); {
		case value == "":
		case f.Type == "bool":
			args = append(args, "--"+f.Name)
		default:
			args = append(args, "--"+f.Name, value)
		}
	}
	return args
}

// Flags writes a goal as it would be typed into a shell.
func (g Goal) Flags() string {
	args := g.Args()
	for i, arg := range args {
		args[i] = text.Shell(arg)
	}
	return strings.Join(args, " ")
}
