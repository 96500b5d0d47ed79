// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weir/internal/change"
	"weir/internal/follow"
	"weir/internal/units"
)

// Drained is what became of a queue that had stood in front of the provider before the host was shaped.
type Drained struct {
	Took units.Duration `json:"took"` // less was sent for so long
	Fell units.Duration `json:"fell"` // RTTs became shorter by so much; 0 where no connection told
	// somebody else has changed the queue meanwhile, which was left as it was then
	Overtaken bool   `json:"overtaken,omitempty"`
	Error     string `json:"error,omitempty"` // why less could not be sent, for whoever prints it
}

// ErrSlow is a queue that did not get its rate again.
var ErrSlow = errors.New("it sends less than its rate")

// Drain sends less through a device's queue for a moment, so that what stood in front of the provider before goes. On a
// link that is not full it does nothing. However it ends, the queue has its rate again, or the error is ErrSlow.
func Drain(ctx context.Context, store change.Store, dev string, each func(time.Duration)) (d Drained, err error) {
	begin := time.Now()
	shaper, err := store.Slow(dev, follow.StandingShare)
	if err != nil || shaper == nil {
		return d, err
	}
	defer func() {
		still, errBack := store.Restore(shaper)
		d.Took, d.Overtaken = units.Duration(time.Since(begin)), !still
		if errBack != nil {
			err = fmt.Errorf("%w: %w", ErrSlow, errBack)
		}
	}()
	e, err := open(dev, shaper.Counts(), shaper.NoLinkHeader, maxSearchLooked, nil)
	if err != nil {
		return d, err
	}
	defer e.close()
	var s follow.Standing
	for {
		stats, err := shaper.Stats()
		if err != nil {
			return d, err
		}
		look, err := e.look(stats)
		if err != nil {
			return d, err
		}
		on := s.Look(look)
		d.Fell = units.Duration(s.Fell)
		if !on {
			return d, nil
		}
		each(time.Since(begin))
		select {
		case <-ctx.Done():
			return d, nil
		case <-time.After(maxLookInterval / 2):
		}
	}
}
