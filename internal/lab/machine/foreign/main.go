// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command foreign has two programs at a device's egress hook, before all others and after them. They write a word of
// each packet's skb->cb, until it is ended. For tests alone: it is what somebody else may have there.
//
//	foreign [-word N] DEV
//	foreign -count DEV
package main

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

const name = "foreign"

func main() {
	word := flag.Int("word", 0, "the word that is written")
	count := flag.Bool("count", false, "print how many of its programs are there")
	flag.Parse()
	dev, err := net.InterfaceByName(flag.Arg(0))
	switch {
	case err != nil:
	case *count:
		err = print(dev.Index)
	default:
		err = write(dev.Index, *word)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "foreign:", err)
		os.Exit(1)
	}
}

// print says how many of the programs are there.
func print(dev int) error {
	all, err := link.QueryPrograms(link.QueryOptions{Target: dev, Attach: ebpf.AttachTCXEgress})
	if err != nil {
		return err
	}
	found := 0
	for _, p := range all.Programs {
		program, err := ebpf.NewProgramFromID(p.ID)
		if err != nil {
			return err
		}
		info, err := program.Info()
		if err != nil {
			return err
		}
		if info.Name == name {
			found++
		}
	}
	_, err = fmt.Println(found)
	return err
}

// write attaches the programs, says so to systemd, and waits.
func write(dev, word int) error {
	const cb, next = 48, -1 // struct __sk_buff and enum tcx_action_base of include/uapi/linux/bpf.h
	for _, anchor := range []link.Anchor{link.Head(), link.Tail()} {
		program, err := ebpf.NewProgram(&ebpf.ProgramSpec{ // one program is at a hook once
			Name: name, Type: ebpf.SchedCLS, AttachType: ebpf.AttachTCXEgress, License: "GPL",
			Instructions: asm.Instructions{
				asm.Mov.Imm(asm.R2, -1), asm.StoreMem(asm.R1, int16(cb+4*word), asm.R2, asm.Word),
				asm.Mov.Imm(asm.R0, next), asm.Return(),
			},
		})
		if err != nil {
			return err
		}
		attached, err := link.AttachTCX(link.TCXOptions{Interface: dev, Program: program,
			Attach: ebpf.AttachTCXEgress, Anchor: anchor})
		if err != nil {
			return err
		}
		defer attached.Close()
	}
	if socket := os.Getenv("NOTIFY_SOCKET"); socket != "" {
		c, err := net.Dial("unixgram", socket)
		if err != nil {
			return err
		}
		if _, err = c.Write([]byte("READY=1")); errors.Join(err, c.Close()) != nil {
			return err
		}
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	<-ended
	return nil
}
