// SPDX-License-Identifier: Apache-2.0

// Package irtt is the wire protocol of irtt, version 1: UDP packets sent at a fixed interval and answered one by one,
// with the answering host's time stamps and how many packets it has received.
//
// Two parameters are Weir's own, and only a server that has said that it knows them may be asked. With Path, packets
// may be longer, and an echo says which byte of DSCP and ECN its request arrived with. With Bulk, packets that are
// longer than they need to be are not answered: the count of an echo is theirs.
//
// It is pure: it sends nothing and has no clock. Responder is a server without its socket. The protocol's description
// is its author's program: github.com/heistp/irtt, packet.go and params.go.
package irtt

import (
	"crypto/hmac"
	"crypto/md5"
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math"
)

// Protocol is the version that both ends must have.
const Protocol = 1

// Flags of a packet.
const (
	flagOpen  = 1
	flagReply = 2
	flagClose = 4
	flagHMAC  = 8
)

// What an echo carries of the answering host's view.
const (
	CountReceived = 1 // how many packets have arrived
	Window        = 2 // which of the last 64 have

	stampSend     = 1
	stampReceive  = 2
	StampBoth     = 3
	stampMidpoint = 4

	ClockWall = 1
	clockMono = 2
	clockBoth = 3
)

// Lengths in bytes, in the order of a packet.
const (
	magicLen  = 3
	flagsAt   = magicLen
	hmacAt    = flagsAt + 1
	hmacLen   = md5.Size
	tokenLen  = 8
	seqLen    = 4
	countLen  = 4
	windowLen = 8
	stampLen  = 8

	// MaxLength is of a packet that fits an Ethernet frame over IPv6.
	MaxLength = 1452
	// MaxPath is of a packet of a connection that looks at the path: 9000 bytes of IPv4.
	MaxPath = 8972
)

var magic = [magicLen]byte{0x14, 0xa7, 0x5b}

// errPacket is the error of every packet that is none of the protocol's, or is not authentic.
var errPacket = errors.New("not a packet of irtt")

// Params is what the two ends agree on. The zero value of a field is left out of a packet.
type Params struct {
	Version  int64
	Duration int64 // ns
	Interval int64 // ns
	Length   int64 // bytes of a packet, at least
	Received int64 // CountReceived | Window
	StampAt  int64
	Clock    int64
	DSCP     int64
	Fill     string // what the server would fill its packets with; never granted here
	Path     int64  // ours: 1 to look at the path
	Bulk     int64  // ours: 1 to have long packets counted
}

// The types of parameters.
const (
	paramFill = 9
	paramLast = paramFill
	paramPath = 4747 // far from what irtt may yet come to use
	paramBulk = 4748
)

func (p *Params) field(kind uint64) *int64 {
	fields := [paramLast]*int64{1: &p.Version, 2: &p.Duration, 3: &p.Interval, 4: &p.Length, 5: &p.Received,
		6: &p.StampAt, 7: &p.Clock, 8: &p.DSCP}
	switch {
	case kind == paramPath:
		return &p.Path
	case kind == paramBulk:
		return &p.Bulk
	case kind >= paramLast:
		return nil
	}
	return fields[kind]
}

// Append writes the parameters that are not zero.
func (p Params) Append(b []byte) []byte {
	for kind := uint64(1); kind < paramLast; kind++ {
		if v := *p.field(kind); v != 0 {
			b = binary.AppendVarint(binary.AppendUvarint(b, kind), v)
		}
	}
	if p.Fill != "" {
		b = binary.AppendUvarint(binary.AppendUvarint(b, paramFill), uint64(len(p.Fill)))
		b = append(b, p.Fill...)
	}
	if p.Path != 0 {
		b = binary.AppendVarint(binary.AppendUvarint(b, paramPath), p.Path)
	}
	if p.Bulk != 0 {
		b = binary.AppendVarint(binary.AppendUvarint(b, paramBulk), p.Bulk)
	}
	return b
}

