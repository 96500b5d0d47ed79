// SPDX-License-Identifier: Apache-2.0

// Package hint is the error that a person is shown: what is wrong, and what to try. It may not know of what.
package hint

import "errors"

// Error is what is wrong and what to try, a line each.
type Error struct {
	What  string
	Try   string // a command, an option or a file's line; empty where nobody knows
	Usage bool   // the command line or a configuration is wrong, on any host: the exit status is 2 and not 1
	Cause error  // for errors.Is and errors.As; may be nil
}

// New makes an error.
func New(what, try string) *Error { return &Error{What: what, Try: try} }

// Wrap gives an error what to try. It wraps err.
func Wrap(err error, try string) *Error { return &Error{What: err.Error(), Try: try, Cause: err} }

func (e *Error) Error() string { return e.What }

// Unwrap returns the cause; nil if there is none.
func (e *Error) Unwrap() error { return e.Cause }

// Of returns what to try about an error, and whether it is one of usage: "" and false where no Error is in it.
func Of(err error) (try string, usage bool) {
	if e := (*Error)(nil); errors.As(err, &e) {
		return e.Try, e.Usage
	}
	return "", false
}
