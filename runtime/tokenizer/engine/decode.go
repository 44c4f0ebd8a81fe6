package engine

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/bytelevel"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/mtok"
)

// metaspace stands for a space in tokens.
const metaspace = "▁"

// decoder holds the two properties of the tree of decoders that the engine uses when it prints. It prints id by id, while
// the nodes themselves decode lists, which it never does.
type decoder struct {
	standIns  bool // there is a node ByteLevel
	wordPiece bool // there is a node WordPiece
	prefix    string
}

func newDecoder(n *mtok.Decoder) decoder {
	var d decoder
	var walk func(n *mtok.Decoder)
	walk = func(n *mtok.Decoder) {
		switch n.Tag {
		case mtok.DecByteLevel:
			d.standIns = true
		case mtok.DecWordPiece:
			d.wordPiece, d.prefix = true, n.Content // the last one counts
		}
		for i := range n.Children {
			walk(&n.Children[i])
		}
	}
	walk(n)
	return d
}

// text is the printed text of a token.
func (d *decoder) text(token string) string {
	s := spelled(token)
	if d.wordPiece {
		if d.prefix != "" && strings.HasPrefix(s, d.prefix) {
			return s[len(d.prefix):]
		}
		return " " + s
	}
	if !d.standIns {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if c, ok := bytelevel.Byte(r); ok {
			b.WriteByte(c)
		} else {
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}

// printed converts a text after the tokenizer as the engine does: a text that looks like a byte is one. It reports false if
// the engine crashes.
func printed(text string) (string, bool) {
	if len(text) != len("<0x00>") || !strings.HasPrefix(text, "<0x") || text[5] != '>' {
		return text, true
	}
	c, ok := scanHex(text[3:5])
	return string([]byte{c}), ok
}

// CheckPrinted rejects a vocabulary with a token that crashes an engine that prints it, with this decoder.
func CheckPrinted(n *mtok.Decoder, tokens []string) error {
	d := newDecoder(n)
	for _, t := range tokens {
		if strings.Contains(t, "0x") {
			if _, ok := printed(d.text(t)); !ok {
				return fmt.Errorf("token %q crashes the engine when it is printed: %w", t, tensor.ErrUnsupported)
			}
		}
	}
	return nil
}

// spelled replaces U+2581 by spaces and names of bytes by bytes, anywhere in a token.
func spelled(token string) string {
	if !strings.Contains(token, metaspace) && !strings.Contains(token, "<0x") {
		return token
	}
	var b strings.Builder
	for i := 0; i < len(token); {
		if strings.HasPrefix(token[i:], metaspace) {
			b.WriteByte(' ')
			i += len(metaspace)
			continue
		}
		if len(token)-i >= len("<0x00>") && strings.HasPrefix(token[i:], "<0x") {
			if c, ok := scanHex(token[i+3:]); ok {
				b.WriteByte(c)
				i += len("<0x00>")
				continue
			}
		}
		b.WriteByte(token[i])
		i++
	}
	return b.String()
}

// scanHex reads a number as the C library does with "%02X": any white space, then at most two characters, of which
// the first may be a sign. The rest is ignored.
func scanHex(s string) (byte, bool) {
	for s != "" && isSpaceC(s[0]) {
		s = s[1:]
	}
	s = s[:min(len(s), 2)]
	negative := strings.HasPrefix(s, "-")
	if negative || strings.HasPrefix(s, "+") {
		s = s[1:]
	}
	for n := len(s); n > 0; n-- {
		if v, err := strconv.ParseUint(s[:n], 16, 8); err == nil {
			if negative {
				v = -v
			}
			return byte(v), true
		}
	}
	return 0, false
}