// parseParams reads parameters to the end of b.
func parseParams(b []byte) (p Params, err error) {
	for len(b) > 0 {
		kind, n := binary.Uvarint(b)
		if n <= 0 {
			return Params{}, errPacket
		}
		b = b[n:]
		if kind == paramFill {
			length, n := binary.Uvarint(b)
			if n <= 0 || length > uint64(len(b)-n) {
				return Params{}, errPacket
			}
			p.Fill, b = string(b[n:n+int(length)]), b[n+int(length):]
			continue
		}
		v, n := binary.Varint(b)
		to := p.field(kind)
		if n <= 0 || to == nil || v < 0 {
			return Params{}, errPacket
		}
		*to, b = v, b[n:]
	}
	return p, nil
}

// body is where a packet's own fields begin.
func body(flags byte) int {
	if flags&flagHMAC != 0 {
		return hmacAt + hmacLen
	}
	return hmacAt
}

// start begins a packet; with a key it will be signed.
func start(flags byte, key []byte) []byte {
	if len(key) > 0 {
		flags |= flagHMAC
	}
	b := append(make([]byte, 0, 128), magic[:]...)
	b = append(b, flags)
	return append(b, make([]byte, body(flags)-hmacAt)...)
}

// sign fills in the HMAC, if there is a key.
func sign(b, key []byte) []byte {
	if len(key) > 0 {
		clear(b[hmacAt : hmacAt+hmacLen])
		h := hmac.New(md5.New, key)
		h.Write(b)
		h.Sum(b[hmacAt:hmacAt])
	}
	return b
}

// Key is the key of a token's HMACs: 16 bytes; none of no token. It is not the token itself, since who has seen one
// packet can try tokens on it, as fast as a machine derives keys of them.
func Key(token string) []byte {
	const rounds, length = 1 << 16, 16 // tens of milliseconds
	if token == "" {
		return nil
	}
	key, err := pbkdf2.Key(sha256.New, token, []byte("weir serve, irtt"), rounds, length)
	if err != nil {
		panic(err) // a length that no hash has
	}
	return key
}

// check reports whether b is a packet, and signed with the key if there is one. It clears the signature.
func check(b, key []byte) (flags byte, ok bool) {
	if len(b) < hmacAt || [magicLen]byte(b) != magic || b[flagsAt] > flagOpen|flagReply|flagClose|flagHMAC {
		return 0, false
	}
	flags = b[flagsAt]
	if (flags&flagHMAC != 0) != (len(key) > 0) || len(b) < body(flags) {
		return 0, false
	}
	if len(key) > 0 {
		said := [hmacLen]byte(b[hmacAt:])
		sign(b, key)
		if !hmac.Equal(said[:], b[hmacAt:hmacAt+hmacLen]) {
			return 0, false
		}
	}
	return flags, true
}

// Open is a client's first packet.
func Open(p Params, key []byte) []byte { return sign(p.Append(start(flagOpen, key)), key) }

// ParseOpened reads the server's answer to it: the token of the connection, and the parameters that it grants.
func ParseOpened(b, key []byte) (token uint64, p Params, err error) {
	flags, ok := check(b, key)
	if !ok || flags&(flagOpen|flagReply) != flagOpen|flagReply {
		return 0, p, errPacket
	}
	b = b[body(flags):]
	if len(b) < tokenLen {
		return 0, p, errPacket
	}
	p, err = parseParams(b[tokenLen:])
	if err == nil && (flags&flagClose != 0 || p.Version != Protocol) {
		err = errors.New("the server refuses the test")
	}
	return binary.LittleEndian.Uint64(b), p, err
}

// Close is a client's last packet.
func Close(token uint64, key []byte) []byte {
	return sign(binary.LittleEndian.AppendUint64(start(flagClose, key), token), key)
}

// Layout says where an echo's fields are. A field that was not agreed on is at 0.
type Layout struct {
	Size                                 int // of all fields
	token, seq, count, window            int
	recvWall, recvMono, midWall, midMono int
	sendWall, sendMono                   int
	asked, seen                          int // the header's byte that an answer shall have; that its request had
}

