// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// knob is a setting that plans use, or that guides to BBR and the like set, and which values the kernel takes for it.
type knob struct {
	name        string
	numbers     int    // that it holds; 0: it is a word
	least, most int64  // of each
	until       [2]int // the first version in which a later row of the same name counts; zero: none
}

// knobs are all settings that are read, by name. The ranges are those of Linux 6.1 to 7.3, in
// net/core/sysctl_net_core.c and net/ipv4/sysctl_net_ipv4.c; of forwarding and MPTCP in net/ipv4/devinet.c,
// net/ipv6/addrconf.c and net/mptcp/ctrl.c. Where these have no range it is that of the number's type.
func knobs() []knob {
	const (
		byteMax = math.MaxUint8
		intMax  = math.MaxInt32
		intMin  = math.MinInt32
		longMax = math.MaxInt64 // unsigned longs take twice that
		// SOCK_MIN_RCVBUF and SOCK_MIN_SNDBUF (include/net/sock.h): bytes that a packet of 2048 takes, and two of them.
		receiveMin, sendMin = 2304, 4608
	)
	return []knob{
		{name: "net.core.default_qdisc"},
		{name: "net.core.netdev_budget", numbers: 1, least: intMin, most: intMax},
		{name: "net.core.netdev_budget_usecs", numbers: 1, least: 0, most: intMax},
		{name: "net.core.netdev_max_backlog", numbers: 1, least: intMin, most: intMax},
		{name: "net.core.rmem_default", numbers: 1, least: receiveMin, most: intMax},
		{name: "net.core.rmem_max", numbers: 1, least: receiveMin, most: intMax},
		{name: "net.core.somaxconn", numbers: 1, least: 0, most: intMax},
		{name: "net.core.wmem_default", numbers: 1, least: sendMin, most: intMax},
		{name: "net.core.wmem_max", numbers: 1, least: sendMin, most: intMax},
		{name: "net.ipv4.ip_forward", numbers: 1, least: intMin, most: intMax},
		{name: "net.ipv4.tcp_autocorking", numbers: 1, least: 0, most: 1},
		{name: "net.ipv4.tcp_congestion_control"},
		{name: "net.ipv4.tcp_dsack", numbers: 1, least: 0, most: byteMax},
		{name: "net.ipv4.tcp_early_retrans", numbers: 1, least: 0, most: 4},
		{name: "net.ipv4.tcp_ecn", numbers: 1, least: 0, most: 2, until: [2]int{7, 0}},
		{name: "net.ipv4.tcp_ecn", numbers: 1, least: 0, most: 5},
		{name: "net.ipv4.tcp_fastopen", numbers: 1, least: intMin, most: intMax},
		{name: "net.ipv4.tcp_frto", numbers: 1, least: 0, most: byteMax},
		{name: "net.ipv4.tcp_keepalive_probes", numbers: 1, least: 0, most: byteMax},
		{name: "net.ipv4.tcp_limit_output_bytes", numbers: 1, least: intMin, most: intMax},
		{name: "net.ipv4.tcp_max_orphans", numbers: 1, least: intMin, most: intMax},
		{name: "net.ipv4.tcp_max_syn_backlog", numbers: 1, least: intMin, most: intMax},
		{name: "net.ipv4.tcp_max_tw_buckets", numbers: 1, least: intMin, most: intMax},
		{name: "net.ipv4.tcp_mem", numbers: 3, least: 0, most: longMax},
		{name: "net.ipv4.tcp_moderate_rcvbuf", numbers: 1, least: 0, most: byteMax},
		{name: "net.ipv4.tcp_mtu_probing", numbers: 1, least: 0, most: byteMax},
		{name: "net.ipv4.tcp_no_metrics_save", numbers: 1, least: 0, most: byteMax},
		{name: "net.ipv4.tcp_notsent_lowat", numbers: 1, least: 0, most: math.MaxUint32},
		{name: "net.ipv4.tcp_pacing_ca_ratio", numbers: 1, least: 0, most: 1000},
		{name: "net.ipv4.tcp_pacing_ss_ratio", numbers: 1, least: 0, most: 1000},
		{name: "net.ipv4.tcp_recovery", numbers: 1, least: 0, most: byteMax},
		{name: "net.ipv4.tcp_retries2", numbers: 1, least: 0, most: byteMax},
		{name: "net.ipv4.tcp_rfc1337", numbers: 1, least: 0, most: byteMax},
		{name: "net.ipv4.tcp_rmem", numbers: 3, least: 1, most: intMax, until: [2]int{7, 3}},
		{name: "net.ipv4.tcp_rmem", numbers: 3, least: 4096, most: intMax},
		{name: "net.ipv4.tcp_sack", numbers: 1, least: 0, most: byteMax},
		{name: "net.ipv4.tcp_slow_start_after_idle", numbers: 1, least: 0, most: byteMax},
		{name: "net.ipv4.tcp_syn_retries", numbers: 1, least: 1, most: 127}, // MAX_TCP_SYNCNT
		{name: "net.ipv4.tcp_synack_retries", numbers: 1, least: 0, most: byteMax},
		{name: "net.ipv4.tcp_syncookies", numbers: 1, least: 0, most: byteMax},
		{name: "net.ipv4.tcp_timestamps", numbers: 1, least: 0, most: byteMax},
		{name: "net.ipv4.tcp_tw_reuse", numbers: 1, least: 0, most: 2},
		{name: "net.ipv4.tcp_window_scaling", numbers: 1, least: 0, most: byteMax},
		{name: "net.ipv4.tcp_wmem", numbers: 3, least: 1, most: intMax},
		{name: "net.ipv4.udp_mem", numbers: 3, least: 0, most: longMax},
		{name: "net.ipv4.udp_rmem_min", numbers: 1, least: 1, most: intMax},
		{name: "net.ipv4.udp_wmem_min", numbers: 1, least: 1, most: intMax},
		{name: "net.ipv6.conf.all.forwarding", numbers: 1, least: intMin, most: intMax},
		{name: "net.mptcp.enabled", numbers: 1, least: 0, most: 1},
	}
}

