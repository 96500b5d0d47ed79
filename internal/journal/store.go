// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"weir/internal/bpf"
	"weir/internal/durable"
	"weir/internal/hint"
	"weir/internal/host"
	"weir/internal/kernel"
	"weir/internal/plan"
	"weir/internal/units"
)

// Store is where a journal is kept.
type Store struct {
	Dir   string
	Files bool   // it may say what was in files, as the one store of the host does
	Held  string // the directory that says which device is which journal's; "" for none
	Sleep func(time.Duration)
}

// Unreachable says why a journal could not be read or written. It wraps err.
func Unreachable(err error) error {
	try := "--state DIR, one that can be read and, to change something, written"
	switch {
	case errors.Is(err, unix.EROFS):
		try = "see why the file system is read-only: dmesg; what is to be put back is put back all the same"
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		try = "make room there: df, df -i"
	case errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0:
		try = "the same with sudo"
	}
	return hint.Wrap(fmt.Errorf("journal: %w", err), try)
}

const (
	fileName = "journal.json"
	lockName = "lock"
)

// Path is the journal's file.
func (s Store) Path() string { return filepath.Join(s.Dir, fileName) }

// Edition tells one writing of the journal from another.
type Edition struct {
	file, size int64
	at         unix.Timespec
}

// Edition is that of the journal which is there now.
func (s Store) Edition() Edition {
	var st unix.Stat_t
	if unix.Stat(s.Path(), &st) != nil {
		return Edition{} // there is none
	}
	return Edition{int64(st.Ino), st.Size, st.Mtim}
}

// maxJournal is many times what thousands of devices take.
const maxJournal = 16 << 20

// text is what the journal's file has, up to a byte more than it may. A pipe would be waited for, a device may not end.
func (s Store) text() ([]byte, error) {
	f, err := os.OpenFile(s.Path(), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && !info.IsDir() && !info.Mode().IsRegular() {
		return nil, notRegular(s.Path())
	}
	return io.ReadAll(io.LimitReader(f, maxJournal+1))
}

func notRegular(path string) error {
	return &hint.Error{What: path + " is not a regular file", Try: "--state DIR, another one"}
}

// Load reads the journal; nil if there is none.
func (s Store) Load() (*Journal, error) {
	text, err := s.text()
	var refusal *hint.Error
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case errors.As(err, &refusal):
		return nil, err
	case err != nil:
		return nil, Unreachable(err)
	}
	if len(strings.TrimSpace(string(text))) == 0 {
		return nil, &hint.Error{What: s.Path() + " is empty",
			Try: "remove it, if nothing of weir's is in force: weir doctor tells what is"}
	}
	damaged := func(why any) error {
		return &hint.Error{
			What: fmt.Sprintf("%s is damaged: %v", s.Path(), why),
			Try:  "see what it says of the host as it was, set that by hand, then remove the file",
		}
	}
	if len(text) > maxJournal {
		return nil, damaged(fmt.Sprintf("it is longer than %s", units.Size(maxJournal)))
	}
	var j Journal
	switch err, mistyped := json.Unmarshal(text, &j), (*json.UnmarshalTypeError)(nil); {
	case errors.As(err, &mistyped): // which it says in Go's words
		return nil, damaged(fmt.Sprintf("no weir writes the %s that ends at its byte %d", mistyped.Value,
			mistyped.Offset))
	case err != nil:
		return nil, damaged(err)
	}
	if j.Version > version {
		return nil, &hint.Error{
			What: fmt.Sprintf("%s is of a newer weir: version %d, and this program knows %d", s.Path(), j.Version,
				version),
			Try: "weir down by the program that wrote it, which the package of that version has",
		}
	}
	if j.Version != version {
		return nil, damaged(fmt.Sprintf("version %d, and this program knows %d", j.Version, version))
	}
	for _, e := range j.Entries {
		// The names become paths: only what we write may be read.
		if !e.valid(&j) || e.IsFile() && !s.Files {
			return nil, damaged(fmt.Sprintf("unknown setting %q", e.Target.String()))
		}
	}
	return &j, nil
}

// valid reports whether an entry is one that a run writes down.
func (e Entry) valid(j *Journal) bool {
	o, known := e.Kind.Object()
	onDevice := e.Dev() != ""
	return known && len(e.Set) > 0 && (!onDevice || j.Uplink(e.Name) != nil) && o.Valid(e.Name, e.Was)
}

