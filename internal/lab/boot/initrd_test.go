// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cavaliergopher/cpio"
)

// The kernel makes no folder that it was not told of, and wants it before what is in it. What goes in is all that
// comes out.
func TestWriteInitrd(t *testing.T) {
	program := filepath.Join(t.TempDir(), "p")
	if err := os.WriteFile(program, []byte("#!"), 0o600); err != nil {
		t.Fatal(err)
	}
	files := []File{{Name: "/modules/b.ko", Body: []byte("b")}, {Name: "/modules/x/a.ko"},
		{Name: "/bin/job", Body: []byte("{}"), Program: true}}
	var one, two bytes.Buffer
	if err := errors.Join(WriteInitrd(&one, program, files...), WriteInitrd(&two, program, files...)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(one.Bytes(), two.Bytes()) {
		t.Error("two archives of the same differ")
	}
	var got []string
	for r := cpio.NewReader(&one); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(r)
		got = append(got, h.Name+" "+h.Mode.String()+" "+string(body))
	}
	want := []string{
		"init 0100755 #!", "modules 040755 ", "modules/b.ko 0100644 b", "modules/x 040755 ", "modules/x/a.ko 0100644 ",
		"bin 040755 ", "bin/job 0100755 {}",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// A program comes with all that the dynamic linker will ask for, under the names by which it will.
func TestHostFiles(t *testing.T) {
	files, err := HostFiles("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	has := func(part string) bool {
		return slices.ContainsFunc(files, func(f File) bool {
			return strings.Contains(f.Name, part) && len(f.Body) > 0
		})
	}
	if files[0].Name != "/bin/sh" || !files[0].Program || !has("/libc.so") || !has("/ld-linux") {
		var names []string
		for _, f := range files {
			names = append(names, f.Name)
		}
		t.Errorf("sh comes with %q", names)
	}
	data := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(data, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if files, err := HostFiles(data, data); err != nil || len(files) != 1 || files[0].Program {
		t.Errorf("%v, %v", files, err)
	}
	for name, want := range map[string]string{"/no/such": "/no/such: no such file or directory", "/tmp": "/tmp: not a file"} {
		if _, err := HostFiles(name); err == nil || err.Error() != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