// sysctls are the names of the settings that are read.
var sysctls = func() (names []string) {
	for _, k := range knobs() {
		names = append(names, k.name)
	}
	return slices.Compact(names)
}()

// Taken is what the kernel makes of a value that is written to a setting.
type Taken struct {
	Value   string // that the setting then has
	Refused string // why the kernel takes not all of it; "" if it does
	Numbers int    // that are set though the rest is refused
}

// Takes tells what the kernel makes of a value that is written to a setting of the value now. It is the kernel's own
// reading (do_proc_vec and proc_get_long in kernel/sysctl.c). Numbers may be octal and hexadecimal, and fewer than
// there are. What comes after the last one is passed over, and a number that is refused leaves those before it in
// force. Of a setting that is not known here everything is taken.
func (f Facts) Takes(name, value, now string) Taken {
	now = strings.Join(strings.Fields(now), " ")
	k, known := f.knob(name)
	if !known || value == now {
		return Taken{Value: value}
	}
	if k.numbers == 0 {
		if why := f.unknownName(name, value); why != "" {
			return Taken{Value: now, Refused: why}
		}
		return Taken{Value: value}
	}
	isSpace := func(r rune) bool { return strings.ContainsRune(" \t\n", r) }
	taken, set := Taken{Refused: "there is no value"}, strings.Fields(now)
	for i, field := range strings.FieldsFunc(value, isSpace) {
		if i == k.numbers {
			break
		}
		n, why := k.number(field)
		if taken.Refused = why; why != "" {
			break
		}
		taken.Numbers++
		if i < len(set) {
			set[i] = strconv.FormatInt(n, 10)
		} else {
			set = append(set, strconv.FormatInt(n, 10))
		}
	}
	if taken.Refused == "" {
		taken.Numbers = 0
	}
	taken.Value = strings.Join(set, " ")
	return taken
}

// Leaves reports whether writing the value would leave a setting as it is now.
func (f Facts) Leaves(name, value, now string) bool {
	t := f.Takes(name, value, now)
	return t.Refused == "" && t.Value == strings.Join(strings.Fields(now), " ")
}

