// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"io"
	"strings"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
)

// frames is how often the screen may change, a second: often enough for keys, and little for a slow line.
const frames = 4

// screen is what bubbletea is given: the state, and how it is looked at.
type screen struct {
	look   View
	state  State
	frozen *State // what is shown meanwhile, while it is paused

}

// Init asks for nothing: events come by themselves.
func (s screen) Init() tea.Cmd { return nil }

// Update takes in what was read, and keys.
func (s screen) Update(m tea.Msg) (tea.Model, tea.Cmd) {
	switch m := m.(type) {
	case Event:
		s.state.Add(m)
	case tea.WindowSizeMsg:
		s.look.Width, s.look.Height = m.Width, m.Height
	case tea.KeyPressMsg:
		if s.look.Typing {
			return s.typeKey(m), nil
		}
		return s.pressKey(m.String())
	}
	return s, nil
}

func (s screen) pressKey(key string) (tea.Model, tea.Cmd) {
	switch key {
	case "q", "ctrl+c", "esc":
		return s, tea.Quit
	case "p", "space":
		s.look.Paused = !s.look.Paused
		s.frozen = nil
		if s.look.Paused {
			now := s.state
			s.frozen = &now
		}
	case "s":
		s.look.Sort = (s.look.Sort + 1) % len(orders())
	case "/":
		s.look.Typing = true
	}
	return s, nil
}

func (s screen) typeKey(key tea.KeyPressMsg) tea.Model {
	switch key.String() {
	case "enter":
		s.look.Typing = false
	case "esc", "ctrl+c":
		s.look.Typing, s.look.Filter = false, ""
	case "backspace":
		_, last := utf8.DecodeLastRuneInString(s.look.Filter)
		s.look.Filter = s.look.Filter[:len(s.look.Filter)-last]
	default:
		const longest = 40
		if len(s.look.Filter)+len(key.Text) <= longest {
			s.look.Filter += key.Text
		}
	}
	return s
}

// View is the screen. There are no colours, so there is nothing that NO_COLOR would have to take away.
func (s screen) View() tea.View {
	state := s.state
	if s.frozen != nil {
		state = *s.frozen
	}
	content := ""
	if s.look.Width > 0 && s.look.Height > 0 {
		content = strings.Join(s.look.Lines(state), "\n")
	}
	v := tea.NewView(content)
	v.AltScreen = true
	return v
}

// Show shows what the reader reads on a terminal, until it is quit or told to end.
func Show(ctx context.Context, r *Reader, v View, in io.Reader, out io.Writer) error {
	shown, stop := context.WithCancel(ctx)
	defer stop()
	p := tea.NewProgram(screen{look: v}, tea.WithContext(shown), tea.WithInput(in), tea.WithOutput(out),
		tea.WithFPS(frames))
	done := make(chan error, 1)
	go func() {
		_, err := p.Run()
		done <- err
		stop()
	}()
	// Here, since a network namespace belongs to a thread.
	err := r.Run(shown, func(e Event) { p.Send(e) })
	p.Quit()
	if failed := <-done; err == nil && ctx.Err() == nil {
		err = failed
	}
	return err
}
