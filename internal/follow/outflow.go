// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"slices"

	"weir/internal/stats"
)

// The rate of the link out is measured in one way, whether nobody has said it (Finder: weir up --rate auto, and weir
// try, which has the other host find it) or it is followed (Follower: weir follow).
//
// While packets wait in front of the link, what leaves that queue is what the link carries. What an acknowledgement
// that comes now is for has left the queue some time ago, and had come there earlier by as much as it waited. What
// this host had sent by then has all crossed the link since.

// departure is how many bits have left this host by a time in seconds, since its counter began.
type departure struct{ at, sent float64 }

func (m departure) left() departure { return m }

// departed is a look that says what had left by then.
type departed interface{ left() departure }

// sentAt is how many bits had left at a time; false where nobody has looked then.
func sentAt[M departed](seen []M, t float64) (bits float64, known bool) {
	return stats.Between(len(seen), func(i int) (float64, float64) {
		m := seen[i].left()
		return m.at, m.sent
	}, t)
}

// trimLooks leaves out looks from before a time, once there are many of them.
func trimLooks[M departed](seen []M, from float64) []M {
	const many = 64
	if i := slices.IndexFunc(seen, func(m M) bool { return m.left().at > from }); i > many {
		return slices.Delete(seen, 0, i)
	}
	return seen
}

// crossing is the newest packet that is known to have crossed the link: when it left the queue in front of that, in
// seconds, and how many bits had left this host when it did.
type crossing struct{ crossedAt, sentBits float64 }

// linkRate is what the link carries while packets wait in front of it, in bit/s, and how far off the line are the bits
// of single crossings (root mean square).
func linkRate(all []crossing) (rate, off float64) {
	when, came := make([]float64, len(all)), make([]float64, len(all))
	for i, c := range all {
		when[i], came[i] = c.crossedAt, c.sentBits
	}
	line := stats.Fit(when, came)
	return line.Slope, line.Off
}

// lag is by how much the smoothed RTT of a connection is late, in seconds.
func (c Connection) lag() float64 {
	if c.Rate > 0 {
		return min(maxSRTTLag, srttMemory/c.Rate)
	}
	return maxSRTTLag
}
