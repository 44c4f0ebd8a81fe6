package calibrate

import (
	"context"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/calibrate/internal/net"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Sampling says which text a model is to write.
type Sampling struct {
	// Windows of Length tokens each begin with First.
	Windows, Length int
	First           []int32
	Seed            uint64
	Threads         int
	// Memory bounds keys and values, and Weights the matrices that stay in memory, both in bytes.
	Memory, Weights int64
	// Progress is told how many of all tokens there are; it may be nil.
	Progress func(done, total int64)
}

// Sample lets a model write text at temperature 1: drawn from the distribution that it is to keep, it is the text on
// which it is best watched, and it needs no data. The text depends on the weights, First and Seed alone.
func Sample(ctx context.Context, d *arch.Decoder, src tensor.Source, s Sampling) ([][]int32, error) {
	m, err := net.New(d, src, s.Threads)
	if err != nil {
		return nil, err
	}
	windows, err := m.Sample(ctx, net.Sampling{Windows: s.Windows, Length: s.Length, First: s.First, Temperature: 1, Seed: s.Seed, Memory: s.Memory, Weights: s.Weights},
		func(done, total int) {
			if s.Progress != nil {
				s.Progress(int64(done), int64(total))
			}
		})
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return windows, err
}
