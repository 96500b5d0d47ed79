// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"encoding/json"

	"weir/internal/host"
)

// ReadHost is host.ReadDeep, with weir among those who set something if it does.
func ReadHost() (host.Facts, error) {
	f, err := host.ReadDeep()
	if err == nil {
		AddWriter(&f)
	}
	return f, err
}

// AddWriter adds weir to those who set something on a host if the host's own journal says so.
func AddWriter(f *host.Facts) {
	if inForce(f.Deep.Journal, *f) {
		f.Deep.Writers = append(f.Deep.Writers, host.Writer{By: "weir", File: host.Journal})
	}
}

// inForce reports whether a journal says that weir is up. It needs a goal of this boot and this network namespace, of
// which something is neither put back nor left to somebody else.
func inForce(text []byte, f host.Facts) bool {
	var j Journal
	return json.Unmarshal(text, &j) == nil && j.IsCurrent(f) && len(j.Uplinks) > 0 && !j.OnlyForeign()
}
