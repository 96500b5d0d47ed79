// SPDX-License-Identifier: Apache-2.0

//go:build all

package machine

import (
	"encoding/json"
	"fmt"
	"net"
	"time"
)

// monitor is QEMU's control connection (QMP).
type monitor struct {
	conn    net.Conn
	decoder *json.Decoder
	events  []string // that have come and nobody has waited for
}

type reply struct {
	Return json.RawMessage
	Event  string
	Error  *struct{ Desc string }
}

// patience is how long QEMU may take for anything that it is told.
const patience = time.Hour

func newMonitor(conn net.Conn) (*monitor, error) {
	m := &monitor{conn: conn, decoder: json.NewDecoder(conn)}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	var greeting reply
	if err := m.decoder.Decode(&greeting); err != nil {
		return nil, fmt.Errorf("qemu's monitor: %w", err)
	}
	_, err := m.do("qmp_capabilities", nil)
	return m, err
}

// do carries out a command of QMP's.
func (m *monitor) do(command string, arguments map[string]any) (json.RawMessage, error) {
	if err := m.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	if arguments == nil {
		arguments = map[string]any{}
	}
	if err := json.NewEncoder(m.conn).Encode(map[string]any{"execute": command, "arguments": arguments}); err != nil {
		return nil, fmt.Errorf("%s: %w", command, err)
	}
	for {
		var r reply
		switch err := m.decoder.Decode(&r); {
		case err != nil:
			return nil, fmt.Errorf("%s: %w", command, err)
		case r.Error != nil:
			return nil, fmt.Errorf("%s: %s", command, r.Error.Desc)
		case r.Event != "":
			m.events = append(m.events, r.Event)
		default:
			return r.Return, nil
		}
	}
}

// human carries out a command for people, which says nothing when all is well.
func (m *monitor) human(command string) (string, error) {
	text, err := m.do("human-monitor-command", map[string]any{"command-line": command})
	if err != nil {
		return "", err
	}
	var said string
	return said, json.Unmarshal(text, &said)
}

// await waits for an event.
func (m *monitor) await(event string) error {
	for {
		for i, e := range m.events {
			if e == event {
				m.events = m.events[i+1:]
				return nil
			}
		}
		if err := m.conn.SetDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		var r reply
		if err := m.decoder.Decode(&r); err != nil {
			return fmt.Errorf("%s: %w", event, err)
		}
		m.events = append(m.events, r.Event)
	}
}