// Save replaces the journal so that a crash leaves the old or the new, whole. It is on disk when this returns.
func (s Store) Save(j *Journal) error {
	text, err := json.MarshalIndent(j, "", "  ")
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if len(text) >= maxJournal {
		return &hint.Error{Try: "take it down by whatever made it, and then again",
			What: fmt.Sprintf("what is there now is more than a journal holds: %s", units.Size(maxJournal))}
	}
	half := s.half()
	err = durable.Replace(s.Path(), half, func() error {
		return durable.Write(half, durable.File{Text: string(text) + "\n", Mode: j.mode(), UID: os.Geteuid(),
			GID: os.Getegid()})
	})
	if err != nil {
		return Unreachable(err)
	}
	return nil
}

// mode is that of the journal's file: whoever may not read a file may not read here what was in it.
func (j *Journal) mode() fs.FileMode {
	for _, e := range j.Entries {
		if was, ok := e.Was.(kernel.Content); ok && was.Kind == host.Regular && was.Mode&0o004 == 0 {
			return 0o600
		}
	}
	return 0o644
}

// Sweep takes away what a run that was killed has left of a new one.
func (s Store) Sweep() { _ = os.Remove(s.half()) }

// half is what a journal is called until it is whole.
func (s Store) half() string { return s.Path() + ".new" }

// Remove takes the journal away, and half of another.
func (s Store) Remove() error {
	s.Sweep()
	if err := os.Remove(s.Path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Unreachable(err)
	}
	if err := durable.SyncDir(s.Dir); err != nil {
		return Unreachable(err)
	}
	return nil
}

// SaveOrRemove makes the journal what it was: removed if j is nil.
func (s Store) SaveOrRemove(j *Journal) error {
	if j == nil {
		return s.Remove()
	}
	return s.Save(j)
}

// ErrBusy is the cause where another run has not ended: the same again may succeed.
var ErrBusy = errors.New("another run has not ended")

// Busy is an error that wraps ErrBusy.
func Busy(what, try string) error { return &hint.Error{What: what, Try: try, Cause: ErrBusy} }

// Patience is how long a run waits for another one's end.
const Patience = time.Second

// Lock keeps a second run out of this network namespace, whatever its directory, and of this directory. It
// waits for whoever has it, and then returns an error wrapping ErrBusy. The kernel drops it with the process.
func (s Store) Lock(patience time.Duration) (unlock func(), err error) {
	if _, err := os.Lstat(s.Dir); errors.Is(err, fs.ErrNotExist) {
		if err := durable.MakeDir(s.Dir); err != nil && !Unwritable(err) {
			return nil, Unreachable(err)
		}
	}
	if err := s.trusted(); err != nil {
		return nil, err
	}
	others := func() {}
	if cookie, err := bpf.NetnsCookie(); err == nil && s.Held != "" && os.MkdirAll(s.Held, 0o755) == nil {
		if others, err = s.Flock(filepath.Join(s.Held, fmt.Sprintf("%x.lock", cookie)), patience); err != nil {
			return nil, err
		}
	}
	name := filepath.Join(s.Dir, lockName)
	own, err := s.Flock(name, patience)
	if err != nil {
		others()
		return nil, err
	}
	return func() {
		if _, err := os.Lstat(s.Path()); errors.Is(err, fs.ErrNotExist) {
			os.Remove(name)
		}
		own()
		others()
	}, nil
}

// Flock waits for whoever has the lock, and then says so. Its file is root's alone, so that nobody else can
// hold it.
func (s Store) Flock(name string, patience time.Duration) (unlock func(), err error) {
	const pause = 10 * time.Millisecond
	for waited := time.Duration(0); ; waited += pause {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if Unwritable(err) {
			// It takes no space to lock what is there; and where nothing is, there is nothing to put back.
			if f, err = os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW, 0); errors.Is(err, fs.ErrNotExist) {
				return func() {}, nil
			}
		}
		if err != nil {
			return nil, Unreachable(err)
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		// The one who had it before may have removed it.
		if err == nil && !isAt(f, name) {
			err = unix.EWOULDBLOCK
		}
		switch {
		case err == nil:
			return func() { f.Close() }, nil
		case !errors.Is(err, unix.EWOULDBLOCK):
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", name, err)
		case waited >= patience:
			f.Close()
			return nil, Busy("another weir is changing this host", "the same again when it is done")
		}
		f.Close()
		s.Sleep(pause)
	}
}

