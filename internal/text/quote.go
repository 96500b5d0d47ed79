// SPDX-License-Identifier: Apache-2.0

package text

import "strings"

// Quote makes of any text one word of a shell's command line.
func Quote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }
