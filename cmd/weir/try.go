// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/muesli/cancelreader"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"weir/internal/cli"
	"weir/internal/hint"
	"weir/internal/meter"
	"weir/internal/meter/far"
	"weir/internal/plan"
	"weir/internal/text"
	"weir/internal/trial"
	"weir/internal/units"
)

// How long weir up waits for weir confirm: enough to log in again, and no longer than a person wants to be locked out.
const (
	minTimeout   = 10 * time.Second
	usualTimeout = time.Minute
	maxTimeout   = time.Hour
)

// tryOptions are those of weir try that are not the goal's.
type tryOptions struct {
	yes, dryRun    bool
	json, markdown bool
	time           time.Duration
	program        string
	fetch          string // URL of a file there; "": none
}

func newTryCommand() *cobra.Command {
	var goal plan.Goal
	o := tryOptions{time: 25 * time.Second}
	cmd := &cobra.Command{
		Use:   "try USER@HOST… [--rate RATE] …",
		Short: "Measure, change, measure again, and keep what is better",
		Long: `Tries a goal on another Linux host, from here, over ssh. Nothing has to be
installed there, but it needs root, or sudo or doas.

  1. copy this program into a folder of its own there
  2. measure the way there, as weir measure does, and show the plan
  3. change the host, with a timer that puts everything back
  4. measure again, and print both side by side
  5. ask whether to keep it

Without --rate the other host listens while its link is full, and finds the rate
by itself. With one client it cannot tell its own link from that client's line.
So you are asked whether yours is faster.

On "keep" the program goes to ` + trial.Installed + `, and the goal is kept over a
reboot. On "no" the host is put back as it was, and the copy is removed. If the
connection breaks meanwhile, the timer puts the host back by itself.

With --yes nobody is asked: it is kept if it is better by more than chance, and
nothing else is worse. With --dry-run it ends after the plan.

Several hosts are tried in the order in which they are named. The first that
fails or is put back ends it, and the rest stay untouched. A table comes last:
the 90th percentile of the added delay, of the load under which it was longest.

With --fetch a file of the host's own web server is downloaded five times before
and five times after. The table then has the median time of a download, too.
HOST in the URL stands for each host's name.

Exit status: 0 all kept, or with --dry-run planned; 1 put back, or failed; 2
wrong usage.`,
		Example: `  weir try root@vps
  weir try root@vps --rate 50mbit
  weir try me@vps --rate 50mbit --dry-run
  weir try root@a root@b root@c --rate 50mbit --yes --markdown
  weir try root@a root@b --loss 1% --rtt 167ms --fetch https://HOST/100M.bin`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.Usage("weir try user@host", "no host is named")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(goal); err != nil {
				return err
			}
			if goal == (plan.Goal{}) {
				goal.Follow = plan.Auto
			}
			hosts, err := hostsToTry(args)
			if err != nil {
				return err
			}
			if err := o.checkFetch(hosts); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
			defer stop()
			out := cmd.OutOrStdout()
			says := out
			if o.json || o.markdown { // what a program reads has nothing else in it
				says = cmd.ErrOrStderr()
			}
			terminal := term.IsTerminal(int(os.Stdin.Fd()))
			trials, err := tryEach(ctx, hosts, func(ctx context.Context, name string) (triedHost, error) {
				t := &attempt{tryOptions: o, goal: goal, in: stdinLines(), w: says, errs: cmd.ErrOrStderr(),
					terminal: terminal, host: far.Host{Name: name, Interactive: terminal},
					triedHost: triedHost{Hostname: name, State: unchanged}}
				err := t.run(ctx)
				return t.triedHost, err
			})
			return cmp.Or(o.showTried(out, trials), err)
		},
	}
	addGoal(cmd, &goal)
	f := cmd.Flags()
	f.Lookup("runtime").Hidden = true
	f.BoolVar(&o.yes, "yes", false, "ask nobody: keep it if it is better, else put it back")
	f.BoolVar(&o.dryRun, "dry-run", false, "show the plan, and change nothing")
	f.Var((*timeOption)(&o.time), "time", "`time` of each of the two measurements, 5s to 300s")
	f.BoolVar(&o.markdown, "markdown", false, "print the table in Markdown, and all else to stderr")
	f.BoolVar(&o.json, "json", false, "print the table as JSON, and all else to stderr")
	f.StringVar(&o.fetch, "fetch", "", "also download this file from there: a `URL`, as http://HOST/100M.bin")
	f.StringVar(&o.program, "program", "", "`file` to copy there (default: this program, or the one for that\n"+
		"machine beside it, as weir-linux-arm64)")
	cli.TakesFile(cmd, "program")
	return cmd
}

