package cpu

import (
	"github.com/llmexport/llmexport/runtime/kernel"
)

// stage takes rows through ops that treat each row apart, some rows at a time, so that what one op wrote is still in the
// cache when the next one reads it. A row is what belongs to one token.
type stage struct {
	rows int
	ops  []rowOp
}

// rowOp computes rows lo to hi-1.
type rowOp interface{ do(lo, hi int) }

// stageRows is how many rows pass together.
const stageRows = kernel.QuantizeTile

func (s *stage) run(f *frame) error {
	kernel.ParallelTask(f.threads, (s.rows+stageRows-1)/stageRows, s)
	return nil
}

// Do implements kernel.Task.
func (s *stage) Do(lo, hi int) {
	for i := lo; i < hi; i++ {
		from, to := i*stageRows, min((i+1)*stageRows, s.rows)
		for _, op := range s.ops {
			op.do(from, to)
		}
	}
}

// rowsOf is how many rows a tensor of this shape has: its tokens, or one.
func (p *planner) rowsOf(shape []int) int {
	for _, d := range shape {
		if d == p.tokens {
			return d
		}
		if d != 1 {
			break
		}
	}
	return 1
}

// row appends an op to the stage of so many rows.
func (p *planner) row(rows int, op rowOp) {
	if p.stage != nil && p.stage.rows != rows {
		p.flush()
	}
	if p.stage == nil {
		p.stage = &stage{rows: rows}
	}
	p.stage.ops = append(p.stage.ops, op)
}

// addRows is dst = x + y.
type addRows struct {
	dst, x, y []float32
	width     int
}

func (o *addRows) do(lo, hi int) {
	a, b := lo*o.width, hi*o.width
	kernel.Add(o.dst[a:b], o.x[a:b], o.y[a:b])
}

// mulRows is dst = x * y.
type mulRows addRows

func (o *mulRows) do(lo, hi int) {
	a, b := lo*o.width, hi*o.width
	kernel.Mul(o.dst[a:b], o.x[a:b], o.y[a:b])
}

// siluMulRows is dst = silu(gate) * up. The width is a multiple of eight.
type siluMulRows struct {
	dst, gate, up []float32
	width         int
}

func (o *siluMulRows) do(lo, hi int) {
	a, b := lo*o.width, hi*o.width
	kernel.EngineSiLUMul(o.dst[a:b], o.gate[a:b], o.up[a:b])
}

// siluRows is dst = silu(x). The width is a multiple of eight.
type siluRows struct {
	dst, x []float32
	width  int
}

func (o *siluRows) do(lo, hi int) {
	a, b := lo*o.width, hi*o.width
	kernel.EngineSiLU(o.dst[a:b], o.x[a:b])
}

// negRows is dst = -x.
type negRows siluRows

func (o *negRows) do(lo, hi int) {
	dst, x := o.dst[lo*o.width:hi*o.width], o.x[lo*o.width:hi*o.width]
	for i, v := range x {
		dst[i] = -v
	}
}

// normRows is RMSNorm of every len(gamma) elements.
type normRows struct {
	dst, x, gamma []float32
	eps           float32
	width         int
	packed        bool // of two or more tokens
}

func (o *normRows) do(lo, hi int) {
	a, b := lo*o.width, hi*o.width
	n := (b - a) / len(o.gamma)
	if o.packed {
		kernel.EngineRMSNormPackedRows(o.dst[a:b], o.x[a:b], o.gamma, n, o.eps)
		return
	}
	kernel.EngineRMSNormRows(o.dst[a:b], o.x[a:b], o.gamma, n, o.eps)
}

// rotateRows turns all heads of a token; cos and sin have a row of len(cos)/rows for each token. gamma, if any, is of
// the norm before.
type rotateRows struct {
	dst, x, cos, sin []float32
	heads, dim, cut  int
	gamma            []float32
	eps              float32
}

func (o *rotateRows) do(lo, hi int) {
	width := o.heads * o.dim
	for t := lo; t < hi; t++ {
		dst, x := o.dst[t*width:(t+1)*width], o.x[t*width:(t+1)*width]
		if o.gamma != nil {
			kernel.EngineRMSNormRows(dst, x, o.gamma, o.heads, o.eps)
			x = dst
		}
		kernel.RotateHeads(dst, x, o.cos[t*o.cut:(t+1)*o.cut], o.sin[t*o.cut:(t+1)*o.cut], o.heads, o.dim)
	}
}

// quantizeRows makes the int8 activations of a group of linear layers.
type quantizeRows struct {
	q *kernel.QuantizedRows
	x []float32
}

func (o *quantizeRows) do(lo, hi int) { o.q.Set(o.x, lo, hi) }
