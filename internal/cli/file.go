// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Files that a person names are written in place, in one go, once their text is complete. So a link stays a link, a
// device a device, a file its owner's and its mode's; there is never a second file that could be left behind. A
// rename would promise less: only that nobody sees half a file.

// Writable returns why a file could not be written, without touching it.
func Writable(path string) error {
	at, err := path, error(nil)
	switch info, failed := os.Stat(path); {
	case failed == nil && info.IsDir():
		return fmt.Errorf("%s is a folder", path)
	case errors.Is(failed, fs.ErrNotExist):
		at = filepath.Dir(path)
		err = mayMakeIn(at)
	case failed != nil:
		err = errors.Unwrap(failed)
	default:
		err = mayWrite(at)
	}
	if err != nil {
		return fmt.Errorf("%s cannot be written: %w", path, err)
	}
	return nil
}

// WriteFile writes a file in place. It takes one away again that it has made and could not fill.
func WriteFile(path string, body []byte) error {
	made := true
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if errors.Is(err, fs.ErrExist) {
		made = false
		f, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	}
	if err == nil {
		_, err = f.Write(body)
		err = errors.Join(err, f.Close())
		if err != nil && made {
			os.Remove(path)
		}
	}
	if inner := (*fs.PathError)(nil); errors.As(err, &inner) {
		return fmt.Errorf("%s cannot be written: %w", path, inner.Err)
	}
	return err
}
