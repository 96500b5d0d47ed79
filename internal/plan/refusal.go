// SPDX-License-Identifier: Apache-2.0

package plan

// Refusal is why there is no plan: what is wrong, and what to try.
type Refusal struct {
	What  string
	Try   string
	Usage bool // wrong on any host
}

func (r *Refusal) Error() string { return r.What }

// Hint is what to try.
func (r *Refusal) Hint() string { return r.Try }
