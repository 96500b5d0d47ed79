// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"sync"
	"time"
)

// board adds up the progress of boots that run at the same time.
type board struct {
	mu     sync.Mutex
	report func(Progress)
	begun  time.Time
	p      Progress
}

func newBoard(report func(Progress), tasks []*task) *board {
	b := &board{report: report, begun: time.Now()}
	b.p.Runs = len(tasks)
	for _, t := range tasks {
		b.p.VirtualAll += t.length()
	}
	return b
}

// length of the run in virtual time, at the most.
func (t *task) length() time.Duration {
	return time.Duration(t.job.Scenario.Warmup + t.job.Scenario.Duration)
}

func (b *board) started(t *task) {
	b.update(func() { b.p.Now = t.name() })
}

func (b *board) virtual(t *task, at time.Duration) {
	b.update(func() { b.p.Virtual += at - t.at; t.at = at })
}

func (b *board) finished(t *task) {
	b.update(func() { b.p.Done++; b.p.Virtual += t.length() - t.at })
}

func (b *board) update(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
	b.p.Elapsed = time.Since(b.begun)
	if b.report != nil {
		b.report(b.p)
	}
}
