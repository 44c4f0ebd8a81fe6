package forward

import (
	"context"
	"fmt"
	"math"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// checkPooling requires consistent layers after the pooling.
func (m *Model) checkPooling() error {
	d := m.decoder
	if d.FinalNorm.Gamma.Tensor != "" {
		if err := m.checkNorm("final norm", &d.FinalNorm, d.Hidden); err != nil {
			return err
		}
	}
	width := d.Hidden
	for i := range d.Pooling.Dense {
		l := &d.Pooling.Dense[i].Linear
		if l.Weight.Rows < 1 || l.Weight.Rows > maxWidth {
			return fmt.Errorf("layer %d after the pooling has %d rows: %w", i, l.Weight.Rows, tensor.ErrCorrupt)
		}
		if err := m.checkLinear(fmt.Sprintf("layer %d after the pooling", i), l, l.Weight.Rows, width); err != nil {
			return err
		}
		width = l.Weight.Rows
	}
	switch d.Pooling.Of {
	case arch.FirstToken, arch.LastToken, arch.MeanTokens:
		return nil
	}
	return fmt.Errorf("pooling %q: %w", d.Pooling.Of, tensor.ErrUnsupported)
}

// Pool returns the vectors of windows of the given lengths, one [arch.Pooling.Size] after another, from hidden [tokens, Hidden],
// the states after the final norm. A window without tokens is an error.
func (m *Model) Pool(ctx context.Context, hidden []float32, lengths []int) ([]float32, error) {
	d := m.decoder
	out := make([]float32, 0, len(lengths)*d.Hidden)
	for i, n := range lengths {
		if n < 1 || len(hidden) < n*d.Hidden {
			return nil, fmt.Errorf("window %d has %d tokens and %d values", i, n, len(hidden))
		}
		out = append(out, pooled(d.Pooling.Of, hidden[:n*d.Hidden], d.Hidden)...)
		hidden = hidden[n*d.Hidden:]
	}
	for i := range d.Pooling.Dense {
		l := &d.Pooling.Dense[i]
		y := make([]float32, len(lengths)*l.Weight.Rows)
		if err := m.linear(ctx, out, len(lengths), output{&l.Linear, y}); err != nil {
			return nil, err
		}
		if l.Tanh {
			m.pointwise(y, tanhs)
		}
		out = y
	}
	if d.Pooling.Normalize {
		width := d.Pooling.Size(d.Hidden)
		for v := out; len(v) > 0; v = v[width:] {
			scaleToOne(v[:width])
		}
	}
	return out, nil
}

// pooled returns what a pooling takes from states [tokens, width].
func pooled(of arch.Pooled, states []float32, width int) []float32 {
	switch of {
	case arch.FirstToken:
		return states[:width]
	case arch.LastToken:
		return states[len(states)-width:]
	}
	mean := make([]float32, width)
	tokens := float64(len(states) / width)
	for j := range mean {
		sum := 0.0
		for i := j; i < len(states); i += width {
			sum += float64(states[i])
		}
		mean[j] = float32(sum / tokens)
	}
	return mean
}

// leastLength is the length below which a vector is divided by leastLength instead of its length, as torch.nn.functional.normalize does.
const leastLength = 1e-12

// scaleToOne divides a vector by its length.
func scaleToOne(v []float32) {
	length := max(math.Sqrt(dotProduct(v, v)), leastLength)
	for j, x := range v {
		v[j] = float32(float64(x) / length)
	}
}
