// SPDX-License-Identifier: Apache-2.0

package qdisc

import "strings"

// Plain is a discipline whose options this package does not judge: it is installed with the kernel's defaults and known
// by its kind alone. Tree.Same and Conn.Restore still keep its options to the byte.
type Plain struct{ Name string }

func plain(name string) func() editor { return func() editor { return &Plain{name} } }

func (p Plain) Kind() string   { return p.Name }
func (p Plain) String() string { return format(p) }
func (p Plain) edit() editor   { return &p }

// encode sends nothing, but for prio, which the kernel does not make without its bands: three, and the map of
// priorities that tc sends.
func (p Plain) encode(Spec) ([]byte, error) {
	if p.Name == "prio" {
		bands := newFQ().Priomap // the same in the kernel: sch_default_prio2band
		return append(u32bytes(3), bands[:]...), nil
	}
	return nil, nil
}

func (p *Plain) options() []option           { return nil }
func (p *Plain) decode([]byte, device) error { return nil }
func (p *Plain) finish() (Spec, error) {
	if _, ok := find(p.Name); !ok {
		return nil, unknown("queueing discipline", strings.TrimSpace(p.Name), Kinds())
	}
	return *p, nil
}
