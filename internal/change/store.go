// SPDX-License-Identifier: Apache-2.0

package change

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
	"weir/internal/hint"
	"weir/internal/host"
	"weir/internal/plan"
	"weir/internal/units"
)

// unreachable says why a journal could not be read or written. It wraps err.
func unreachable(err error) error {
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

func (s Store) path() string { return filepath.Join(s.Dir, journalName) }

// edition tells one writing of the journal from another.
type edition struct {
	file, size int64
	at         unix.Timespec
}

func (s Store) edition() edition {
	var st unix.Stat_t
	if unix.Stat(s.path(), &st) != nil {
		return edition{} // there is none
	}
	return edition{int64(st.Ino), st.Size, st.Mtim}
}

// Changed gives a function that reports whether the journal has been written, or removed, since it was called last.
func (s Store) Changed() func() bool {
	before := s.edition()
	return func() bool {
		was := before
		before = s.edition()
		return before != was
	}
}

// maxJournal is many times what thousands of devices take.
const maxJournal = 16 << 20

// text is what the journal's file has, up to a byte more than it may. A pipe would be waited for, a device may not end.
func (s Store) text() ([]byte, error) {
	f, err := os.OpenFile(s.path(), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && !info.IsDir() && !info.Mode().IsRegular() {
		return nil, notRegular(s.path())
	}
	return io.ReadAll(io.LimitReader(f, maxJournal+1))
}

func notRegular(path string) error {
	return &hint.Error{What: path + " is not a regular file", Try: "--state DIR, another one"}
}

// load reads the journal; nil if there is none.
func (s Store) load() (*journal, error) {
	text, err := s.text()
	var refusal *hint.Error
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case errors.As(err, &refusal):
		return nil, err
	case err != nil:
		return nil, unreachable(err)
	}
	if len(strings.TrimSpace(string(text))) == 0 {
		return nil, &hint.Error{What: s.path() + " is empty",
			Try: "remove it, if nothing of weir's is in force: weir doctor tells what is"}
	}
	damaged := func(why any) error {
		return &hint.Error{
			What: fmt.Sprintf("%s is damaged: %v", s.path(), why),
			Try:  "see what it says of the host as it was, set that by hand, then remove the file",
		}
	}
	if len(text) > maxJournal {
		return nil, damaged(fmt.Sprintf("it is longer than %s", units.Size(maxJournal)))
	}
	var j journal
	switch err, mistyped := json.Unmarshal(text, &j), (*json.UnmarshalTypeError)(nil); {
	case errors.As(err, &mistyped): // which it says in Go's words
		return nil, damaged(fmt.Sprintf("no weir writes the %s that ends at its byte %d", mistyped.Value,
			mistyped.Offset))
	case err != nil:
		return nil, damaged(err)
	}
	if j.Version > journalVersion {
		return nil, &hint.Error{
			What: fmt.Sprintf("%s is of a newer weir: version %d, and this program knows %d", s.path(), j.Version,
				journalVersion),
			Try: "weir down by the program that wrote it, which the package of that version has",
		}
	}
	if j.Version != journalVersion {
		return nil, damaged(fmt.Sprintf("version %d, and this program knows %d", j.Version, journalVersion))
	}
	for _, e := range j.Entries {
		// The names become paths: only what we write may be read.
		if !e.valid(&j) || e.Kind == plan.File && !s.keeps {
			return nil, damaged(fmt.Sprintf("unknown setting %q", e.Target.String()))
		}
	}
	return &j, nil
}

func (e entry) valid(j *journal) bool {
	if len(e.Set) == 0 {
		return false
	}
	switch e.Kind {
	case plan.Root:
		return j.uplink(e.Name) != nil
	case plan.Ingress:
		return j.uplink(e.Name) != nil && e.Was.Meets(noIncoming)
	case plan.Sysctl:
		return strings.HasPrefix(e.Name, "net.") && !strings.ContainsAny(e.Name, "/\x00")
	case plan.File:
		return host.Keeps(e.Name)
	}
	return false
}

// save replaces the journal so that a crash leaves the old or the new, whole. It is on disk when this returns.
func (s Store) save(j *journal) error {
	text, err := json.MarshalIndent(j, "", "  ")
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if len(text) >= maxJournal {
		return &hint.Error{Try: "take it down by whatever made it, and then again",
			What: fmt.Sprintf("what is there now is more than a journal holds: %s", units.Size(maxJournal))}
	}
	half := s.path() + ".new"
	err = writeWhole(s.path(), half, func() error {
		return write(half, host.File{Kind: host.Regular, Mode: j.mode(), UID: uint32(os.Geteuid()),
			GID: uint32(os.Getegid()), Text: string(text) + "\n"})
	})
	if err != nil {
		return unreachable(err)
	}
	return nil
}

// mode is that of the journal's file: whoever may not read a file may not read here what was in it.
func (j *journal) mode() fs.FileMode {
	for _, e := range j.Entries {
		if was, ok := e.Was.(plan.Content); ok && was.Kind == host.Regular && was.Mode&0o004 == 0 {
			return 0o600
		}
	}
	return 0o644
}

func (s Store) remove() error {
	// A run that was killed may have left half of a new one.
	_ = os.Remove(s.path() + ".new")
	if err := os.Remove(s.path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return unreachable(err)
	}
	if err := syncDir(s.Dir); err != nil {
		return unreachable(err)
	}
	return nil
}

// saveOrRemove makes the journal what it was: removed if it was not there.
func (s Store) saveOrRemove(j *journal) error {
	if j == nil {
		return s.remove()
	}
	return s.save(j)
}

// ErrBusy is the cause where another run has not ended: the same again may succeed.
var ErrBusy = errors.New("another run has not ended")

func busy(what, try string) error { return &hint.Error{What: what, Try: try, Cause: ErrBusy} }

// patience is how long a run waits for another one's end.
const patience = time.Second

// lock keeps a second run out of this network namespace, whatever its directory, and of this directory. The kernel
// drops it with the process.
func (s Store) lock() (unlock func(), err error) { return s.lockWithin(patience) }

func (s Store) lockWithin(patience time.Duration) (unlock func(), err error) {
	if _, err := os.Lstat(s.Dir); errors.Is(err, fs.ErrNotExist) {
		if err := makeDir(s.Dir); err != nil && !unwritable(err) {
			return nil, unreachable(err)
		}
	}
	if err := s.trusted(); err != nil {
		return nil, err
	}
	others := func() {}
	if cookie, err := bpf.NetnsCookie(); err == nil && s.held != "" && os.MkdirAll(s.held, 0o755) == nil {
		if others, err = s.flock(filepath.Join(s.held, fmt.Sprintf("%x.lock", cookie)), patience); err != nil {
			return nil, err
		}
	}
	name := filepath.Join(s.Dir, lockName)
	own, err := s.flock(name, patience)
	if err != nil {
		others()
		return nil, err
	}
	return func() {
		if _, err := os.Lstat(s.path()); errors.Is(err, fs.ErrNotExist) {
			os.Remove(name)
		}
		own()
		others()
	}, nil
}

// flock waits for whoever has the lock, and then says so. Its file is root's alone, so that nobody else can
// hold it.
func (s Store) flock(name string, patience time.Duration) (unlock func(), err error) {
	const pause = 10 * time.Millisecond
	for waited := time.Duration(0); ; waited += pause {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if unwritable(err) {
			// It takes no space to lock what is there; and where nothing is, there is nothing to put back.
			if f, err = os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW, 0); errors.Is(err, fs.ErrNotExist) {
				return func() {}, nil
			}
		}
		if err != nil {
			return nil, unreachable(err)
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
			return nil, busy("another weir is changing this host", "the same again when it is done")
		}
		f.Close()
		s.timer.sleep(pause)
	}
}

