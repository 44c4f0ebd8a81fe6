package tokenizer

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// Engine is a tokenizer.mtok in memory, and encodes and decodes as the LLM engine of MNN 3.5.0 to 3.6.1 does. It does
// not change and is safe for concurrent use.
type Engine struct {
	file    *mtok
	byID    []string // token of an id
	ids     map[string]int32
	model   merger
	cache   wordCache
	special []specialText
	// heads says with which bytes the special texts begin.
	heads   [256]bool
	added   *matcher
	stages  []stage
	undoMap bool // decode stand-ins to bytes
	size    int
}

type specialText struct {
	text string
	id   int32
}

// OpenMTOK reads the bytes of a tokenizer.mtok with a BPE model. Bytes that the engine would misread or
// trip over are tensor.ErrCorrupt, other models and nodes are tensor.ErrUnsupported. Memory is in proportion to len(b).
func OpenMTOK(b []byte) (*Engine, error) {
	e, err := openMTOK(b)
	if err != nil {
		return nil, fmt.Errorf("tokenizer.mtok: %w", err)
	}
	return e, nil
}

func openMTOK(b []byte) (*Engine, error) {
	m, err := parseMTOK(b)
	if err != nil {
		return nil, err
	}
	e := &Engine{file: m, byID: make([]string, len(m.Model.Vocab)), ids: make(map[string]int32, len(m.Model.Vocab)), size: len(m.Model.Vocab)}
	for _, v := range m.Model.Vocab {
		e.byID[v.ID] = v.Token
		e.ids[v.Token] = v.ID
	}
	e.model.merges = make(map[pair]merge, len(m.Model.Merges))
	var both []byte
	for _, g := range m.Model.Merges {
		both = append(append(both[:0], e.byID[g.Left]...), e.byID[g.Right]...)
		id, ok := e.ids[string(both)]
		if !ok {
			return nil, fmt.Errorf("%q and %q merge to no token: %w", e.byID[g.Left], e.byID[g.Right], tensor.ErrCorrupt)
		}
		e.model.merges[pairOf(g.Left, g.Right)] = merge{g.Rank, id}
	}
	if e.stages, err = engineStages(m.PreTokenizer); err != nil {
		return nil, err
	}
	e.undoMap = hasByteLevel(m.Decoder)
	for _, list := range [][]int32{m.Special, m.Stop, m.Prefix} {
		for _, id := range list {
			e.size = max(e.size, int(id)+1)
		}
	}
	tokens := make([]AddedToken, len(m.Added))
	texts := make([]string, len(m.Added))
	for i, a := range m.Added {
		tokens[i] = AddedToken{ID: a.ID, Content: a.Content, Special: a.Special, LStrip: a.LStrip, RStrip: a.RStrip}
		texts[i] = a.Content
		e.size = max(e.size, int(a.ID)+1)
	}
	e.added = newMatcher(tokens, texts)
	// The engine recognises a special token by what it decodes to, not by its spelling.
	for _, id := range m.Special {
		if text := e.decode(id); text != "" {
			e.special = append(e.special, specialText{text, id})
			e.heads[text[0]] = true
		}
	}
	return e, nil
}

// Encode returns the prefix ids and the ids of text.
func (e *Engine) Encode(text string) []int32 {
	ids := append(make([]int32, 0, len(text)/3+len(e.file.Prefix)), e.file.Prefix...)
	start := 0
	for i := 0; i < len(text); {
		if !e.heads[text[i]] {
			i++
			continue
		}
		n := 0
		for _, s := range e.special {
			if hasPrefixC(text[i:], s.text) {
				ids = e.encode(ids, text[start:i])
				ids = append(ids, s.id)
				n = len(s.text)
				start = i + n
				break
			}
		}
		i += max(n, 1)
	}
	return e.encode(ids, text[start:])
}

// hasPrefixC is the comparison of the C library, which ends at the first zero byte that both have.
func hasPrefixC(s, prefix string) bool {
	if len(s) < len(prefix) {
		return false
	}
	if n := strings.IndexByte(prefix, 0); n >= 0 {
		prefix = prefix[:n+1]
	}
	return strings.HasPrefix(s, prefix)
}

// encode appends the ids of a piece between special tokens.
func (e *Engine) encode(ids []int32, s string) []int32 {
	// This is matcher.cut with the white space of C instead of Unicode's.
	last := 0
	for last < len(s) {
		i, start, stop, ok := e.added.find(s, last)
		if !ok {
			break
		}
		t := e.added.tokens[i]
		for t.LStrip && start > last && isSpaceC(s[start-1]) {
			start--
		}
		for t.RStrip && stop < len(s) && isSpaceC(s[stop]) {
			stop++
		}
		ids = append(e.text(ids, s[last:start]), t.ID)
		last = stop
	}
	return e.text(ids, s[last:])
}

