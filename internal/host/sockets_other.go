// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package host

type senders struct{}

func (*Sockets) listen(*Sockets) {}
