// SPDX-License-Identifier: Apache-2.0

// Package wire has the sizes of frames and cells, in bytes, and knows nothing else.
package wire

const (
	EthernetHeader = 14 // two addresses and a type (IEEE 802.3), without tags and FCS
	VLANTag        = 4  // IEEE 802.1Q

	EthernetMTU = 1500                         // the largest IP packet in a usual frame
	Frame       = EthernetHeader + EthernetMTU // that frame, as a device is handed it

	// The cells of ATM, and the code words of PTM (tc-cake(8)): so many bytes on the wire carry so many.
	Cell, CellPayload = 53, 48
	Word, WordPayload = 65, 64

	// CellRatio is what cells take of a link, of what they carry.
	CellRatio = float64(Cell) / CellPayload
)

// Cells is what so many bytes take in cells of ATM, of which the last is filled up.
func Cells(bytes int) int { return (bytes + CellPayload - 1) / CellPayload * Cell }

// Words is what so many bytes take in code words of PTM: a byte more for each 64 that are begun.
func Words(bytes int) int {
	return bytes + (bytes+WordPayload-1)/WordPayload*(Word-WordPayload)
}
