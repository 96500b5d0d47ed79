// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"weir/internal/lab/measure"
	"weir/internal/lab/scenario"
	"weir/internal/lab/verdict"
)

// Part is what one of several machines has measured of a run that they share: a shard.
type Part struct {
	Shard     int      `json:"shard"` // from 1
	Of        int      `json:"of"`
	Files     []string `json:"files"`            // the scenarios, as they were named
	Only      []string `json:"only,omitempty"`   // the Runner's
	Seeds     int      `json:"seeds,omitempty"`  // instead of the scenarios'; 0: theirs
	Engine    string   `json:"engine,omitempty"` // likewise
	Scenarios string   `json:"scenarios"`        // what they say, as Sum has it
	Runs      []Boot   `json:"runs"`
}

// Boot is what was measured in one of a run's boots.
type Boot struct {
	Number int         `json:"number"` // of all that the whole run has, from 0
	Run    measure.Run `json:"run"`
}

// Sum tells scenarios apart by what they say.
func Sum(scenarios []scenario.Scenario) (string, error) {
	text, err := json.Marshal(scenarios)
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), err
}

// RunPart runs every n-th boot of a run, beginning with the given one, from 1. What is near in a sweep takes as long,
// so shards take about as long as each other.
func (r *Runner) RunPart(ctx context.Context, shard, n int, files []string,
	scenarios []scenario.Scenario) ([]Boot, error) {
	_, all, err := r.plan(files, scenarios)
	if err != nil {
		return nil, err
	}
	var mine []*task
	for i := shard - 1; i < len(all); i += n {
		mine = append(mine, all[i])
	}
	if err := r.boots(ctx, mine); err != nil {
		return nil, err
	}
	var runs []Boot
	for i, t := range mine {
		runs = append(runs, Boot{Number: shard - 1 + i*n, Run: *t.reply})
	}
	return runs, nil
}

// Merge makes of all boots of a run the reports that Run would have given.
func (r *Runner) Merge(files []string, scenarios []scenario.Scenario, runs []Boot) ([]verdict.Report, error) {
	reports, tasks, err := r.plan(files, scenarios)
	if err != nil {
		return nil, err
	}
	for i := range runs {
		switch n := runs[i].Number; {
		case n < 0 || n >= len(tasks):
			return nil, fmt.Errorf("there is no boot %d: the scenarios have %d", n, len(tasks))
		case tasks[n].reply != nil:
			return nil, fmt.Errorf("boot %d is there twice", n)
		default:
			tasks[n].reply = &runs[i].Run
		}
	}
	for i, t := range tasks {
		if t.reply == nil {
			return nil, fmt.Errorf("boot %d of %d is missing (%s)", i, len(tasks), t.name())
		}
	}
	r.fill(reports, tasks)
	return r.judge(describe(reports), scenarios), nil
}
