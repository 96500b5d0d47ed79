// SPDX-License-Identifier: Apache-2.0

package host

import (
	"io/fs"
	"net"
	"path"
	"slices"
	"strings"

	"weir/internal/units"
)

// networkdKinds are networkd's sections that are queueing disciplines (systemd.network(5)).
var networkdKinds = map[string]string{
	"BandMultiQueueing": "multiq", "BFIFO": "bfifo", "CAKE": "cake", "ClassfulMultiQueueing": "mq",
	"ControlledDelay": "codel", "DeficitRoundRobinScheduler": "drr", "EnhancedTransmissionSelection": "ets",
	"FairQueueing":                "fq",
	"FairQueueingControlledDelay": "fq_codel", "FlowQueuePIE": "fq_pie", "GenericRandomEarlyDetection": "gred",
	"HeavyHitterFilter": "hhf", "HierarchyTokenBucket": "htb", "NetworkEmulator": "netem", "PFIFO": "pfifo",
	"PFIFOFast": "pfifo_fast", "PFIFOHeadDrop": "pfifo_head_drop", "PIE": "pie", "QuickFairQueueing": "qfq",
	"StochasticFairBlue": "sfb", "StochasticFairnessQueueing": "sfq", "TokenBucketFilter": "tbf",
	"TrivialLinkEqualizer": "teql",
}

// Match is what a file of networkd's asks of the devices that it is for: systemd.network(5), [Match].
type Match struct {
	File   string `json:"file"`
	Dev    string `json:"dev,omitempty"` // patterns; behind "!" those that it must not be
	MAC    string `json:"mac,omitempty"`
	Type   string `json:"type,omitempty"` // ether, wlan, bridge …
	Kind   string `json:"kind,omitempty"`
	Driver string `json:"driver,omitempty"`
	More   bool   `json:"more,omitempty"` // also what cannot be told here: the machine, a property of udev's
}

// empty reports whether it asks for nothing. networkd passes over such a file.
func (m Match) empty() bool { return m == Match{File: m.File} }

// readLine reads a line of it. A line without a value forgets those before it.
func (m *Match) readLine(key, value string) {
	add := func(list *string, words ...string) {
		if value == "" {
			*list = ""
		}
		*list = strings.TrimSpace(*list + " " + strings.Join(words, " "))
	}
	switch key {
	case "Name":
		add(&m.Dev, value)
	case "MACAddress", "PermanentMACAddress":
		add(&m.MAC, macList(value)...)
	case "Type":
		add(&m.Type, value)
	case "Kind":
		add(&m.Kind, value)
	case "Driver":
		add(&m.Driver, value)
	default:
		m.More = m.More || value != ""
	}
}

// macList are the addresses in a list, as Link has them.
func macList(list string) (found []string) {
	for word := range strings.FieldsSeq(list) {
		if mac, err := net.ParseMAC(word); err == nil {
			found = append(found, mac.String())
		}
	}
	return found
}

// cards are networkd's types of devices that the kernel has no kind for.
var cards = []string{"wlan", "wwan"}

// mayMatch reports whether a device may be meant, as far as that can be told.
func (m Match) mayMatch(l Link) bool {
	kind := networkdType(l)
	hasKind := func(name string) bool { return !slices.Contains(cards, name) }
	wireless := l.Kind != "" && m.Type != "" && !slices.ContainsFunc(strings.Fields(m.Type), hasKind)
	return nameMayMatch(m.Dev, l.Name) && (l.MAC == "" || nameMayMatch(m.MAC, l.MAC)) &&
		(kind == "" || nameMayMatch(m.Type, kind)) && !wireless && nameMayMatch(m.Kind, l.Kind) &&
		(l.Driver == "" || nameMayMatch(m.Driver, l.Driver))
}

// surelyMatches reports whether a device is meant for certain.
func (m Match) surelyMatches(l Link) bool {
	unknown := m.MAC != "" && l.MAC == "" || m.Type != "" && networkdType(l) == "" || m.Driver != "" && l.Driver == ""
	return !m.empty() && !m.More && !unknown && m.mayMatch(l)
}

// networkdType is what networkd calls the type of a device, "" where that is not known: the DEVTYPE that its driver
// gives, or else what it is by its frames.
func networkdType(l Link) string {
	switch {
	case l.Loopback:
		return "loopback"
	case slices.Contains([]string{"bridge", "bond", "vlan", "vxlan", "wireguard", "geneve"}, l.Kind):
		return l.Kind
	case l.Kind != "" || l.MAC == "":
		return ""
	case strings.HasPrefix(l.Name, "wl"): // as systemd names them (systemd.net-naming-scheme(7))
		return "wlan"
	case strings.HasPrefix(l.Name, "ww"):
		return "wwan"
	}
	return "ether"
}

