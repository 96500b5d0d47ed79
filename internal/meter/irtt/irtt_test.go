// SPDX-License-Identifier: Apache-2.0

package irtt

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"testing"
	"time"
)

var (
	home  = netip.MustParseAddrPort("192.0.2.1:1000")
	other = netip.MustParseAddrPort("192.0.2.1:1001")
)

// want is what Debian's irtt client asks for.
var want = Params{Version: 1, Duration: 1e9, Interval: 20e6, Received: 3, StampAt: 3, Clock: 3}

func responder(key string) (*Responder, *time.Time) {
	now := time.Unix(1000, 0)
	token := uint64(0x0102030405060708)
	return &Responder{Key: []byte(key), Open: func(netip.Addr) bool { return true },
		Client: netip.Addr.String, Most: 8, Now: func() time.Time { return now },
		Token:       func() uint64 { token++; return token },
		MinInterval: 10 * time.Millisecond, MaxDuration: time.Minute}, &now
}

// The bytes of an open are those that Debian's irtt 0.9.0 sends.
func TestOpenBytes(t *testing.T) {
	const sent = "14a75b01" + "0102" + "0280a8d6b907" + "0380b48913" + "0506" + "0606" + "0706"
	if got := hex.EncodeToString(Open(want, nil)); got != sent {
		t.Errorf("%s, want %s", got, sent)
	}
}

func TestExchange(t *testing.T) {
	for _, key := range []string{"", "secret"} {
		r, now := responder(key)
		token, p, err := ParseOpened(r.Handle(home, 0, Open(want, []byte(key))).Bytes, []byte(key))
		if err != nil || p != want {
			t.Fatalf("%q: %+v, %v", key, p, err)
		}
		l := NewLayout(p, key != "")
		for _, seq := range []uint32{0, 1, 3, 2, 70, 5} { // 4 is lost
			*now = now.Add(20 * time.Millisecond)
			request := l.Request(p, token, seq, []byte(key))
			size := len(request)
			answer := r.Handle(home, 0, request).Bytes
			if len(answer) != size {
				t.Errorf("%d bytes answer %d", len(answer), size)
			}
			e, err := l.ParseEcho(answer, token, []byte(key))
			if err != nil || e.Seq != seq || e.Recv != now.UnixNano() || e.Send != now.UnixNano() {
				t.Errorf("%q %d: %+v, %v", key, seq, e, err)
			}
			if w := map[uint32]uint64{0: 1, 1: 3, 3: 13, 2: 15, 70: 1, 5: 1}[seq]; e.Window != w {
				t.Errorf("after %d: window %b, want %b", seq, e.Window, w)
			}
			if seq == 5 && e.Count != 6 {
				t.Errorf("count %d", e.Count)
			}
		}
		r.Handle(home, 0, Close(token, []byte(key)))
		if answer := r.Handle(home, 0, l.Request(p, token, 6, []byte(key))).Bytes; answer != nil {
			t.Error("it answers after the end")
		}
	}
}

// A connection that looks at the path says how a request arrived, is answered as it asks, and in the same length.
func TestPath(t *testing.T) {
	r, now := responder("secret")
	key, asked := []byte("secret"), want
	asked.Path = 1
	token, p, err := ParseOpened(r.Handle(home, 0, Open(asked, key)).Bytes, key)
	if err != nil || p != asked {
		t.Fatalf("%+v, %v", p, err)
	}
	l := NewLayout(p, true)
	for seq, c := range []struct {
		size               int
		sent, seen, answer byte
		is                 int // bytes of the request
	}{
		{0, 0xb9, 0x01, 0xb9, l.Size},
		{1472, 0x02, 0x02, 0x02, 1472},
		{MaxPath, 0, 0, 0, MaxPath},
		{1e6, 0, 3, 0, MaxPath},
		{200, 0xc0, 0xc0, 0, 200}, // nobody may make this host send as a router does
	} {
		*now = now.Add(20 * time.Millisecond)
		request := l.PathRequest(token, uint32(seq), c.size, c.sent, key)
		if len(request) != c.is {
			t.Errorf("%+v: the request has %d bytes", c, len(request))
		}
		a := r.Handle(home, c.seen, request)
		e, err := l.ParseEcho(a.Bytes, token, key)
		if err != nil || e.Seen != c.seen || a.TOS != c.answer || !a.Whole || len(a.Bytes) != c.is {
			t.Errorf("%+v: %+v, %v, TOS %x, %d bytes", c, e, err, a.TOS, len(a.Bytes))
		}
	}
	// Any other connection's packets are as short as irtt's.
	token, p, err = ParseOpened(r.Handle(home, 0, Open(want, key)).Bytes, key)
	long := NewLayout(p, true).PathRequest(token, 1, MaxLength+1, 0, key)
	if a := r.Handle(home, 0, long); err != nil || a.Bytes != nil {
		t.Errorf("%d bytes, %v", len(a.Bytes), err)
	}
}

