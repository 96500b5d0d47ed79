// SPDX-License-Identifier: Apache-2.0

package qdisc

import "strings"

// plainSpec is a discipline whose options this package does not judge: it is installed with the kernel's defaults and
// known by its kind alone. Tree.Same and Conn.Restore still keep its options to the byte.
type plainSpec struct{ Name string }

func plain(name string) func() editor { return func() editor { return &plainSpec{name} } }

func (p plainSpec) Kind() string   { return p.Name }
func (p plainSpec) String() string { return format(p) }
func (p plainSpec) edit() editor   { return &p }

// encode sends nothing, but for prio, which the kernel does not make without its bands: three, and the map of
// priorities that tc sends.
func (p plainSpec) encode(Spec) ([]byte, error) {
	if p.Name == "prio" {
		bands := newFQ().Priomap // the same in the kernel: sch_default_prio2band
		return append(u32bytes(3), bands[:]...), nil
	}
	return nil, nil
}

func (p *plainSpec) options() []option           { return nil }
func (p *plainSpec) decode([]byte, device) error { return nil }
func (p *plainSpec) finish() (Spec, error) {
	if _, ok := find(p.Name); !ok {
		return nil, unknown("queueing discipline", strings.TrimSpace(p.Name), Kinds())
	}
	return *p, nil
}
