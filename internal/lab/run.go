// SPDX-License-Identifier: Apache-2.0

// Package lab runs scenarios, each configuration in a kernel of its own in virtual time, as many at once as there are
// cores.
//
// It may not touch the host's network. What a scenario says is in package scenario, what boots a kernel in boot,
// what becomes of the results in verdict.
package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"weir/internal/lab/boot"
	"weir/internal/lab/measure"
	"weir/internal/lab/scenario"
	"weir/internal/lab/verdict"
)

// Runner runs scenarios. Its fields are set before Run.
type Runner struct {
	Engines  map[string]boot.Engine // by the names that scenarios have for them
	Program  string                 // weir-lab, the guest's process 1; other programs, such as weir, are beside it
	Parallel int                    // boots at a time; 0: one a core
	Limit    time.Duration          // of real time, for one boot; 0: an hour
	Only     []string               // candidates to run; empty: all
	Progress func(Progress)         // called often, from one goroutine at a time; may be nil
}

// Progress is how far a Run has come.
type Progress struct {
	Runs, Done          int           // boots in all, and finished
	Virtual, VirtualAll time.Duration // virtual time run and to run
	Elapsed             time.Duration // real time
	Now                 string        // what was started last
}

// Left estimates the real time to go from the virtual time to go; 0 when there is nothing to go by yet.
func (p Progress) Left() time.Duration {
	if p.Virtual <= 0 {
		return 0
	}
	return time.Duration(float64(p.Elapsed) * float64(p.VirtualAll-p.Virtual) / float64(p.Virtual))
}

// task is one boot.
type task struct {
	file, point, cell, seed int
	job                     scenario.Job
	initrd                  *initrd
	reply                   *measure.Run
	err                     error
	at                      time.Duration // virtual
}

// initrd is a guest's first file system, and what of the host is in it.
type initrd struct {
	path  string
	files []boot.File
}

// Run runs every candidate of every point of every scenario, seeds times each, and gives a report a file. It stops at
// the first failure. Once ctx has ended it gives the points that were finished, with the error; no claims are judged
// by those.
func (r *Runner) Run(ctx context.Context, files []string, scenarios []scenario.Scenario) ([]verdict.Report, error) {
	reports, tasks, err := r.plan(files, scenarios)
	if err != nil {
		return nil, err
	}
	interrupted := r.boots(ctx, tasks)
	if interrupted != nil && !errors.Is(interrupted, context.Canceled) {
		return nil, interrupted
	}
	r.fill(reports, tasks)
	if interrupted != nil {
		return describe(dropUnfinished(reports)), interrupted
	}
	return r.judge(describe(reports), scenarios), nil
}

// boots does the tasks.
func (r *Runner) boots(ctx context.Context, tasks []*task) error {
	dir, tidy, err := workFolder()
	if err != nil {
		return err
	}
	defer tidy()
	if err := r.writeInitrds(dir, tasks); err != nil {
		return err
	}
	return r.runAll(ctx, dir, tasks)
}

// fill puts what was measured where it belongs.
func (r *Runner) fill(reports []verdict.Report, tasks []*task) {
	for _, t := range tasks {
		if t.reply == nil {
			continue
		}
		cell := &reports[t.file].Points[t.point].Cells[t.cell]
		cell.Runs[t.seed] = *t.reply
		if known := &reports[t.file].Kernel; *known == "" {
			*known = t.reply.Kernel
		} else if !slices.Contains(strings.Split(*known, ", "), t.reply.Kernel) { // a sweep of the engine
			*known += ", " + t.reply.Kernel
		}
	}
}

func describe(reports []verdict.Report) []verdict.Report {
	for i := range reports {
		for k := range reports[i].Points {
			verdict.Describe(&reports[i].Points[k])
		}
	}
	return reports
}

// judge adds what becomes of the claims, where all candidates were run.
func (r *Runner) judge(reports []verdict.Report, scenarios []scenario.Scenario) []verdict.Report {
	for i := range reports {
		if len(r.Only) > 0 {
			break
		}
		for _, c := range scenarios[i].Claim {
			reports[i].Claims = append(reports[i].Claims, verdict.Judge(c, scenarios[i].Sweep, reports[i].Points))
		}
	}
	return reports
}

// dropUnfinished leaves out the points of which a run is missing, and the reports that then have none.
func dropUnfinished(reports []verdict.Report) []verdict.Report {
	missing := func(run measure.Run) bool { return run.Kernel == "" }
	for i := range reports {
		reports[i].Points = slices.DeleteFunc(reports[i].Points, func(p verdict.Point) bool {
			return slices.ContainsFunc(p.Cells,
				func(c verdict.Cell) bool { return slices.ContainsFunc(c.Runs, missing) })
		})
	}
	return slices.DeleteFunc(reports, func(r verdict.Report) bool { return len(r.Points) == 0 })
}

func (r *Runner) plan(files []string, scenarios []scenario.Scenario) ([]verdict.Report, []*task, error) {
	var reports []verdict.Report
	var tasks []*task
	for i, s := range scenarios {
		points, err := s.Points()
		if err != nil {
			return nil, nil, err
		}
		report := verdict.Report{File: files[i], Title: s.Title, About: s.About}
		for _, p := range points {
			point := verdict.Point{Labels: p.Labels, Values: p.Values, Scenario: p.Scenario}
			point.Scenario.Candidate = nil
			for _, c := range p.Scenario.Candidate {
				if len(r.Only) > 0 && !slices.Contains(r.Only, c.Name) {
					continue
				}
				point.Scenario.Candidate = append(point.Scenario.Candidate, c)
				point.Cells = append(point.Cells, verdict.Cell{Candidate: c.Name,
					Runs: make([]measure.Run, p.Scenario.Seeds)})
				job := scenario.Job{Scenario: p.Scenario, Candidate: c}
				job.Scenario.Candidate = nil
				for seed := range p.Scenario.Seeds {
					job.Seed = uint64(seed + 1)
					tasks = append(tasks, &task{file: i, point: len(report.Points), cell: len(point.Cells) - 1,
						seed: seed, job: job})
				}
			}
			report.Points = append(report.Points, point)
		}
		reports = append(reports, report)
	}
	return reports, tasks, nil
}