// NewLayout places what was agreed on.
func NewLayout(p Params, signed bool) (l Layout) {
	at := hmacAt
	if signed {
		at += hmacLen
	}
	place := func(field *int, length int, there bool) {
		if there {
			*field = at
			at += length
		}
	}
	wall, mono := p.Clock&ClockWall != 0, p.Clock&clockMono != 0
	mid := p.StampAt == stampMidpoint
	recv, send := !mid && p.StampAt&stampReceive != 0, !mid && p.StampAt&stampSend != 0
	place(&l.token, tokenLen, true)
	place(&l.seq, seqLen, true)
	place(&l.count, countLen, p.Received&CountReceived != 0)
	place(&l.window, windowLen, p.Received&Window != 0)
	place(&l.recvWall, stampLen, recv && wall)
	place(&l.recvMono, stampLen, recv && mono)
	place(&l.midWall, stampLen, mid && wall)
	place(&l.midMono, stampLen, mid && mono)
	place(&l.sendWall, stampLen, send && wall)
	place(&l.sendMono, stampLen, send && mono)
	place(&l.asked, 1, p.Path != 0)
	place(&l.seen, 1, p.Path != 0)
	l.Size = at
	return l
}

// Echo is what a server said of a packet. Times are its own, in ns since an epoch of its own; 0 where not agreed on.
type Echo struct {
	Seq        uint32
	Count      uint32
	Window     uint64
	Recv, Send int64
	Seen       byte // DSCP and ECN that the request arrived with, where Path was agreed on
}

// Request is the client's packet of a number, as long as its answer will be.
func (l Layout) Request(p Params, token uint64, seq uint32, key []byte) []byte {
	return l.request(token, seq, max(l.Size, min(int(p.Length), MaxLength)), 0, key)
}

// PathRequest is the same of a connection that looks at the path: of a size, and to be answered with a byte of DSCP and
// ECN.
func (l Layout) PathRequest(token uint64, seq uint32, size int, tos byte, key []byte) []byte {
	return l.request(token, seq, max(l.Size, min(size, MaxPath)), tos, key)
}

// BulkPacket is one that is counted, of so many bytes. All of a size are the same.
func (l Layout) BulkPacket(token uint64, size int, key []byte) []byte {
	return l.request(token, 0, max(l.Size+1, min(size, MaxLength)), 0, key)
}

func (l Layout) request(token uint64, seq uint32, size int, tos byte, key []byte) []byte {
	b := start(0, key)
	b = append(b, make([]byte, size-len(b))...)
	if l.asked != 0 {
		b[l.asked] = tos
	}
	binary.LittleEndian.PutUint64(b[l.token:], token)
	binary.LittleEndian.PutUint32(b[l.seq:], seq)
	return sign(b, key)
}

// ParseEcho reads an answer.
func (l Layout) ParseEcho(b []byte, token uint64, key []byte) (e Echo, err error) {
	flags, ok := check(b, key)
	if !ok || flags&^flagHMAC != flagReply || len(b) < l.Size || binary.LittleEndian.Uint64(b[l.token:]) != token {
		return e, errPacket
	}
	get := func(at int) int64 {
		if at == 0 {
			return 0
		}
		return int64(min(binary.LittleEndian.Uint64(b[at:]), math.MaxInt64))
	}
	e.Seq = binary.LittleEndian.Uint32(b[l.seq:])
	if l.count != 0 {
		e.Count = binary.LittleEndian.Uint32(b[l.count:])
	}
	if l.window != 0 {
		e.Window = binary.LittleEndian.Uint64(b[l.window:])
	}
	if l.seen != 0 {
		e.Seen = b[l.seen]
	}
	e.Recv = get(max(l.recvWall, l.midWall))
	e.Send = get(max(l.sendWall, l.midWall))
	return e, nil
}
