package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/peterh/liner"

	"github.com/llmexport/llmexport/internal/exit"
)

// lineReader reads the lines that a user writes.
type lineReader interface {
	// line returns the next line without its end. The error is errInterrupted for Ctrl-C at the prompt and io.EOF at the end.
	line(ctx context.Context, prompt string) (string, error)
	// keep puts a message into the history that the arrow keys show.
	keep(message string)
}

// errInterrupted is Ctrl-C at a prompt.
var errInterrupted = errors.New("interrupted")

// read is a line or an error.
type read struct {
	text string
	err  error
}

// maxLine bounds a line of a pipe, in bytes.
const maxLine = 4 << 20

// pipe reads standard input when it is not a terminal. It shows no prompts.
type pipe struct{ lines chan read }

// newPipe reads in a goroutine of its own, so that waiting for a line ends with the context.
func newPipe(r io.Reader) *pipe {
	p := &pipe{make(chan read)}
	go func() {
		s := bufio.NewScanner(r)
		s.Buffer(nil, maxLine)
		for s.Scan() {
			p.lines <- read{text: s.Text()}
		}
		err := s.Err()
		switch {
		case errors.Is(err, bufio.ErrTooLong):
			err = exit.Usagef("a line of standard input is longer than %d bytes", maxLine)
		case err == nil:
			err = io.EOF
		}
		p.lines <- read{err: err}
	}()
	return p
}

func (p *pipe) line(ctx context.Context, _ string) (string, error) {
	select {
	case l := <-p.lines:
		return strings.TrimSuffix(l.text, "\r"), l.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

func (p *pipe) keep(string) {}

// editor reads a terminal, with editing, history and completion of commands.
type editor struct {
	state *liner.State
	// interrupts are those that come before the library has the keyboard.
	interrupts <-chan os.Signal
	// waiting receives the line of a prompt that was interrupted.
	waiting chan read
}

func newEditor(commands []string, interrupts <-chan os.Signal) *editor {
	s := liner.NewLiner()
	s.SetCtrlCAborts(true)
	s.SetMultiLineMode(true)
	s.SetBeep(false)
	s.SetCompleter(func(line string) (found []string) {
		for _, c := range commands {
			if strings.HasPrefix(c, line) && line != "" {
				found = append(found, c)
			}
		}
		return found
	})
	return &editor{state: s, interrupts: interrupts}
}

func (e *editor) line(ctx context.Context, prompt string) (string, error) {
	// The library cannot be told to stop waiting for a key: the next call goes on with the same prompt.
	if e.waiting == nil {
		done := make(chan read, 1)
		e.waiting = done
		go func() {
			text, err := e.state.Prompt(prompt)
			done <- read{text, err}
		}()
	} else {
		fmt.Print(prompt) // where the library writes
	}
	select {
	case l := <-e.waiting:
		e.waiting = nil
		if errors.Is(l.err, liner.ErrPromptAborted) {
			l.err = errInterrupted
		}
		return l.text, l.err
	case <-e.interrupts:
		fmt.Println("^C") // as the library does
		return "", errInterrupted
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

func (e *editor) keep(message string) { e.state.AppendHistory(strings.ReplaceAll(message, "\n", " ")) }

// close restores the terminal.
func (e *editor) close() { _ = e.state.Close() }

// quotes begin and end a message of several lines.
const quotes = `"""`

// readMessage reads a message: a line, lines that end with a backslash and the one after them, or everything between quotes.
func readMessage(ctx context.Context, in lineReader, prompt, more string) (string, error) {
	text, err := in.line(ctx, prompt)
	if err != nil {
		return "", err
	}
	next := func() (string, error) {
		line, err := in.line(ctx, more)
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return line, err
	}
	if rest, quoted := strings.CutPrefix(strings.TrimLeft(text, " \t"), quotes); quoted {
		for {
			if body, ended := strings.CutSuffix(strings.TrimRight(rest, " \t"), quotes); ended {
				return strings.Trim(body, "\n"), nil
			}
			line, err := next()
			if errors.Is(err, io.ErrUnexpectedEOF) {
				return "", exit.Usagef("a message that begins with %s does not end with it", quotes)
			}
			if err != nil {
				return "", err
			}
			rest += "\n" + line
		}
	}
	for strings.HasSuffix(text, `\`) {
		line, err := next()
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return strings.TrimSuffix(text, `\`), nil
		}
		if err != nil {
			return "", err
		}
		text = strings.TrimSuffix(text, `\`) + "\n" + line
	}
	return text, nil
}