// workFolder makes the folder that everything of a run is in. What earlier runs left that nobody could tidy up after
// (SIGKILL) goes now: a folder is in use as long as somebody holds its lock.
func workFolder() (dir string, tidy func(), err error) {
	const pattern = "weir-lab-*"
	old, _ := filepath.Glob(filepath.Join(os.TempDir(), pattern))
	for _, path := range old {
		if f, err := os.Open(path); err == nil {
			if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
				_ = os.RemoveAll(path)
			}
			f.Close()
		}
	}
	if dir, err = os.MkdirTemp("", pattern); err != nil {
		return "", nil, err
	}
	f, err := os.Open(dir)
	if err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		os.RemoveAll(dir)
		return "", nil, fmt.Errorf("%s: %w", dir, err)
	}
	return dir, func() { os.RemoveAll(dir); f.Close() }, nil
}

// hostFiles reads programs and other files of the host. A program without a path is beside this one.
func (r *Runner) hostFiles(names []string) ([]boot.File, error) {
	var paths []string
	beside := map[string]string{} // path → name
	for _, name := range names {
		path := name
		if !filepath.IsAbs(name) {
			path = filepath.Join(filepath.Dir(r.Program), name)
			beside[path] = name
		}
		paths = append(paths, path)
	}
	files, err := boot.HostFiles(paths...)
	for i := range files {
		if name, ok := beside[files[i].Name]; ok {
			files[i].Name = scenario.InGuest(name)
		}
	}
	return files, err
}

// writeInitrds makes what the tasks boot with: one file for all that want the same of the host's.
func (r *Runner) writeInitrds(dir string, tasks []*task) error {
	made := map[string]*initrd{}
	for _, t := range tasks {
		names := t.job.HostFiles()
		key := strings.Join(names, "\n")
		if made[key] == nil {
			i := &initrd{path: filepath.Join(dir, fmt.Sprintf("initrd-%d", len(made)))}
			var err error
			if i.files, err = r.hostFiles(names); err != nil {
				return fmt.Errorf("%s: a program: %w", t.job.Scenario.Title, err)
			}
			f, err := os.Create(i.path)
			if err != nil {
				return err
			}
			if err := errors.Join(boot.WriteInitrd(f, r.Program, i.files...), f.Close()); err != nil {
				return fmt.Errorf("initrd: %w", err)
			}
			made[key] = i
		}
		t.initrd = made[key]
	}
	return nil
}

// runAll keeps one boot on each core until all tasks are done, or one has failed.
func (r *Runner) runAll(ctx context.Context, dir string, tasks []*task) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cpus := boot.AllowedCPUs()
	if r.Parallel > 0 && r.Parallel < len(cpus) {
		cpus = cpus[:r.Parallel]
	}
	queue := make(chan *task, len(tasks))
	for _, t := range tasks {
		queue <- t
	}
	close(queue)

	board := newBoard(r.Progress, tasks)
	var workers sync.WaitGroup
	var once sync.Once
	var failed error
	for _, cpu := range cpus {
		workers.Go(func() {
			// For the guests' parent-death signal: this thread lives as long as they do.
			runtime.LockOSThread()
			for t := range queue {
				if ctx.Err() != nil {
					return
				}
				board.started(t)
				if err := r.boot(ctx, dir, cpu, t, board); err != nil {
					once.Do(func() { failed = fmt.Errorf("%s: %w", t.name(), err); cancel() })
					return
				}
				board.finished(t)
			}
		})
	}
	workers.Wait()
	if failed != nil && errors.Is(failed, context.Canceled) {
		return context.Canceled
	}
	if failed == nil {
		return ctx.Err()
	}
	return failed
}

func (t *task) name() string {
	return fmt.Sprintf("%s, candidate %q, seed %d", t.job.Scenario.Title, t.job.Candidate.Name, t.job.Seed)
}

func (r *Runner) boot(ctx context.Context, dir string, cpu int, t *task, board *board) error {
	job, err := json.Marshal(t.job)
	if err != nil {
		return err
	}
	limit := r.Limit
	if limit == 0 {
		limit = time.Hour
	}
	onLine := func(line string) {
		if seconds, ok := strings.CutPrefix(line, boot.Heartbeat); ok {
			if n, err := strconv.Atoi(seconds); err == nil {
				board.virtual(t, time.Duration(n)*time.Second)
			}
		}
	}
	booter, known := r.Engines[t.job.Scenario.Engine]
	if !known {
		return fmt.Errorf("there is no engine %s here", t.job.Scenario.Engine)
	}
	text, err := booter.Boot(ctx, boot.Guest{
		Program: r.Program, Initrd: t.initrd.path, Files: t.initrd.files, Job: job,
		Seed: t.job.Seed, CPU: cpu, Scratch: dir, Limit: limit,
		OnLine: onLine,
	})
	if err != nil {
		return err
	}
	var reply scenario.Reply
	if err := json.Unmarshal(text, &reply); err != nil {
		return fmt.Errorf("the guest's result: %w", err)
	}
	if reply.Error != "" {
		return errors.New(reply.Error)
	}
	if reply.Result == nil {
		return errors.New("the guest's result is empty")
	}
	reply.Result.Kernel = booter.Named(reply.Result.Kernel)
	t.reply = reply.Result
	return nil
}
