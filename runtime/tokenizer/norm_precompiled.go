package tokenizer

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// precompiled is the normalizer Precompiled, the table of replacements of a SentencePiece model.
//
// The table is a uint32 length in bytes, a double-array trie of that length (uint32 units, all little endian) and the
// replacements, each ended by a zero byte. A unit is, from its lowest bit: 8 bits label, 1 bit "a key ends here",
// 1 bit that scales the offset by 256, 22 bits offset; a unit of the other kind has bit 31 set and holds where the
// replacement begins. The children of a unit at i with offset o lie at i^o^label, that with label 0 is the value.
type precompiled struct {
	units []uint32
	texts string
	// growth bounds the bytes that replace one.
	growth int
}

func readPrecompiled(raw json.RawMessage, _ int) (normalizer, error) {
	const kind, name = "normalizer", "Precompiled"
	var c struct {
		Type string  `json:"type"`
		Map  *string `json:"precompiled_charsmap"`
	}
	if err := setup(kind, name, raw, &c); err != nil {
		return nil, err
	}
	if c.Map == nil {
		return nil, fmt.Errorf("%s %q without its table: %w", kind, name, tensor.ErrCorrupt)
	}
	b, err := base64.StdEncoding.Strict().DecodeString(*c.Map)
	if err != nil {
		return nil, fmt.Errorf("%s %q: %v: %w", kind, name, err, tensor.ErrCorrupt)
	}
	n, err := newPrecompiled(b)
	if err != nil {
		return nil, fmt.Errorf("%s %q: %w", kind, name, err)
	}
	return n, nil
}

// newPrecompiled reads a table as a SentencePiece model holds it. Every way through its trie is checked.
func newPrecompiled(b []byte) (*precompiled, error) {
	corrupt := func(what string) error { return fmt.Errorf("table of replacements: %s: %w", what, tensor.ErrCorrupt) }
	if len(b) < 4 {
		return nil, corrupt("too short")
	}
	size := binary.LittleEndian.Uint32(b)
	b = b[4:]
	if int64(size) > int64(len(b)) || size < 4 {
		return nil, corrupt(fmt.Sprintf("a trie of %d bytes in %d", size, len(b)))
	}
	// Sixteen times the size of the largest table of SentencePiece bounds the time that check takes.
	const maxSize = 1 << 22
	if size > maxSize {
		return nil, unsupported("table of replacements", fmt.Sprintf("with a trie of %d bytes", size))
	}
	n := &precompiled{units: make([]uint32, size/4), texts: string(b[size/4*4:])}
	for i := range n.units {
		n.units[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	if !utf8.ValidString(n.texts) {
		return nil, corrupt("a replacement is not UTF-8")
	}
	if err := n.check(corrupt); err != nil {
		return nil, err
	}
	return n, nil
}

// unitOffset leads from a unit to its children.
func unitOffset(u uint32) uint32 { return u >> 10 << (u & (1 << 9) >> 6) }

const (
	unitLeaf  = 1 << 8
	unitLabel = 1<<31 | 0xFF
	unitValue = 1<<31 - 1
)

// check visits every unit that a key can lead to, shorter keys first.
func (n *precompiled) check(corrupt func(string) error) error {
	type place struct{ base, length uint32 } // where children lie, and the length of the keys that end there
	n.growth = 1
	seen := make([]bool, len(n.units))
	todo := []place{{unitOffset(n.units[0]), 1}}
	for len(todo) > 0 {
		p := todo[0]
		todo = todo[1:]
		for label := range uint32(256) {
			at := p.base ^ label
			if int64(at) >= int64(len(n.units)) {
				return corrupt("the trie leads out of its bounds")
			}
			u := n.units[at]
			if label == 0 || u&unitLabel != label || seen[at] {
				continue
			}
			seen[at] = true
			next := at ^ unitOffset(u)
			if u&unitLeaf != 0 {
				if int64(next) >= int64(len(n.units)) {
					return corrupt("the trie leads out of its bounds")
				}
				v := n.units[next] & unitValue
				if int64(v) > int64(len(n.texts)) || int(v) < len(n.texts) && !utf8.RuneStart(n.texts[v]) {
					return corrupt(fmt.Sprintf("no replacement begins at %d", v))
				}
				n.growth = max(n.growth, 1+(len(n.text(v))-1)/int(p.length))
			}
			todo = append(todo, place{next, p.length + 1})
		}
	}
	if n.growth > maxGrowth {
		return unsupported("table of replacements", fmt.Sprintf("that makes more than %d bytes of one", maxGrowth))
	}
	return nil
}

// text is the replacement that begins at v.
func (n *precompiled) text(v uint32) string {
	text, _, _ := strings.Cut(n.texts[v:], "\x00")
	return text
}

// replacement is that of the shortest key that s begins with.
func (n *precompiled) replacement(s string) (string, bool) {
	at := unitOffset(n.units[0])
	for i := range len(s) {
		if s[i] == 0 {
			break
		}
		at ^= uint32(s[i])
		u := n.units[at]
		if u&unitLabel != uint32(s[i]) {
			break
		}
		at ^= unitOffset(u)
		if u&unitLeaf != 0 {
			return n.text(n.units[at] & unitValue), true
		}
	}
	return "", false
}

// normalize follows the library `tokenizers`, not SentencePiece: a grapheme cluster of less than six bytes that begins
// with a key is replaced as a whole, including the rest of the cluster after the key.
func (n *precompiled) normalize(a aligned) aligned {
	const short = 6
	s := a.text
	var b strings.Builder
	done, found := 0, false
	head := headCount{old: a}
	replace := func(start, end int, text string) {
		head.keep(s[done:start])
		head.replace(utf8.RuneCountInString(s[start:end]), text)
		b.WriteString(s[done:start])
		b.WriteString(text)
		done, found = end, true
	}
	t := clusters()
	for i := 0; i < len(s); {
		end := i + t.cluster(s[i:])
		if end-i < short {
			if text, ok := n.replacement(s[i:end]); ok {
				replace(i, end, text)
				i = end
				continue
			}
		}
		for i < end {
			_, w := utf8.DecodeRuneInString(s[i:])
			if text, ok := n.replacement(s[i : i+w]); ok {
				replace(i, i+w, text)
			}
			i += w
		}
	}
	if !found {
		return a
	}
	head.keep(s[done:])
	b.WriteString(s[done:])
	return aligned{b.String(), head.finish()}
}
