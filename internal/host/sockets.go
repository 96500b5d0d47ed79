// SPDX-License-Identifier: Apache-2.0

package host

import "weir/internal/units"

// Sockets sums up the established TCP connections of a network namespace, those that never leave the host left out. It
// is one look at them, so what it says of a path it says of the paths that were in use.
//
// A connection is busy when it has sent within the last second, and has ten segments in flight or data that waits to be
// sent. Then it waits for the network, and not for the program. Over a short path hardly anything is in flight: so of
// two looks one is busy, too, that got much through in between. Its minimum RTT is that of the last five minutes
// (net.ipv4.tcp_min_rtt_wlen): a queue that has stood for longer has become the minimum, and is seen too small or not
// at all.
type Sockets struct {
	Total      int            `json:"total"`
	Congestion map[string]int `json:"congestion,omitempty"` // by congestion control
	// to a port that somebody listens at; the others were dialled from here
	Accepted   int            `json:"accepted"`
	Busy       int            `json:"busy"`
	Most       int            `json:"most,omitempty"`      // busy, to the address that has most of them
	Receiving  int            `json:"receiving,omitempty"` // that bring bulk data in, as uploads to this host do
	Received   units.Rate     `json:"received,omitempty"`  // by those, in bits per second between two looks
	Queueing   int            `json:"queueing"`            // busy, with an RTT far above its minimum
	QueueRTT   units.Duration `json:"queue_rtt"`           // of those, the median RTT
	QueueMin   units.Duration `json:"queue_min"`           // and their median minimum
	MinRTT     units.Duration `json:"min_rtt,omitempty"`   // the median minimum RTT of the busy ones
	Lossy      int            `json:"lossy"`               // busy, and losing packets with an RTT near its minimum
	LossyBBR   int            `json:"lossy_bbr"`           // of those, under BBR
	LossyShare units.Share    `json:"lossy_share"`         // of the bytes that those sent, what was sent again
	// busy, and for a fifth of that time or more held back by the receiver's window
	Receiver int `json:"receiver_bound"`
	Buffer   int `json:"buffer_bound"` // … by this host's send buffer
	// the largest of those buffers, in bytes of the kernel's account; 0: not known
	SendBuffer uint32 `json:"send_buffer,omitempty"`
	// busy, held back by neither end, and of what they sent between two looks this host itself dropped some before it
	// left: a rule, a filter or a full queue
	Refused int `json:"refused,omitempty"`
	// busy, and as fast as their program has said that they may be at most (SO_MAX_PACING_RATE, socket(7))
	Paced int `json:"paced,omitempty"`
	// busy, and with as many segments on their way as a route lets them have
	Clamped int            `json:"clamped,omitempty"`
	Pace    units.Rate     `json:"pace,omitempty"` // the most that one of those may have
	App     int            `json:"app_limited"`    // busy, with a program that did not always have something to send
	Rate    units.Rate     `json:"rate"`           // sum of what the busy ones deliver, bits per second
	Fastest units.Rate     `json:"fastest"`        // of the busy ones
	RTT     units.Duration `json:"rtt"`            // the minimum RTT that nine in ten connections stay below
	// of what dialled connections carry, accepted ones carry it too, the other way
	Passed units.Share `json:"passed"`
	CE     int         `json:"marked"` // connections of which packets were marked CE and arrived
	// whose packets leave with the DSCP of what can wait, CS1 or LE (RFC 8622), and of those the ones of ssh's port
	Background    int     `json:"background,omitempty"`
	BackgroundSSH int     `json:"background_ssh,omitempty"`
	Window        Windows `json:"window,omitzero"`
	Cut           int     `json:"cut,omitempty"`  // answers of the kernel that could not be understood
	Read          bool    `json:"read,omitempty"` // the connections were looked at

	senders *senders // what a later look is compared with; nil where none comes
}

// Windows counts connections that bring bulk data in, and whose other ends could send more than the window that this
// host announces lets them, by what keeps it from growing. Only two looks tell.
type Windows struct {
	Maximum int `json:"maximum,omitempty"` // the buffer is as large as net.ipv4.tcp_rmem lets it grow
	// the window is as large as its scale lets it be, which was agreed on when the connection was opened
	Scale  int `json:"scale,omitempty"`
	Fixed  int `json:"fixed,omitempty"`  // the buffer does not grow: the program may have set its size (SO_RCVBUF)
	Unread int `json:"unread,omitempty"` // the program leaves more than half of the buffer unread
	// that was announced, of those but the last
	Largest units.Size `json:"largest,omitempty"`
}

// Bound is how many the window holds back that this host announces.
func (w Windows) Bound() int { return w.Maximum + w.Scale + w.Fixed }

// Dialled is how many connections this host has opened.
func (s Sockets) Dialled() int { return s.Total - s.Accepted }
