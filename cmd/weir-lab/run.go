// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"weir/internal/cli"
	"weir/internal/hint"
	"weir/internal/lab"
	"weir/internal/lab/boot"
	"weir/internal/lab/qemu"
	"weir/internal/lab/report"
	"weir/internal/lab/scenario"
	"weir/internal/lab/uml"
	"weir/internal/lab/verdict"
	"weir/internal/text"
)

type options struct {
	json, markdown bool
	html, figures  string
	only           []string
	engine         string
	kernel         string
	seeds          int
	parallel       int
	shard          string
}

func newRunCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "run SCENARIO.toml …",
		Short: "Run scenarios and print what each candidate does",
		Long: `Boots a Linux kernel in virtual time for every candidate of every scenario, once
for each seed, and prints what was measured. Where a candidate is Weir, the
guest's server runs the weir that is beside this program. It needs no
privileges, and touches no network of this machine.

Needs the lab kernel: make lab-kernel. The engine qemu needs a stock Debian
kernel, which runs under emulation: make kernels. docs/scenarios.md says how a
scenario is written, and what --json holds.

Exit status: 0 every run gave a result, 1 a run failed or a claim was not
measured, 2 wrong usage. A claim that is not reproduced is a result.`,
		Example: `  weir-lab run scenarios/narrow-link.toml
  weir-lab run --html report.html scenarios/seeds/*.toml`,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return []string{"toml"}, cobra.ShellCompDirectiveFilterFileExt
		},
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.Usage("weir-lab run scenarios/narrow-link.toml", "no scenario was named")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return runScenarios(cmd, args, o)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.json, "json", false, "print the results as JSON instead of tables")
	f.BoolVar(&o.markdown, "markdown", false, "print Markdown instead of terminal tables")
	f.StringVar(&o.html, "html", "", "also write a report with pictures to this `file`")
	f.StringVar(&o.figures, "figures", "", "also write each scenario's figures as JSON into this `folder`")
	f.StringArrayVar(&o.only, "only", nil, "run only the candidate of this `name`, and judge no claim; can be repeated")
	f.StringVar(&o.engine, "engine", "", "boot with this `engine`: "+strings.Join(scenario.EngineNames(), " or ")+
		" (default: the scenario's)")
	f.StringVar(&o.kernel, "kernel", "", "with the engine qemu: boot the newest kernel of this `series`, as 6.1")
	f.IntVar(&o.seeds, "seeds", 0, "repeat each run with `n` seeds (default: the scenario's)")
	f.StringVar(&o.shard, "shard", "", "run only a part, `2/8` the second of eight, and print it for weir-lab merge")
	f.IntVar(&o.parallel, "parallel", 0, "boot `n` kernels at a time (default: one a core)")
	cmd.RegisterFlagCompletionFunc("engine", cobra.FixedCompletions(scenario.EngineNames(),
		cobra.ShellCompDirectiveNoFileComp))
	cli.TakesFile(cmd, "html")
	return cmd
}

func runScenarios(cmd *cobra.Command, files []string, o options) error {
	if err := o.check(cmd); err != nil {
		return err
	}
	scenarios, err := o.load(files)
	if err != nil {
		return err
	}
	files, scenarios, err = choose(o.only, files, scenarios)
	if err != nil {
		return err
	}
	runner, err := o.newRunner(scenarios)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP,
		syscall.SIGQUIT)
	defer stop()

	if o.html != "" { // now: who has waited for a result should not lose it to a misspelt folder
		if err := cli.Writable(o.html); err != nil {
			return hint.Wrap(err, "--html report.html, in a folder that is there and can be written")
		}
	}
	line := cli.NewProgress(cmd.ErrOrStderr())
	runner.Parallel, runner.Only, runner.Progress = o.parallel, o.only, showRun(line)
	if o.shard != "" {
		err := o.runPart(ctx, cmd, runner, files, scenarios)
		line.Clear()
		return err
	}
	reports, err := runner.Run(ctx, files, scenarios)
	line.Clear()
	if err != nil {
		return o.failed(cmd, reports, err)
	}
	if err := o.show(cmd.OutOrStdout(), reports, files); err != nil {
		return err
	}
	if slices.ContainsFunc(reports, unmeasured) {
		return cli.ErrNo
	}
	return nil
}