// Bulk packets are counted and not answered, however fast they come. Echoes tell how many there were.
func TestBulk(t *testing.T) {
	r, now := responder("secret")
	key, asked := []byte("secret"), want
	asked.Bulk, asked.Length, asked.Received = 1, 0, CountReceived
	token, p, err := ParseOpened(r.Handle(home, 0, Open(asked, key)).Bytes, key)
	if err != nil || p != asked {
		t.Fatalf("%+v, %v", p, err)
	}
	l := NewLayout(p, true)
	for seq, more := range []uint32{0, 1, 1000} {
		for range more {
			if a := r.Handle(home, 0, l.BulkPacket(token, 1372, key)); a.Bytes != nil {
				t.Fatal("a bulk packet is answered")
			}
		}
		*now = now.Add(20 * time.Millisecond)
		e, err := l.ParseEcho(r.Handle(home, 0, l.Request(p, token, uint32(seq), key)).Bytes, token, key)
		if want := []uint32{0, 1, 1001}[seq]; err != nil || e.Count != want {
			t.Errorf("%d are counted, want %d (%v)", e.Count, want, err)
		}
	}
	// What found no room at the host had come, too.
	r.Missed(7)
	r.Handle(home, 0, l.BulkPacket(token, 1372, key))
	*now = now.Add(20 * time.Millisecond)
	if e, err := l.ParseEcho(r.Handle(home, 0, l.Request(p, token, 8, key)).Bytes, token, key); e.Count != 1009 {
		t.Errorf("%d are counted, %v", e.Count, err)
	}
	if n := len(l.BulkPacket(token, 1, key)); n != l.Size+1 {
		t.Errorf("the shortest has %d bytes, and a request %d", n, l.Size)
	}
	// From elsewhere they count for nothing, and on any other connection they are requests.
	r.Handle(netip.MustParseAddrPort("192.0.2.66:1"), 0, l.BulkPacket(token, 1372, key))
	*now = now.Add(20 * time.Millisecond)
	if e, err := l.ParseEcho(r.Handle(home, 0, l.Request(p, token, 9, key)).Bytes, token, key); e.Count != 1009 {
		t.Errorf("%d are counted, %v", e.Count, err)
	}
}

// opened is a connection to a responder that has a key.
func opened(t *testing.T, r *Responder, key []byte) (token uint64, p Params, l Layout) {
	t.Helper()
	token, p, err := ParseOpened(r.Handle(home, 0, Open(want, key)).Bytes, key)
	if err != nil {
		t.Fatal(err)
	}
	return token, p, NewLayout(p, true)
}

// A link that stands still for a moment lets go all at once what has gathered, as Wi-Fi and mobile networks do. So does
// a host whose processor had other work. Nothing of that is lost.
func TestStall(t *testing.T) {
	r, now := responder("secret")
	key := []byte("secret")
	token, p, l := opened(t, r, key)
	seq := uint32(0)
	for _, stall := range []time.Duration{100 * time.Millisecond, 300 * time.Millisecond, time.Second} {
		*now = now.Add(stall)
		for range stall / r.MinInterval {
			e, err := l.ParseEcho(r.Handle(home, 0, l.Request(p, token, seq, key)).Bytes, token, key)
			if err != nil || e.Seq != seq {
				t.Fatalf("after %v: packet %d is not answered: %v", stall, seq, err)
			}
			seq++
		}
	}
	// Of more than that some get no answer. That they have come is said all the same.
	for range 1000 {
		r.Handle(home, 0, l.Request(p, token, seq, key))
		seq++
	}
	*now = now.Add(time.Second)
	e, err := l.ParseEcho(r.Handle(home, 0, l.Request(p, token, seq, key)).Bytes, token, key)
	if err != nil || e.Window != ^uint64(0) || e.Count != seq+1 {
		t.Errorf("of %d packets %d are counted, the last as %b (%v)", seq+1, e.Count, e.Window, err)
	}
}

