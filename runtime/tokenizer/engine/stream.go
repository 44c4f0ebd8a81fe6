package engine

import "github.com/llmexport/llmexport/runtime/tokenizer/internal/bytelevel"

// Stream decodes ids one by one. It holds bytes back until they are whole characters.
//
// A Stream is not safe for concurrent use.
type Stream struct {
	engine *Tokenizer
	rest   []byte
}

// Stream returns a Stream of the bytes of Decode, in whole characters. Invalid UTF-8 stays as it is.
func (e *Tokenizer) Stream() *Stream { return &Stream{engine: e} }

// Next takes an id and returns the next part of the text, which may be empty.
func (s *Stream) Next(id int32) string {
	s.rest = append(s.rest, s.engine.printed(id)...)
	n := bytelevel.Whole(s.rest)
	text := string(s.rest[:n])
	s.rest = append(s.rest[:0], s.rest[n:]...)
	return text
}

// Close returns the rest of the text and ends the use of the Stream.
func (s *Stream) Close() string { return string(s.rest) }