func (o tryOptions) check(goal plan.Goal) error {
	if err := (measureOptions{time: o.time, conns: 1}).check(); err != nil {
		return err
	}
	if o.json && o.markdown {
		return cli.Usage("--json or --markdown", "--json and --markdown exclude each other")
	}
	if goal.Runtime {
		return cli.Usage("weir try without --runtime", "what is tried and kept is kept over a reboot")
	}
	var refusal *hint.Error
	if err := goal.Check(); errors.As(err, &refusal) {
		return refusal
	}
	return nil
}

// upAnswer is what weir up says of its run.
type upAnswer struct {
	Goal      plan.Goal      `json:"goal"`
	RevertsIn units.Duration `json:"reverts_in"`
}

// goalState is what a host says of its goal.
type goalState struct {
	Up          bool      `json:"up"`
	Unconfirmed bool      `json:"unconfirmed"`
	Goal        plan.Goal `json:"goal"`
}

// attempt is a try under way.
type attempt struct {
	tryOptions
	triedHost
	goal     plan.Goal
	host     far.Host
	in       io.Reader // what is typed
	w, errs  io.Writer
	terminal bool
	machine  *trial.Machine
	up       upAnswer      // there
	took     time.Duration // for a measurement, its connections included
}

func (t *attempt) run(ctx context.Context) (err error) {
	if t.machine, err = trial.Open(ctx, t.host); err != nil {
		return err
	}
	program, err := t.find(t.machine.Arch)
	if err != nil {
		return err
	}
	if err := t.askPassword(ctx); err != nil {
		return err
	}
	t.step("copying %d MB to %s", len(program)>>20, t.host.Name)
	defer t.remove(context.WithoutCancel(ctx)) // what a copy that failed has left, too
	if err := t.machine.Copy(ctx, program); err != nil {
		return err
	}
	for _, dir := range t.machine.Left {
		t.step("an earlier try was cut short: its copy of weir in %s is removed", dir)
	}
	if err := t.refuseOwned(ctx); err != nil {
		return err
	}
	if t.dryRun {
		t.State = planned
		return t.plan(ctx)
	}
	before, rate, err := t.first(ctx)
	if err != nil {
		return err
	}
	t.before(before)
	fmt.Fprintln(t.w, text.OneLine(before.Says))
	if before.file != nil {
		fmt.Fprintln(t.w, text.OneLine(before.file.Says))
	}
	if t.goal.Unknown() {
		if err := t.setHeardGoal(ctx, rate); err != nil {
			return err
		}
	}
	if err := t.plan(ctx); err != nil {
		return err
	}
	return t.change(ctx, before)
}

// first measures, and has the other host listen meanwhile if nobody knows its rate.
func (t *attempt) first(ctx context.Context) (sample, hearing, error) {
	if !t.goal.Unknown() {
		r, err := t.measure(ctx, "before")
		return r, hearing{}, err
	}
	listening, stop := context.WithCancel(ctx)
	defer stop()
	heard := make(chan hearing, 1)
	go func() { heard <- t.listen(listening) }()
	r, err := t.measure(ctx, "before")
	if err != nil {
		return r, hearing{}, err
	}
	const late = 5 * time.Second // what was heard comes over the same link
	select {
	case h := <-heard:
		return r, h, nil
	case <-time.After(late):
		return r, hearing{Says: "it was not full for long enough"}, nil
	}
}

