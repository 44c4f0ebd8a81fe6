package tokenizer

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// byteRun is the decoder ByteFallback: a run of tokens like <0x41> is a token with these bytes. If the run as a whole is
// not UTF-8, every byte of it becomes U+FFFD, so no text of a run is certain before it ends or is broken.
type byteRun struct {
	next   sink
	bytes  []byte
	whole  int  // how many of bytes are whole characters
	broken bool // the run is not UTF-8; its bytes are written
}

func newByteRun(next sink) sink {
	r := &byteRun{next: next}
	return &wholeTokens{token: r.token, end: func() { r.end(); next.close() }}
}

func (r *byteRun) token(token string) {
	b, ok := namedByte(token)
	if !ok {
		r.end()
		r.next.write(token, true)
		return
	}
	if r.broken {
		r.next.write("\ufffd", true)
		return
	}
	r.bytes = append(r.bytes, b)
	if char := r.bytes[r.whole:]; utf8.FullRune(char) {
		if c, n := utf8.DecodeRune(char); c == utf8.RuneError && n == 1 {
			r.refuse()
		} else {
			r.whole += n
		}
	}
}

// refuse writes the bytes of a broken run.
func (r *byteRun) refuse() {
	for range r.bytes {
		r.next.write("\ufffd", true)
	}
	r.bytes, r.whole, r.broken = r.bytes[:0], 0, true
}

// end ends the run.
func (r *byteRun) end() {
	switch {
	case r.whole < len(r.bytes):
		r.refuse()
	case r.whole > 0:
		r.next.write(string(r.bytes), true)
	}
	r.bytes, r.whole, r.broken = r.bytes[:0], 0, false
}

// namedByte is the byte that a token like <0x41> names. The library's parser of numbers takes a plus sign too.
func namedByte(token string) (byte, bool) {
	if len(token) != len("<0x41>") || !strings.HasPrefix(token, "<0x") || token[5] != '>' {
		return 0, false
	}
	b, err := strconv.ParseUint(strings.TrimPrefix(token[3:5], "+"), 16, 8)
	return byte(b), err == nil
}
