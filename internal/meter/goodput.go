// SPDX-License-Identifier: Apache-2.0

package meter

import "time"

// goodputMeter measures how fast a load has gone in the last while. What sends takes data in lumps, as ssh does by its
// window, and a busy host reads it so. A shorter while shows those, and many times what the link carries.
type goodputMeter struct {
	at    []time.Time
	bytes []int64
}

// look returns the goodput of the last two seconds, or since the first look, in Mbit/s. So many bytes have gone by now.
func (l *goodputMeter) look(now time.Time, bytes int64) float64 {
	const while = 2 * time.Second
	l.at, l.bytes = append(l.at, now), append(l.bytes, bytes)
	for len(l.at) > 2 && now.Sub(l.at[1]) >= while {
		l.at, l.bytes = l.at[1:], l.bytes[1:]
	}
	took := now.Sub(l.at[0]).Seconds()
	if took <= 0 {
		return 0
	}
	return float64(bytes-l.bytes[0]) * 8 / 1e6 / took
}
