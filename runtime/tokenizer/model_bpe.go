package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
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

// readBPE fills the vocabulary and the merges.
func readBPE(raw json.RawMessage, v *vocabulary) (model, error) {
	var f modelFile
	if err := f.read(raw); err != nil {
		return nil, err
	}
	if err := f.check(); err != nil {
		return nil, err
	}
	v.ids = make(map[string]int32, len(f.Vocab))
	v.size = len(f.Vocab)
	v.tokens, v.known, v.special = slices.Grow(v.tokens, v.size), slices.Grow(v.known, v.size), slices.Grow(v.special, v.size)
	if err := v.defineAll(f.Vocab); err != nil {
		return nil, err
	}
	m := &bpe{ignoreMerges: f.IgnoreMerges}
	complete := true
	for b := range 256 {
		id, ok := v.ids[standIn[b]]
		if !ok {
			id, complete = -1, false
		}
		m.byteID[b] = id
	}
	if f.UnkToken != nil && !complete {
		return nil, unsupported(`model "BPE"`, "with unk_token and without a token for every byte")
	}
	if err := m.readMerges(f.Merges, v); err != nil {
		return nil, err
	}
	if m.ignoreMerges {
		m.words = make(map[string]int32, len(f.Vocab))
		for token := range f.Vocab {
			if word, ok := fromStandIns(token); ok {
				m.words[word] = v.ids[token]
			}
		}
	}
	return m, nil
}

// readMerges takes both spellings: "a b" and ["a", "b"].
func (m *bpe) readMerges(pairs mergeList, v *vocabulary) error {
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
	m.sameID = true
	m.merges = make(map[pair]merge, len(pairs))
	m.ordered = make([]pair, len(pairs))
	for rank, p := range pairs {
		if p.parts != 2 {
			return fmt.Errorf("merge %d has %d parts: %w", rank, p.parts, tensor.ErrCorrupt)
		}
		left, ok1 := v.ids[p.left]
		right, ok2 := v.ids[p.right]
		both, ok3 := v.ids[p.left+p.right]
		if !ok1 || !ok2 || !ok3 {
			return fmt.Errorf("merge %d, %q with %q: not all of them are tokens: %w", rank, p.left, p.right, tensor.ErrCorrupt)
		}
		m.ordered[rank] = pairOf(left, right)
		m.merges[pairOf(left, right)] = merge{int32(rank), both}
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

// fit sees that the model gets what it expects: bytes, from a pre-tokenizer that ends with ByteLevel.
func (t *Tokenizer) fit() error {
	steps, _ := t.preTokenizer.(preTokenizerSequence)
	for i, s := range steps {
		if _, ok := s.(*byteLevelStage); ok {
			if i != len(steps)-1 {
				return unsupported("pre-tokenizer", `behind "ByteLevel"`)
			}
			return nil
		}
	}
	return unsupported("pre-tokenizer", `without "ByteLevel"`)
}
