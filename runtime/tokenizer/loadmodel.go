package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/llmexport/llmexport/runtime/tensor"
)

type modelFile struct {
	Type             string   `json:"type"`
	Dropout          *float64 `json:"dropout"`
	UnkToken         *string  `json:"unk_token"`
	ContinuingPrefix *string  `json:"continuing_subword_prefix"`
	EndSuffix        *string  `json:"end_of_word_suffix"`
	FuseUnk          bool     `json:"fuse_unk"`
	ByteFallback     bool     `json:"byte_fallback"`
	IgnoreMerges     bool     `json:"ignore_merges"`

	// Read apart from the others.
	Vocab  vocabFile `json:"-"`
	Merges mergeList `json:"-"`
}

// check refuses the settings that byte-level models do not use.
func (m *modelFile) check() error {
	refuse := func(setting string) error { return unsupported(`model "BPE"`, "with "+setting) }
	switch {
	case m.Dropout != nil && *m.Dropout != 0:
		return refuse("dropout")
	case m.ContinuingPrefix != nil && *m.ContinuingPrefix != "":
		return refuse("continuing_subword_prefix")
	case m.EndSuffix != nil && *m.EndSuffix != "":
		return refuse("end_of_word_suffix")
	case m.ByteFallback:
		return refuse("byte_fallback")
	}
	return nil
}

// read reads the model of a file, the small members strictly.
func (m *modelFile) read(raw []byte) error {
	bulk := map[string][]byte{"vocab": nil, "merges": nil}
	if err := setup("model", "BPE", cutMembers(raw, bulk), m); err != nil {
		return err
	}
	for name, to := range map[string]json.Unmarshaler{"vocab": &m.Vocab, "merges": &m.Merges} {
		if b := bulk[name]; b != nil {
			if err := to.UnmarshalJSON(b); err != nil {
				return fmt.Errorf(`model "BPE": %s: %v: %w`, name, err, tensor.ErrCorrupt)
			}
		}
	}
	return nil
}

// cutMembers cuts members with the names of bulk off an object that is known to be valid, and gives what is left; of two with
// one name the last counts.
func cutMembers(raw []byte, bulk map[string][]byte) []byte {
	if raw[0] != '{' {
		return raw
	}
	isBulk := func(name string) bool { _, ok := bulk[name]; return ok }
	left := []byte{'{'}
	for rest := trimSpace(raw[1:]); rest[0] != '}'; {
		key, behind := value(rest)
		v, next := value(trimSpace(behind[1:])) // behind the colon
		if name := string(key[1 : len(key)-1]); isBulk(name) {
			bulk[name] = v
		} else {
			if len(left) > 1 {
				left = append(left, ',')
			}
			left = append(append(append(left, key...), ':'), v...)
		}
		if rest = next; rest[0] == ',' {
			rest = trimSpace(rest[1:])
		}
	}
	return append(left, '}')
}

// readModel fills the vocabulary and the merges.
func (t *Tokenizer) readModel(raw json.RawMessage) error {
	if len(raw) == 0 {
		return fmt.Errorf("no model: %w", tensor.ErrCorrupt)
	}
	var m modelFile
	if err := m.read(raw); err != nil {
		// One of another type has other fields.
		var c struct {
			Type string `json:"type"`
		}
		if other := json.Unmarshal(raw, &c); other != nil {
			return fmt.Errorf("model: %v: %w", other, tensor.ErrCorrupt)
		}
		if m.Type = c.Type; m.Type == "BPE" || m.Type == "" {
			return err
		}
	}
	// Files written before 2021 have no type.
	if m.Type != "BPE" && m.Type != "" {
		return unsupported("model", fmt.Sprintf("%q", m.Type))
	}
	if err := m.check(); err != nil {
		return err
	}

	t.ids = make(map[string]int32, len(m.Vocab))
	t.vocab = len(m.Vocab)
	t.tokens, t.known, t.special = slices.Grow(t.tokens, t.vocab), slices.Grow(t.known, t.vocab), slices.Grow(t.special, t.vocab)
	if err := t.defineAll(m.Vocab); err != nil {
		return err
	}
	complete := true
	for b := range 256 {
		id, ok := t.ids[standIn[b]]
		if !ok {
			id, complete = -1, false
		}
		t.model.byteID[b] = id
	}
	if m.UnkToken != nil && !complete {
		return unsupported(`model "BPE"`, "with unk_token and without a token for every byte")
	}
	if err := t.readMerges(m.Merges); err != nil {
		return err
	}
	if t.ignoreMerges = m.IgnoreMerges; t.ignoreMerges {
		t.model.words = make(map[string]int32, len(m.Vocab))
		for token := range m.Vocab {
			if word, ok := fromStandIns(token); ok {
				t.model.words[word] = t.ids[token]
			}
		}
	}
	return nil
}

