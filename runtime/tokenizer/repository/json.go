package repository

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer"
)

// JSON reads the tokenizer.json of a repository and adds the tokens that the other files name, as transformers does. Its
// add_bos_token and add_eos_token count only without this file, which has its own post-processor.
//
// The classes of transformers 5 rebuild some parts and ignore those of the file: GPT2Tokenizer merges digits that the
// tokenizer of SmolLM2 separates. Models were trained with the file, so it is followed; the notes of the Tokenizer name the
// parts that transformers 5.23 would replace. Errors do not name the file.
func (c *Config) JSON(b []byte) (*tokenizer.Tokenizer, error) {
	var f struct {
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
	t, err := tokenizer.LoadWith(b, tokenizer.LoadOptions{Notes: notes})
	if err != nil {
		return nil, err
	}
	if add := c.missing(t); add != nil {
		if t, err = tokenizer.LoadWith(b, tokenizer.LoadOptions{Added: add, Notes: notes}); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Complete writes the tokenizer that JSON reads as one tokenizer.json that needs no other files: with the tokens that they
// add, and without truncation and padding, which serve batches. Errors do not name the file.
func (c *Config) Complete(b []byte) ([]byte, error) {
	t, err := c.JSON(b)
	if err != nil {
		return nil, err
	}
	var f map[string]json.RawMessage
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, fmt.Errorf("%v: %w", err, tensor.ErrCorrupt)
	}
	added, err := json.Marshal(addedParts(t.AddedTokens()))
	if err != nil {
		panic("internal error: " + err.Error())
	}
	f["added_tokens"] = added
	delete(f, "truncation")
	delete(f, "padding")
	// The model is large: its bytes are copied as they are.
	out := []byte{'{'}
	for _, key := range slices.Sorted(maps.Keys(f)) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(appendJSON(out, key), ':'), f[key]...)
	}
	return append(out, "}\n"...), nil
}

// missing are the tokens that the repository adds to those of the file. Tokens with names that have no id anywhere, such as the
// mask of a class, stay without one: no model has a row for them.
func (c *Config) missing(t *tokenizer.Tokenizer) []tokenizer.AddedToken {
	var out []tokenizer.AddedToken
	listed := map[string]tokenizer.AddedToken{}
	for _, a := range t.AddedTokens() {
		a.ID = -1
		listed[a.Content] = a
	}
	for _, a := range c.added {
		a.ID = -1
		if listed[a.Content] != a {
			out = append(out, a)
		}
		listed[a.Content] = a
	}
	named := slices.Clone(c.extra)
	for i := len(c.special) - 1; i >= 0; i-- {
		a := c.special[i].AddedToken
		a.Special = true
		named = slices.Insert(named, 0, a)
	}
	for _, a := range named {
		_, ok := listed[a.Content]
		if _, known := t.ID(a.Content); known && !ok {
			a.ID = -1
			out = append(out, a)
		}
	}
	return out
}

// equivalent reports whether a part of a file has the effect of p.
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

// plain removes differences without effect on ids: sequences of one and offsets.
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

// Merges reads vocab.json and merges.txt of a repository without tokenizer.json. The class determines how texts are cut.
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
			return nil, fmt.Errorf("merges.txt: line %d, %.40q, is not a pair: %w", number, text, tensor.ErrCorrupt)
		}
		pairs = append(pairs, impliedMerge{left: left, right: right})
	}
	c.complete(k.special)
	d := &Definition{normalizer: k.normalizer, preTokenizer: k.preTokenizer(c), decoder: k.decoder(c)}
	d.bpeModel(tokens, pairs, bpeSettings("", k.fuse, false))
	d.apply(c)
	return d, d.frame(c)
}