// listen asks the other host what its own traffic tells of its link, from before the load until that is known.
func (t *attempt) listen(ctx context.Context) hearing {
	patience := 2*t.time + time.Minute // hosts that are slow connect slowly
	out, err := t.machine.Weir(ctx, append([]string{"plan", "--json", "--listen", units.Duration(patience).String()},
		t.goal.Args()...)...)
	if err != nil {
		return hearing{Says: err.Error()}
	}
	var said struct{ Heard *hearing }
	if err := json.Unmarshal([]byte(out), &said); err != nil || said.Heard == nil {
		return hearing{Says: "its shaper is not one that a rate could be found for"}
	}
	return *said.Heard
}

// setHeardGoal makes a goal of what was heard. Of one client alone a person has to say that the rate is the server's.
func (t *attempt) setHeardGoal(ctx context.Context, h hearing) error {
	if h.Rate == 0 {
		return hint.Wrap(fmt.Errorf("%s does not find the rate of its link: %s", t.host.Name, text.OneLine(h.Says)),
			"--rate 50mbit, what its provider sold, or --time 60s")
	}
	found := h.Rate.String()
	if h.Alone {
		fmt.Fprintln(t.w)
		printWrapped(t.w, "", fmt.Sprintf("The way from %s to here carries %s. If your own line has more, that is the "+
			"server's link. If not, others who reach it faster would be held to that.", t.host.Name, found))
		if !t.terminal || t.yes {
			return hint.Wrap(errors.New("whether that is the server's link, nobody here can say"),
				"--rate "+found+", if it is")
		}
		if !t.ask(ctx, "Has your own line more than "+found+"? [y/N] ") {
			return hint.Wrap(fmt.Errorf("%s is unchanged: the rate of its link is not known", t.host.Name),
				"--rate 50mbit, what its provider sold")
		}
	} else {
		fmt.Fprintf(t.w, "The link of %s carries %s, as its own traffic tells.\n", t.host.Name, found)
	}
	t.goal.Rate, t.goal.Follow = h.Rate, ""
	return nil
}

// remove takes the copy away. What stood in the way, a full queue, is gone a moment later.
func (t *attempt) remove(ctx context.Context) {
	var err error
	for range 3 {
		if err = t.machine.Remove(ctx); err == nil {
			return
		}
		time.Sleep(5 * time.Second)
	}
	fmt.Fprintf(t.errs, "weir: the copy is still there: %v\n  try: ssh %s rm -r %s\n", err, t.host.Name,
		t.machine.Folder())
}

func (t *attempt) step(format string, args ...any) {
	fmt.Fprintf(t.errs, format+" …\n", args...)
}

// find is the program for a machine.
func (t *attempt) find(arch string) ([]byte, error) {
	path := t.program
	if path == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		if path = self; runtime.GOOS != "linux" || runtime.GOARCH != arch {
			path = filepath.Join(filepath.Dir(self), "weir-linux-"+arch)
		}
	}
	b, err := os.ReadFile(path)
	if err == nil && (len(b) < 4 || string(b[:4]) != "\x7fELF") {
		err = errors.New("is no program of Linux's")
	}
	if err != nil {
		err = fmt.Errorf("%s is %s, and %s: %w", t.host.Name, arch, path, cmp.Or(errors.Unwrap(err), err))
		return nil, hint.Wrap(err, "--program weir-linux-"+arch+", of the same release")
	}
	return b, nil
}

