package tokenizer

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/runtime/tensor"
)

type modelFile struct {
	Type             string            `json:"type"`
	Dropout          *float64          `json:"dropout"`
	UnkToken         *string           `json:"unk_token"`
	ContinuingPrefix *string           `json:"continuing_subword_prefix"`
	EndSuffix        *string           `json:"end_of_word_suffix"`
	FuseUnk          bool              `json:"fuse_unk"`
	ByteFallback     bool              `json:"byte_fallback"`
	IgnoreMerges     bool              `json:"ignore_merges"`
	Vocab            map[string]uint32 `json:"vocab"`
	Merges           json.RawMessage   `json:"merges"`
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

// readModel fills the vocabulary and the merges.
func (t *Tokenizer) readModel(raw json.RawMessage) error {
	var c struct {
		Type string `json:"type"`
	}
	if len(raw) == 0 {
		return fmt.Errorf("no model: %w", tensor.ErrCorrupt)
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return fmt.Errorf("model: %v: %w", err, tensor.ErrCorrupt)
	}
	// Files written before 2021 have no type.
	if c.Type != "BPE" && c.Type != "" {
		return unsupported("model", fmt.Sprintf("%q", c.Type))
	}
	var m modelFile
	if err := setup("model", "BPE", raw, &m); err != nil {
		return err
	}
	if err := m.check(); err != nil {
		return err
	}

	t.ids = make(map[string]int32, len(m.Vocab))
	t.vocab = len(m.Vocab)
	// In an order of its own, so that an error is the same every time.
	names := make([]string, 0, len(m.Vocab))
	for token := range m.Vocab {
		names = append(names, token)
	}
	slices.Sort(names)
	for _, token := range names {
		if err := t.define(token, m.Vocab[token]); err != nil {
			return err
		}
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
		t.model.words = make(map[string]int32, len(names))
		for _, token := range names {
			if word, ok := fromStandIns(token); ok {
				t.model.words[word] = t.ids[token]
			}
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
func (t *Tokenizer) readMerges(raw json.RawMessage) error {
	if len(raw) == 0 {
		return fmt.Errorf(`model "BPE" has no merges: %w`, tensor.ErrCorrupt)
	}
	var pairs [][]string
	if json.Unmarshal(raw, &pairs) != nil {
		pairs = nil
		var lines []string
		if err := json.Unmarshal(raw, &lines); err != nil {
			return fmt.Errorf("merges: %v: %w", err, tensor.ErrCorrupt)
		}
		for _, line := range lines {
			if strings.HasPrefix(line, "#version") {
				continue
			}
			pairs = append(pairs, strings.Split(line, " "))
		}
	}
	if len(pairs) > maxMerges {
		return unsupported("model", fmt.Sprintf("with %d merges", len(pairs)))
	}
	t.model.sameID = true
	t.model.merges = make(map[pair]merge, len(pairs))
	t.ordered = make([]pair, len(pairs))
	for rank, p := range pairs {
		if len(p) != 2 {
			return fmt.Errorf("merge %d has %d parts: %w", rank, len(p), tensor.ErrCorrupt)
		}
		left, ok1 := t.ids[p[0]]
		right, ok2 := t.ids[p[1]]
		both, ok3 := t.ids[p[0]+p[1]]
		if !ok1 || !ok2 || !ok3 {
			return fmt.Errorf("merge %d, %q with %q: not all of them are tokens: %w", rank, p[0], p[1], tensor.ErrCorrupt)
		}
		t.ordered[rank] = pairOf(left, right)
		t.model.merges[pairOf(left, right)] = merge{int32(rank), both}
	}
	return nil
}
