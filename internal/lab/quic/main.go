// SPDX-License-Identifier: Apache-2.0

// Command weir-quic sends and receives by QUIC, so that the lab has what HTTP/3 servers have. It is a module of its
// own: the program that servers run knows nothing of it.
//
//	weir-quic serve ADDRESS:PORT [nogso]
//	weir-quic fetch ADDRESS:PORT CONNECTIONS SECONDS
//
// Each connection carries zeros, from the server to the client, by one stream. fetch prints what it has received, and
// serve, where a connection ends, the RTT that it had. With nogso the server hands each packet to the kernel by itself.
package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
)

const (
	protocol = "weir-lab"
	chunk    = 64 << 10
	// bytes in flight that a receiver allows: more than any path of the lab holds
	window = 128 << 20
	// when a connection's RTT is taken to be that of one that goes on
	settled = 2 * time.Second
)

func main() {
	err := errors.New("usage: weir-quic serve ADDRESS [nogso] | weir-quic fetch ADDRESS CONNECTIONS SECONDS")
	switch args := os.Args[1:]; {
	case len(args) == 3 && args[0] == "serve" && args[2] == "nogso":
		os.Setenv("QUIC_GO_DISABLE_GSO", "true") // quic-go has no other way to be told
		err = serve(args[1])
	case len(args) == 2 && args[0] == "serve":
		err = serve(args[1])
	case len(args) == 4 && args[0] == "fetch":
		var connections, seconds int
		if connections, err = strconv.Atoi(args[2]); err == nil {
			seconds, err = strconv.Atoi(args[3])
		}
		if err == nil {
			err = fetch(args[1], connections, time.Duration(seconds)*time.Second)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "weir-quic:", err)
		os.Exit(1)
	}
}

func settings() *quic.Config {
	return &quic.Config{
		InitialStreamReceiveWindow: window, MaxStreamReceiveWindow: window,
		InitialConnectionReceiveWindow: window, MaxConnectionReceiveWindow: window,
	}
}

func serve(address string) error {
	certificate, err := selfSigned()
	if err != nil {
		return err
	}
	listener, err := quic.ListenAddr(address, &tls.Config{Certificates: []tls.Certificate{certificate},
		NextProtos: []string{protocol}}, settings())
	if err != nil {
		return err
	}
	for {
		connection, err := listener.Accept(context.Background())
		if err != nil {
			return err
		}
		go send(connection)
	}
}

// send fills the stream that the client opens until the client has enough, and prints the RTT that it saw.
func send(connection *quic.Conn) {
	stream, err := connection.AcceptStream(context.Background())
	if err != nil {
		return
	}
	zeros := make([]byte, chunk)
	var rtts []time.Duration
	begin := time.Now()
	for err == nil {
		_, err = stream.Write(zeros)
		if time.Since(begin) > settled {
			rtts = append(rtts, connection.ConnectionStats().SmoothedRTT)
		}
	}
	if len(rtts) > 0 {
		slices.Sort(rtts)
		fmt.Printf("gso %v, rtt: %.3f ms\n", connection.ConnectionState().GSO,
			float64(rtts[len(rtts)/2].Microseconds())/1e3)
	}
}

func fetch(address string, connections int, span time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), span)
	defer cancel()
	received := make([]atomic.Int64, connections)
	failed := make(chan error, connections)
	begin := time.Now()
	for i := range received {
		go func() { failed <- receive(ctx, address, &received[i]) }()
	}
	for range received {
		if err := <-failed; err != nil && ctx.Err() == nil {
			return err
		}
	}
	var all float64
	for i := range received {
		mbit := float64(received[i].Load()) * 8 / 1e6 / time.Since(begin).Seconds()
		all += mbit
		fmt.Printf("connection %d: %.3f Mbit/s\n", i+1, mbit)
	}
	fmt.Printf("all: %.3f Mbit/s\n", all)
	return nil
}

func receive(ctx context.Context, address string, received *atomic.Int64) error {
	connection, err := quic.DialAddr(ctx, address, &tls.Config{InsecureSkipVerify: true, // nobody else is in the lab
		NextProtos: []string{protocol}}, settings())
	if err != nil {
		return err
	}
	defer connection.CloseWithError(0, "")
	stream, err := connection.OpenStreamSync(ctx)
	if err != nil {
		return err
	}
	if _, err := stream.Write([]byte{0}); err != nil { // the server hears of a stream by its first byte
		return err
	}
	deadline, _ := ctx.Deadline()
	if err := stream.SetReadDeadline(deadline); err != nil {
		return err
	}
	buffer := make([]byte, chunk)
	for {
		n, err := stream.Read(buffer)
		received.Add(int64(n))
		if err == io.EOF || ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// selfSigned makes a certificate that nobody checks.
func selfSigned() (tls.Certificate, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}, err
}