func (f Facts) knob(name string) (knob, bool) {
	all := knobs()
	i := slices.IndexFunc(all, func(k knob) bool {
		return k.name == name && (k.until == [2]int{} || !f.kernelIsAtLeast(k.until[0], k.until[1]))
	})
	if i < 0 {
		return knob{}, false
	}
	return all[i], true
}

// kernelIsAtLeast reports whether the kernel is of a version, or of a later one.
func (f Facts) kernelIsAtLeast(major, minor int) bool {
	var now, below int
	if n, _ := fmt.Sscanf(f.Kernel, "%d.%d", &now, &below); n != 2 {
		return false
	}
	return now > major || now == major && below >= minor
}

// A number in the kernel's spelling: base 16, 8 or 10.
var kernelNumber = regexp.MustCompile(`^-?(?:0[xX][[:xdigit:]]+|0[0-7]*|[1-9][0-9]*)$`)

// number reads a field as the kernel does, and else says why it is refused.
func (k knob) number(field string) (n int64, why string) {
	const longest = 20 // characters: TMPBUFLEN in kernel/sysctl.c
	if !kernelNumber.MatchString(field) {
		return 0, notANumber(field)
	}
	digits, negative := strings.CutPrefix(field, "-")
	u, err := strconv.ParseUint(digits, 0, 64)
	n = int64(min(u, math.MaxInt64))
	if negative {
		n = -n
	}
	signed := k.most > math.MaxUint8 && k.most <= math.MaxInt32 // an int: bytes, unsigned ints and longs have no sign
	switch {
	case len(field) > longest:
		return 0, fmt.Sprintf("%s has more than %d digits", field, longest)
	case negative && n == 0 && !signed:
		return 0, fmt.Sprintf("%s has a minus", field)
	case n > k.most || err != nil && !negative:
		return 0, fmt.Sprintf("%s is more than %d", field, k.most)
	case n < k.least:
		return 0, fmt.Sprintf("%s is less than %d", field, k.least)
	}
	return n, ""
}

// notANumber says what is wrong with a field that is no number.
func notANumber(field string) string {
	switch digits := strings.TrimLeft(field, "0123456789"); {
	case strings.ContainsAny(field, `"'`):
		return "quotes are part of the value"
	case strings.Contains(field, ","):
		return "numbers are separated by spaces, and " + field + " has a comma"
	case digits == "":
		return field + " begins with 0, and so is octal"
	case len(digits) < len(field) && unit.MatchString(digits):
		return field + " has a unit, and none is understood"
	}
	return field + " is no number"
}

var (
	unit = regexp.MustCompile(`^(?i:[kmgt]i?b?|b|bytes)$`)
	// ModulePrefix begins the names of modules of congestion controls and queueing disciplines, and of none of these.
	ModulePrefix = regexp.MustCompile(`^(?:tcp|sch)_`)
	// Names of modules: the kernel looks for one that is called "sch_" or "tcp_" and so.
	moduleWord = regexp.MustCompile(`^[a-z0-9_]+$`)
)

// unknownName says why the kernel has no such queueing discipline or congestion control; "" if it has, or that is not
// known.
func (f Facts) unknownName(name, value string) string {
	what, prefix, has := "congestion control", "tcp_", f.Congestion.Has(value)
	known := len(f.Congestion.Available) > 0
	if name == "net.core.default_qdisc" {
		what, prefix, has = "queueing discipline", "sch_", f.Qdiscs[value] != No
		known = !has
		if f.Qdiscs[value] == "" {
			has = slices.Contains(f.OtherQdiscs, value)
			known = len(f.OtherQdiscs) > 0
		}
	}
	switch {
	case has:
		return ""
	case value == "":
		return "there is no value"
	case strings.ContainsAny(value, `"'`):
		return "quotes are part of the value"
	case strings.ContainsAny(value, "#;"):
		return "what comes after the name is part of the value"
	case ModulePrefix.FindString(value) == prefix:
		return fmt.Sprintf("%s is a module's name, and no %s's", value, what)
	case known || !moduleWord.MatchString(value):
		return fmt.Sprintf("there is no %s of the name %s", what, value)
	}
	return ""
}
