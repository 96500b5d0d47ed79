// SPDX-License-Identifier: Apache-2.0

package change

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/host"
	"weir/internal/journal"
	"weir/internal/kernel"
	"weir/internal/plan"
)

// A file is put there whole, with its folder, its mode and its time, over whatever a run that was killed has left; and
// taken away without a trace.
func TestSetFile(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "new", "deeper", "file")
	owner := func(f host.File) host.File {
		f.UID, f.GID = uint32(os.Getuid()), uint32(os.Getgid())
		return f
	}
	none := host.File{Kind: host.NoFile}
	regular := owner(host.File{Kind: host.Regular, Text: "rate = 50mbit\n", Mode: 0o640})
	at := time.Unix(1e9, 0)
	put := func(want host.File, at time.Time) {
		t.Helper()
		if err := (live{}).SetFile(name, want, at); err != nil {
			t.Fatal(err)
		}
		if got := host.ReadFile(name); got != want {
			t.Fatalf("it is %+v, want %+v", got, want)
		}
		if _, err := os.Lstat(name + halfWritten); !os.IsNotExist(err) {
			t.Fatalf("half of it is left: %v", err)
		}
	}
	put(none, time.Time{}) // there is not even a folder
	if _, err := os.Stat(filepath.Dir(name)); !os.IsNotExist(err) {
		t.Errorf("a folder was made for a file that is not to be there: %v", err)
	}
	put(regular, at)
	if info, err := os.Stat(name); err != nil || !info.ModTime().Equal(at) {
		t.Errorf("its time is %v, %v", info.ModTime(), err)
	}
	regular.Text, regular.Mode = "", 0o4711
	if err := os.WriteFile(name+halfWritten, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	put(regular, time.Time{})
	if info, err := os.Stat(name); err != nil || time.Since(info.ModTime()) > time.Hour {
		t.Errorf("its time is %v, %v", info.ModTime(), err)
	}
	if err := os.Symlink("/nowhere", name+halfWritten); err != nil {
		t.Fatal(err)
	}
	link := host.ReadFile(name + halfWritten)
	if link.Kind != host.Symlink || link.Text != "/nowhere" {
		t.Fatalf("a link is read as %+v", link)
	}
	put(link, at)
	put(none, at)
	put(none, at)
	live{}.sweep(name)
	if left, err := os.ReadDir(filepath.Dir(name)); err != nil || len(left) != 0 {
		t.Errorf("it leaves %v, %v", left, err)
	}
}

// What is as it is to be takes no disk that can be written: taking back what a read-only one has refused.
func TestSetFileReadOnly(t *testing.T) {
	dir := t.TempDir()
	name, at := filepath.Join(dir, "file"), time.Unix(1e9, 0)
	onReadOnly(t, dir, func(readOnly func(bool)) {
		if err := os.WriteFile(name, []byte("old"), 0o600); err != nil {
			t.Error(err)
		}
		if err := os.Chtimes(name, at, at); err != nil {
			t.Error(err)
		}
		readOnly(true)
		old, none := host.ReadFile(name), host.File{Kind: host.NoFile}
		for _, c := range []struct {
			name string
			want host.File
			at   time.Time
			fine bool
		}{
			{name, old, at, true}, {name, old, time.Time{}, true}, {name, old, at.Add(1), false},
			{name, none, time.Time{}, false}, {name + "2", none, time.Time{}, true}, {name + "2", old, at, false},
		} {
			if err := (live{}).SetFile(c.name, c.want, c.at); (err == nil) != c.fine {
				t.Errorf("%s, %q: %v", filepath.Base(c.name), c.want.Text, err)
			}
		}
	})
}

