// SPDX-License-Identifier: Apache-2.0

package hint

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"
)

// What to try is found beneath what others have put around, and the cause beneath that.
func TestOf(t *testing.T) {
	inner := Wrap(fmt.Errorf("journal: %w", fs.ErrPermission), "the same with sudo")
	for _, c := range []struct {
		err   error
		try   string
		usage bool
	}{
		{errors.New("none"), "", false},
		{fmt.Errorf("eth0: %w", inner), "the same with sudo", false},
		{errors.Join(errors.New("first"), inner), "the same with sudo", false},
		{Wrap(&Error{What: "bad", Try: "good", Usage: true}, "better"), "better", false},
		{&Error{What: "bad", Try: "good", Usage: true}, "good", true},
		{New("a", "b"), "b", false},
	} {
		if try, usage := Of(c.err); try != c.try || usage != c.usage {
			t.Errorf("%v: %q, %v; want %q, %v", c.err, try, usage, c.try, c.usage)
		}
	}
	if !errors.Is(inner, fs.ErrPermission) {
		t.Error("the cause is lost")
	}
}