// askPassword asks for what sudo or doas on the other host wants, and has it checked.
func (t *attempt) askPassword(ctx context.Context) error {
	if !t.machine.WantsPassword() {
		return nil
	}
	if !t.terminal {
		return hint.Wrap(fmt.Errorf("%s on %s wants a password", t.machine.By(), t.host.Name),
			"weir try at a terminal, or as root@")
	}
	terminal := int(os.Stdin.Fd())
	before, err := term.GetState(terminal)
	if err != nil {
		return err
	}
	fmt.Fprintf(t.errs, "Password for %s on %s: ", t.machine.By(), t.host.Name)
	typed := make(chan error, 1)
	go func() {
		b, err := term.ReadPassword(terminal)
		t.machine.Password = string(b)
		typed <- err
	}()
	select {
	case err = <-typed:
		fmt.Fprintln(t.errs)
	case <-ctx.Done(): // the terminal still hides what is typed
		fmt.Fprintln(t.errs)
		return cmp.Or(term.Restore(terminal, before), errors.New("interrupted"))
	}
	if err != nil {
		return err
	}
	return t.machine.Allowed(ctx)
}

// sample is what one look at a host has found.
type sample struct {
	meter.Result
	file *meter.Fetches // nil: none was downloaded
}

// compare sets two looks side by side.
func (m sample) compare(after sample) []meter.Row {
	rows := meter.Compare(m.Result, after.Result)
	if m.file != nil && after.file != nil {
		rows = append(rows, meter.CompareFetches(m.file, after.file)...)
	}
	return rows
}

func (t *attempt) measure(ctx context.Context, when string) (m sample, err error) {
	began, line := time.Now(), cli.NewProgress(t.errs)
	rec, err := far.Measure(ctx, t.host, meter.Options{Time: t.time, Conns: 4, Progress: func(p meter.Progress) {
		line.Say(p.Elapsed, func() string { return when + " · " + progressLine(p) })
	}})
	line.Clear()
	if err == nil && ctx.Err() == nil {
		m.Result = meter.Summarize(rec)
		m.file, err = t.download(ctx, when)
	}
	t.took = time.Since(began)
	if ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	return m, err
}

// download fetches the file that --fetch names.
func (t *attempt) download(ctx context.Context, when string) (*meter.Fetches, error) {
	if t.fetch == "" {
		return nil, nil
	}
	url := t.fileURL(t.host.Name)
	file, err := meter.FindFile(ctx, url, "")
	if err != nil {
		return nil, err
	}
	if file == nil {
		return nil, hint.New(url+" is no file", "--fetch "+strings.Replace(exampleFile, hostWord, t.host.Name, 1))
	}
	line := cli.NewProgress(t.errs)
	defer line.Clear()
	return meter.FetchFile(ctx, file, downloads, func(done int, elapsed time.Duration) {
		line.Say(elapsed, func() string { return when + " · " + downloadLine(done, downloads, elapsed) })
	})
}

// refuseOwned refuses a host that weir has in hand already.
func (t *attempt) refuseOwned(ctx context.Context) error {
	s, err := t.goalState(ctx, "status")
	if err != nil {
		return fmt.Errorf("weir does not run on %s: %w", t.host.Name, err)
	}
	if s.Up {
		return hint.Wrap(fmt.Errorf("weir has %s in hand already", t.host.Name),
			t.remoteCommand("up "+t.goal.Flags()))
	}
	return nil
}

// goalState is how the host stands after a command that reports it. One that says so has not failed.
func (t *attempt) goalState(ctx context.Context, command string) (s goalState, err error) {
	out, err := t.machine.Weir(ctx, command, "--json")
	if bad := json.Unmarshal([]byte(out), &s); bad != nil {
		return s, cmp.Or(err, bad)
	}
	return s, nil
}

// isOwn reports whether a goal that is up there is this try's. Where the answer of weir up was lost, that is one which
// nobody has confirmed, with the rate that was asked for.
func (t *attempt) isOwn(s goalState) bool {
	if t.up.Goal == (plan.Goal{}) {
		return s.Unconfirmed && s.Goal.Rate == t.goal.Rate && s.Goal.Follow == t.goal.Follow
	}
	confirmed := t.up.RevertsIn == 0 || t.State == untilReboot // by this try
	return s.Goal == t.up.Goal && (s.Unconfirmed || confirmed)
}