// failed says why there is no result, and what to try.
func (o options) failed(cmd *cobra.Command, reports []verdict.Report, err error) error {
	if errors.Is(err, context.Canceled) {
		if o.json && len(reports) > 0 {
			if err := cli.PrintJSON(cmd.OutOrStdout(), reports); err != nil {
				return err
			}
		}
		return errors.New("interrupted; nothing was left behind")
	}
	switch {
	case errors.Is(err, qemu.ErrNoEmulator):
		release, _ := os.ReadFile("/etc/os-release")
		emulator := text.Package{Debian: "qemu-system-x86", Fedora: "qemu-system-x86-core", SUSE: "qemu-x86",
			Alpine: "qemu-system-x86_64", Arch: "qemu-system-x86"}
		return hint.Wrap(err, emulator.Install(string(release)))
	case errors.Is(err, qemu.ErrNoClock):
		return hint.Wrap(err, "make kernels")
	}
	var failure *boot.Failure
	if errors.As(err, &failure) {
		for _, line := range failure.Console {
			fmt.Fprintf(cmd.ErrOrStderr(), "  console: %s\n", line)
		}
		return hint.Wrap(errors.New(strings.TrimSuffix(err.Error(), failure.Error())+failure.What), "")
	}
	return err
}

// show prints the results, and writes them where that was asked for.
func (o options) show(w io.Writer, reports []verdict.Report, files []string) (err error) {
	for i := range reports {
		reports[i].Command, reports[i].Version = o.command(reports[i].File), version
	}
	switch {
	case o.json:
		err = cli.PrintJSON(w, reports)
	case o.markdown:
		err = report.Markdown(w, reports, o.command(files...))
	default:
		if cli.IsTerminal(w) {
			w = &text.Writer{To: cli.Beneath(w), Colours: true} // scenario.Load has seen to what names hold
		}
		err = report.Terminal(w, reports, cli.IsTerminal(w))
	}
	if err == nil && o.html != "" {
		err = writeHTML(o.html, reports)
	}
	for i := 0; err == nil && o.figures != "" && i < len(reports); i++ {
		err = writeFigures(o.figures, &reports[i])
	}
	return err
}

// command is what a reader types to get the same results.
func (o options) command(files ...string) string {
	words := []string{"weir-lab run"}
	for _, candidate := range o.only {
		words = append(words, "--only", text.Shell(candidate))
	}
	if o.engine != "" {
		words = append(words, "--engine", o.engine)
	}
	if o.kernel != "" {
		words = append(words, "--kernel", o.kernel)
	}
	if o.seeds > 0 {
		words = append(words, "--seeds", strconv.Itoa(o.seeds))
	}
	return strings.Join(append(words, files...), " ")
}

// writeHTML writes the report with pictures.
func writeHTML(path string, reports []verdict.Report) error {
	var page bytes.Buffer
	inputs := make([][]scenario.File, len(reports))
	for i := range reports {
		var err error
		if inputs[i], err = scenario.Files(reports[i].File); err != nil {
			return err
		}
	}
	plain := &text.Writer{To: &page}
	if err := errors.Join(report.HTML(plain, reports, inputs), plain.Close()); err != nil {
		return err
	}
	return cli.WriteFile(path, page.Bytes())
}

// writeFigures writes FOLDER/relay/nat.json for scenarios/relay/nat.toml.
func writeFigures(folder string, r *verdict.Report) error {
	figures := report.NewFigures(r)
	path := filepath.Join(folder, filepath.FromSlash(figures.Scenario)+".json")
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	var text bytes.Buffer
	return errors.Join(figures.Write(&text), cli.WriteFile(path, text.Bytes()))
}

// check finds options that are out of range, or do not go together.
func (o options) check(cmd *cobra.Command) error {
	if cmd.Flags().Changed("seeds") && o.seeds < 1 || o.seeds > 1000 {
		return cli.Usage("--seeds 5", "--seeds %d is out of range (1 to 1000)", o.seeds)
	}
	if o.json && o.markdown {
		return cli.Usage("--json or --markdown", "--json and --markdown exclude each other")
	}
	// A name left out makes the next word of the command line the report, which would be written over.
	if ext := filepath.Ext(o.html); ext == ".toml" || ext == ".json" {
		return cli.Usage("--html report.html", "--html %s: a report is neither a scenario nor a part of a run", o.html)
	}
	if o.shard != "" && (o.json || o.markdown || o.html != "" || o.figures != "") {
		return cli.Usage("--shard alone, and then weir-lab merge --json",
			"--shard prints a part of a result, which has no other form")
	}
	if _, _, err := shardOf(o.shard); o.shard != "" && err != nil {
		return err
	}
	if o.parallel < 0 {
		return cli.Usage("--parallel 1", "--parallel %d is negative", o.parallel)
	}
	if _, known := scenario.EngineNamed(o.engine); o.engine != "" && !known {
		return cli.Usage("--engine "+strings.Join(scenario.EngineNames(), " or --engine "), "--engine %s is not known",
			o.engine)
	}
	return nil
}

