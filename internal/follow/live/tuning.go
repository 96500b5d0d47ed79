// SPDX-License-Identifier: Apache-2.0

package live

import (
	"time"

	"weir/internal/wire"
)

// How often the host is looked at, and what that may cost.
const (
	// Looks at the shaper and at the busiest connections, while the link is loaded and while it is idle. Under load
	// the interval grows until looks cost no more than this share of a core, or of one while somebody waits for the
	// result.
	minLookInterval, maxLookInterval = 20 * time.Millisecond, 100 * time.Millisecond
	idleLookInterval                 = 250 * time.Millisecond
	maxLookCPU, maxAwaitedCPU        = 0.0015, 0.05

	// Listing all connections costs more than looking at some. So it is done this often, or as often as its share of a
	// core allows; the busiest are chosen from it, and of maxRanked it is found out whether they pass the queue.
	minListInterval = 2 * time.Second
	maxListCPU      = 0.001
	maxLooked       = 8
	maxRanked       = 256

	// A network that has carried no more than this part of what the busiest connection has is among the last.
	littleCarried = 100

	// While a rate is looked for, more connections are looked at, this often.
	maxSearchLooked, searchInterval = 16, 100 * time.Millisecond

	// Whether a rate is still to be found is asked less often: that reads the whole host.
	hostInterval = 20 * time.Second

	retryInterval   = 5 * time.Second  // for a queue that is gone
	journalInterval = time.Second      // for a look at the journal's file
	failurePause    = 10 * time.Minute // after what was found could not be kept

	deviceLimitShare  = 0.93       // of a device's speed, from which on the device itself is the limit
	loadedShare       = 0.5        // of the rate, from which on a link is loaded
	minRateChange     = 0.001      // of a rate, below which another one is not worth a change
	droppedPacketSize = wire.Frame // bytes
	maxKnownAddresses = 4096       // whose base RTTs are kept
)
