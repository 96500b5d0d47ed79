// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"
	"strings"

	"weir/internal/units"
)

// Engine is what a scenario knows of an engine, which boots a guest in virtual time (boot.Engine).
type Engine struct {
	Name, About string
	Slow        bool       // its CPU takes time, and a packet waits for it
	Most        units.Rate // the fastest provider that it is good for; 0: any
}

// The engines that exist: one is a row here, a package beside lab/uml, and the line in cmd/weir-lab/run.go that finds
// it.
const (
	UML  = "uml"
	QEMU = "qemu"
)

func engines() []Engine {
	return []Engine{
		{Name: UML, About: "the lab kernel, whose CPU costs nothing"},
		// Above some 200 Mbit/s packet by packet, the emulated CPU is the bottleneck; above this nothing else is.
		{Name: QEMU, About: "a stock Debian kernel under emulation", Slow: true, Most: 1e9},
	}
}

// EngineNames are those of all engines, the default first.
func EngineNames() []string {
	var names []string
	for _, e := range engines() {
		names = append(names, e.Name)
	}
	return names
}

// EngineNamed returns what is known of an engine; false if there is none of that name.
func EngineNamed(name string) (Engine, bool) {
	for _, e := range engines() {
		if e.Name == name {
			return e, true
		}
	}
	return Engine{}, false
}

// engineHint names the engines: "uml" is the lab kernel …
func engineHint() string {
	var hints []string
	for _, e := range engines() {
		hints = append(hints, fmt.Sprintf("%q is %s", e.Name, e.About))
	}
	return strings.Join(hints, "; ")
}