// defineAll adds the tokens of a vocabulary. An error is that of the first in the order of their texts.
func (t *Tokenizer) defineAll(vocab map[string]uint32) error {
	ok := true
	for token, id := range vocab {
		if ok = t.define(token, id) == nil; !ok {
			break
		}
	}
	if ok {
		return nil
	}
	clear(t.known)
	for _, token := range slices.Sorted(maps.Keys(vocab)) {
		if err := t.define(token, vocab[token]); err != nil {
			return err
		}
	}
	return nil
}

// define adds a token under a free id.
func (t *Tokenizer) define(token string, id uint32) error {
	// Holes are rare and small. The bound keeps what a short file can claim in proportion to its length.
	const slack = 1 << 16
	if uint64(id) > uint64(2*t.vocab+2*len(t.added)+slack) {
		return unsupported(fmt.Sprintf("token %q", token), fmt.Sprintf("with id %d among %d tokens", id, t.vocab))
	}
	for int(id) >= len(t.tokens) {
		t.tokens = append(t.tokens, "")
		t.known = append(t.known, false)
		t.special = append(t.special, false)
	}
	if t.known[id] {
		return fmt.Errorf("id %d is both %q and %q: %w", id, t.tokens[id], token, tensor.ErrCorrupt)
	}
	t.tokens[id], t.known[id] = token, true
	t.ids[token] = int32(id)
	return nil
}

// readMerges takes both spellings: "a b" and ["a", "b"].
func (t *Tokenizer) readMerges(pairs mergeList) error {
	if pairs == nil {
		return fmt.Errorf(`model "BPE" has no merges: %w`, tensor.ErrCorrupt)
	}
	for _, p := range pairs {
		if p.line != pairs[0].line {
			return fmt.Errorf("merges: some are texts and some are lists: %w", tensor.ErrCorrupt)
		}
	}
	pairs = slices.DeleteFunc(pairs, func(p mergeFile) bool { return p.line && strings.HasPrefix(p.left, "#version") })
	if len(pairs) > maxMerges {
		return unsupported("model", fmt.Sprintf("with %d merges", len(pairs)))
	}
	t.model.sameID = true
	t.model.merges = make(map[pair]merge, len(pairs))
	t.ordered = make([]pair, len(pairs))
	for rank, p := range pairs {
		if p.parts != 2 {
			return fmt.Errorf("merge %d has %d parts: %w", rank, p.parts, tensor.ErrCorrupt)
		}
		left, ok1 := t.ids[p.left]
		right, ok2 := t.ids[p.right]
		both, ok3 := t.ids[p.left+p.right]
		if !ok1 || !ok2 || !ok3 {
			return fmt.Errorf("merge %d, %q with %q: not all of them are tokens: %w", rank, p.left, p.right, tensor.ErrCorrupt)
		}
		t.ordered[rank] = pairOf(left, right)
		t.model.merges[pairOf(left, right)] = merge{int32(rank), both}
	}
	return nil
}

// vocabFile are the ids of tokens. It and mergeList read the bulk of a file themselves: what encoding/json makes for
// hundreds of thousands of entries is several times as large as they are.
type vocabFile map[string]uint32

