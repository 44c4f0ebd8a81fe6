package serve

import "strings"

// stopper cuts a text that comes in pieces before the first of some strings.
type stopper struct {
	strings []string
	held    string // may be the beginning of one of them
	stopped bool
}

// next returns what can be given out of the text so far.
func (s *stopper) next(piece string) string {
	if s.stopped {
		return ""
	}
	text := s.held + piece
	first := -1
	for _, stop := range s.strings {
		if at := strings.Index(text, stop); at >= 0 && (first < 0 || at < first) {
			first = at
		}
	}
	if first >= 0 {
		s.stopped, s.held = true, ""
		return text[:first]
	}
	keep := 0
	for _, stop := range s.strings {
		for n := min(len(text), len(stop)-1); n > keep; n-- {
			if strings.HasSuffix(text, stop[:n]) {
				keep = n
			}
		}
	}
	s.held = text[len(text)-keep:]
	return text[:len(text)-keep]
}

// rest returns what was held, at the end of the text.
func (s *stopper) rest() string {
	text := s.held
	s.held = ""
	return text
}
