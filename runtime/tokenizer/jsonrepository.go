package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// JSON reads the tokenizer.json of a repository and adds the tokens that the other files name, as transformers does. Its
// add_bos_token and add_eos_token count only without this file, which says itself what stands around a text.
//
// The classes of transformers 5 build some parts anew and lose what the file says: GPT2Tokenizer merges digits that the
// tokenizer of SmolLM2 keeps apart. Models were trained with the file, so it is followed; the notes of the Tokenizer name the
// parts that transformers 5.23 would replace. Errors do not name the file.
func (c *Config) JSON(b []byte) (*Tokenizer, error) {
	var f struct {
		Added []struct {
			Content *string `json:"content"`
		} `json:"added_tokens"`
		Normalizer   json.RawMessage `json:"normalizer"`
		PreTokenizer json.RawMessage `json:"pre_tokenizer"`
	}
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, fmt.Errorf("%v: %w", err, tensor.ErrCorrupt)
	}
	var notes []string
	k := c.class()
	if c.isRemote() || c.Class == "LlamaTokenizer" && bytes.Contains(b, []byte(`"ByteLevel"`)) {
		k = nil
	}
	if k != nil {
		c.complete(k.special)
		var parts []string
		if !equivalent(k.normalizer, f.Normalizer) {
			parts = append(parts, "normalizer")
		}
		if !equivalent(k.preTokenizer(c), f.PreTokenizer) {
			parts = append(parts, "pre-tokenizer")
		}
		if parts != nil {
			notes = append(notes, fmt.Sprintf("tokenizer.json has another %s than %s of transformers 5; the file is followed",
				strings.Join(parts, " and another "), c.Class))
		}
	}
	listed := make(map[string]bool, len(f.Added)+len(c.added))
	for _, a := range f.Added {
		if a.Content != nil {
			listed[*a.Content] = true
		}
	}
	var o LoadOptions
	add := func(list []AddedToken, always bool) {
		for _, a := range list {
			if a.Content != "" && (always || !listed[a.Content]) {
				a.ID = -1
				o.Added = append(o.Added, a)
			}
		}
	}
	add(c.added, true)
	for _, a := range c.added {
		listed[a.Content] = true
	}
	for _, s := range c.special {
		s.Special = true
		add([]AddedToken{s.AddedToken}, false)
	}
	add(c.extra, false)
	t, err := load(b, o)
	if err != nil {
		return nil, err
	}
	t.notes = notes
	return t, nil
}

// Notes say where the ids are not those of transformers 5.23, for people to read.
func (t *Tokenizer) Notes() []string { return append([]string(nil), t.notes...) }

// equivalent says that a part of a file does what p does.
func equivalent(p part, raw json.RawMessage) bool {
	text, err := json.Marshal(p)
	if err != nil {
		panic("internal error: " + err.Error())
	}
	var a, b any
	if json.Unmarshal(text, &a) != nil || len(raw) > 0 && json.Unmarshal(raw, &b) != nil {
		return false
	}
	return reflect.DeepEqual(plain(a), plain(b))
}

// plain leaves out what does not change ids: sequences of one and offsets.
func plain(v any) any {
	switch v := v.(type) {
	case map[string]any:
		delete(v, "trim_offsets")
		for key, member := range v {
			v[key] = plain(member)
		}
		for _, key := range []string{"normalizers", "pretokenizers"} {
			if list, ok := v[key].([]any); ok && v["type"] == "Sequence" && len(list) == 1 {
				return list[0]
			}
		}
	case []any:
		for i := range v {
			v[i] = plain(v[i])
		}
	}
	return v
}

// Merges reads vocab.json and merges.txt of a repository without tokenizer.json. The class says how texts are cut.
func (c *Config) Merges(vocab, merges []byte) (*Definition, error) {
	k := c.class()
	if k == nil || k.byteFallback || c.isRemote() {
		return nil, unsupported("tokenizer class", fmt.Sprintf("%q with vocab.json and merges.txt", c.Class))
	}
	var ids map[string]uint32
	if err := json.Unmarshal(vocab, &ids); err != nil {
		return nil, fmt.Errorf("vocab.json: %v: %w", err, tensor.ErrCorrupt)
	}
	tokens := make([]string, len(ids))
	for token, id := range ids {
		if int64(id) >= int64(len(tokens)) || tokens[id] != "" || token == "" {
			return nil, unsupported("vocab.json:", fmt.Sprintf("token %q with id %d among %d tokens", token, id, len(tokens)))
		}
		tokens[id] = token
	}
	var pairs []impliedMerge
	number := 0
	for line := range bytes.Lines(merges) {
		number++
		text := strings.TrimRight(string(line), "\r\n")
		if text == "" || strings.HasPrefix(text, "#version") {
			continue
		}
		left, right, ok := strings.Cut(text, " ")
		if !ok || left == "" || right == "" || strings.Contains(right, " ") {
			return nil, fmt.Errorf("merges.txt: line %d, %.40q, is no pair: %w", number, text, tensor.ErrCorrupt)
		}
		pairs = append(pairs, impliedMerge{left: left, right: right})
	}
	c.complete(k.special)
	d := &Definition{normalizer: k.normalizer, preTokenizer: k.preTokenizer(c), decoder: k.decoder(c)}
	d.bpeModel(tokens, pairs, bpeSettings("", k.fuse, false))
	d.apply(c)
	return d, d.frame(c)
}
