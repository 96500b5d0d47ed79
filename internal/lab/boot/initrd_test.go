// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
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
	files := []File{{"/modules/b.ko", []byte("b")}, {"/modules/x/a.ko", nil}, {"/job.json", []byte("{}")}}
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
		"job.json 0100644 {}",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