// Unwritable reports whether a file system takes nothing more: it is read-only, as after an error of its disk, or full.
func Unwritable(err error) bool {
	return errors.Is(err, unix.EROFS) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}

// trusted is why what is in the directory is not to be believed: others than root and whoever runs this could have
// written it, and it says what root is to set.
func (s Store) trusted() error {
	dir, err := filepath.EvalSymlinks(s.Dir)
	if err != nil {
		return Unreachable(err)
	}
	// What is around a user namespace is owned by nobody in it (user_namespaces(7)).
	space, _ := os.Readlink("/proc/self/ns/user")
	mapped := space != "" && space != host.FirstUserNamespace
	for path := filepath.Join(dir, fileName); ; path = filepath.Dir(path) {
		info, err := os.Lstat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return Unreachable(err)
		case !info.IsDir() && !info.Mode().IsRegular():
			return notRegular(path)
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		mine := ok && (stat.Uid == 0 || int(stat.Uid) == os.Geteuid() || mapped && stat.Uid == nobody && info.IsDir())
		shared := info.Mode().Perm()&0o002 != 0 || info.Mode().Perm()&0o020 != 0 && stat.Gid != 0
		if !mine || shared && info.Mode()&fs.ModeSticky == 0 {
			mend := "chmod go-w "
			if !mine {
				mend = "chown root "
			}
			return &hint.Error{What: "others than root can write to " + path,
				Try: "--state DIR, where root alone can write; or, if nobody has written there:  " + mend + path}
		}
		if path == filepath.Dir(path) {
			return nil
		}
	}
}

// nobody owns what no user of a user namespace does (/proc/sys/kernel/overflowuid).
const nobody = 65534

// Claim says that devices are this journal's, and is an error if one is another's: each would put back what the other
// set.
func (s Store) Claim(goals []plan.Goal, f host.Facts) error {
	for _, goal := range goals {
		link, there := f.Link(goal.Dev)
		if !there {
			continue
		}
		// The other may know it under an earlier name.
		same := func(u Uplink) bool { return u.Link == link.Index }
		err := s.claimOne(strconv.Itoa(link.Index), f, func(other *Journal, dir string) error {
			i := slices.IndexFunc(other.uplinks(), same)
			if i < 0 {
				return nil
			}
			down := "weir down --dev " + goal.Dev + " --state " + dir
			if other.Uplinks[i].Goal.Only {
				down = "weir dualpi2 del --dev " + goal.Dev
			}
			return &hint.Error{What: fmt.Sprintf("what was on %s before is in the journal in %s", goal.Dev, dir),
				Try: down + ", and then again"}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// ClaimSetting is Claim for a setting that is to be changed. One that has the value which is wanted is nobody's.
func (s Store) ClaimSetting(c plan.Change, f host.Facts) error {
	return s.claimOne(strings.ReplaceAll(c.Name, "/", "."), f, func(other *Journal, dir string) error {
		e := other.Entry(c.Target)
		if e == nil || !e.Changed() && e.Back == nil {
			return nil // the other has never changed it, or has put it back
		}
		down := "weir down --all"
		if e.Theirs {
			down += " --force"
		}
		return &hint.Error{What: fmt.Sprintf("what %s was before is in the journal in %s", c.Name, dir),
			Try: down + " --state " + dir + ", and then again"}
	})
}

// claimOne writes down that a device or a setting is this journal's. It is an error if another journal has it: one of
// this boot and namespace that can be read from here.
func (s Store) claimOne(name string, f host.Facts, has func(other *Journal, dir string) error) error {
	if s.Held == "" {
		return nil
	}
	space := strconv.FormatUint(f.Cookie, 16)
	if f.Cookie == 0 {
		space = f.Namespace
	}
	name = filepath.Join(s.Held, space+"-"+name)
	if text, err := os.ReadFile(name); err == nil && string(text) != s.Dir {
		other, err := Store{Dir: string(text), Files: true}.Load()
		if err == nil && other.IsCurrent(f) {
			if err := has(other, string(text)); err != nil {
				return err
			}
		}
	}
	// Without it nothing is lost but the warning.
	if os.MkdirAll(s.Held, 0o755) == nil {
		_ = os.WriteFile(name, []byte(s.Dir), 0o644)
	}
	return nil
}

// isAt reports whether an open file is the one that has the name.
func isAt(f *os.File, name string) bool {
	ours, errOurs := f.Stat()
	there, err := os.Lstat(name)
	return errOurs == nil && err == nil && os.SameFile(ours, there)
}
