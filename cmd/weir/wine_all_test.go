// SPDX-License-Identifier: Apache-2.0

//go:build all

package main

// In make test-all: it needs wine, and measures for seconds.

import (
	"bufio"
	"bytes"
	"debug/pe"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"weir/internal/meter"
)

// The program for Windows measures to a weir serve and to a plain web server, compares, and says what it cannot know.
// Its network is Linux's: what Windows' own TCP does, and its console, no wine can show.
func TestWine(t *testing.T) {
	if _, err := exec.LookPath("wine"); err != nil {
		t.Skip("skipped, not passed: this needs wine (scripts/need test)")
	}
	dir := t.TempDir()
	windows := func(args ...string) (stdout []byte, stderr string, err error) {
		cmd := exec.Command("wine", append([]string{"./weir.exe"}, args...)...)
		cmd.Dir = dir
		cmd.Env = wineEnviron(dir + "/prefix")
		var said bytes.Buffer
		cmd.Stderr = &said
		stdout, err = cmd.Output()
		return stdout, said.String(), err
	}
	build := exec.Command("go", "build", "-trimpath", "-o", dir+"/weir.exe", ".")
	build.Env = append(os.Environ(), "GOOS=windows", "GOARCH=amd64", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	makePrefix(t, dir+"/prefix")
	if out, said, err := windows("--version"); err != nil || !bytes.HasPrefix(out, []byte("weir version ")) {
		t.Fatalf("%v: %q\n%s", err, out, said)
	}

	addr, pin := startServe(t, dir)
	var r meter.Result
	out, said, err := windows("measure", addr, "--pin", pin, "--time", "8s", "--conns", "2", "--json")
	if err == nil {
		err = json.Unmarshal(out, &r)
	}
	if err != nil {
		t.Fatalf("%v: %s\n%s", err, out, said)
	}
	for _, load := range []string{meter.Download, meter.Upload} {
		p := r.Find(load)
		if p == nil || p.Goodput[load].Value < 1 || p.RTT.N == 0 {
			t.Errorf("%s: %+v", load, p)
		}
	}
	if err := os.WriteFile(dir+"/before.json", out, 0o644); err != nil {
		t.Fatal(err)
	}
	out, said, err = windows("measure", addr, "--pin", pin, "--time", "8s", "--conns", "2", "--compare", "before.json")
	if err != nil || !bytes.Contains(out, []byte("before:")) {
		t.Errorf("%v: %s\n%s", err, out, said)
	}

	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(2<<20))
		w.Write(make([]byte, 2<<20))
	}))
	defer web.Close()
	var f meter.Fetches
	out, said, err = windows("measure", "--fetches", "4", web.URL+"/2M.bin", "--json")
	if err == nil {
		err = json.Unmarshal(out, &f)
	}
	if err != nil || len(f.Fetches) != 4 || f.Bytes != 2<<20 || f.Seconds.Value <= 0 || f.Fetches[0].Early != nil {
		t.Errorf("%v: %+v\n%s", err, f, said)
	}
	out, said, err = windows("measure", "--fetches", "1", web.URL+"/2M.bin")
	if err != nil || !bytes.Contains(out, []byte("What was lost on the way this host's kernel does not say.")) {
		t.Errorf("%v: %s\n%s", err, out, said)
	}
	out, said, err = windows("measure", "ftp://192.0.2.1/file")
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 || len(said) == 0 {
		t.Errorf("%v: %s\n%s", err, out, said)
	}
}

// startServe starts a weir serve on loopback, with neither a token nor a name.
func startServe(t *testing.T, dir string) (addr, pin string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	weir := filepath.Join(dir, "weir")
	if err := os.Symlink(self, weir); err != nil {
		t.Fatal(err)
	}
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	addr = "127.0.0.1:" + port
	server := exec.Command(weir, "serve", "--listen", addr, "--no-token", "--rate", "100mbit", "--state", dir+"/state")
	server.Env = append(os.Environ(), "WEIR_NETNS=/proc/self/ns/net") // this one
	out, err := server.StdoutPipe()
	if err == nil {
		err = server.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Process.Kill()
		server.Wait()
	})
	lines := bufio.NewScanner(out)
	for pin == "" && lines.Scan() {
		pin = regexp.MustCompile(`sha256:[0-9a-f]+`).FindString(lines.Text())
	}
	go func() { // what it still prints
		for lines.Scan() {
		}
	}()
	return addr, pin
}

