// SPDX-License-Identifier: Apache-2.0

package kernel

import "strings"

// TargetText is a target in JSON: one member, which its kind names.
type TargetText struct {
	Dev     string `json:"dev,omitempty"`
	Ingress string `json:"ingress,omitempty"` // the device
	Sysctl  string `json:"sysctl,omitempty"`
	File    string `json:"file,omitempty"`
	Object  string `json:"object,omitempty"` // of any other kind: that and the name, with a space between
}

// Text is a target as JSON has it.
func (t Target) Text() (text TargetText) {
	switch t.Kind {
	case Root:
		text.Dev = t.Name
	case Ingress:
		text.Ingress = t.Name
	case Sysctl:
		text.Sysctl = t.Name
	case File:
		text.File = t.Name
	default:
		text.Object = string(t.Kind) + " " + t.Name
	}
	return text
}

// Target is the one that the text is of; the zero Target unless it has exactly one member.
func (t TargetText) Target() Target {
	kind, name, _ := strings.Cut(t.Object, " ")
	for _, target := range []Target{{Root, t.Dev}, {Ingress, t.Ingress}, {Sysctl, t.Sysctl}, {File, t.File},
		{Kind(kind), name}} {
		if target.Name != "" && target.Text() == t {
			return target
		}
	}
	return Target{}
}
