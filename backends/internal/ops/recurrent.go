package ops

import (
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Recurrence is a LinearAttention op with the sizes of its inputs.
type Recurrence struct {
	// Shape of the output.
	Shape []int
	p     *mnn.LinearAttention
	taps  int
	half  bool
	delta kernel.EngineDeltaRule
}

// NewRecurrence checks a LinearAttention with inputs of these shapes for that many tokens.
func NewRecurrence(p *mnn.LinearAttention, shapes [][]int, tokens int, o *backend.Options) (*Recurrence, error) {
	const most = 1 << 20 // of heads, of what a head holds, and of taps
	hk, hv, dk, dv := int(p.KeyHeads), int(p.ValueHeads), int(p.KeyDim), int(p.ValueDim)
	for _, n := range []int{hk, hv, dk, dv} {
		if n < 1 || n > most {
			return nil, fmt.Errorf("linear attention of %d heads of %d and %d of %d: %w", hk, dk, hv, dv, tensor.ErrCorrupt)
		}
	}
	if len(shapes) != 4 || len(shapes[3]) != 3 || shapes[3][2] < 1 {
		return nil, fmt.Errorf("linear attention on %v: %w", shapes, tensor.ErrCorrupt)
	}
	r := &Recurrence{p: p, taps: shapes[3][2], half: o.Half}
	r.delta.OneLikeMany = o.RepackLowBits
	if r.taps < 2 || r.taps > most {
		return nil, fmt.Errorf("linear attention with a convolution of %d taps: %w", r.taps, tensor.ErrUnsupported)
	}
	width := 3 * r.channels()
	switch p.Type {
	case mnn.ShortConv:
		if hk != 1 || hv != 1 || dk != dv {
			return nil, fmt.Errorf("%s of %d heads of %d and %d of %d: %w", p.Type, hk, dk, hv, dv, tensor.ErrUnsupported)
		}
	case mnn.GatedDeltaRule:
		gates := []int{1, tokens, hv}
		if hv%hk != 0 || !slices.Equal(shapes[1], gates) || !slices.Equal(shapes[2], gates) {
			return nil, fmt.Errorf("%s of %d and %d heads with gates %v and %v: %w", p.Type, hk, hv, shapes[1], shapes[2], tensor.ErrCorrupt)
		}
		width = r.channels()
	default:
		return nil, fmt.Errorf("linear attention %q: %w", p.Type, tensor.ErrUnsupported)
	}
	if !slices.Equal(shapes[0], []int{1, width, tokens}) || !slices.Equal(shapes[3], []int{r.channels(), 1, r.taps}) {
		return nil, fmt.Errorf("%s of %d channels on %v with weights %v: %w", p.Type, r.channels(), shapes[0], shapes[3], tensor.ErrCorrupt)
	}
	r.Shape = []int{1, tokens, hv, dv}
	return r, Limited([]int{hv, dk, dv})
}

// channels of the convolution.
func (r *Recurrence) channels() int {
	if r.p.Type == mnn.ShortConv {
		return int(r.p.ValueDim)
	}
	return 2*int(r.p.KeyHeads)*int(r.p.KeyDim) + int(r.p.ValueHeads)*int(r.p.ValueDim)
}

// matrices is the number of elements of the recurrent state.
func (r *Recurrence) matrices() int {
	if r.p.Type == mnn.ShortConv {
		return 0
	}
	return int(r.p.ValueHeads) * int(r.p.KeyDim) * int(r.p.ValueDim)
}

// State is s if it is one, or a new one; it must be the state after that many tokens.
func (r *Recurrence) State(s *kernel.LinearState, len int) (*kernel.LinearState, error) {
	if s == nil {
		s = kernel.NewLinearState(r.channels(), r.taps, r.matrices())
	}
	if !s.Fits(r.channels(), r.taps, r.matrices()) || s.Len() != len {
		return s, fmt.Errorf("state of linear attention after %d tokens, want %d: %w", s.Len(), len, tensor.ErrCorrupt)
	}
	return s, nil
}

// Run computes the output of one state for the four inputs, and leaves in the state what Commit makes the next one. Calls
// must not overlap.
func (r *Recurrence) Run(out []float32, in [4][]float32, s *kernel.LinearState, workers int) {
	p := r.p
	tokens := len(out) / (int(p.ValueHeads) * int(p.ValueDim))
	if p.Type == mnn.ShortConv {
		c := &kernel.EngineShortConv{Tokens: tokens, Channels: r.channels(), Taps: r.taps, X: in[0], Weights: in[3], Out: out, State: s, Half: r.half}
		c.Run(workers)
		return
	}
	d := &r.delta
	d.Tokens, d.Taps, d.QKNorm, d.State, d.Half = tokens, r.taps, p.QKNorm, s, r.half
	d.KeyHeads, d.ValueHeads, d.KeyDim, d.ValueDim = int(p.KeyHeads), int(p.ValueHeads), int(p.KeyDim), int(p.ValueDim)
	d.X, d.Gates, d.Betas, d.Weights, d.Out = in[0], in[1], in[2], in[3], out
	d.Run(workers)
}
