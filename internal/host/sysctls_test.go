// SPDX-License-Identifier: Apache-2.0

package host

import (
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// written are values that somebody may write, and what Linux 7.3.4 makes of them. What it refuses it said itself, to
// systemd-sysctl.
var written = []struct {
	sysctl, value string // without "net."
	refused       string // a part of the reason
	then          string // what the setting has afterwards, where it is not what it was
}{
	{"core.default_qdisc", "fq-codel", "no queueing discipline of the name fq-codel", ""},
	{"ipv4.tcp_wmem", "4096,65536,16777216", "has a comma", ""},
	{"core.rmem_max", "16M", "has a unit", ""},
	{"core.rmem_max", "4294967296", "more than 2147483647", ""},
	{"core.wmem_max", "-5", "less than 4608", ""},
	{"ipv4.tcp_notsent_lowat", "-1", "less than 0", ""},
	{"ipv4.tcp_ecn", "7", "more than 5", ""},
	{"ipv4.tcp_rmem", "4096 87380 8589934592", "more than 2147483647", "4096 87380 6291456"},
	{"ipv4.tcp_rmem", "4096 87380 1000", "1000 is less than 4096", "4096 87380 6291456"},

	{"ipv4.tcp_wmem", `"4096 65536 16777216"`, "quotes", ""},
	{"ipv4.tcp_wmem", "4096, 65536, 16777216", "has a comma", ""},
	{"ipv4.tcp_wmem", "4096 65536 16777216;", "is no number", "4096 65536 4194304"},
	{"ipv4.tcp_wmem", "4096\u00a065536\u00a016777216", "is no number", ""},
	{"ipv4.tcp_wmem", "0 65536 16777216", "less than 1", ""},
	{"core.wmem_max", "16 MB", "less than 4608", ""},
	{"core.somaxconn", "4k", "has a unit", ""},
	{"core.somaxconn", "0b1000", "is no number", ""},
	{"core.somaxconn", "4_096", "is no number", ""},
	{"core.somaxconn", "+4096", "is no number", ""},
	{"core.somaxconn", "1e4", "is no number", ""},
	{"core.somaxconn", "000000000000000004096", "begins with 0", ""},
	{"core.somaxconn", "0x00000000000000000800", "has more than 20 digits", ""},
	{"core.somaxconn", "99999999999999999999", "more than 2147483647", ""},
	{"ipv4.tcp_ecn", "on", "on is no number", ""},
	{"ipv4.tcp_ecn", "1#", "1# is no number", ""},
	{"ipv4.tcp_ecn", "", "no value", ""},
	{"ipv4.tcp_ecn", "-", "- is no number", ""},
	{"ipv4.tcp_fastopen", "3,", "has a comma", ""},
	{"ipv4.tcp_fastopen", "08", "octal", ""},
	{"ipv4.tcp_fastopen", "0x", "is no number", ""},
	{"ipv4.tcp_recovery", "256", "more than 255", ""},
	{"ipv4.tcp_sack", "true", "true is no number", ""},
	{"ipv4.tcp_window_scaling", "256", "more than 255", ""},
	{"mptcp.enabled", "2", "more than 1", ""},
	{"ipv4.ip_forward", "yes", "yes is no number", ""},
	{"ipv6.conf.all.forwarding", "2147483648", "more than", ""},
	{"ipv4.tcp_congestion_control", "BBR", "no congestion control of the name BBR", ""},
	{"ipv4.tcp_congestion_control", "bbr # fast", "after the name", ""},
	{"ipv4.tcp_congestion_control", `"bbr"`, "quotes", ""},
	{"ipv4.tcp_congestion_control", "bbr2", "no congestion control", ""},
	{"core.default_qdisc", "fq_codell", "no queueing discipline", ""},
	{"core.default_qdisc", "sch_fq", "is a module's name", ""},
	{"ipv4.tcp_congestion_control", "tcp_bbr", "is a module's name", ""},
	{"ipv4.tcp_congestion_control", "tcp_bbr # fast", "after the name", ""},
	{"core.default_qdisc", "dualpi2", "no queueing discipline", ""},
	{"core.default_qdisc", "fq ; was pfifo_fast", "after the name", ""},

	{"core.netdev_max_backlog", "16M", "has a unit", ""},
	{"core.rmem_default", "4294967296", "more than 2147483647", ""},
	{"core.wmem_default", "4096", "less than 4608", ""},
	{"core.netdev_budget_usecs", "-1", "less than 0", ""},
	{"ipv4.tcp_mem", "1G 2G 3G", "has a unit", ""},
	{"ipv4.tcp_mem", "-1 2 3", "less than 0", ""},
	{"ipv4.tcp_mem", "1 2 18446744073709551616", "more than 9223372036854775807", "1 2 575802"},
	{"ipv4.tcp_mtu_probing", "256", "more than 255", ""},
	{"ipv4.tcp_slow_start_after_idle", "no", "is no number", ""},
	{"ipv4.tcp_limit_output_bytes", "10k", "has a unit", ""},
	{"ipv4.tcp_autocorking", "2", "more than 1", ""},
	{"ipv4.tcp_early_retrans", "5", "more than 4", ""},
	{"ipv4.tcp_tw_reuse", "3", "more than 2", ""},
	{"ipv4.tcp_syn_retries", "0", "less than 1", ""},
	{"ipv4.tcp_syn_retries", "128", "more than 127", ""},
	{"ipv4.udp_rmem_min", "0", "less than 1", ""},
	{"ipv4.udp_wmem_min", "2147483648", "more than 2147483647", ""},
	{"ipv4.tcp_max_tw_buckets", "-2147483649", "less than -2147483648", ""},
	{"ipv4.tcp_no_metrics_save", "yes", "is no number", ""},
	{"ipv4.tcp_dsack", "256", "more than 255", ""},
	{"ipv4.tcp_frto", "256", "more than 255", ""},
	{"ipv4.tcp_keepalive_probes", "256", "more than 255", ""},
	{"ipv4.tcp_retries2", "256", "more than 255", ""},
	{"ipv4.tcp_rfc1337", "256", "more than 255", ""},
	{"ipv4.tcp_synack_retries", "-1", "less than 0", ""},
	{"ipv4.tcp_syncookies", "256", "more than 255", ""},

	{"ipv4.tcp_mem", "786432 1048576 26777216000", "", "786432 1048576 26777216000"},
	{"ipv4.tcp_mtu_probing", "3", "", "3"},
	{"ipv4.tcp_slow_start_after_idle", "0", "", "0"},
	{"ipv4.tcp_limit_output_bytes", "-1", "", "-1"},
	{"ipv4.tcp_early_retrans", "4", "", "4"},
	{"ipv4.tcp_syn_retries", "127", "", "127"},
	{"ipv4.udp_rmem_min", "16384", "", "16384"},
	{"core.netdev_max_backlog", "250000", "", "250000"},
	{"core.default_qdisc", "fq", "", "fq"},
	{"core.default_qdisc", "choke", "", "choke"},
	{"ipv4.tcp_congestion_control", "bbr", "", "bbr"},
	{"core.rmem_max", "0x1000000", "", "16777216"},
	{"core.rmem_max", "0100000000", "", "16777216"},
	{"core.somaxconn", "8192 # more", "", "8192"},
	// The kernel minds the minus only of a number that has no sign.
	{"core.somaxconn", "-0", "", "0"},
	{"core.netdev_budget_usecs", "-0", "", "0"},
	{"ipv4.tcp_pacing_ca_ratio", "-0", "", "0"},
	{"ipv4.tcp_pacing_ss_ratio", "-0x0", "", "0"},
	{"ipv4.tcp_sack", "-0", "has a minus", ""},
	{"ipv4.tcp_notsent_lowat", "-0", "has a minus", ""},
	{"ipv4.tcp_mem", "-0 2 3", "has a minus", ""},
	{"ipv4.tcp_syn_retries", "-0", "has a minus", ""},
	{"ipv4.udp_rmem_min", "-0", "less than 1", ""},
	{"ipv4.tcp_rmem", "0x1000 131072", "", "4096 131072 6291456"},
	{"ipv4.tcp_rmem", "4096 131072 16777216 and so on", "", "4096 131072 16777216"},
	{"ipv4.tcp_wmem", "1\t2\t3", "", "1 2 3"},
	{"ipv4.tcp_fastopen", "0x603", "", "1539"},
	{"ipv4.tcp_fastopen", "-1", "", "-1"},
	{"ipv4.tcp_notsent_lowat", "0xffffffff", "", "4294967295"},
	{"ipv4.tcp_max_syn_backlog", "010", "", "8"},
	{"ipv4.tcp_ecn", "3", "", "3"},
	{"ipv4.ip_forward", "2", "", "2"},
}

func server() Facts {
	f := Facts{Kernel: "7.3.4", OtherQdiscs: []string{"choke"}, Sysctls: map[string]Sysctl{},
		Congestion: Congestion{Available: []string{"cubic", "reno"}, Loadable: []string{"bbr"}},
		Qdiscs:     map[string]Support{"fq": Yes, "fq_codel": Yes, "dualpi2": No}}
	for name, value := range map[string]string{"core.default_qdisc": "fq_codel", "core.rmem_max": "212992",
		"core.somaxconn": "4096", "core.wmem_max": "212992", "ipv4.ip_forward": "0",
		"ipv4.tcp_congestion_control": "cubic", "ipv4.tcp_ecn": "2", "ipv4.tcp_fastopen": "1",
		"ipv4.tcp_max_syn_backlog": "512", "ipv4.tcp_notsent_lowat": "4294967295", "ipv4.tcp_recovery": "1",
		"ipv4.tcp_rmem": "4096 131072 6291456", "ipv4.tcp_wmem": "4096 16384 4194304",
		"ipv4.tcp_sack": "1", "ipv4.tcp_window_scaling": "1", "ipv6.conf.all.forwarding": "0", "mptcp.enabled": "1",
		"core.netdev_budget_usecs": "8000", "core.netdev_max_backlog": "1000", "core.rmem_default": "212992",
		"core.wmem_default": "212992", "ipv4.tcp_autocorking": "1", "ipv4.tcp_dsack": "1",
		"ipv4.tcp_early_retrans": "3", "ipv4.tcp_frto": "2", "ipv4.tcp_keepalive_probes": "9",
		"ipv4.tcp_limit_output_bytes": "4194304",
		"ipv4.tcp_max_tw_buckets":     "131072", "ipv4.tcp_mem": "287901 383868 575802", "ipv4.tcp_mtu_probing": "0",
		"ipv4.tcp_no_metrics_save": "0", "ipv4.tcp_retries2": "15", "ipv4.tcp_rfc1337": "0",
		"ipv4.tcp_slow_start_after_idle": "1", "ipv4.tcp_syn_retries": "6", "ipv4.tcp_synack_retries": "5",
		"ipv4.tcp_syncookies": "1", "ipv4.tcp_tw_reuse": "2", "ipv4.udp_rmem_min": "4096",
		"ipv4.udp_wmem_min": "4096"} {
		f.Sysctls["net."+name] = Sysctl{Value: value}
	}
	return f
}

func TestTakes(t *testing.T) {
	f := server()
	for _, test := range written {
		name := "net." + test.sysctl
		now := f.Sysctls[name].Value
		then := test.then
		if then == "" {
			then = now
		}
		got := f.Takes(name, test.value, now)
		if (got.Refused == "") != (test.refused == "") || !strings.Contains(got.Refused, test.refused) ||
			got.Value != then || (got.Numbers != 0) != (test.refused != "" && test.then != "") {
			t.Errorf("%s = %q: %+v, want %q and %q", name, test.value, got, test.refused, then)
		}
		if leaves := f.Leaves(name, test.value, then); leaves != (test.refused == "") {
			t.Errorf("%s = %q leaves %q: %v", name, test.value, then, leaves)
		}
	}
}

// What is not known is not said: of an older kernel, of names where no modules are listed, of a setting without a row.
func TestTakesWhatIsNotKnown(t *testing.T) {
	kernel := func(release string) func(*Facts) { return func(f *Facts) { f.Kernel = release } }
	unlisted := func(f *Facts) { f.OtherQdiscs, f.Congestion = nil, Congestion{} }
	for name, test := range map[string]struct {
		edit          func(*Facts)
		sysctl, value string
		taken         bool
	}{
		"a range that is newer":              {kernel("6.12.1"), "net.ipv4.tcp_rmem", "4096 87380 1000", true},
		"a range that was wider":             {kernel("6.18.44"), "net.ipv4.tcp_ecn", "3", false},
		"no list of modules":                 {unlisted, "net.core.default_qdisc", "fancy", true},
		"no name of a module":                {unlisted, "net.core.default_qdisc", "fq-codel", false},
		"a module's name":                    {unlisted, "net.core.default_qdisc", "sch_fq", false},
		"a module's name, of the other kind": {unlisted, "net.ipv4.tcp_congestion_control", "sch_x", true},
		"no congestion controls":             {unlisted, "net.ipv4.tcp_congestion_control", "x", true},
		"a setting without a row":            {func(*Facts) {}, "net.ipv4.tcp_unheard_of", "yes", true},
		"what is there now": {func(f *Facts) {
			f.Sysctls["net.core.default_qdisc"] = Sysctl{Value: "own"}
		}, "net.core.default_qdisc", "own", true},
	} {
		f := server()
		test.edit(&f)
		if got := f.Takes(test.sysctl, test.value, f.Sysctls[test.sysctl].Value); (got.Refused == "") != test.taken {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// The kernel that runs this makes the same of each value, of those settings that a network namespace has for itself.
func TestTakesAsThisKernel(t *testing.T) {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		t.Fatal(err)
	}
	f := server()
	f.Kernel = unix.ByteSliceToString(uts.Release[:])
	if !f.kernelIsAtLeast(6, 1) {
		t.Skipf("skipped, not passed: Linux %s is older than the table", f.Kernel)
	}
	runtime.LockOSThread() // never unlocked: the thread has left the process's namespace, and ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skipf("skipped, not passed: a network namespace: %v", err)
	}
	tried := 0
	for _, test := range written {
		name := "net." + test.sysctl
		path := SysctlPath(name)
		if slices.Contains([]string{"core.default_qdisc", "ipv4.tcp_congestion_control"}, test.sysctl) {
			continue // whose names are this kernel's
		}
		out, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			continue // not the namespace's own
		}
		now := joinFields(string(mustRead(t, path)))
		_, err = out.WriteString(test.value + "\n")
		out.Close()
		got := f.Takes(name, test.value, now)
		if then := joinFields(string(mustRead(t, path))); then != got.Value || (err != nil) != (got.Refused != "") {
			t.Errorf("%s = %q: the kernel says %v and has %q; %+v", name, test.value, err, then, got)
		}
		if err := os.WriteFile(path, []byte(now), 0); err != nil {
			t.Fatal(err)
		}
		tried++
	}
	if tried < 20 {
		t.Errorf("only %d values were tried", tried)
	}
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
