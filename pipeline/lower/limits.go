package lower

import (
	"fmt"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Limits of the engine (int sizes in its loader).
const (
	maxGraphBytes  = 1<<31 - 1
	maxOpElements  = 1<<31 - 1
	maxRotaryBytes = 1 << 28 // bytes of rotary tables in the graph file
	maxPositions   = 1 << 26 // positions in tables; they are int32 in the graph
)

// checkLimits rejects models that exceed limits of the engine's loader. The package holds context positions.
func checkLimits(d *arch.Decoder, context, split, high int) error {
	var err error
	d.Linears(func(name string, l *arch.Linear) {
		if err == nil && int64(l.Weight.Rows)*int64(l.Weight.Cols) > maxOpElements {
			err = fmt.Errorf("%s: %d x %d is more than 2^31-1 weights, the engine's limit for one op: %w",
				l.Weight.Tensor, l.Weight.Rows, l.Weight.Cols, tensor.ErrUnsupported)
		}
	})
	if err != nil {
		return err
	}
	if n := int64(d.Positions.Rows) * int64(d.Positions.Cols); n > maxOpElements {
		return fmt.Errorf("%s: %d x %d is more than 2^31-1 elements, the engine's limit for one op: %w",
			d.Positions.Tensor, d.Positions.Rows, d.Positions.Cols, tensor.ErrUnsupported)
	}
	if context > maxPositions {
		return fmt.Errorf("%d positions are more than 2^26: %w", context, tensor.ErrUnsupported)
	}
	total := int64(0)
	for _, r := range ropes(d) {
		sets := [][]float64{r.InvFreq}
		if switches(r, context) {
			sets = append(sets, r.Long)
		}
		for _, freq := range sets {
			for _, f := range freq {
				if a := float64(split*high) * f; !(a <= kernel.SincosLimit) {
					return fmt.Errorf("rotary angle of %g radians at position %d: %w", a, context, tensor.ErrUnsupported)
				}
			}
			total += int64(split+high) * int64(r.Dim) * 4
		}
	}
	if total > maxRotaryBytes {
		return fmt.Errorf("rotary tables of %d bytes for %d positions: %w", total, context, tensor.ErrUnsupported)
	}
	return nil
}

// CheckGraphSize rejects a graph file of n bytes that the engine cannot load.
func (p *Part) CheckGraphSize(n int) error {
	if n > maxGraphBytes {
		return fmt.Errorf("%s would have %d bytes, the engine's limit is 2^31-1: %w", p.GraphFile(), n, tensor.ErrUnsupported)
	}
	return nil
}
