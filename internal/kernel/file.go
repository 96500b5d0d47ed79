// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"time"

	"weir/internal/host"
)

// File is a file, by its path.
const File Kind = "file"

func file() Object {
	return Object{
		Kind: File, File: true,
		Parse: func(text string) (Value, error) {
			file, err := host.ParseFile(text)
			return Content{file}, err
		},
		Now: func(f host.Facts, name string) (Value, bool) { return Content{File: f.Files[name]}, true },
		Owner: func(f host.Facts, name string) string {
			if now := f.Files[name]; now.Kind == host.Regular && !host.IsOurs(now) {
				return "somebody else wrote it"
			}
			return ""
		},
		Valid: func(name string, _ Value) bool { return host.IsKeptFile(name) },
		Undo: func(f *host.Facts, at Place) {
			if was, ok := at.Was.(Content); ok {
				f.Files[at.Name] = was.File
			}
		},
		Put: func(m Machine, at Place, want Value) error {
			content, _ := want.(Content)
			if !want.Meets(at.Was) {
				return m.SetFile(at.Name, content.File, time.Time{})
			}
			return m.SetFile(at.Name, content.File, at.WasTime)
		},
	}
}

// Content is what a file is.
type Content struct{ host.File }

// Meets compares all of it.
func (c Content) Meets(want Value) bool { return want == Value(c) }
