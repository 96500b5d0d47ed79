// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// What client and server say to each other over HTTPS. A server answers Hello at PathSession; cc=NAME there asks for a
// congestion control. Bulk data goes over PathDown and PathUp, each on a connection of its own; PathFlows says what
// the server saw of it. A page in a browser posts its Recording at PathSummary, and is answered with a Result.
// PathTickets is for bulk data without TLS.
const (
	PathSession = "/weir/1/session"
	PathDown    = "/weir/1/down"
	PathUp      = "/weir/1/up"
	PathFlows   = "/weir/1/flows"
	PathSummary = "/weir/1/summary"
	PathSmall   = "/small" // one byte: a responsiveness server's small answer
	PathTickets = "/weir/1/tickets"

	// DefaultPort is of both TCP and UDP.
	DefaultPort = "4747"
)

// Hello is the server's answer to a POST at PathSession.
type Hello struct {
	Version int      `json:"version"` // 1
	Session string   `json:"session"`
	UDP     int      `json:"udp"`     // port of the probe; 0 where there is none for this client
	Seconds float64  `json:"seconds"` // that a test may take
	Name    string   `json:"name"`    // of the host
	Weir    string   `json:"weir"`
	Kernel  string   `json:"kernel,omitempty"`
	CCs     []string `json:"ccs,omitempty"`   // congestion controls that may be asked for
	NoCC    bool     `json:"no_cc,omitempty"` // the one that was asked for is not there, and no session began
	Rate    uint64   `json:"rate,omitempty"`
	Plain   bool     `json:"plain,omitempty"` // flows may go without TLS
	Path    bool     `json:"path,omitempty"`  // its UDP port says what the path does to packets
	Bulk    bool     `json:"bulk,omitempty"`  // its UDP port counts long packets
}

// Tickets each open one flow without TLS, once and soon, from the address that asked for them. Nobody who sees one on
// its way can do more with it than send or receive what has no meaning.
type Tickets struct {
	Tickets []string `json:"tickets"`
}

// What a flow without TLS begins with: these bytes, a ticket, and a line feed.
const (
	PlainMagic = "weir/1 "
	TicketLen  = 32
	PlainLen   = len(PlainMagic) + TicketLen + 1
)

// Flows is what the server saw of a session's flows, in the order in which they began.
type Flows struct {
	Flows flowList `json:"flows"`
}

// flowList has few flows, and each is checked.
type flowList []Flow

func (l *flowList) UnmarshalJSON(b []byte) (err error) {
	if *l, err = readList[Flow](b, maxFlows, "flows"); err != nil {
		return err
	}
	for _, f := range *l {
		if err := f.check(); err != nil {
			return err
		}
	}
	return nil
}

// readList reads a list of JSON one by one, so many at most. An element's text may be two bytes, and a hundred times
// that of memory.
func readList[T any](b []byte, most int, what string) (all []T, err error) {
	d := json.NewDecoder(bytes.NewReader(b))
	switch begin, err := d.Token(); {
	case err != nil:
		return nil, err
	case begin == nil: // null
		return nil, nil
	case begin != json.Delim('['):
		return nil, errors.New(what + " are a list")
	}
	for d.More() {
		if len(all) == most {
			return nil, fmt.Errorf("%d %s at most", most, what)
		}
		var x T
		if err := d.Decode(&x); err != nil {
			return nil, err
		}
		all = append(all, x)
	}
	return all, nil
}

// Fingerprint is a certificate's, as it is shown and pinned.
func Fingerprint(der []byte) string {
	sum := sha256.Sum256(der)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// ParseFingerprint reads what Fingerprint writes, and colons as openssl writes them.
func ParseFingerprint(s string) (string, error) {
	kind, text, _ := strings.Cut(strings.ToLower(s), ":")
	b, err := hex.DecodeString(strings.ReplaceAll(text, ":", ""))
	if kind != "sha256" || err != nil || len(b) != sha256.Size {
		return "", fmt.Errorf("%q is no fingerprint: write it like sha256: and 64 hexadecimal digits", s)
	}
	return "sha256:" + hex.EncodeToString(b), nil
}
