// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"weir/internal/lab/scenario"
	"weir/internal/lab/verdict"
	"weir/internal/measure"
)

// Every key of a scenario and every field of a result is in its document.
func TestDocumented(t *testing.T) {
	for _, c := range []struct {
		file string
		tag  string
		of   any
	}{{"../../docs/scenarios.md", "toml", scenario.Scenario{}}, {"../../docs/results.md", "json", verdict.Report{}}} {
		text, err := os.ReadFile(c.file)
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]bool{}
		tags(reflect.TypeOf(c.of), c.tag, names, map[reflect.Type]bool{})
		if len(names) < 20 {
			t.Fatalf("%s: found only %d names", c.file, len(names))
		}
		for name := range names {
			if !strings.Contains(string(text), "`"+name) && !strings.Contains(string(text), name+"`") &&
				!strings.Contains(string(text), "`[["+name) {
				t.Errorf("%s does not say what %q is", c.file, name)
			}
		}
	}
	text, err := os.ReadFile("../../docs/scenarios.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range measure.MetricNames() {
		if !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("docs/scenarios.md does not say what the metric %s is", name)
		}
	}
}

// tags collects the names of a struct's fields; those of the scenario inside a result have a document of their own,
// as have the kernel's counters.
func tags(of reflect.Type, tag string, names map[string]bool, seen map[reflect.Type]bool) {
	for of.Kind() == reflect.Slice || of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	if of.Kind() != reflect.Struct || seen[of] || strings.HasSuffix(of.PkgPath(), "qdisc") ||
		(tag == "json" && of == reflect.TypeOf(scenario.Scenario{})) {
		return
	}
	seen[of] = true
	for i := range of.NumField() {
		name, _, _ := strings.Cut(of.Field(i).Tag.Get(tag), ",")
		if name != "" && name != "-" {
			names[name] = true
		}
		tags(of.Field(i).Type, tag, names, seen)
	}
}
