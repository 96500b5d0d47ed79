// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	netlinks "github.com/vishvananda/netlink"

	"weir/internal/lab/boot"
	"weir/internal/lab/uml"
	"weir/internal/lab/uml/umltest"
)

// tdcInside is where the guest has the cases of the kernel's own tests of tc (tools/testing/selftests/tc-testing), of
// the source that the lab's kernel is built from.
const tdcInside = "/tdc"

// What tdc makes, Weir makes with the same bytes where it has the words, and puts back exactly or refuses: every case
// of its suites of qdiscs and filters, in the lab's kernel.
func TestTDC(t *testing.T) {
	kernel, err := uml.Find()
	if err != nil {
		t.Skip("skipped, not passed: it needs the lab kernel (make lab-kernel)")
	}
	files := tcFiles(t)
	if len(files) == 0 {
		t.Skip("skipped, not passed: it needs the newest tc (make tc)")
	}
	cases := filepath.Join(filepath.Dir(kernel.Path), "tc-tests")
	err = fs.WalkDir(os.DirFS(cases), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		body, err := os.ReadFile(filepath.Join(cases, name))
		files = append(files, boot.File{Name: path.Join(tdcInside, name), Body: body})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	umltest.Run(t, "^TestInTDC$", files...)
}

// tdcCase is what a case says of what is done and what comes of it.
type tdcCase struct {
	ID      string          `json:"id"`
	Setup   json.RawMessage `json:"setup"` // strings, and lists of a string and exit statuses
	Command string          `json:"cmdUnderTest"`
	Exit    json.RawMessage `json:"expExitCode"`
}

func (k tdcCase) setup() (lines []string) {
	var list []json.RawMessage
	_ = json.Unmarshal(k.Setup, &list)
	for _, one := range list {
		var line string
		if json.Unmarshal(one, &line) != nil {
			var parts []json.RawMessage
			if json.Unmarshal(one, &parts) == nil && len(parts) > 0 {
				_ = json.Unmarshal(parts[0], &line)
			}
		}
		lines = append(lines, line)
	}
	return lines
}

// The rules by which a case is not tried, and by which Weir may say something else than tc. The first that matches
// names it.
type tdcRule struct{ name, pattern string }

var (
	notTried = []tdcRule{
		{"it takes a program that is built for it", `\$EBPFDIR|action bpf obj|object-file|object-pinned|pinned`},
		{"it is a script", `^(?:\./|bash|sh |ping|/bin|python|for |tdc_)|[;|&<>` + "`" + `]|\$BATCH|-b `},
		{"it shows, or takes away", `^\$TC (?:-\S+ )*\w+ (?:show|get|del|delete|list|flush)`},
		{"it is about links", `^\$IP`},
	}
	// The kernel of the lab does not have all: what tc says then.
	notHere  = regexp.MustCompile(`(?i)kind is unknown|classifier not found|action module|unknown qdisc|no such device|cannot find (?:device|ematch)|No such file or directory`)
	weirSays = []tdcRule{
		{"a number without a unit", `has no unit`},
		{"no words for it", `unknown option|unknown queueing discipline|is not (?:a whole number|a class)|needs a rate|given twice|contradicts`},
		{"a leading zero", `leading zero`},
		{"a zero that switches something off", `^\S+ .*: 0 is out of range|: 0 is out of range`},
		{"ceil below rate", `ceil .* is below|is below its rate|below the rate`},
	}
)

func match(rules []tdcRule, text string) (string, bool) {
	for _, r := range rules {
		if regexp.MustCompile(r.pattern).MatchString(text) {
			return r.name, true
		}
	}
	return "", false
}

var (
	tdcQueues  = regexp.MustCompile(`echo "?1 1 (\d+)"? ?> ?/sys/bus/netdevsim/new_device`)
	tdcDevices = regexp.MustCompile(`\$(?:DUMMY|ETH|DEV[0-9])\b`)
	tdcQuoted  = regexp.MustCompile(`'[^']*'|"[^"]*"`)
	tdcMade    = regexp.MustCompile(`^qdisc (add|replace|change|link) dev DEV (?:handle \S+ )?(?:root|parent root)(?: handle \S+)? (.*)$`)
	tdcClass   = regexp.MustCompile(`^class add dev DEV parent 1: classid 1:1 htb (.*)$`)
	tdcHandle  = regexp.MustCompile(`handle \S+ ?`)
)

// tdcLine gives a case's line in the terms of run, for a device DEV. What tdc hangs at the ingress hangs below a root
// here, for that is what Weir takes away and puts back.
func tdcLine(line string, filters bool) string {
	line = tdcDevices.ReplaceAllString(strings.TrimSpace(line), "DEV")
	line = strings.NewReplacer("$TC ", "tc ", "$IP ", "ip ", `\"`, `"`).Replace(strings.TrimSuffix(line, " || true"))
	if filters {
		line = regexp.MustCompile(`qdisc add dev DEV (?:parent ffff: )?(?:handle ffff: )?(?:ingress|clsact)$`).ReplaceAllString(line, "qdisc add dev DEV root handle ffff: htb")
		line = regexp.MustCompile(`dev DEV ingress|dev DEV parent ffff:fff2`).ReplaceAllString(line,
			"dev DEV parent ffff:")
		if strings.Contains(line, " ingress") && strings.HasPrefix(line, "tc filter") {
			line = strings.Replace(line, " ingress", " parent ffff:", 1)
		}
	}
	return line
}

// tdc runs cases, and counts what came of them.
type tdc struct {
	*testing.T
	c      *Conn
	n      int
	counts map[string]map[string]int // by file, by outcome
	file   string
	bad    []string
}

func (d *tdc) count(outcome string) {
	if d.counts[d.file] == nil {
		d.counts[d.file] = map[string]int{}
	}
	d.counts[d.file][outcome]++
}

func (d *tdc) wrong(k tdcCase, format string, args ...any) {
	d.count("WRONG")
	d.bad = append(d.bad, fmt.Sprintf("%s %s (%s): %s", d.file, k.ID, k.Command, fmt.Sprintf(format, args...)))
}

// device makes a fresh one with so many queues (0: a dummy).
func (d *tdc) device(queues int) (string, int) {
	d.Helper()
	d.n++
	attrs := netlinks.NewLinkAttrs()
	attrs.Name = fmt.Sprintf("t%d", d.n)
	var l netlinks.Link = &netlinks.Dummy{LinkAttrs: attrs}
	if queues > 0 {
		attrs.NumTxQueues, attrs.NumRxQueues = queues, queues
		l = &netlinks.Veth{LinkAttrs: attrs, PeerName: fmt.Sprintf("p%d", d.n)}
	}
	if err := netlinks.LinkAdd(l); err != nil {
		d.Fatal(err)
	}
	l, err := netlinks.LinkByName(attrs.Name)
	if err == nil {
		err = netlinks.LinkSetUp(l)
	}
	if err != nil {
		d.Fatal(err)
	}
	return attrs.Name, l.Attrs().Index
}

func (d *tdc) gone(ifindex int) {
	d.Helper()
	if l, err := netlinks.LinkByIndex(ifindex); err == nil {
		if err := netlinks.LinkDel(l); err != nil {
			d.Fatal(err)
		}
	}
}

// prepare makes a device and what the case wants to find; false if that is missing.
func (d *tdc) prepare(k tdcCase, filters bool) (dev string, ifindex int, missing string) {
	queues := 0
	var lines []string
	for _, line := range k.setup() {
		if m := tdcQueues.FindStringSubmatch(line); m != nil {
			_, _ = fmt.Sscan(m[1], &queues)
			continue
		}
		if strings.Contains(line, "modprobe") {
			continue
		}
		lines = append(lines, line)
	}
	dev, ifindex = d.device(queues)
	for _, line := range lines {
		if !strings.HasPrefix(line, "$TC ") && !strings.HasPrefix(line, "$IP ") ||
			strings.ContainsAny(tdcQuoted.ReplaceAllString(strings.TrimSuffix(line, " || true"), ""), ";|&<>`") ||
			strings.Contains(line, "$EBPFDIR") {
			return dev, ifindex, "its setup is a script"
		}
		if said, err := run(d.T, strings.ReplaceAll(tdcLine(line, filters), "DEV", dev)); err != nil &&
			!strings.Contains(line, "|| true") {
			if notHere.MatchString(said) {
				return dev, ifindex, "the lab's kernel does not have it"
			}
			return dev, ifindex, "tc does not do here what it expects"
		}
	}
	return dev, ifindex, ""
}

func TestInTDC(t *testing.T) {
	if !umltest.Inside() {
		t.Skip("skipped here: TestTDC runs it in the lab's kernel")
	}
	c, _ := live(t)
	d := &tdc{T: t, c: c, counts: map[string]map[string]int{}}
	for _, suite := range []string{"qdiscs", "filters"} {
		files, err := filepath.Glob(path.Join(tdcInside, suite, "*.json"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no cases of %s: %v", suite, err)
		}
		for _, file := range files {
			body, err := os.ReadFile(file)
			var cases []tdcCase
			if err == nil {
				err = json.Unmarshal(body, &cases)
			}
			if err != nil {
				t.Fatal(file, err)
			}
			d.file = suite + "/" + strings.TrimSuffix(filepath.Base(file), ".json")
			for _, k := range cases {
				d.run(k, suite == "filters")
			}
		}
	}
	d.report()
}

func (d *tdc) run(k tdcCase, filters bool) {
	if rule, ok := match(notTried, tdcQuoted.ReplaceAllString(k.Command, "")); ok {
		d.count("not tried: " + rule)
		return
	}
	dev, ifindex, missing := d.prepare(k, filters)
	defer func() { d.gone(ifindex) }()
	if missing != "" {
		d.count("not tried: " + missing)
		return
	}
	line := tdcLine(k.Command, filters)
	said, err := run(d.T, strings.ReplaceAll(line, "DEV", dev))
	if expected := strings.Trim(string(k.Exit), `"`) == "0"; (err == nil) != expected {
		if notHere.MatchString(said) {
			d.count("not tried: the lab's kernel does not have it")
		} else {
			d.count("not tried: tc does not do here what it expects")
			fmt.Printf("%s %s: %s: %s\n", d.file, k.ID, line, said)
		}
		return
	}
	theirs, treeErr := d.c.Tree(ifindex)
	if treeErr != nil {
		d.wrong(k, "tree: %v", treeErr)
		return
	}
	d.inWords(k, strings.TrimPrefix(line, "tc "), err == nil, theirs)
	d.putsBack(k, dev, ifindex, theirs)
}

// inWords lets Weir do what tc has done, where it has words for it.
func (d *tdc) inWords(k tdcCase, line string, done bool, theirs Tree) {
	verb, text := "add", ""
	if m := tdcMade.FindStringSubmatch(line); m != nil {
		verb, text = m[1], m[2]
	} else if m := tdcClass.FindStringSubmatch(line); m != nil {
		text = "htb default 1 " + m[1]
	} else {
		return // no whole tree, and Weir makes no other
	}
	_, ifindex, _ := d.prepare(k, false)
	defer d.gone(ifindex)
	err := d.weir(ifindex, verb, text)
	switch {
	case err != nil && !done:
		d.count("words: refused by both")
	case err != nil:
		if rule, ok := match(weirSays, err.Error()); ok {
			d.count("words: refused, " + rule)
		} else {
			d.wrong(k, "Weir refuses: %v", err)
		}
	case !done:
		// Is it the options that tc does not take, or the place and the handle, which are Weir's own?
		other, index, _ := d.prepare(k, false)
		defer d.gone(index)
		if err := d.c.Delete(index, Root); err != nil {
			d.Fatal(err)
		}
		if said, err := run(d.T, "tc qdisc add dev "+other+" root "+text); err != nil {
			d.wrong(k, "tc refuses the options: %s", said)
		} else {
			d.count("words: places and handles")
		}
	default:
		ours, err := d.c.Tree(ifindex)
		if err != nil {
			d.wrong(k, "tree: %v", err)
			return
		}
		a, _ := theirs.Root()
		b, _ := ours.Root()
		same := bytes.Equal(replayable(a.Kind, a.Options), replayable(b.Kind, b.Options)) &&
			slices.EqualFunc(theirs.Classes, ours.Classes,
				func(a, b Class) bool { return bytes.Equal(a.Options, b.Options) })
		switch s, ok := theirs.Stack(); {
		case same || strings.HasPrefix(text, "htb default 1") && len(theirs.Classes) == 1 &&
			bytes.Equal(theirs.Classes[0].Options, ours.Classes[0].Options):
			d.count("words: the same bytes")
		case a.Kind == "netem" && ok: // but for its seed
			if mine, _ := ours.Stack(); mine.Equal(s) || stripSeed(mine.String()) == stripSeed(s.String()) {
				d.count("words: the same but for the seed")
			} else {
				d.wrong(k, "Weir makes %s of it, and tc %s", mine, s)
			}
		case a.Kind == "htb" && !strings.Contains(text, " burst "):
			d.count("words: htb's burst is Weir's own where none is given")
		default:
			d.wrong(k, "Weir makes %x of it, and tc %x", b.Options, a.Options)
		}
	}
}

var seed = regexp.MustCompile(` seed \d+`)

func stripSeed(text string) string { return seed.ReplaceAllString(text, "") }

func (d *tdc) weir(ifindex int, verb, text string) error {
	netem := strings.HasPrefix(text, "netem ") // of which tc always sends all
	if verb == "change" || verb == "replace" && !netem {
		tree, err := d.c.Tree(ifindex)
		if err != nil {
			return err
		}
		words := strings.Fields(text)
		if root, ok := tree.Root(); ok && root.Spec != nil && root.Kind == words[0] && root.Handle != 0 {
			s, err := Edit(root.Spec, words[1:])
			if err != nil {
				return err
			}
			return d.c.Change(ifindex, root, s)
		}
	}
	s, err := ParseStack(text)
	if err != nil {
		return err
	}
	return d.c.Replace(ifindex, s)
}

// putsBack takes away what tc has made, and puts it back over another tree and over one with the same handle, through
// the journal's JSON.
func (d *tdc) putsBack(k tdcCase, dev string, ifindex int, tree Tree) {
	root, ok := tree.Root()
	if !ok || root.Handle == 0 {
		d.count("back: nothing that somebody made")
		return
	}
	if err := tree.Restorable(); err != nil {
		var lost *Lost
		if !errors.As(err, &lost) {
			d.wrong(k, "it is refused without a way out: %v", err)
			return
		}
		if said, err := run(d.T, lost.Remove(dev)); err != nil {
			d.wrong(k, "%s: %s", lost.Remove(dev), said)
			return
		}
		_, why, _ := strings.Cut(err.Error(), ": ")
		d.count("back: refused, " + regexp.MustCompile(`^.*pref \d+[^:]*: `).ReplaceAllString(why, ""))
		return
	}
	written, err := json.Marshal(tree)
	var read Tree
	if err == nil {
		err = json.Unmarshal(written, &read)
	}
	if err != nil {
		d.wrong(k, "JSON: %v", err)
		return
	}
	before := shown(d.T, dev, tree)
	for _, other := range []string{"root handle fe:", "root handle " + root.Handle.String()} {
		if err := d.c.Delete(ifindex, Root); err != nil {
			d.wrong(k, "delete: %v", err)
			return
		}
		if said, err := run(d.T, "tc qdisc replace dev "+dev+" "+other+" pfifo limit 5"); err != nil {
			d.wrong(k, "over %s: %s", other, said)
			return
		}
		if err := d.c.Restore(ifindex, read); err != nil {
			d.wrong(k, "over %s: %v", other, err)
			return
		}
		if after := shown(d.T, dev, tree); after != before {
			d.wrong(k, "over %s it is not as it was:\n%s", other, difference(before, after))
			return
		}
		if now, err := d.c.Tree(ifindex); err != nil || !now.Same(tree) {
			d.wrong(k, "over %s: another tree than it was, %v", other, err)
			return
		}
	}
	if strings.HasPrefix(d.file, "filters/") && len(tree.Filters) == 0 {
		d.count("back: exactly, but tc has refused the filter")
		return
	}
	d.count("back: exactly")
}

// report prints the table, and fails for what is neither agreed nor named by a rule.
func (d *tdc) report() {
	total := map[string]int{}
	for _, file := range slices.Sorted(maps.Keys(d.counts)) {
		var parts []string
		for _, outcome := range slices.Sorted(maps.Keys(d.counts[file])) {
			n := d.counts[file][outcome]
			total[outcome] += n
			parts = append(parts, fmt.Sprintf("%d %s", n, outcome))
		}
		fmt.Printf("%-22s %s\n", file, strings.Join(parts, " · "))
	}
	for _, outcome := range slices.Sorted(maps.Keys(total)) {
		fmt.Printf("%5d  %s\n", total[outcome], outcome)
	}
	if total["back: exactly"] == 0 || total["words: the same bytes"] == 0 {
		d.Error("nothing was tried")
	}
	for _, bad := range d.bad {
		d.Error(bad)
	}
}
