package forward

import (
	"cmp"
	"context"
	"fmt"
	"math"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/effort"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// nearAttention is attention to near states. It computes one score after the other: there are few.
type nearAttention struct{ *arch.NearAttention }

func (a nearAttention) check(m *Model) error {
	hidden := m.decoder.Hidden
	n, err := width("heads", a.Heads, a.HeadDim)
	switch {
	case err != nil:
		return err
	case a.Past < 0 || a.Future < 0 || !finite(a.Cap, math.SmallestNonzeroFloat32) || !finite(a.KeyScale, math.SmallestNonzeroFloat32):
		return fmt.Errorf("attention to %d states before and %d after, cap %v, scale %v: %w", a.Past, a.Future, a.Cap, a.KeyScale, tensor.ErrCorrupt)
	case hidden%2 != 0 || hidden < 4 || a.Keys.Bias.Tensor != "":
		return fmt.Errorf("sinusoids of %d elements, or keys of them with a bias: %w", hidden, tensor.ErrUnsupported)
	}
	return cmp.Or(
		m.checkLinears(slot{"attention.q", &a.Q, n, hidden}, slot{"attention.k", &a.K, n, hidden}, slot{"attention.v", &a.V, n, hidden},
			slot{"attention.o", &a.O, hidden, n}),
		m.checkWeight("gains", a.Gains, a.HeadDim, 0), m.checkWeight("keys of distances", a.Keys.Weight, n, hidden),
	)
}

func (a nearAttention) cost() cost { return cost{token: 4 * a.Heads * a.HeadDim} }

func (a nearAttention) last() *arch.Linear { return &a.O }

func (a nearAttention) inputs() [][]*arch.Linear {
	return append(readers(&a.Q, &a.K, &a.V), []*arch.Linear{&a.O})
}

func (a nearAttention) norms() []*arch.Norm { return nil }

func (a nearAttention) run(ctx context.Context, s *space, x []float32) ([]float32, error) {
	qkv, err := s.projections(ctx, x, &a.Q, &a.K, &a.V)
	if err != nil {
		return nil, err
	}
	v, err := s.vectors(a.Gains, a.Keys.Weight)
	if err != nil {
		return nil, err
	}
	width, hidden, most := a.Heads*a.HeadDim, a.Keys.Weight.Cols, a.Past+a.Future+1
	keys, vectors := make([]float64, most*width), a.Vectors(a.Past, most)
	kernel.Parallel(s.threads, width, func(row, end int) {
		for ; row < end; row++ {
			for d := range most {
				keys[d*width+row] = dotProduct(vectors[d*hidden:(d+1)*hidden], v[1][row*hidden:(row+1)*hidden])
			}
		}
	})
	out := s.take(width)
	s.tally.Add(effort.Scalar, 3*s.tokens()*width*most)
	kernel.Parallel(s.threads, s.tokens(), func(lo, hi int) {
		scores := make([]float32, most)
		for ; lo < hi; lo++ {
			first := lo - min(a.Past, s.positions[lo])
			n := lo + 1 + min(a.Future, s.totals[lo]-1-s.positions[lo]) - first
			for h := 0; h < width; h += a.HeadDim {
				q := qkv[0][lo*width+h:][:a.HeadDim]
				for j := range n {
					k, by := qkv[1][(first+j)*width+h:], keys[(a.Past-(lo-first-j))*width+h:]
					sum := 0.0
					for i, x := range q {
						sum += float64(float64(x) * float64(v[0][i]) * (float64(a.KeyScale*float64(k[i])) + by[i]))
					}
					scores[j] = float32(a.Cap * tanh(sum/a.Cap))
				}
				kernel.Softmax(scores[:n])
				for i := range a.HeadDim {
					sum := 0.0
					for j, p := range scores[:n] {
						sum += float64(float64(p) * float64(qkv[2][(first+j)*width+h+i]))
					}
					out[lo*width+h+i] = float32(sum)
				}
			}
		}
	})
	return out, context.Cause(ctx)
}

func (a nearAttention) record(context.Context, *space, []float32) ([]float32, gradient, error) {
	return nil, nil, fmt.Errorf("attention to near states has no gradients: %w", tensor.ErrUnsupported)
}