// wineEnviron has wine use that folder, say nothing of its own, and ask for neither .NET nor a browser.
func wineEnviron(prefix string) []string {
	return append(os.Environ(), "WINEPREFIX="+prefix, "WINEDEBUG=-all", "WINEDLLOVERRIDES=mscoree,mshtml=")
}

// makePrefix makes the folder that stands for Windows' disk. Go's programs want a library of random numbers that wine
// has from its version 9 on. An older one gets a library that passes them on to the function that it has had for long.
func makePrefix(t *testing.T, prefix string) {
	t.Helper()
	boot := exec.Command("wine", "wineboot", "--init")
	boot.Env = wineEnviron(prefix)
	if out, err := boot.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Cleanup(func() { // it outlives its programs
		stop := exec.Command("wine", "wineboot", "--kill")
		stop.Env = boot.Env
		stop.Run()
	})
	path := prefix + "/drive_c/windows/system32/bcryptprimitives.dll"
	if _, err := os.Stat(path); err == nil {
		return
	}
	library, err := forwarder("bcryptprimitives.dll", "ProcessPrng", "advapi32.SystemFunction036")
	if err == nil {
		err = os.WriteFile(path, library, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// forwarder is a library for Windows on amd64 that has one function, and takes it from another library: a PE32+ file
// whose one section is the table of what it exports (Microsoft's PE format, "The .edata Section").
func forwarder(library, function, to string) ([]byte, error) {
	const (
		address, align = 0x1000, 0x200 // of the section in memory; of it and of the headers in the file
		directory      = 40            // bytes of the export directory table
		functions      = address + directory
		names          = functions + 4
		ordinals       = names + 4
		texts          = ordinals + 2
	)
	text := library + "\x00" + function + "\x00" + to + "\x00"
	size := uint32(texts - address + len(text))
	optional := pe.OptionalHeader64{Magic: 0x20b, ImageBase: 0x180000000, SectionAlignment: address,
		FileAlignment: align, MajorOperatingSystemVersion: 6, MajorSubsystemVersion: 6,
		SizeOfImage: 2 * address, SizeOfHeaders: align,
		Subsystem: pe.IMAGE_SUBSYSTEM_WINDOWS_CUI, NumberOfRvaAndSizes: 16}
	optional.DataDirectory[pe.IMAGE_DIRECTORY_ENTRY_EXPORT] = pe.DataDirectory{VirtualAddress: address, Size: size}
	dos := [64]byte{0: 'M', 1: 'Z', 60: 64} // the PE header follows it
	section := pe.SectionHeader32{Name: [8]byte{'.', 'e', 'd', 'a', 't', 'a'}, VirtualSize: size,
		VirtualAddress: address, SizeOfRawData: align, PointerToRawData: align,
		Characteristics: pe.IMAGE_SCN_CNT_INITIALIZED_DATA | pe.IMAGE_SCN_MEM_READ}
	exports := struct {
		Characteristics, Time                  uint32
		Major, Minor                           uint16
		Name, Base, Functions, Names           uint32
		FunctionTable, NameTable, OrdinalTable uint32
		Function, FunctionName                 uint32
		Ordinal                                uint16
	}{Name: texts, Base: 1, Functions: 1, Names: 1, FunctionTable: functions, NameTable: names, OrdinalTable: ordinals,
		Function: texts + uint32(len(library)+len(function)+2), FunctionName: texts + uint32(len(library)+1)}
	var b bytes.Buffer
	for _, part := range []any{dos, [4]byte{'P', 'E'}, pe.FileHeader{Machine: pe.IMAGE_FILE_MACHINE_AMD64,
		NumberOfSections: 1, SizeOfOptionalHeader: uint16(binary.Size(optional)), Characteristics: pe.IMAGE_FILE_DLL |
			pe.IMAGE_FILE_EXECUTABLE_IMAGE | pe.IMAGE_FILE_LARGE_ADDRESS_AWARE}, optional, section} {
		if err := binary.Write(&b, binary.LittleEndian, part); err != nil {
			return nil, err
		}
	}
	b.Write(make([]byte, align-b.Len()))
	if err := binary.Write(&b, binary.LittleEndian, exports); err != nil {
		return nil, err
	}
	b.WriteString(text)
	return append(b.Bytes(), make([]byte, 2*align-b.Len())...), nil
}
