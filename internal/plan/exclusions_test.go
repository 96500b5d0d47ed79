// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Each row is about options that there are, with values that they can have, and tells the text of none but its own.
func TestExclusionsNameOptions(t *testing.T) {
	known := map[string][]string{rateFigure: nil, follower: nil, relayFollows: nil, oneCard: nil, queueOnly: nil,
		clients: nil}
	for _, f := range Fields() {
		known[f.Name] = f.Values
	}
	for _, x := range exclusions() {
		for _, option := range slices.Concat([]string{x.option}, x.without, x.needs) {
			name, value, meant := strings.Cut(option, "=")
			values, there := known[name]
			if !there || meant && values != nil && !slices.Contains(values, value) {
				t.Errorf("%s: there is no %s", x.option, option)
			}
		}
		if len(x.without)+len(x.needs) == 0 || x.what == "" || x.try == "" {
			t.Errorf("%s: %+v", x.option, x)
		}
		for _, told := range regexp.MustCompile(`{[^}]*}`).FindAllString(x.what+x.try, -1) {
			if told != "{"+x.option+"}" {
				t.Errorf("%s: its text has %s", x.option, told)
			}
		}
	}
}
