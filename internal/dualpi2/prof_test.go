package dualpi2

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/vishvananda/netlink"
)

func TestGuestProf(t *testing.T) {
	if os.Getpid() != 1 {
		t.Skip()
	}
	netlink.LinkAdd(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "d0"}})
	l, _ := netlink.LinkByName("d0")
	netlink.LinkSetUp(l)
	b := time.Now()
	_, err := loadObject()
	t.Log("object", time.Since(b), err)
	b = time.Now()
	err = Probe()
	t.Log("probe", time.Since(b), err)
	if os.Getenv("BTF") != "" {
		b = time.Now()
		_, err = btf.LoadKernelSpec()
		t.Log("btf", time.Since(b), err)
	}
	runtime.SetCPUProfileRate(2000)
	var buf bytes.Buffer
	if os.Getenv("PROF") != "" {
		pprof.StartCPUProfile(&buf)
	}
	c := defaults()
	b = time.Now()
	err = Install(l.Attrs().Index, c, place(t, l.Attrs().Index))
	t.Log("install", time.Since(b), err)
	var id ebpf.ProgramID
	for {
		next, err := ebpf.ProgramGetNextID(id)
		if err != nil {
			break
		}
		id = next
		p, err := ebpf.NewProgramFromID(id)
		if err != nil {
			continue
		}
		info, _ := p.Info()
		v, _ := info.VerifiedInstructions()
		j, _ := info.JitedSize()
		t.Log(info.Name, v, j)
		p.Close()
	}
	b = time.Now()
	err = Install(l.Attrs().Index, c, place(t, l.Attrs().Index))
	t.Log("again", time.Since(b), err)
	if os.Getenv("PROF") != "" {
		pprof.StopCPUProfile()
		fmt.Println("BEGIN" + base64.StdEncoding.EncodeToString(buf.Bytes()) + "END")
	}
}
