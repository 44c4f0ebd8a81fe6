package tokenizer

import (
	"encoding/json"
	"fmt"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// bertFile is the JSON of a post-processor that puts one token before a text and one after it.
type bertFile struct {
	Type string     `json:"type"`
	Sep  namedToken `json:"sep"`
	Cls  namedToken `json:"cls"`
}

func (f *bertFile) processor(name string) (postProcessor, error) {
	for _, t := range []namedToken{f.Sep, f.Cls} {
		if !t.set || int64(t.id) > int64(maxID) {
			return postProcessor{}, fmt.Errorf("post-processor %q lacks a token: %w", name, tensor.ErrCorrupt)
		}
	}
	return postProcessor{prefix: []int32{int32(f.Cls.id)}, suffix: []int32{int32(f.Sep.id)}, changes: true}, nil
}

func readBertProcessing(raw json.RawMessage, _ int) (p postProcessor, err error) {
	const name = "BertProcessing"
	var c bertFile
	if err := setup("post-processor", name, raw, &c); err != nil {
		return p, err
	}
	return c.processor(name)
}

func readRobertaProcessing(raw json.RawMessage, _ int) (p postProcessor, err error) {
	const name = "RobertaProcessing"
	var c struct {
		bertFile
		// These change offsets only.
		TrimOffsets bool `json:"trim_offsets"`
		PrefixSpace bool `json:"add_prefix_space"`
	}
	if err := setup("post-processor", name, raw, &c); err != nil {
		return p, err
	}
	return c.processor(name)
}

// namedToken is ["</s>", 2].
type namedToken struct {
	id  uint32
	set bool
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *namedToken) UnmarshalJSON(b []byte) error {
	var parts []json.RawMessage
	if err := json.Unmarshal(b, &parts); err != nil {
		return err
	}
	if len(parts) != 2 {
		return fmt.Errorf("a token of %d parts", len(parts))
	}
	t.set = true
	if err := json.Unmarshal(parts[0], new(string)); err != nil {
		return err
	}
	return json.Unmarshal(parts[1], &t.id)
}
