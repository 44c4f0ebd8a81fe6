package main

import "strings"

// Tags around the thoughts of models that write them before an answer.
const (
	thinkBegin = "<think>"
	thinkEnd   = "</think>"
)

// thoughts splits a text that comes in pieces into the answer and the thoughts between tags, which belong to the thoughts.
type thoughts struct {
	print func(text string, thought bool) error
	held  string // may be the beginning of a tag
	in    bool
}

func (t *thoughts) write(piece string) error {
	text := t.held + piece
	t.held = ""
	for {
		tag := thinkBegin
		if t.in {
			tag = thinkEnd
		}
		at := strings.Index(text, tag)
		if at < 0 {
			n := len(text) - partOf(text, tag)
			t.held = text[n:]
			return t.emit(text[:n], t.in)
		}
		if err := t.emit(text[:at], t.in); err != nil {
			return err
		}
		if err := t.emit(tag, true); err != nil {
			return err
		}
		t.in, text = !t.in, text[at+len(tag):]
	}
}

func (t *thoughts) emit(text string, thought bool) error {
	if text == "" {
		return nil
	}
	return t.print(text, thought)
}

// close prints what is held.
func (t *thoughts) close() error { return t.emit(t.held, t.in) }

// partOf is how many of the last bytes of text a tag begins with.
func partOf(text, tag string) int {
	for n := min(len(text), len(tag)-1); n > 0; n-- {
		if strings.HasSuffix(text, tag[:n]) {
			return n
		}
	}
	return 0
}
