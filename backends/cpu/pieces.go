package cpu

import (
	"github.com/llmexport/llmexport/backends/internal/ops"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/mnn"
)

// pieces is a layer in int8 that is laid out again in every call, some rows at a time.
type pieces struct {
	open    func() (*mnn.Matrix, error)
	options *backend.Options
}

// pieceBytes is how many codes are laid out at a time.
const pieceBytes = 8 << 20

// piecedLinear is the layer without its scales. Layers that do not compute in int8, or whose last rows the kernel sums up in
// another way, are compiled as they are without a bound.
func piecedLinear(op *mnn.Op, c *mnn.Convolution, w mnn.Weights, o backend.Options) (*linear, error) {
	m, err := c.Open(w)
	if err != nil {
		return nil, err
	}
	l := &linear{m: m}
	if l.setInt8(&o); !l.quantized || !m.Linear || m.Rows%8 != 0 {
		return compileLinear(op, c, w, o)
	}
	facts := *m
	facts.Scale, facts.Zero = nil, nil
	l.m, l.pieces = &facts, &pieces{func() (*mnn.Matrix, error) { return c.Open(w) }, &o}
	return l, nil
}

// run is [linear.multiply] for all outputs.
func (p *pieces) run(l *linear, threads int, dst []float32, q *kernel.QuantizedRows, tokens int) error {
	m, err := p.open()
	if err != nil {
		return err
	}
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	step := max(1, pieceBytes/m.Cols/panel) * panel
	for first := 0; first < m.Rows; first += step {
		n := min(step, m.Rows-first)
		x, err := ops.Int8(m.Part(first, first+n), l.option, p.options.RepackLowBits, threads)
		if err != nil {
			return err
		}
		out := s.floats(tokens * n)
		kernel.Parallel(threads, (n+panel-1)/panel, func(lo, hi int) { x.Mul(out, q, lo*panel, min(hi*panel, n)) })
		for t := range tokens {
			copy(dst[t*m.Rows+first:], out[t*n:(t+1)*n])
		}
	}
	return nil
}
