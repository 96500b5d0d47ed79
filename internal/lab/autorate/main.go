// SPDX-License-Identifier: Apache-2.0

// Command weir-autorate sets the rate of a CAKE by the rule that cake-autorate publishes, so that scenarios have it
// beside weir follow. It is for the lab alone: servers run cake-autorate itself.
//
//	weir-autorate DEVICE REFLECTOR LOW BASE HIGH
//
// It asks one reflector 20 times a second, which is how often cake-autorate's six together are asked. Half of what an
// echo takes beyond the shortest is the delay one way. How much is sent is counted over 0.2 s.
package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"time"

	"weir/internal/follow/autorate"
	"weir/internal/qdisc"
	"weir/internal/units"
)

const (
	interval = 50 * time.Millisecond
	counted  = 200 * time.Millisecond
	header   = 8 // of an ICMP echo, RFC 792
	request  = 8
	reply    = 0
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "weir-autorate:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 5 {
		return errors.New("usage: weir-autorate DEVICE REFLECTOR LOW BASE HIGH")
	}
	device, err := net.InterfaceByName(args[0])
	if err != nil {
		return err
	}
	var rates [3]float64
	for i, text := range args[2:] {
		rate, err := units.ParseRate(text)
		if err != nil {
			return err
		}
		rates[i] = float64(rate)
	}
	s, err := open(device.Index)
	if err != nil {
		return err
	}
	conn, err := net.ListenPacket("ip4:icmp", "0.0.0.0")
	if err != nil {
		return err
	}
	start := time.Now()
	go ask(conn, &net.IPAddr{IP: net.ParseIP(args[1])}, start)
	return s.follow(conn, start, autorate.New(rates[0], rates[1], rates[2]))
}

// ask sends echoes. When each was sent is in it.
func ask(conn net.PacketConn, to net.Addr, start time.Time) {
	for ; ; time.Sleep(interval) {
		packet := make([]byte, header+8)
		packet[0] = request
		binary.BigEndian.PutUint64(packet[header:], uint64(time.Since(start)))
		sum := uint32(0)
		for i := 0; i < len(packet); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(packet[i:]))
		}
		sum = sum>>16 + sum&0xffff
		binary.BigEndian.PutUint16(packet[2:], ^uint16(sum+sum>>16))
		if _, err := conn.WriteTo(packet, to); err != nil {
			return // the reader says why
		}
	}
}

// shaper is the CAKE whose rate is set.
type shaper struct {
	conn *qdisc.Conn
	link int
	root qdisc.Qdisc
	cake qdisc.Cake
}

func open(link int) (*shaper, error) {
	conn, err := qdisc.Dial(0)
	if err != nil {
		return nil, err
	}
	tree, err := conn.Tree(link)
	if err != nil {
		return nil, err
	}
	root, _ := tree.Root()
	cake, ok := root.Spec.(qdisc.Cake)
	if !ok {
		return nil, errors.New("the device has no CAKE at its root")
	}
	return &shaper{conn, link, root, cake}, nil
}

// follow lets a rule say the rate at each echo.
func (s *shaper) follow(conn net.PacketConn, start time.Time, rule *autorate.Rule) error {
	var sent, at, load float64
	least, packet := math.Inf(1), make([]byte, 64)
	for {
		n, _, err := conn.ReadFrom(packet)
		if err != nil {
			return err
		}
		if n != header+8 || packet[0] != reply {
			continue
		}
		now := time.Since(start).Seconds()
		rtt := now - time.Duration(binary.BigEndian.Uint64(packet[header:])).Seconds()
		least = min(least, rtt)
		if now-at >= counted.Seconds() {
			stats, _, err := s.conn.RootStats(s.link)
			if err != nil {
				return err
			}
			load = 8 * (float64(stats.Bytes) - sent) / (now - at)
			sent, at = float64(stats.Bytes), now
		}
		rate := units.Rate(math.Round(rule.Echo(now, (rtt-least)/2, load)))
		if rate == s.cake.Bandwidth {
			continue
		}
		s.cake.Bandwidth = rate
		if err := s.conn.Change(s.link, s.root, s.cake); err != nil {
			return err
		}
		s.root.Spec = s.cake
	}
}