// plan shows what would change there.
func (t *attempt) plan(ctx context.Context) error {
	out, err := t.machine.Weir(ctx, append([]string{"plan"}, t.goal.Args()...)...)
	if err != nil {
		return fmt.Errorf("%s: %w", t.host.Name, err)
	}
	fmt.Fprintf(t.w, "\nOn %s:\n%s\n", t.host.Name, out)
	return nil
}

// change brings the goal up, measures, and keeps it or puts it back.
func (t *attempt) change(ctx context.Context, before sample) error {
	timeout := min(2*t.took+time.Minute, maxTimeout).Round(time.Second)
	if t.terminal && !t.yes {
		timeout = min(timeout+5*time.Minute, maxTimeout) // somebody reads and decides
	}
	t.step("changing it; put back by itself after %v", timeout)
	if err := t.refuseOwned(ctx); err != nil { // minutes have gone by
		return err
	}
	t.State = leftToTimer
	args := append([]string{"up", "--json", "--runtime", "--timeout", timeout.String()}, t.goal.Args()...)
	out, err := t.machine.Weir(ctx, args...)
	if bad := json.Unmarshal([]byte(out), &t.up); err != nil || bad != nil {
		return t.revert(ctx, fmt.Errorf("%s: %w", t.host.Name, cmp.Or(err, bad)))
	}
	after, err := t.measure(ctx, "after")
	if err != nil {
		return t.revert(ctx, err)
	}
	t.after(after)
	rows := before.compare(after)
	printBeforeAfter(t.w, before.Says, after.Says)
	printRows(t.w, cmp.Or(after.Remote, after.Target), rows, false)
	if here := after.Here(); here != "" {
		printWrapped(t.w, "", here)
	}
	better, worse := judge(rows)
	keep := better && !worse
	switch {
	case t.yes && worse:
		fmt.Fprintln(t.w, "Something is worse by more than chance: it is put back.")
	case t.yes && !better:
		fmt.Fprintln(t.w, "Nothing is better by more than chance: it is put back.")
	case !t.yes:
		keep = t.ask(ctx, "Keep it? [y/N] ")
	}
	if !keep {
		return t.revert(ctx, nil)
	}
	return t.keep(ctx)
}

// keep confirms what is in force, and has it last over reboots.
func (t *attempt) keep(ctx context.Context) error {
	switch s, err := t.goalState(ctx, "status"); {
	case err != nil:
		return t.revert(ctx, err)
	case !s.Up:
		t.State = putBack
		return hint.Wrap(fmt.Errorf("somebody on %s has taken it down meanwhile, so it is not kept", t.host.Name),
			t.remoteCommand("status"))
	case s.Goal != t.up.Goal:
		return t.revert(ctx, nil)
	}
	t.State = untilReboot // or, where no answer comes, perhaps
	if s, err := t.goalState(ctx, "confirm"); err != nil || !s.Up {
		return t.revert(ctx, cmp.Or(err, cli.ErrNo))
	}
	if err := t.machine.Install(ctx, t.goal.Args()); err != nil {
		return fmt.Errorf("%s is changed, and not yet over a reboot: %w", t.host.Name, err)
	}
	t.State = kept
	fmt.Fprintf(t.w, "Kept, also over a reboot. To undo:  %s\n", t.remoteCommand("down"))
	return nil
}

// remoteCommand is what to type here for a weir as root there.
func (t *attempt) remoteCommand(args string) string {
	words := []string{"ssh", t.host.Name, t.machine.By(), "weir", args}
	if t.machine.WantsPassword() {
		words[0] = "ssh -t"
	}
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " ")
}