// networkd gives the queues in networkd's files, sorted as it reads them: by name across all directories, of which the
// first one with a name masks the others. Of the files that mean a device it heeds the first alone.
func (t *tree) networkd() (found []Writer) {
	var dirs []string
	for _, above := range []string{"etc", "run", "usr/local/lib", "usr/lib"} { // the first first
		dirs = append(dirs, above+"/systemd/network")
	}
	first := t.indexDirs(dirs, ".network")
	var before []Match
	for _, name := range first.names {
		file := first.path[name]
		text := t.read(file)
		if len(text) == 0 && !t.isEmpty(file) {
			continue // it may not be read
		}
		match := Match{File: "/" + file}
		queues := networkdFile(file, text, &match)
		var subs []string
		for _, dir := range dirs {
			subs = append(subs, path.Join(dir, name+".d"))
		}
		parts := t.indexDirs(subs, ".conf")
		for _, part := range parts.names {
			queues = append(queues, networkdFile(parts.path[part], t.read(parts.path[part]), &match)...)
		}
		idle := ""
		switch {
		case len(text) == 0:
			idle = "/" + file + " is empty, and so nothing of that name is read"
		case match.empty():
			idle = "no [Match] says which devices are meant"
		}
		for _, w := range queues {
			w.Dev, w.MAC, w.Idle = match.Dev, match.MAC, idle
			w.Match, w.Before = &match, slices.Clone(before)
			found = append(found, w)
		}
		found = append(found, t.networkdMasked(first.masked[name], file)...)
		for _, part := range parts.names {
			found = append(found, t.networkdMasked(parts.masked[part], parts.path[part])...)
		}
		if len(text) > 0 && !match.empty() {
			before = append(before, match)
		}
	}
	for _, dir := range dirs {
		for _, sub := range t.subdirectories(dir) {
			name, ok := strings.CutSuffix(sub, ".d")
			if !ok || !strings.HasSuffix(name, ".network") || first.path[name] != "" {
				continue
			}
			for _, part := range t.list(path.Join(dir, sub), ".conf") {
				var match Match
				file := path.Join(dir, sub, part)
				for _, w := range networkdFile(file, t.read(file), &match) {
					w.Dev, w.MAC, w.Idle = match.Dev, match.MAC, "there is no "+name+" that it would add to"
					found = append(found, w)
				}
			}
		}
	}
	return found
}

// isEmpty reports whether a file has nothing in it, or is /dev/null.
func (t *tree) isEmpty(name string) bool {
	name, ok := t.resolve(name)
	info, err := fs.Stat(t.root, name)
	return !ok || err == nil && info.Size() == 0
}

// networkdMasked are the queues in files that are not read for another one of the same name.
func (t *tree) networkdMasked(files []string, by string) (found []Writer) {
	read, _ := t.resolve(by)
	for _, file := range files {
		if to, _ := t.resolve(file); to == read || strings.HasPrefix(file, "usr/lib/") {
			continue // the same file, or a package's, which is there to be replaced
		}
		var match Match
		for _, w := range networkdFile(file, t.read(file), &match) {
			w.Dev, w.MAC, w.Idle = match.Dev, match.MAC, "/"+by+" takes its place"
			found = append(found, w)
		}
	}
	return found
}

// fileIndex are the files of several directories by their names.
type fileIndex struct {
	names  []string            // sorted
	path   map[string]string   // that counts
	masked map[string][]string // the paths that do not
}

func (t *tree) indexDirs(dirs []string, suffix string) fileIndex {
	b := fileIndex{path: map[string]string{}, masked: map[string][]string{}}
	for _, dir := range dirs {
		for _, name := range t.list(dir, suffix) {
			if file := path.Join(dir, name); b.path[name] == "" {
				b.names = append(b.names, name)
				b.path[name] = file
			} else {
				b.masked[name] = append(b.masked[name], file)
			}
		}
	}
	slices.Sort(b.names)
	return b
}

// networkdFile gives the queues in a file, and notes in match which devices it means.
func networkdFile(file string, text []byte, match *Match) (found []Writer) {
	in := ""
	var queue *Writer // of the section in which a line is
	end := func() {
		if queue != nil {
			found = append(found, *queue)
		}
		queue = nil
	}
	for number, l := range logicalLines(text) {
		if m := section.FindStringSubmatch(l); m != nil {
			end()
			if in = m[1]; networkdKinds[in] != "" {
				queue = &Writer{By: "networkd", File: "/" + file, Line: number, Text: truncate(l),
					Qdisc: networkdKinds[in]}
			}
			continue
		}
		key, value, _ := strings.Cut(l, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		switch {
		case in == "Match":
			match.readLine(key, value)
		case queue != nil && key == "Parent" && value != "root":
			queue = nil // what hangs below a root, or at the ingress, is no queue of its own
		case queue != nil && (key == "Bandwidth" || key == "Rate"):
			queue.Rate = networkdRate(value)
		}
	}
	end()
	return found
}

// networkdRate reads a rate in its words: bit/s, with K, M or G of 1000. 0 if it is none.
func networkdRate(value string) units.Rate {
	rate, err := units.ParseTCRate(strings.ToLower(value) + "bit")
	if err != nil {
		return 0
	}
	return rate
}
