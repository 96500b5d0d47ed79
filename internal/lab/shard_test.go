// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"weir/internal/lab"
	"weir/internal/lab/scenario"
)

// Parts of a run make what one run makes, to the byte, whatever way they went in between.
func TestShards(t *testing.T) {
	r := runner(t)
	s := load(t, strings.NewReplacer("[[candidate]]",
		"[[claim]]\nsource = \"a test\"\nsays = \"calm\"\nmetric = \"added.p99\"\n"+
			"candidate = \"Weir\"\nexpect = \"<= 1ms\"\n[[candidate]]\nname = \"as found\"\n[[candidate]]",
		`warmup = "5s"`, "warmup = \"1s\"\nseeds = 2", `duration = "10s"`, `duration = "2s"`).Replace(calm))
	files, scenarios := []string{"calm.toml"}, []scenario.Scenario{s}
	whole, err := r.Run(context.Background(), files, scenarios)
	if err != nil {
		t.Fatal(err)
	}
	const shards = 3
	var runs []lab.Boot
	for i := shards; i >= 1; i-- {
		part, err := r.RunPart(context.Background(), i, shards, files, scenarios)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(lab.Part{Runs: part})
		if err != nil {
			t.Fatal(err)
		}
		var read lab.Part
		if err := json.Unmarshal(text, &read); err != nil {
			t.Fatal(err)
		}
		runs = append(runs, read.Runs...)
	}
	merged, err := r.Merge(files, scenarios, runs)
	if err != nil {
		t.Fatal(err)
	}
	want, _ := json.Marshal(whole)
	got, _ := json.Marshal(merged)
	if string(got) != string(want) {
		t.Errorf("%d bytes of three parts are not the %d of one run", len(got), len(want))
	}
	for name, bad := range map[string][]lab.Boot{
		"one is missing": runs[1:], "one is there twice": append(runs[:1:1], runs...),
		"one is of no run": append([]lab.Boot{{Number: 1000}}, runs...),
	} {
		if _, err := r.Merge(files, scenarios, bad); err == nil {
			t.Errorf("%s, and nobody says so", name)
		}
	}
}
