package generic

import (
	"fmt"
	"sync"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// queryBlock is the number of queries that a worker takes at once: full lanes whatever the number of heads.
const queryBlock = 32

// attentions keeps the scratch of workers.
var attentions = sync.Pool{New: func() any { return new(kernel.EngineAttention) }}

// ErrMask refuses masks that are neither the number 0, which means causal, nor [1, 1, queries, keys].
var ErrMask = fmt.Errorf("attention with a mask of another kind: %w", tensor.ErrUnsupported)

// CheckAttention refuses what is no attention with a cache of its own, for inputs of these shapes: queries, keys, values
// and, if there are any, a mask and the sinks of the heads. Of a mask it looks at the rank.
func CheckAttention(p *mnn.Attention, shapes [][]int) error {
	if !p.KVCache || p.KVShared {
		return fmt.Errorf("attention without a cache of its own: %w", tensor.ErrUnsupported)
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
		// The engine lets every query see all keys then.
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

// attention appends k and v to the op's cache and lets every new query see all keys up to its own position:
// out = softmax(q k / sqrt(dim)) v, per query head; several query heads share a key head. A mask of rank 4 is added to the
// scores instead, and a sink takes part in the softmax without a value.
func (r *run) attention(op int, p *mnn.Attention, in []value) (value, error) {
	shapes := make([][]int, len(in))
	for k, x := range in {
		if shapes[k] = x.shape; x.i != nil {
			return value{}, fmt.Errorf("attention on integers: %w", tensor.ErrCorrupt)
		}
	}
	if err := CheckAttention(p, shapes); err != nil {
		return value{}, err
	}
	explicit := len(in) > 3 && len(in[3].shape) == 4
	if len(in) > 3 && !explicit && in[3].f[0] > 1e-6 {
		return value{}, ErrMask
	}
	q, k, v := in[0], in[1], in[2]
	tokens, heads, kv, dim := q.shape[1], q.shape[2], k.shape[2], q.shape[3]
	c := r.state.caches[op]
	if c == nil {
		c = kernel.NewKVCache(kv, dim)
		r.state.caches[op] = c
	}
	if c.KVHeads() != kv || c.Dim() != dim || c.Len() != r.state.len {
		return value{}, fmt.Errorf("attention cache of %d heads of %d, not %d of %d: %w", c.KVHeads(), c.Dim(), kv, dim, tensor.ErrCorrupt)
	}
	var mask, sinks []float32
	width := 0
	if explicit {
		var err error
		if mask, width, err = Mask(in[3].shape, in[3].f, tokens, c.Len()+tokens, r.call.Offset); err != nil {
			return value{}, err
		}
	}
	if len(in) > 4 {
		sinks = in[4].f
	}
	c.Append(k.f, v.f, tokens)

	out := floats(1, tokens, heads*dim)
	group, blocks := heads/kv, (tokens+queryBlock-1)/queryBlock
	kernel.Parallel(r.exe.options.Threads, kv*blocks, func(lo, hi int) {
		a := attentions.Get().(*kernel.EngineAttention)
		defer attentions.Put(a)
		a.Tokens, a.Heads, a.Mask, a.MaskWidth, a.Sinks = tokens, heads, mask, width, sinks
		defer func() { a.Mask, a.Sinks = nil, nil }()
		for j := lo; j < hi; j++ {
			head, from := j%kv*group, j/kv*queryBlock
			a.Attend(out.f, q.f, c, head, head+group, from, min(from+queryBlock, tokens))
		}
	})
	if p.OutputC4 {
		return out.with([]int{tokens, heads * dim, 1, 1}), nil
	}
	return out, nil
}

// rope rotates the packed queries and keys of the C4 form: [tokens, heads*dim, 1, 1] to [1, tokens, heads, dim].
func (r *run) rope(p *mnn.RoPE, in []value) (q, k value, err error) {
	if len(in) != 4 {
		return q, k, fmt.Errorf("RoPE with %d inputs: %w", len(in), tensor.ErrCorrupt)
	}
	dim, cut := int(p.HeadDim), int(p.CutHeadDim)
	if dim <= 0 || cut <= 0 || cut > dim || cut%2 != 0 {
		return q, k, fmt.Errorf("RoPE of %d of %d: %w", cut, dim, tensor.ErrCorrupt)
	}
	one := func(x value, heads int, n *mnn.LayerNorm) (value, error) {
		if x.i != nil || in[2].i != nil || in[3].i != nil || len(x.shape) != 4 || heads <= 0 || x.shape[1] != heads*dim || in[2].elements() != x.shape[0]*cut || in[3].elements() != x.shape[0]*cut {
			return value{}, fmt.Errorf("RoPE on %v with %d heads and angles %v: %w", x.shape, heads, in[2].shape, tensor.ErrCorrupt)
		}
		if n != nil && len(n.Gamma) != dim {
			return value{}, fmt.Errorf("RoPE with a norm of %d: %w", len(n.Gamma), tensor.ErrCorrupt)
		}
		tokens := x.shape[0]
		out := floats(1, tokens, heads, dim)
		kernel.Parallel(r.exe.options.Threads, tokens, func(lo, hi int) {
			for t := lo; t < hi; t++ {
				cos, sin := in[2].f[t*cut:(t+1)*cut], in[3].f[t*cut:(t+1)*cut]
				for h := range heads {
					at := (t*heads + h) * dim
					turn(out.f[at:at+dim], x.f[at:at+dim], cos, sin, n)
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

func turn(dst, x, cos, sin []float32, n *mnn.LayerNorm) {
	copy(dst, x)
	if n != nil {
		kernel.EngineRMSNorm(dst, x, n.Gamma, n.Epsilon)
	}
	half := len(cos) / 2
	for j := range half {
		a, b := dst[j], dst[j+half]
		dst[j] = float32(a*cos[j]) - float32(b*sin[j])
		dst[j+half] = float32(b*cos[j+half]) + float32(a*sin[j+half])
	}
}