func isSpaceC(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

// text appends the ids of a piece between added tokens.
func (e *Engine) text(ids []int32, s string) []int32 {
	if s = normalizeEngine(e.file.Normalizer, s); s == "" {
		return ids
	}
	runStages(e.stages, s, func(word string) { ids = e.word(ids, word) })
	return ids
}

func (e *Engine) word(ids []int32, word string) []int32 {
	if known, ok := e.cache.get(word); ok {
		return append(ids, known...)
	}
	from := len(ids)
	w := workspaces.Get().(*workspace)
	defer workspaces.Put(w)
	w.reset()
	if e.file.Model.ByteLevel {
		for i := range len(word) {
			if id, ok := e.ids[standIn[word[i]]]; ok {
				w.push(id)
			}
		}
	} else {
		for i := 0; i < len(word); {
			r, n := utf8.DecodeRuneInString(word[i:])
			if id, ok := e.ids[word[i:i+n]]; ok && (r != utf8.RuneError || n > 1) {
				w.push(id)
			} else {
				for _, c := range []byte(word[i : i+n]) {
					if id, ok := e.ids[fmt.Sprintf("<0x%02X>", c)]; ok {
						w.push(id)
					}
				}
			}
			i += n
		}
	}
	ids = e.model.apply(w, ids)
	e.cache.put(word, ids[from:])
	return ids
}

// Decode is what the engine prints while it generates ids one by one: special tokens are not left out, ids without
// a token give nothing. The result need not be UTF-8 when ids end within a character.
func (e *Engine) Decode(ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		b.WriteString(e.decode(id))
	}
	return b.String()
}

func (e *Engine) decode(id int32) string {
	if id < 0 || int(id) >= len(e.byID) {
		return ""
	}
	token := e.byID[id]
	var b strings.Builder
	const metaspace = "▁"
	for i := 0; i < len(token); {
		if strings.HasPrefix(token[i:], metaspace) {
			b.WriteByte(' ')
			i += len(metaspace)
			continue
		}
		if len(token)-i >= 6 && strings.HasPrefix(token[i:], "<0x") && isHex(token[i+3]) {
			c := hexValue(token[i+3])
			if isHex(token[i+4]) {
				c = c<<4 | hexValue(token[i+4])
			}
			b.WriteByte(c)
			i += 6
			continue
		}
		b.WriteByte(token[i])
		i++
	}
	if !e.undoMap {
		return b.String()
	}
	mapped := b.String()
	b.Reset()
	for i := 0; i < len(mapped); {
		r, n := utf8.DecodeRuneInString(mapped[i:])
		if c, ok := standFor[r]; ok {
			b.WriteByte(c)
		} else {
			b.WriteString(mapped[i : i+n])
		}
		i += n
	}
	return b.String()
}

// Special lists the ids that are recognised before all others, in the engine's order.
func (e *Engine) Special() []int32 { return append([]int32(nil), e.file.Special...) }

// Stop lists the ids that end generation.
func (e *Engine) Stop() []int32 { return append([]int32(nil), e.file.Stop...) }

// Prefix lists the ids that Encode puts first.
func (e *Engine) Prefix() []int32 { return append([]int32(nil), e.file.Prefix...) }

// ChatTemplate is the Jinja template of the file; llm_config.json may hold another, which then counts.
func (e *Engine) ChatTemplate() string { return e.file.Template }

// EOS is the text that a chat template sees as eos_token.
func (e *Engine) EOS() string { return e.file.EOS }

// VocabSize is the largest id of the file plus one: an embedding table needs as many rows. Ids of added tokens may
// lie beyond the vocabulary proper; Decode gives nothing for these.
func (e *Engine) VocabSize() int { return e.size }

func hasByteLevel(n decNode) bool {
	if n.Tag == decByteLevel {
		return true
	}
	for _, c := range n.Children {
		if hasByteLevel(c) {
			return true
		}
	}
	return false
}

// normalizeEngine runs a normalizer node.
func normalizeEngine(n normNode, s string) string {
	switch n.Tag {
	case normReplace:
		if n.Pattern != "" {
			return strings.ReplaceAll(s, n.Pattern, n.Content)
		}
	case normTable:
		if len(n.Table) > 0 {
			return substitute(n.Table, s)
		}
	case normStrip:
		if n.Left {
			s = strings.TrimLeftFunc(s, isSpaceEngine)
		}
		if n.Right {
			s = strings.TrimRightFunc(s, isSpaceEngine)
		}
	case normSequence:
		for _, c := range n.Children {
			s = normalizeEngine(c, s)
		}
	}
	return s
}

func isSpaceEngine(r rune) bool {
	return r < utf8.RuneSelf && isSpaceC(byte(r)) || r >= utf8.RuneSelf && foldRune(r) == foldSpaces
}
