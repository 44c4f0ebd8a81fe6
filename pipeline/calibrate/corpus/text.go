package corpus

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"unicode/utf8"
)

// chunk is the part of a document that is in memory at once, in bytes.
const chunk = 1 << 20

// readText splits a text at two or more consecutive lines of white space only. Documents include neither these lines nor the
// line end before them.
func readText(ctx context.Context, f *file, visit func(passage) error) error {
	var (
		in        = bufio.NewReaderSize(newUTF8(f), 64<<10)
		doc       []byte
		blanks    []byte // lines of white space that may belong to the document
		lines     int    // how many
		begins    = true // the next passage is the first of its document
		lineStart = true
	)
	emit := func(b []byte) error {
		if len(bytes.TrimSpace(b)) == 0 {
			return nil
		}
		p := passage{start: begins, text: string(b)}
		begins = false
		return visit(p)
	}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		line, err := in.ReadSlice('\n')
		if err != nil && err != io.EOF && !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
		whole := lineStart && (err == nil || err == io.EOF)
		switch {
		case whole && len(bytes.TrimSpace(line)) == 0:
			if lines++; lines < 2 {
				blanks = append(blanks, line...)
			}
		case lineStart && lines >= 2:
			if err := emit(trimLineEnd(doc)); err != nil {
				return err
			}
			doc, begins = doc[:0], true
			fallthrough
		default:
			if lineStart {
				if lines == 1 && (len(doc) > 0 || !begins) {
					doc = append(doc, blanks...)
				}
				blanks, lines = blanks[:0], 0
			}
			doc = append(doc, line...)
		}
		lineStart = err == nil
		if err == io.EOF {
			return emit(trimLineEnd(doc))
		}
		if len(doc) >= 2*chunk {
			k := boundary(doc, chunk)
			if err := emit(doc[:k]); err != nil {
				return err
			}
			doc = append(doc[:0], doc[k:]...)
		}
	}
}

func trimLineEnd(b []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(b, []byte("\n")), []byte("\r"))
}

// boundary returns the best place to cut a text longer than size into at most size bytes: in their second half after a
// paragraph, else after a line, else after a sentence, else before a space, else between two characters.
func boundary[T []byte | string](text T, size int) int {
	half := size / 2
	s := string(text[half:size])
	for _, mark := range []struct {
		text string
		keep int // bytes of text that stay before the cut
	}{{"\n\n", 2}, {"\n", 1}, {". ", 1}, {"。", len("。")}, {" ", 0}} {
		if i := strings.LastIndex(s, mark.text); i >= 0 && half+i+mark.keep > 0 {
			return half + i + mark.keep
		}
	}
	k := size
	for k > 1 && !utf8.RuneStart(text[k]) {
		k--
	}
	return k
}

// cut splits a text into pieces of at most size bytes, at the places that boundary returns.
func cut(text string, size int) []string {
	var pieces []string
	for len(text) > size {
		k := boundary(text, size)
		pieces, text = append(pieces, text[:k]), text[k:]
	}
	if text != "" {
		pieces = append(pieces, text)
	}
	return pieces
}