// load reads the scenarios, with what the options say of them.
func (o options) load(files []string) ([]scenario.Scenario, error) {
	var scenarios []scenario.Scenario
	for _, file := range files {
		s, err := scenario.Load(file)
		if err != nil {
			var bad *scenario.FileError
			if _, unread := os.Stat(file); errors.As(err, &bad) && unread != nil && bad.Hint() == "" {
				return nil, cli.Usage("the path of a scenario, as in scenarios/", "%s", bad.Error())
			}
			if errors.As(err, &bad) {
				return nil, cli.Usage(cmp.Or(bad.Hint(), "docs/scenarios.md, which describes every key"), "%s",
					bad.Error())
			}
			return nil, err
		}
		if o.seeds > 0 {
			s.Seeds = o.seeds
		}
		if o.engine != "" {
			if err := s.SetEngine(o.engine); err != nil {
				return nil, cli.Usage("leave out --engine", "%s: %v", file, err)
			}
		}
		scenarios = append(scenarios, s)
	}
	return scenarios, nil
}

// booter finds what boots a kernel, or says what to try.
type booter struct {
	find func() (boot.Engine, error)
	try  string
}

// booters has one for each engine of scenarios.
func (o options) booters() map[string]booter {
	kernels := ""
	if o.kernel != "" {
		kernels = " KERNELS=" + text.Shell(o.kernel)
	}
	return map[string]booter{
		scenario.UML:  {findUML, "make lab-kernel   (in Weir's source; 5 to 10 minutes, no root needed)"},
		scenario.QEMU: {o.findQEMU, "make kernels" + kernels + "   (in Weir's source; a minute, no root needed)"},
	}
}

func findUML() (boot.Engine, error) {
	kernel, err := uml.Find()
	return uml.Engine{Kernel: kernel}, err
}

func (o options) findQEMU() (boot.Engine, error) {
	kernel, err := qemu.Find(cmp.Or(o.kernel, qemu.Newest))
	return qemu.Engine{Kernel: kernel}, err
}

// newRunner finds the engines that the scenarios need.
func (o options) newRunner(scenarios []scenario.Scenario) (lab.Runner, error) {
	program, err := os.Executable()
	if err != nil {
		return lab.Runner{}, err
	}
	emulated := func(s scenario.Scenario) bool { return slices.Contains(s.Engines(), scenario.QEMU) }
	if o.kernel != "" && !slices.ContainsFunc(scenarios, emulated) {
		return lab.Runner{}, cli.Usage("--engine qemu --kernel "+text.Shell(o.kernel),
			"--kernel is for the engine qemu, which no scenario here asks for")
	}
	r := lab.Runner{Program: program, Engines: map[string]boot.Engine{}}
	for i := range scenarios {
		for _, name := range scenarios[i].Engines() {
			booter := o.booters()[name]
			found, err := booter.find()
			if err != nil {
				return r, hint.Wrap(err, booter.try)
			}
			r.Engines[name] = found
		}
	}
	return r, nil
}

// unmeasured reports whether a claim could not be judged: then the run did not do what it was for.
func unmeasured(r verdict.Report) bool {
	return slices.ContainsFunc(r.Claims, func(v verdict.Verdict) bool { return v.Verdict == verdict.NotMeasured })
}

// choose leaves out the scenarios that have none of the wanted candidates. Each of those must be in one.
func choose(only, files []string, scenarios []scenario.Scenario) ([]string, []scenario.Scenario, error) {
	if len(only) == 0 {
		return files, scenarios, nil
	}
	var known, chosenFiles []string
	var chosen []scenario.Scenario
	for i, s := range scenarios {
		any := false
		for _, c := range s.Candidate {
			known = append(known, fmt.Sprintf("%q", c.Name))
			any = any || slices.Contains(only, c.Name)
		}
		if any {
			chosen, chosenFiles = append(chosen, s), append(chosenFiles, files[i])
		}
	}
	for _, name := range only {
		if !slices.Contains(known, fmt.Sprintf("%q", name)) {
			slices.Sort(known)
			return nil, nil, cli.Usage("--only with one of: "+strings.Join(slices.Compact(known), ", "),
				"no candidate is called %q", name)
		}
	}
	return chosenFiles, chosen, nil
}

// showRun returns what shows how far a run of the lab is.
func showRun(line *cli.Progress) func(lab.Progress) {
	return func(run lab.Progress) {
		line.Say(run.Elapsed, func() string {
			line := fmt.Sprintf("run %d of %d · %v of %v virtual · %v", min(run.Done+1, run.Runs), run.Runs,
				run.Virtual.Round(time.Second), run.VirtualAll.Round(time.Second), run.Elapsed.Round(time.Second))
			if left := run.Left(); left > 0 {
				line += fmt.Sprintf(", about %v left", left.Round(time.Second))
			}
			return line
		})
	}
}
