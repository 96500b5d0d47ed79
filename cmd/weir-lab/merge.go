// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"weir/internal/cli"
	"weir/internal/hint"
	"weir/internal/lab"
	"weir/internal/lab/scenario"
)

func newMergeCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "merge PART.json …",
		Short: "Put the parts of a run together that several machines have done",
		Long: `Reads what weir-lab run --shard printed on several machines, and prints what one
run would have printed, to the byte. All parts are needed, and the scenarios as
they were: they are read again, by the same paths.

Exit status: as of weir-lab run.`,
		Example: `  weir-lab run --shard 1/2 scenarios/narrow-link.toml > 1.json
  weir-lab run --shard 2/2 scenarios/narrow-link.toml > 2.json
  weir-lab merge --html report.html 1.json 2.json`,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return []string{"json"}, cobra.ShellCompDirectiveFilterFileExt
		},
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.Usage("weir-lab merge 1.json 2.json", "no part was named")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return mergeParts(cmd, args, o) },
	}
	f := cmd.Flags()
	f.BoolVar(&o.json, "json", false, "print the results as JSON instead of tables")
	f.BoolVar(&o.markdown, "markdown", false, "print Markdown instead of terminal tables")
	f.StringVar(&o.html, "html", "", "also write a report with pictures to this `file`")
	cli.TakesFile(cmd, "html")
	return cmd
}

// shardOf reads 2/8.
func shardOf(text string) (shard, of int, err error) {
	const most = 10_000
	if n, _ := fmt.Sscanf(text+"\n", "%d/%d\n", &shard, &of); n != 2 || shard < 1 || shard > of || of > most {
		return 0, 0, cli.Usage("--shard 2/8, the second part of eight", "--shard %s is no part of a run", text)
	}
	return shard, of, nil
}

// runPart prints one shard.
func (o options) runPart(ctx context.Context, cmd *cobra.Command, runner lab.Runner, files []string,
	scenarios []scenario.Scenario) error {
	shard, of, err := shardOf(o.shard)
	if err != nil {
		return err
	}
	part := lab.Part{Shard: shard, Of: of, Files: files, Only: o.only, Seeds: o.seeds, Engine: o.engine}
	if part.Scenarios, err = lab.Sum(scenarios); err != nil {
		return err
	}
	if part.Runs, err = runner.RunPart(ctx, shard, of, files, scenarios); err != nil {
		return o.failed(cmd, nil, err)
	}
	return cli.PrintJSON(cmd.OutOrStdout(), part)
}

func mergeParts(cmd *cobra.Command, paths []string, o options) error {
	if err := o.check(cmd); err != nil {
		return err
	}
	var first lab.Part
	var runs []lab.Boot
	for i, path := range paths {
		part, err := readPart(path)
		if err != nil {
			return err
		}
		if i == 0 {
			first = part
		}
		if part.Scenarios != first.Scenarios || part.Of != first.Of || !slices.Equal(part.Files, first.Files) ||
			!slices.Equal(part.Only, first.Only) {
			return cli.Usage("parts that were made by the same command, but for --shard",
				"%s and %s are parts of different runs", paths[0], path)
		}
		runs = append(runs, part.Runs...)
	}
	o.seeds, o.engine, o.only = first.Seeds, first.Engine, first.Only
	scenarios, err := o.load(first.Files)
	if err != nil {
		return err
	}
	if sum, err := lab.Sum(scenarios); err != nil || sum != first.Scenarios {
		return cmp.Or(err, cli.Usage("the scenarios of that run, by the same paths",
			"%s: the scenarios have changed since",
			paths[0]))
	}
	runner := lab.Runner{Only: o.only}
	reports, err := runner.Merge(first.Files, scenarios, runs)
	if err != nil {
		return hint.Wrap(err, fmt.Sprintf("all of the run's %d parts, each once", first.Of))
	}
	if err := o.show(cmd.OutOrStdout(), reports, first.Files); err != nil {
		return err
	}
	if slices.ContainsFunc(reports, unmeasured) {
		return cli.ErrNo
	}
	return nil
}

func readPart(path string) (part lab.Part, err error) {
	const most = 1 << 30 // bytes
	f, err := os.Open(path)
	if err != nil {
		return part, cli.Usage("the path of what weir-lab run --shard printed", "%v", err)
	}
	defer f.Close()
	d := json.NewDecoder(io.LimitReader(f, most))
	d.DisallowUnknownFields()
	if err = d.Decode(&part); err == nil && (part.Of < 1 || len(part.Files) == 0) {
		err = errors.New("it names no scenario")
	}
	if _, more := d.Token(); err == nil && more != io.EOF {
		err = errors.New("something stands behind its end")
	}
	if err != nil {
		return part, cli.Usage("what weir-lab run --shard printed", "%s is no part of a run: %v", path, err)
	}
	return part, nil
}