// unwritable reports whether a file system takes nothing more: it is read-only, as after an error of its disk, or full.
func unwritable(err error) bool {
	return errors.Is(err, unix.EROFS) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}

// trusted is why what is in the directory is not to be believed: others than root and whoever runs this could have
// written it, and it says what root is to set.
func (s Store) trusted() error {
	dir, err := filepath.EvalSymlinks(s.Dir)
	if err != nil {
		return unreachable(err)
	}
	// What is around a user namespace is owned by nobody in it (user_namespaces(7)).
	space, _ := os.Readlink("/proc/self/ns/user")
	mapped := space != "" && space != firstUserNamespace
	for path := filepath.Join(dir, journalName); ; path = filepath.Dir(path) {
		info, err := os.Lstat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return unreachable(err)
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

// claim says that devices are this journal's, and is an error if one is another's: each would put back what the other
// set.
func (s Store) claim(goals []plan.Goal, f host.Facts) error {
	for _, goal := range goals {
		link, there := f.Link(goal.Dev)
		if !there {
			continue
		}
		// The other may know it under an earlier name.
		same := func(u uplink) bool { return u.Link == link.Index }
		err := s.claimOne(strconv.Itoa(link.Index), f, func(other *journal, dir string) error {
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

// claimSetting is claim for a setting that is to be changed. One that has the value which is wanted is nobody's.
func (s Store) claimSetting(c plan.Change, f host.Facts) error {
	return s.claimOne(strings.ReplaceAll(c.Name, "/", "."), f, func(other *journal, dir string) error {
		e := other.entry(c.Target)
		if e == nil || !e.changed() && e.Back == nil {
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
func (s Store) claimOne(name string, f host.Facts, has func(other *journal, dir string) error) error {
	if s.held == "" {
		return nil
	}
	space := strconv.FormatUint(f.Cookie, 16)
	if f.Cookie == 0 {
		space = f.Namespace
	}
	name = filepath.Join(s.held, space+"-"+name)
	if text, err := os.ReadFile(name); err == nil && string(text) != s.Dir {
		other, err := Store{Dir: string(text), keeps: true}.load()
		if err == nil && other != nil && other.Boot == f.Boot && other.isAbout(f) {
			if err := has(other, string(text)); err != nil {
				return err
			}
		}
	}
	// Without it nothing is lost but the warning.
	if os.MkdirAll(s.held, 0o755) == nil {
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
