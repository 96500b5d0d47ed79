// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"weir/internal/hint"
	"weir/internal/host"
	"weir/internal/kernel"
	"weir/internal/plan"
)

// The journal is for all to read, unless it holds a file that is not.
func TestJournalHidesWhatIsHidden(t *testing.T) {
	of := func(kind host.FileKind, mode fs.FileMode) Entry {
		return Entry{Was: kernel.Content{File: host.File{Kind: kind, Mode: mode}}}
	}
	open := of(host.Regular, 0o644)
	for name, c := range map[string]struct {
		entries []Entry
		want    fs.FileMode
	}{
		"nothing":                {nil, 0o644},
		"no file":                {[]Entry{{Was: kernel.Setting("1")}, of(host.NoFile, 0)}, 0o644},
		"a file for all":         {[]Entry{open}, 0o644},
		"one for its owner":      {[]Entry{open, of(host.Regular, 0o600), open}, 0o600},
		"one for a group":        {[]Entry{of(host.Regular, 0o640)}, 0o600},
		"one to write, not read": {[]Entry{of(host.Regular, 0o602)}, 0o600},
	} {
		if got := (&Journal{Entries: c.entries}).mode(); got != c.want {
			t.Errorf("%s: %o, want %o", name, got, c.want)
		}
	}
}

// What a journal names becomes a path or a device: only what a run writes down is taken.
func TestEntryIsOurs(t *testing.T) {
	j := &Journal{Uplinks: []Uplink{{Goal: plan.Goal{Dev: "eth0"}}}}
	for _, c := range []struct {
		kind kernel.Kind
		name string
		was  kernel.Value
		want bool
	}{
		{kernel.Root, "eth0", kernel.Queue{Other: "noqueue"}, true},
		{kernel.Root, "eth1", kernel.Queue{Other: "noqueue"}, false},
		{kernel.Ingress, "eth0", kernel.NoIncoming, true},
		{kernel.Ingress, "eth1", kernel.NoIncoming, false},
		{kernel.Ingress, "eth0", kernel.Incoming{Other: "somebody's"}, false},
		{kernel.Sysctl, "net.core.default_qdisc", kernel.Setting("fq"), true},
		{kernel.Sysctl, "kernel.core_pattern", kernel.Setting(""), false},
		{kernel.Sysctl, "net.core/../../x", kernel.Setting(""), false},
		{kernel.Sysctl, "net.core\x00x", kernel.Setting(""), false},
		{kernel.Control, "bpf_bbr", kernel.Absent, true},
		{kernel.Control, "bpf_bbr", kernel.Version("0123abcd"), false},
		{kernel.Control, "bpf_dctcp", kernel.Absent, false},
		{kernel.File, host.UnitFile, kernel.Content{}, true},
		{kernel.File, host.PackageUnit, kernel.Content{}, false},
		{kernel.File, "/etc/passwd", kernel.Content{}, false},
		{kernel.Kind("of a later version"), "eth0", kernel.Setting(""), false},
	} {
		e := Entry{Target: kernel.Target{Kind: c.kind, Name: c.name}, Was: c.was,
			Set: []kernel.Value{kernel.Setting("x")}}
		if e.valid(j) != c.want {
			t.Errorf("%s %q: %v", c.kind, c.name, !c.want)
		}
		if e.Set = nil; e.valid(j) {
			t.Errorf("%s %q, never set: is taken", c.kind, c.name)
		}
	}
}

// Only a file system that takes nothing more is one that Weir goes on without.
func TestUnwritable(t *testing.T) {
	for err, want := range map[error]bool{unix.EROFS: true, unix.ENOSPC: true, unix.EDQUOT: true, unix.EIO: false,
		unix.EACCES: false, fmt.Errorf("write: %w", unix.EDQUOT): true} {
		if Unwritable(err) != want {
			t.Errorf("%v: %v", err, !want)
		}
	}
	if Unwritable(nil) {
		t.Error("no error is one")
	}
}

// Of a journal that cannot be reached the refusal and its cause can both be asked.
func TestUnreachable(t *testing.T) {
	err := Unreachable(&os.PathError{Op: "open", Path: "journal.json", Err: unix.EACCES})
	if refusal := (*hint.Error)(nil); !errors.As(err, &refusal) || refusal.Try == "" ||
		!errors.Is(err, fs.ErrPermission) || err.Error() != "journal: open journal.json: permission denied" {
		t.Errorf("%v", err)
	}
}

// An object's members that this version does not know are kept, those of embedded structs are known.
func TestUnknown(t *testing.T) {
	type inner struct {
		Deep int `json:"deep"`
	}
	known := struct {
		inner
		Flat int `json:"flat,omitempty"`
	}{}
	got := unknown([]byte(`{"deep":1,"flat":2,"newer":{"x":3},"inner":4}`), known)
	if len(got) != 2 || string(got["newer"]) != `{"x":3}` || string(got["inner"]) != "4" {
		t.Errorf("unknown are %s", got)
	}
}

// Of a journal only one that is in force here and now counts.
func TestInForce(t *testing.T) {
	for name, test := range map[string]struct {
		journal string
		want    bool
	}{
		"up":                    {`{"version":1,"boot":"b","namespace":"net:[1]","goal":{"dev":"eth0"},"entries":[{"dev":"eth0"},{"sysctl":"net.x","theirs":true}]}`, true},
		"up, nothing to change": {`{"boot":"b","namespace":"net:[1]","goal":{"dev":"eth0"},"entries":null}`, true},
		"not confirmed":         {`{"boot":"b","namespace":"net:[1]","goal":{"dev":"eth0"},"entries":[{"theirs":true}],"pending":{"until_ns":1}}`, true},
		"no goal":               {`{"boot":"b","namespace":"net:[1]","goal":{},"entries":[{"dev":"eth0"}]}`, false},
		"put back":              {`{"boot":"b","namespace":"net:[1]","goal":{},"entries":null,"reverted":{"goal":{"dev":"eth0"}}}`, false},
		"left to others":        {`{"boot":"b","namespace":"net:[1]","goal":{"dev":"eth0"},"entries":[{"dev":"eth0","theirs":true}]}`, false},
		"an earlier boot's": {`{"boot":"a","namespace":"net:[1]","goal":{"dev":"eth0"},"entries":[{"dev":"eth0"}]}`,
			false},
		"another namespace's": {`{"boot":"b","namespace":"net:[2]","goal":{"dev":"eth0"},"entries":[{"dev":"eth0"}]}`,
			false},
		"nothing":       {``, false},
		"damaged":       {`{"goal":`, false},
		"another shape": {`{"goal":7}`, false},
	} {
		if got := inForce([]byte(test.journal), host.Facts{Boot: "b", Namespace: "net:[1]"}); got != test.want {
			t.Errorf("%s: up is %v", name, got)
		}
	}
}