// What cannot be put there is an error, and leaves what was there.
func TestSetFileRefused(t *testing.T) {
	dir := t.TempDir()
	file, folder := filepath.Join(dir, "file"), filepath.Join(dir, "folder")
	if err := os.WriteFile(file, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(folder, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	whole := host.File{Kind: host.Regular, Text: "new", Mode: 0o600, UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}
	link, none := host.File{Kind: host.Symlink, Text: file}, host.File{Kind: host.NoFile}
	for name, c := range map[string]struct {
		at   string
		want host.File
	}{
		"below a file":             {filepath.Join(file, "below"), whole},
		"a link below a file":      {filepath.Join(file, "below"), link},
		"over a folder":            {folder, whole},
		"a link over a folder":     {folder, link},
		"a folder":                 {filepath.Join(dir, "other"), host.ReadFile(folder)},
		"no file, over a full one": {folder, none},
		"a name that is too long":  {filepath.Join(dir, strings.Repeat("x", 255)), whole},
		"in no folder of names":    {filepath.Join(dir, strings.Repeat("x", 256), "file"), whole},
	} {
		if err := (live{}).SetFile(c.at, c.want, time.Time{}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if err := (live{}).SetFile(filepath.Join(file, "below"), none, time.Time{}); err != nil {
		t.Errorf("what cannot be there is not there: %v", err)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "old" {
		t.Errorf("the file is %q, %v", text, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("left is %v, %v", left, err)
	}
	// What is swept away is what was half written, alone.
	if err := os.WriteFile(file+halfWritten, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	live{}.sweep(file)
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("after sweeping %v, %v", left, err)
	}
	if err := (live{}).writable(filepath.Join(dir, "a", "b", "c")); err != nil {
		t.Errorf("a file in folders that can be made: %v", err)
	}
}

// TestOnDisk: what is written, made or taken away is on disk before anybody goes on, and so is each directory that has
// it. What the kernel was asked for is seen by a tracer.
func TestOnDisk(t *testing.T) {
	if dir := os.Getenv("WEIR_ON_DISK"); dir != "" {
		keepOnDisk(t, dir)
		return
	}
	if runtime.GOARCH != "amd64" {
		t.Skip("skipped here: its tracer is of amd64")
	}
	tracer := filepath.Join(t.TempDir(), "killat")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", tracer, "weir/internal/lab/machine/killat")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	dir := t.TempDir()
	traced := exec.Command(tracer, "-list", os.Args[0], "-test.run", "^TestOnDisk$")
	traced.Env = append(os.Environ(), "WEIR_ON_DISK="+dir)
	said, err := traced.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	type step struct{ what, where string }
	var steps []step
	for line := range strings.Lines(string(said)) {
		words := strings.Fields(line)
		if len(words) == 4 && words[0] == "killat:" && strings.HasPrefix(words[3], dir) &&
			filepath.Base(words[3]) != "lock" { // which is of no use after a crash
			steps = append(steps, step{words[2], words[3]})
		}
	}
	made := map[string]int{}
	for i, s := range steps {
		synced := slices.IndexFunc(steps[i:], func(l step) bool { return l == step{"fsync", filepath.Dir(s.where)} })
		switch s.what {
		case "create", "mkdir", "link", "unlink", "rename":
			if synced < 0 {
				t.Errorf("%s %s, and its directory is not synced", s.what, s.where)
				break
			}
			// Nobody takes the next step before: but for what it has another name until it is whole.
			for _, between := range steps[i+1 : i+synced] {
				whole := between.what == "rename" || strings.HasPrefix(between.where, s.where) || s.what == "unlink"
				if !whole {
					t.Errorf("%s %s, and then %s %s before its directory is synced", s.what, s.where, between.what,
						between.where)
				}
			}
		case "write":
			whole := slices.Index(steps[i:], step{"fsync", s.where})
			renamed := slices.IndexFunc(steps[i:], func(l step) bool { return l.what == "rename" })
			if whole < 0 || renamed < whole {
				t.Errorf("%s has its name before it is whole on disk", s.where)
			}
		}
		made[s.what]++
	}
	for what, least := range map[string]int{"mkdir": 5, "create": 3, "write": 3, "rename": 4, "link": 1, "unlink": 2} {
		if made[what] < least {
			t.Errorf("%s: %d were seen, of at least %d:\n%s", what, made[what], least, said)
		}
	}
}

// keepOnDisk writes, and takes away, what a run does: directories, a journal, a file, another in its place, and a link.
func keepOnDisk(t *testing.T, dir string) {
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	s := liveStore(filepath.Join(dir, "var"))
	unlock, err := s.disk.Lock(journal.Patience)
	do(err)
	do(s.disk.Save(&journal.Journal{Version: 1}))
	do(s.disk.Remove())
	unlock()
	own := host.File{Kind: host.Regular, Mode: 0o644, UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}
	name := filepath.Join(dir, "etc/udev/rules.d/x.rules")
	for _, text := range []string{"one\n", "two\n"} {
		own.Text = text
		do(setFile(name, own))
	}
	do(setFile(name, host.File{Kind: host.Symlink, Text: "elsewhere"}))
	do(setFile(name, host.File{Kind: host.NoFile}))
}

// systemd reads its units again before it does anything about them. A follower whose unit is another begins anew.
func TestToSystemd(t *testing.T) {
	file := func(name string, f host.File) plan.Change {
		return plan.Change{Target: kernel.Target{Kind: kernel.File, Name: name}, New: kernel.Content{File: f}}
	}
	unit, link, none := host.File{Kind: host.Regular}, host.File{Kind: host.Symlink}, host.File{Kind: host.NoFile}
	const start, again = "--no-block start weir", "--no-block try-restart weir-follow.service"
	for name, c := range map[string]struct {
		done []plan.Change
		want []string
	}{
		"no unit": {[]plan.Change{file(host.GoalFile, unit), file(host.UdevFile, unit)}, nil},
		"kept": {[]plan.Change{file(host.FollowFile, unit), file(host.FollowLink, link), file(host.UnitLink, link)},
			[]string{"daemon-reload", again, start + "-follow.service", start + ".service"}},
		"the host forwards now": {[]plan.Change{file(host.FollowFile, unit)}, []string{"daemon-reload", again}},
		"taken down": {[]plan.Change{file(host.FollowLink, none), file(host.FollowFile, none)},
			[]string{"daemon-reload", "--no-block stop weir-follow.service"}},
	} {
		var got []string
		for _, args := range toSystemd(c.done) {
			got = append(got, strings.Join(args, " "))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
