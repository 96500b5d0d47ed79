// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"reflect"
	"slices"
	"testing"
)

// Each row of the table has what every other package calls without asking; the rest may be nil, as Object says. A row
// without it would only be missed on the host that needs it.
func TestObjects(t *testing.T) {
	needed := []string{"Parse", "Now", "Owner", "Valid", "Undo", "Put"}
	seen := map[Kind]bool{}
	for i, o := range Objects() {
		if o.Kind == "" || seen[o.Kind] {
			t.Errorf("row %d: the kind %q is none of its own", i, o.Kind)
		}
		seen[o.Kind] = true
		for row, field := reflect.ValueOf(o), 0; field < row.NumField(); field++ {
			name := row.Type().Field(field).Name
			if row.Field(field).Kind() == reflect.Func && slices.Contains(needed, name) && row.Field(field).IsNil() {
				t.Errorf("%s: it has no %s", o.Kind, name)
			}
		}
		if (o.Leaves == nil) != (o.Clean == nil) {
			t.Errorf("%s: what it leaves and what cleans that up go together", o.Kind)
		}
		if found, ok := o.Kind.Object(); !ok || found.Kind != o.Kind || o.Kind.Order() != i {
			t.Errorf("%s: row %d is found as %s, at %d", o.Kind, i, found.Kind, o.Kind.Order())
		}
	}
	if _, ok := Kind("of a later version").Object(); ok {
		t.Error("a kind that nobody has")
	}
}