// UnmarshalJSON implements json.Unmarshaler.
func (v *vocabFile) UnmarshalJSON(b []byte) error {
	if b[0] != '{' {
		*v = nil
		return json.Unmarshal(b, (*map[string]uint32)(v))
	}
	m := make(map[string]uint32, bytes.Count(b, []byte{':'})) // some tokens have colons
	rest := trimSpace(b[1:])
	for rest[0] != '}' {
		key, id := value(rest)
		id = trimSpace(id[1:]) // behind the colon
		id, rest = value(id)
		token, err := unquote(key)
		if err != nil {
			return err
		}
		n, err := strconv.ParseUint(string(id), 10, 32)
		if err != nil {
			return fmt.Errorf("id %.40s of token %.40q", id, token)
		}
		m[token] = uint32(n)
		if rest[0] == ',' {
			rest = trimSpace(rest[1:])
		}
	}
	*v = m
	return nil
}

// mergeList are merges as they are written; nil if there are none.
type mergeList []mergeFile

// mergeFile is a merge as it is written.
type mergeFile struct {
	left, right string
	parts       int
	line        bool // "a b", not ["a", "b"]
}

// UnmarshalJSON implements json.Unmarshaler.
func (l *mergeList) UnmarshalJSON(b []byte) error {
	if b[0] != '[' {
		*l = nil
		return json.Unmarshal(b, new([]string)) // null, or an error
	}
	list := make(mergeList, 0, bytes.Count(b, []byte{'"'})/4+1)
	for rest := trimSpace(b[1:]); rest[0] != ']'; {
		var v []byte
		v, rest = value(rest)
		m, err := readMerge(v)
		if err != nil {
			return err
		}
		list = append(list, m)
		if rest[0] == ',' {
			rest = trimSpace(rest[1:])
		}
	}
	*l = list
	return nil
}

func readMerge(b []byte) (m mergeFile, err error) {
	var parts []string
	switch b[0] {
	case '"':
		var s string
		if s, err = unquote(b); err != nil {
			return m, err
		}
		m.line, parts = true, strings.Split(s, " ")
	case '[':
		if m, ok := plainPair(b); ok {
			return m, nil
		}
		fallthrough
	default:
		if err := json.Unmarshal(b, &parts); err != nil {
			return m, err
		}
	}
	if m.parts = len(parts); m.parts > 0 {
		m.left = parts[0]
	}
	if m.parts > 1 {
		m.right = parts[1]
	}
	return m, nil
}

// plainPair reads ["a", "b"] without escapes.
func plainPair(b []byte) (m mergeFile, ok bool) {
	rest := trimSpace(b[1:])
	for _, to := range []*string{&m.left, &m.right} {
		if rest[0] != '"' {
			return m, false
		}
		var s []byte
		if s, rest = value(rest); bytes.IndexByte(s, '\\') >= 0 {
			return m, false
		}
		*to = string(s[1 : len(s)-1])
		if rest[0] == ',' {
			rest = trimSpace(rest[1:])
		}
	}
	m.parts = 2
	return m, rest[0] == ']'
}

// value cuts the first value off JSON that is known to be valid and does not end with it.
func value(b []byte) (v, rest []byte) {
	depth, i := 0, 0
	for ; ; i++ {
		switch b[i] {
		case '"':
			for i++; b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
		case '[', '{':
			depth++
			continue
		case ']', '}':
			depth--
		default:
			if next := b[i+1]; depth == 0 && (next == ',' || next == ':' || next == ']' || next == '}' || next <= ' ') {
				return b[:i+1], trimSpace(b[i+1:])
			}
			continue
		}
		if depth == 0 {
			return b[:i+1], trimSpace(b[i+1:])
		}
	}
}

// unquote reads a string.
func unquote(b []byte) (s string, err error) {
	if bytes.IndexByte(b, '\\') < 0 {
		return string(b[1 : len(b)-1]), nil
	}
	return s, json.Unmarshal(b, &s)
}

func trimSpace(b []byte) []byte { return bytes.TrimLeft(b, " \t\r\n") }
