package ops

import (
	"fmt"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// CheckInput refuses inputs that engines do not feed.
func CheckInput(name string) error {
	switch name {
	case "input_ids", "attention_mask", "position_ids", "logits_index":
		return nil
	}
	return fmt.Errorf("unknown input: %w", tensor.ErrUnsupported)
}
