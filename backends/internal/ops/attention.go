package ops

import (
	"fmt"

	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// CheckHistory rejects a call after positions of the conversation for attention that keeps no keys and values: it takes whole
// texts only.
func CheckHistory(p *mnn.Attention, positions int) error {
	if p.KVCache || positions == 0 {
		return nil
	}
	return fmt.Errorf("attention without a cache after %d positions: %w", positions, tensor.ErrUnsupported)
}

// ErrMask refuses masks that are neither the number 0, which means causal, nor [1, 1, queries, keys].
var ErrMask = fmt.Errorf("attention with a mask of another kind: %w", tensor.ErrUnsupported)

// CheckAttention rejects attention that reads the cache of another op, and inputs of shapes that do not fit: queries, keys, values
// and, if there are any, a mask and the sinks of the heads. Only the rank of a mask is checked.
func CheckAttention(p *mnn.Attention, shapes [][]int) error {
	if p.KVShared {
		return fmt.Errorf("attention that shares a cache: %w", tensor.ErrUnsupported)
	}
	if len(shapes) < 3 || len(shapes) > 5 {
		return fmt.Errorf("attention with %d inputs: %w", len(shapes), tensor.ErrUnsupported)
	}
	if p.Scale != 0 {
		return fmt.Errorf("attention with a scale of %g: %w", p.Scale, tensor.ErrUnsupported)
	}
	if len(shapes) > 3 && len(shapes[3]) != 0 && len(shapes[3]) != 4 {
		return ErrMask
	}
	if len(shapes) > 4 && len(shapes[3]) == 0 {
		// In the engine every query attends to all keys then.
		return fmt.Errorf("attention with sinks and without an explicit mask is not causal: %w", tensor.ErrUnsupported)
	}
	q, k, v := shapes[0], shapes[1], shapes[2]
	if len(q) != 4 || len(k) != 4 || q[0] != 1 || k[0] != 1 || q[1] != k[1] || q[3] != k[3] || Count(k) == 0 || q[2]%k[2] != 0 || Count(v) != Count(k) {
		return fmt.Errorf("attention on %v, %v, %v: %w", q, k, v, tensor.ErrCorrupt)
	}
	if len(shapes) > 4 && Count(shapes[4]) != q[2] {
		return fmt.Errorf("attention of %d heads with sinks %v: %w", q[2], shapes[4], tensor.ErrCorrupt)
	}
	return nil
}