// Who is not entitled gets nothing.
func TestSilence(t *testing.T) {
	r, now := responder("secret")
	key := []byte("secret")
	token, p, l := opened(t, r, key)
	good := func(seq uint32) []byte { return l.Request(p, token, seq, key) }
	for name, packet := range map[string][]byte{
		"unsigned open":   Open(want, nil),
		"wrong key":       Open(want, []byte("guess")),
		"wrong token":     l.Request(p, token+1, 1, key),
		"unsigned":        NewLayout(p, false).Request(p, token, 1, nil),
		"cut":             good(1)[:30],
		"an answer":       sign(append(start(flagReply, key), make([]byte, 80)...), key),
		"garbage":         []byte("GET / HTTP/1.1\r\n\r\n"),
		"nothing":         nil,
		"signed too long": l.Request(Params{Length: 1e6, Received: 3}, token, 1, key)[:20],
	} {
		if answer := r.Handle(home, 0, packet).Bytes; answer != nil {
			t.Errorf("%s: %d bytes", name, len(answer))
		}
	}
	if r.Handle(other, 0, good(1)).Bytes != nil {
		t.Error("another address is answered")
	}
	open := *r
	open.Key, open.Open = nil, nil
	if (&open).Handle(home, 0, Open(want, nil)).Bytes != nil {
		t.Error("without a key everybody is answered")
	}

	// A flood is answered at the least interval, and the rest are dropped.
	answered := 0
	for i := range uint32(10_000) {
		*now = now.Add(time.Millisecond)
		if r.Handle(home, 0, good(i)).Bytes != nil {
			answered++
		}
	}
	if most := 1000 + int(burst/r.MinInterval); answered < 1000 || answered > most {
		t.Errorf("%d of 10000 packets in ten seconds are answered, want at most %d", answered, most)
	}

	for i := range 100 {
		r.Handle(netip.AddrPortFrom(home.Addr(), uint16(2000+i)), 0, Open(want, key))
	}
	if len(r.conns) > PerClient {
		t.Errorf("%d connections of one client", len(r.conns))
	}
	*now = now.Add(2 * time.Minute)
	if r.Handle(home, 0, good(2000)).Bytes != nil {
		t.Error("it answers after the longest time")
	}
}

// What a client asks for is cut down.
func TestRestrict(t *testing.T) {
	r, _ := responder("")
	_, p, err := ParseOpened(r.Handle(home, 0, Open(Params{Version: 1, Duration: 1e15, Interval: 1, Length: 60000,
		Received: 255, StampAt: 99, Clock: 255, DSCP: 46, Fill: "rand", Path: 3, Bulk: 2}, nil)).Bytes, nil)
	if err != nil || p != (Params{Version: 1, Duration: 60e9, Interval: 10e6, Length: MaxLength, Received: 3,
		Clock: 3, Path: 1}) {
		t.Errorf("%+v, %v", p, err)
	}
	if _, _, err := ParseOpened(r.Handle(home, 0, Open(Params{Version: 2}, nil)).Bytes, nil); err == nil {
		t.Error("version 2 is accepted")
	}
}

// Nothing that arrives breaks a responder or a client, and no answer is longer than what it answers: but to an open by
// a token and what it adds, which are the version, the interval and what is counted.
func FuzzResponder(f *testing.F) {
	r, _ := responder("")
	opened := r.Handle(home, 0, Open(want, nil)).Bytes
	token, p, _ := ParseOpened(bytes.Clone(opened), nil)
	f.Add(Open(want, nil))
	f.Add(opened)
	f.Add(NewLayout(p, false).Request(p, token, 7, nil))
	f.Add(Close(token, nil))
	f.Add(Open(want, []byte("key")))
	f.Add(Open(Params{Bulk: 1}, nil))
	path := want
	path.Path = 1
	f.Add(NewLayout(path, false).PathRequest(token, 7, MaxPath, 0xb8, nil))
	bulk := want
	bulk.Bulk = 1
	f.Add(NewLayout(bulk, false).BulkPacket(token, 1372, nil))
	f.Fuzz(func(t *testing.T, packet []byte) {
		for _, key := range []string{"", "key"} {
			r, _ := responder(key)
			r.Handle(home, 0, Open(want, []byte(key)))
			r.Handle(home, 0, Open(path, []byte(key)))
			r.Handle(home, 0, Open(bulk, []byte(key)))
			size, flags := len(packet), byte(0)
			if size > flagsAt {
				flags = packet[flagsAt]
			}
			b := bytes.Clone(packet)
			answer := r.Handle(home, 0, b).Bytes
			most := size
			if flags&flagOpen != 0 {
				most += tokenLen + 2 + 5 + 2
			}
			if len(answer) > most {
				t.Errorf("%d bytes answer %d", len(answer), size)
			}
			ParseOpened(bytes.Clone(packet), []byte(key))
			NewLayout(want, key != "").ParseEcho(bytes.Clone(packet), token, []byte(key))
			NewLayout(path, key != "").ParseEcho(bytes.Clone(packet), token+1, []byte(key))
		}
	})
}

func FuzzParams(f *testing.F) {
	f.Add(want.Append(nil))
	f.Add(Params{Fill: "rand", DSCP: 46, Path: 1, Bulk: 1}.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := parseParams(b)
		if err != nil {
			return
		}
		if again, err := parseParams(p.Append(nil)); err != nil || again != p {
			t.Errorf("%+v became %+v: %v", p, again, err)
		}
	})
}

// A key is not the token, and the same on both sides.
func TestKey(t *testing.T) {
	a, again, b := Key("not-a-real-secret"), Key("not-a-real-secret"), Key("another-of-sixteen")
	if len(a) != 16 || !bytes.Equal(a, again) || bytes.Equal(a, b) || Key("") != nil {
		t.Errorf("%x, %x, %x, %x", a, again, b, Key(""))
	}
}