// judge reports whether some delay or download is surely shorter, and whether one is surely longer or a load surely
// less than nine tenths. A download may take a tenth longer, too: what shaping costs of goodput, a few percent, is no
// reason against it.
func judge(rows []meter.Row) (better, worse bool) {
	for _, r := range rows {
		if !r.Sure {
			continue
		}
		switch r.Kind {
		case meter.RowDelay:
			better = better || r.After.Value < r.Before.Value
			worse = worse || r.After.Value > r.Before.Value
		case meter.RowGoodput:
			worse = worse || r.After.Value < 0.9*r.Before.Value
		case meter.RowTime:
			better = better || r.After.Value < r.Before.Value
			worse = worse || 0.9*r.After.Value > r.Before.Value
		}
	}
	return better, worse
}

// ask asks; whoever is not there has said no.
func (t *attempt) ask(ctx context.Context, question string) bool {
	if !t.terminal {
		fmt.Fprintln(t.w, "No terminal and no --yes: it is put back.")
		return false
	}
	in, err := cancelreader.NewReader(t.in)
	if err != nil {
		fmt.Fprintf(t.w, "The terminal cannot be read: %v.\n", err)
		return false
	}
	defer in.Close()
	fmt.Fprint(t.w, question)
	said := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(in).ReadString('\n')
		said <- line
	}()
	line := ""
	select {
	case line = <-said:
	case <-ctx.Done():
		if in.Cancel() { // nobody reads on: what is typed next may be a password that ssh asks for
			<-said
		}
	}
	if !strings.HasSuffix(line, "\n") {
		fmt.Fprintln(t.w)
	}
	answer := strings.ToLower(strings.TrimSpace(line))
	return ctx.Err() == nil && (answer == "y" || answer == "yes")
}

// stdinLines is what somebody types, line by line. Of a Windows console cancelreader would take single keys, without an
// echo, an end of line or Ctrl-C, if it knew that for a file.
func stdinLines() io.Reader {
	if runtime.GOOS == "windows" {
		return struct{ io.Reader }{os.Stdin}
	}
	return os.Stdin
}

// revert puts back what was there.
func (t *attempt) revert(ctx context.Context, why error) error {
	var err error
	for range 3 {
		late, stop := context.WithTimeout(context.WithoutCancel(ctx), t.host.Patience()+time.Minute)
		err = t.undo(late)
		stop()
		var said *far.Failed
		if err == nil || errors.As(err, &said) && said.Status != far.SSHFailed {
			break
		}
		time.Sleep(5 * time.Second)
	}
	if err != nil {
		otherwise := "the timer does it by itself"
		if t.State != leftToTimer {
			otherwise = "it may have been confirmed, and stays until a reboot then"
		}
		left := fmt.Errorf("%s: putting it back: %w; %s", t.host.Name, err, otherwise)
		return errors.Join(interrupted(why), hint.Wrap(left, t.remoteCommand("status")))
	}
	if t.State == overtaken {
		left := fmt.Errorf("somebody else has changed %s meanwhile, so it is left as it is", t.host.Name)
		return errors.Join(interrupted(why), hint.Wrap(left, t.remoteCommand("status")))
	}
	t.State = putBack
	fmt.Fprintf(t.w, "Put back: %s is as it was.\n", t.host.Name)
	return cmp.Or(why, cli.ErrNo)
}

// undo takes down what this try has brought up, and nothing of anybody else's.
func (t *attempt) undo(ctx context.Context) error {
	s, err := t.goalState(ctx, "status")
	switch {
	case err != nil:
		return err
	case s.Up && !t.isOwn(s):
		t.State = overtaken
		return nil
	}
	_, err = t.machine.Weir(ctx, "down")
	return err
}

// hearing is what this host's own traffic tells of a rate that nobody knows.
type hearing struct {
	Rate  units.Rate `json:"rate,omitempty"`  // bit/s; 0: not known
	Alone bool       `json:"alone,omitempty"` // it is what one client gets, and that may be its own line's
	Says  string     `json:"says"`
}
