package generic

import (
	"fmt"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// cache holds the keys and values of one Attention op, [positions, kv heads, head dim] each.
type cache struct {
	k, v []float32
	// width is kv heads times head dim; 0 until the first call.
	width int
}

// queryBlock is the number of queries whose scores are computed together.
const queryBlock = 32

// attention appends k and v to the op's cache and lets every new query see all keys up to its own position:
// out = softmax(q k / sqrt(dim)) v, per query head; several query heads share a key head.
func (r *run) attention(op int, p *mnn.Attention, in []value) (value, error) {
	if !p.KVCache || p.KVShared {
		return value{}, fmt.Errorf("attention without a cache of its own: %w", tensor.ErrUnsupported)
	}
	if len(in) < 3 || len(in) > 4 {
		return value{}, fmt.Errorf("attention with %d inputs: %w", len(in), tensor.ErrUnsupported)
	}
	if p.Scale != 0 {
		return value{}, fmt.Errorf("attention with a scale of %g: %w", p.Scale, tensor.ErrUnsupported)
	}
	for _, x := range in {
		if x.i != nil {
			return value{}, fmt.Errorf("attention on integers: %w", tensor.ErrCorrupt)
		}
	}
	if len(in) == 4 && (len(in[3].shape) != 0 || in[3].f[0] > 1e-6) {
		return value{}, fmt.Errorf("attention with an explicit mask: %w", tensor.ErrUnsupported)
	}
	q, k, v := in[0], in[1], in[2]
	if len(q.shape) != 4 || len(k.shape) != 4 || q.shape[0] != 1 || k.shape[0] != 1 || q.shape[1] != k.shape[1] || q.shape[3] != k.shape[3] ||
		k.elements() == 0 || q.shape[2]%k.shape[2] != 0 || v.elements() != k.elements() {
		return value{}, fmt.Errorf("attention on %v, %v, %v: %w", q.shape, k.shape, v.shape, tensor.ErrCorrupt)
	}
	tokens, heads, kv, dim := q.shape[1], q.shape[2], k.shape[2], q.shape[3]
	c := &r.state.caches[op]
	if c.width == 0 {
		c.width = kv * dim
	}
	if c.width != kv*dim || len(c.k) != r.state.len*c.width {
		return value{}, fmt.Errorf("attention cache of width %d, not %d: %w", c.width, kv*dim, tensor.ErrCorrupt)
	}
	c.k, c.v = append(c.k, k.f...), append(c.v, v.f...)

	past, total := r.state.len, r.state.len+tokens
	out := floats(1, tokens, heads*dim)
	work := &scores{out: out.f, q: q.f, k: c.k, v: c.v, tokens: tokens, past: past, heads: heads, kvHeads: kv, dim: dim}
	blocks := (tokens + queryBlock - 1) / queryBlock
	kernel.Parallel(r.exe.options.Threads, heads*blocks, func(lo, hi int) {
		attend := r.exe.math.attend(work)
		for j := lo; j < hi; j++ {
			from := j / heads * queryBlock
			attend(j%heads, from, min(from+queryBlock, tokens))
		}
	})
	if len(c.k) != total*c.width {
		return value{}, fmt.Errorf("internal error: attention cache out of step")
	}
	if p.OutputC4 {
		return out.with([]int{tokens, heads * dim, 1, 1}), nil
	}
	return out, nil
}

// attendScratch holds the gathered keys or values of one head and a block of scores.
type attendScratch struct{ rows, scores []float32 }

// attend computes queries from to to-1 of one head.
func (w *attendScratch) attend(s *scores, head, from, to int, scale float32) {
	n, keys, dim := to-from, s.past+to, s.dim
	if cap(w.scores) < queryBlock*keys {
		w.scores = make([]float32, queryBlock*keys)
	}
	p := w.scores[:n*keys]
	width, kvWidth, kvAt := s.heads*dim, s.kvHeads*dim, head/(s.heads/s.kvHeads)*dim
	// Keys of a head lie kvWidth apart, which MatMulT takes as the stride.
	kernel.MatMulT(p, s.q[from*width+head*dim:], s.k[kvAt:], n, keys, dim, keys, width, kvWidth)
	for i := range n {
		row := p[i*keys : (i+1)*keys]
		seen := row[:s.past+from+i+1]
		for j := range seen {
			seen[j] *= scale
		}
		kernel.Softmax(seen)
		clear(row[len(seen):])
	}
	// The mix is a product with the transposed values: gather them once per block.
	if cap(w.rows) < dim*keys {
		w.rows = make([]float32, dim*keys)
	}
	vt := w.rows[:dim*keys]
	for t := range keys {
		for d, x := range s.v[t*kvWidth+kvAt:][:dim] {
			vt[d*keys+t] = x
		}
	}
	kernel.MatMulT(s.out[from*width+head*dim:], p, vt, n, dim, keys, width, keys, keys)
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
					turn(out.f[at:at+dim], x.f[at:at+dim], cos, sin, n, r.exe.math)
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

func turn(dst, x, cos, sin []float32, n *mnn.LayerNorm, m *arithmetic) {
	copy(dst, x)
	if n != nil {
		m.rmsNorm(dst, x, n.Gamma, n.Epsilon)
	}
	half := len(cos) / 2
	for j := range half {
		a, b := dst[j], dst[j+half]
		dst[j] = float32(a*cos[j]) - float32(b*sin[j])
		dst[j+half] = float32(b*cos[j+half]) + float32(a*sin[j+half])
	}
}
