// SPDX-License-Identifier: Apache-2.0

package host

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The files in which a goal is kept over a reboot, in the words of those who read them: sysctl.d(5), systemd.unit(5),
// udev(7).
const (
	GoalFile    = "/etc/weir.toml"
	Journal     = "/var/lib/weir/journal.json" // of the goals that last over a reboot
	SysctlFile  = "/etc/sysctl.d/99-weir.conf"
	UnitFile    = "/etc/systemd/system/weir.service"
	PackageUnit = "/usr/lib/systemd/system/weir.service" // where a package has put it
	UnitLink    = "/etc/systemd/system/multi-user.target.wants/weir.service"
	UdevFile    = "/etc/udev/rules.d/90-weir.rules"
	FollowFile  = "/etc/systemd/system/weir-follow.service"
	FollowLink  = "/etc/systemd/system/multi-user.target.wants/weir-follow.service"
)

// Starter is where an init finds what it starts at boot: what brings the goal up, and what follows its rate. For the
// latter it also is what a person types.
type Starter struct{ File, Link, Follow, FollowLink, StartFollow, AskFollow string }

// StarterOf is that of an Init. OpenRC has one place for the scripts of packages and of administrators.
func StarterOf(init string) (s Starter, known bool) {
	switch init {
	case Systemd:
		return Starter{UnitFile, UnitLink, FollowFile, FollowLink,
			"systemctl start weir-follow", "systemctl status weir-follow"}, true
	case OpenRC:
		return Starter{"/etc/init.d/weir", "/etc/runlevels/default/weir", "/etc/init.d/weir-follow",
			"/etc/runlevels/default/weir-follow",
			"rc-service weir-follow start", "rc-service weir-follow status"}, true
	}
	return Starter{}, false
}

// KeptFiles are all the paths that a plan may write to keep a goal.
func KeptFiles() []string {
	names := []string{GoalFile, SysctlFile, UdevFile}
	for _, init := range []string{Systemd, OpenRC} {
		s, _ := StarterOf(init)
		names = append(names, s.File, s.Link, s.Follow, s.FollowLink)
	}
	return names
}

// IsKeptFile reports whether a path is one that a plan may write.
func IsKeptFile(name string) bool { return slices.Contains(KeptFiles(), name) }

// FirstLine begins each file of Weir's, by which it is known.
const FirstLine = "# Written by weir, which keeps the goal in /etc/weir.toml over reboots.\n"

// ScriptLine is above it in what OpenRC runs.
const ScriptLine = "#!/sbin/openrc-run\n"

// What Init can be: systemd is process 1 (sd_booted(3)), or OpenRC starts the services.
const (
	Systemd = "systemd"
	OpenRC  = "OpenRC"
)

// initOf returns the init system by the directory that it keeps below a root: Systemd, OpenRC, or "".
func initOf(root fs.FS) string {
	if info, err := fs.Stat(root, "run/systemd/system"); err == nil && info.IsDir() {
		return Systemd
	}
	if _, err := fs.Stat(root, "run/openrc/softlevel"); err == nil { // rc-service(8) asks for it, too
		return OpenRC
	}
	return ""
}

// FileKind is what is at a path.
type FileKind string

const (
	NoFile  FileKind = "none"
	Regular FileKind = "file"
	Symlink FileKind = "link"
	// neither, too long, of several names, or not to be read: it can be told from the others, and not put back
	Other FileKind = "other"
)

// File is what is at a path, whole, so that it can be put back.
type File struct {
	Kind     FileKind
	Mode     fs.FileMode // permissions, of a file
	UID, GID uint32
	Text     string // what a file holds, or where a link leads
}

// maxText is the longest file that is read: those that a plan writes are a page.
const maxText = 64 << 10

// String is the one way to write a File down. What it holds comes after the first line, in base64 if it is no text.
func (f File) String() string {
	switch f.Kind {
	case Regular:
		how, text := "", f.Text
		if !utf8.ValidString(text) {
			how, text = " base64", base64.StdEncoding.EncodeToString([]byte(text))
		}
		return fmt.Sprintf("file %04o %d:%d%s\n%s", f.Mode, f.UID, f.GID, how, text)
	case Symlink:
		return "link " + f.Text
	case Other:
		return string(Other)
	}
	return string(NoFile)
}

// ParseFile reads what String wrote.
func ParseFile(s string) (File, error) {
	bad := fmt.Errorf("%q describes no file", s[:min(len(s), 40)])
	head, text, _ := strings.Cut(s, "\n")
	kind, rest, _ := strings.Cut(head, " ")
	f := File{Kind: FileKind(kind)}
	switch f.Kind {
	case NoFile, Other:
		if s != kind {
			return File{}, bad
		}
		return f, nil
	case Symlink:
		if f.Text = strings.TrimPrefix(s, "link "); f.Text == "" || len(s) == len(f.Text) ||
			strings.Contains(f.Text, "\x00") {
			return File{}, bad
		}
		return f, nil
	case Regular:
	default:
		return File{}, bad
	}
	rest, encoded := strings.CutSuffix(rest, " base64")
	mode, owner, _ := strings.Cut(rest, " ")
	user, group, _ := strings.Cut(owner, ":")
	m, errMode := strconv.ParseUint(mode, 8, 12)
	uid, errUser := strconv.ParseUint(user, 10, 32)
	gid, errGroup := strconv.ParseUint(group, 10, 32)
	if errors.Join(errMode, errUser, errGroup) != nil {
		return File{}, bad
	}
	f.Mode, f.UID, f.GID, f.Text = fs.FileMode(m), uint32(uid), uint32(gid), text
	if encoded {
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return File{}, bad
		}
		f.Text = string(raw)
	}
	if f.String() != s {
		return File{}, bad // written in another way than ours
	}
	return f, nil
}

// rootOnly reports whether nobody but root can write a file. Debian's group staff may write below /usr/local on systems
// that began before Debian 12, and counts as root there (Debian Policy 9.1.2).
func rootOnly(mode fs.FileMode, uid, gid uint32) bool {
	const root, staff = 0, 50 // base-passwd
	group := mode&0o020 == 0 || gid == root || gid == staff
	return uid == root && group && mode&0o002 == 0
}

// startedProgram is the program that a unit or a script of Weir's starts; "" if it is none.
func startedProgram(text string) string {
	if !isMarked(text) {
		return ""
	}
	for l := range strings.Lines(text) {
		if command, _, ok := strings.Cut(strings.TrimSpace(l), " up --boot"); ok {
			return strings.TrimPrefix(command, "ExecStart=")
		}
	}
	return ""
}

// GoalLine begins the file of the goals. By it, and by FirstLine, files are known for Weir's.
const GoalLine = "# The goal of weir. To change it edit it and run:  weir up\n"

// IsOurs reports whether a file is one of Weir's by what it says of itself.
func IsOurs(f File) bool {
	_, goals := strings.CutPrefix(f.Text, GoalLine)
	return f.Kind == Regular && (isMarked(f.Text) || goals)
}

// isMarked reports whether a unit's, a script's or another file's text begins with the line that Weir writes there.
func isMarked(text string) bool {
	return strings.HasPrefix(strings.TrimPrefix(text, ScriptLine), FirstLine)
}
