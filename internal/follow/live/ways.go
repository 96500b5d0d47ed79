// SPDX-License-Identifier: Apache-2.0

package live

import (
	"time"

	"weir/internal/host"
	"weir/internal/plan"
)

// ways knows which connections may pass a device. A copy by another card, or to a container, says nothing of its
// link.
type ways struct {
	dev    string
	routes interface {
		Device(host.Connection) int
		Links() ([]host.Link, error)
		Close()
	}
	may  map[int]bool // by the index of the device by which a connection leaves
	read time.Time    // when that was read
}

func openWays(dev string) (*ways, error) {
	routes, err := host.OpenRoutes()
	if err != nil {
		return nil, err
	}
	return &ways{dev: dev, routes: routes}, nil
}

func (w *ways) close() { w.routes.Close() }

// pass reports whether a connection may pass the device. Where that is not known it may.
func (w *ways) pass(c host.Connection) bool {
	device := w.routes.Device(c)
	may, known := w.may[device]
	if !known && time.Since(w.read) > hostInterval { // it may be new
		w.read = time.Now()
		if links, err := w.routes.Links(); err == nil {
			w.may = plan.Passing(links, w.dev)
			may, known = w.may[device]
		}
	}
	return may || !known
}
