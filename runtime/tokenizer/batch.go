package tokenizer

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// checkBatch reads truncation and padding. They serve batches and are not applied, but settings that the library rejects
// make the file invalid.
func checkBatch(truncation, padding json.RawMessage) error {
	var t *struct {
		Direction json.RawMessage `json:"direction"`
		MaxLength *uint64         `json:"max_length"`
		Strategy  string          `json:"strategy"`
		Stride    *uint64         `json:"stride"`
	}
	var p *struct {
		Strategy  json.RawMessage `json:"strategy"`
		Direction string          `json:"direction"`
		Multiple  *uint64         `json:"pad_to_multiple_of"`
		ID        *uint32         `json:"pad_id"`
		TypeID    *uint32         `json:"pad_type_id"`
		Token     *string         `json:"pad_token"`
	}
	for _, part := range []struct {
		name string
		raw  json.RawMessage
		to   any
	}{{"truncation", truncation, &t}, {"padding", padding, &p}} {
		if len(part.raw) > 0 {
			if err := json.Unmarshal(part.raw, part.to); err != nil {
				return fmt.Errorf("%s: %v: %w", part.name, err, tensor.ErrCorrupt)
			}
		}
	}
	if t != nil && (t.MaxLength == nil || t.Stride == nil || !slices.Contains([]string{"LongestFirst", "OnlyFirst", "OnlySecond"}, t.Strategy) ||
		t.Direction != nil && !slices.Contains([]string{`"Left"`, `"Right"`}, string(t.Direction))) {
		return fmt.Errorf("truncation lacks a setting, or has an unknown one: %w", tensor.ErrCorrupt)
	}
	if p == nil {
		return nil
	}
	if !slices.Contains([]string{"Left", "Right"}, p.Direction) || p.ID == nil || p.TypeID == nil || p.Token == nil {
		return fmt.Errorf("padding lacks a setting, or has an unknown one: %w", tensor.ErrCorrupt)
	}
	var fixed struct{ Fixed *uint64 }
	if string(p.Strategy) != `"BatchLongest"` && (json.Unmarshal(p.Strategy, &fixed) != nil || fixed.Fixed == nil) {
		return unsupported("padding", fmt.Sprintf("with strategy %.40s", p.Strategy))
	}
	return nil
}
