package tokenizer

// Stream decodes ids one by one. Its texts, joined, are the text of Decode for all ids; each holds only what later ids cannot
// change: not the first bytes of a character, nor a space that the decoder removes at the end.
//
// A Stream is not safe for concurrent use.
type Stream struct {
	token func(id int32) (string, bool)
	in    sink
	out   text
}

// Stream returns a Stream of the text of Decode.
func (t *Tokenizer) Stream(skipSpecial bool) *Stream {
	s := &Stream{token: func(id int32) (string, bool) { return t.decodable(id, skipSpecial) }}
	d := t.decoder
	if d == nil {
		d = spaced
	}
	s.in = d.stream(&s.out)
	return s
}

// Next takes an id and returns the next part of the text, which may be empty.
func (s *Stream) Next(id int32) string {
	s.push(id)
	return s.out.take()
}

// Close returns the rest of the text and ends the use of the Stream.
func (s *Stream) Close() string {
	s.in.close()
	return s.out.take()
}

func (s *Stream) push(id int32) {
	if token, ok := s.token(id); ok {
		s.in.write(token, true)
	}
}

// text is the last sink: it joins.
type text []byte

func (t *text) write(part string, _ bool) { *t = append(*t, part...) }

func (t *text) close() {}

func (t *text) take() string {
	s := string(*t)
	*t = (*t)[:0]
	return s
}
