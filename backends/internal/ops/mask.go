package ops

import (
	"fmt"
	"math"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// WindowMask is the input attention_mask of a graph for so many new tokens after past cached ones, [2, 1, 1, tokens,
// past+tokens]: 0 where a query attends to a key and the lowest float elsewhere. Part 0 is causal, part 1 limits a query to the
// last window positions.
func WindowMask(tokens, past, window int) []float32 {
	keys := past + tokens
	mask := make([]float32, 2*tokens*keys)
	for i := range mask {
		mask[i] = -math.MaxFloat32
	}
	for t := range tokens {
		see := past + t + 1
		clear(mask[t*keys:][:see])
		clear(mask[(tokens+t)*keys:][max(0, see-window):see])
	}
	return mask
}

// Mask gives the explicit mask of Attention, of this shape, for so many queries and keys: width is the length of its rows,
// whose first elements belong to the keys. A mask that the graph makes of positions has columns for the offset before the
// first of them, too, which stand for no key.
func Mask(shape []int, f []float32, queries, keys, offset int) (mask []float32, width int, err error) {
	if len(shape) != 4 || shape[0] != 1 || shape[1] != 1 || shape[2] != queries || shape[3] != keys && shape[3] != keys+offset || len(f) != queries*shape[3] {
		return nil, 0, fmt.Errorf("mask of shape %v for %d queries and %d keys: %w", shape, queries, keys, tensor.ErrCorrupt)
	}
	return f[shape[3]-keys:], shape[3], nil
}
