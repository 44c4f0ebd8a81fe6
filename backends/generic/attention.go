package generic

import (
	"fmt"
	"sync"

	"github.com/llmexport/llmexport/backends/internal/ops"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// queryBlock is the number of queries that a worker takes at once: full lanes for any number of heads.
const queryBlock = 32

// attentions keeps the scratch of workers.
var attentions = sync.Pool{New: func() any { return new(kernel.EngineAttention) }}

// attention appends k and v to the op's cache and computes every new query over all keys up to its own position:
// out = softmax(q k / sqrt(dim)) v, per query head; several query heads share a key head. A mask of rank 4 is added to the
// scores instead, and a sink takes part in the softmax without a value.
func (r *run) attention(op int, p *mnn.Attention, in []ops.Tensor) (ops.Tensor, error) {
	shapes := make([][]int, len(in))
	for k, x := range in {
		if shapes[k] = x.Shape; x.Ints != nil {
			return ops.Tensor{}, fmt.Errorf("attention on integers: %w", tensor.ErrCorrupt)
		}
	}
	if err := ops.CheckAttention(p, shapes); err != nil {
		return ops.Tensor{}, err
	}
	if err := ops.CheckHistory(p, r.state.Positions); err != nil {
		return ops.Tensor{}, err
	}
	explicit := len(in) > 3 && len(in[3].Shape) == 4
	if len(in) > 3 && !explicit && in[3].Floats[0] > 1e-6 {
		return ops.Tensor{}, ops.ErrMask
	}
	q, k, v := in[0], in[1], in[2]
	tokens, heads, kv, dim := q.Shape[1], q.Shape[2], k.Shape[2], q.Shape[3]
	c := r.state.Caches[op]
	if c == nil {
		c = kernel.NewKVCache(kv, dim)
		if p.KVCache {
			r.state.Caches[op] = c
		}
	}
	if c.KVHeads() != kv || c.Dim() != dim || c.Len() != r.state.Positions {
		return ops.Tensor{}, fmt.Errorf("attention cache of %d heads of %d, not %d of %d: %w", c.KVHeads(), c.Dim(), kv, dim, tensor.ErrCorrupt)
	}
	var mask, sinks []float32
	width := 0
	if explicit {
		var err error
		if mask, width, err = ops.Mask(in[3].Shape, in[3].Floats, tokens, c.Len()+tokens, r.call.Offset); err != nil {
			return ops.Tensor{}, err
		}
	}
	if len(in) > 4 {
		sinks = in[4].Floats
	}
	c.Append(k.Floats, v.Floats, tokens)

	out := ops.NewFloats(1, tokens, heads*dim)
	if r.exe.options.Half {
		a := kernel.HalfAttention{Tokens: tokens, Heads: heads, Mask: mask, MaskWidth: width, Sinks: sinks}
		kernel.Parallel(r.exe.options.Threads, heads, func(lo, hi int) { a.Attend(out.Floats, q.Floats, c, lo, hi) })
		return attended(p, out, tokens, heads*dim), nil
	}
	group, blocks := heads/kv, (tokens+queryBlock-1)/queryBlock
	kernel.Parallel(r.exe.options.Threads, kv*blocks, func(lo, hi int) {
		a := attentions.Get().(*kernel.EngineAttention)
		defer attentions.Put(a)
		a.Tokens, a.Heads, a.Mask, a.MaskWidth, a.Sinks, a.Arm = tokens, heads, mask, width, sinks, r.exe.options.Arm != 0
		defer func() { a.Mask, a.Sinks = nil, nil }()
		for j := lo; j < hi; j++ {
			head, from := j%kv*group, j/kv*queryBlock
			a.Attend(out.Floats, q.Floats, c, head, head+group, from, min(from+queryBlock, tokens))
		}
	})
	return attended(p, out, tokens, heads*dim), nil
}

// attended gives the result its shape.
func attended(p *mnn.Attention, out ops.Tensor, tokens, width int) ops.Tensor {
	if p.OutputC4 {
		return out.With([]int{tokens, width, 1, 1})
	}
	return out
}

// rope rotates the packed queries and keys of the C4 form: [tokens, heads*dim, 1, 1] to [1, tokens, heads, dim].
func (r *run) rope(p *mnn.RoPE, in []ops.Tensor) (q, k ops.Tensor, err error) {
	if len(in) != 4 {
		return q, k, fmt.Errorf("RoPE with %d inputs: %w", len(in), tensor.ErrCorrupt)
	}
	dim, cut := int(p.HeadDim), int(p.CutHeadDim)
	if dim <= 0 || cut <= 0 || cut > dim || cut%2 != 0 {
		return q, k, fmt.Errorf("RoPE of %d of %d: %w", cut, dim, tensor.ErrCorrupt)
	}
	one := func(x ops.Tensor, heads int, n *mnn.LayerNorm) (ops.Tensor, error) {
		if x.Ints != nil || in[2].Ints != nil || in[3].Ints != nil || len(x.Shape) != 4 || heads <= 0 || x.Shape[1] != heads*dim ||
			ops.Count(in[2].Shape) != x.Shape[0]*cut || ops.Count(in[3].Shape) != x.Shape[0]*cut {
			return ops.Tensor{}, fmt.Errorf("RoPE on %v with %d heads and angles %v: %w", x.Shape, heads, in[2].Shape, tensor.ErrCorrupt)
		}
		if n != nil && len(n.Gamma) != dim {
			return ops.Tensor{}, fmt.Errorf("RoPE with a norm of %d: %w", len(n.Gamma), tensor.ErrCorrupt)
		}
		tokens := x.Shape[0]
		out := ops.NewFloats(1, tokens, heads, dim)
		kernel.Parallel(r.exe.options.Threads, tokens, func(lo, hi int) {
			for t := lo; t < hi; t++ {
				from, to := t*heads*dim, (t+1)*heads*dim
				cos, sin := in[2].Floats[t*cut:(t+1)*cut], in[3].Floats[t*cut:(t+1)*cut]
				switch {
				case r.exe.options.Arm != 0:
					head := x.Floats[from:to]
					if n != nil {
						kernel.ArmRMSNormRows(out.Floats[from:to], head, n.Gamma, heads, false, n.Epsilon)
						head = out.Floats[from:to]
					}
					kernel.ArmRotateHeads(out.Floats[from:to], head, cos, sin, heads, dim)
				case n != nil:
					kernel.EngineNormRotateHeads(out.Floats[from:to], x.Floats[from:to], n.Gamma, cos, sin, heads, dim, n.Epsilon)
				default:
					kernel.RotateHeads(out.Floats[from:to], x.Floats[from:to], cos, sin, heads, dim)
				}
			}
		})
		return out, nil
	}
	if q, err = one(in[0], int(p.Heads), p.QNorm); err != nil {
		return q, k, err
	}
	k, err = one(in[1], int(p.KVHeads), p.KNorm)
	return q, k, err
}
