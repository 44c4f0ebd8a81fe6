package generic

import (
	"errors"
	"fmt"
	"sync"

	"github.com/llmexport/llmexport/backends/internal/ops"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// linear is a compiled 1x1 Convolution.
type linear struct {
	m *mnn.Matrix
	// floats are the weights [rows, cols] if they are kept; otherwise rows are decoded in every call.
	floats []float32
	// int8 is set for layers that compute in int8.
	int8 *kernel.Int8Matrix
	// arm makes rows lo to hi-1 of a layer that computes in int8 as on arm64, which are not kept.
	arm     func(lo, hi int) (*kernel.ArmMatrix, error)
	option  kernel.DynOption
	threads int
	// half is set if weights and sums are halves.
	half bool
	// exact multiplies float weights in the engine's order, and is nil if that does not matter.
	exact func(dst, a, b, bias []float32, m, n, k, ldd int)
	// replaced, if set, gives the weights in every call.
	replaced func() ([]float32, error)
}

// compileLinear opens a layer. The cache takes its weights as floats if it has room.
func compileLinear(op *mnn.Op, p *mnn.Convolution, w mnn.Weights, o *backend.Options, cache *int64) (*linear, error) {
	m, replace, err := ops.OpenLinear(op, p, w, o)
	if err != nil {
		return nil, err
	}
	l := &linear{m: m, threads: o.Threads, half: o.Half}
	size := 4 * int64(m.Rows) * int64(m.Cols)
	switch {
	case replace == nil:
	case *cache < size:
		l.replaced = replace.All
		return l, nil
	default:
		*cache -= size
		l.floats, err = replace.All()
		return l, err
	}
	var quantized bool
	if l.option, quantized = ops.Quantizes(m, replace, o); quantized {
		if o.Half || o.Arm != 0 {
			l.arm = func(lo, hi int) (*kernel.ArmMatrix, error) {
				if o.Half {
					return ops.ArmInt8(m, l.option, kernel.ArmI8MM, true, lo, hi)
				}
				return ops.ArmInt8(m, l.option, o.Arm, false, lo, hi)
			}
			_, err := l.arm(0, min(panel, m.Rows)) // what is wrong with the layer is said now
			return l, err
		}
		l.int8, err = ops.Int8(m, l.option, o.RepackLowBits, o.Threads)
		return l, err
	}
	switch {
	case !ops.Exact(m, o.Mode):
	case o.Arm != 0:
		l.exact = kernel.ArmMatMulT
	default:
		l.exact = kernel.EngineMatMulT
	}
	if *cache >= size {
		*cache -= size
		l.floats = make([]float32, m.Rows*m.Cols)
		kernel.Parallel(o.Threads, m.Rows, func(lo, hi int) {
			l.decode(l.floats[lo*m.Cols:hi*m.Cols], make([]uint8, (hi-lo)*m.Cols), lo, hi)
		})
	}
	return l, nil
}

// panel is the number of weight rows that are decoded and multiplied at a time.
const panel = 32

// scratch is the decoded panel of one worker.
type scratch struct {
	rows  []float32
	codes []uint8
}

var (
	scratches = sync.Pool{New: func() any { return new(scratch) }}
	quantized = sync.Pool{New: func() any { return new(kernel.QuantizedRows) }}
)

// run multiplies x [tokens, cols] and adds the bias; the result is [tokens, rows].
func (l *linear) run(x ops.Tensor) (ops.Tensor, error) {
	m := l.m
	if x.Ints != nil || len(x.Shape) != 4 || x.Shape[1] != m.Cols || x.Shape[2] != 1 || x.Shape[3] != 1 {
		return ops.Tensor{}, fmt.Errorf("linear layer of %d inputs on shape %v: %w", m.Cols, x.Shape, tensor.ErrCorrupt)
	}
	if l.replaced != nil {
		w, err := l.replaced()
		if err != nil {
			return ops.Tensor{}, err
		}
		l = &linear{m: m, floats: w, threads: l.threads, half: l.half}
	}
	tokens := x.Shape[0]
	out := ops.NewFloats(tokens, m.Rows, 1, 1)
	if tokens == 0 {
		return out, nil // a graph may cut a tensor down to nothing
	}
	if l.arm != nil {
		return out, l.runArm(out.Floats, x.Floats, tokens)
	}
	if l.int8 != nil {
		q := quantized.Get().(*kernel.QuantizedRows)
		defer quantized.Put(q)
		q.Reset(tokens, m.Cols, l.int8.Block(), l.option)
		const tile = kernel.QuantizeTile
		kernel.Parallel(l.threads, (tokens+tile-1)/tile, func(lo, hi int) {
			q.Set(x.Floats, lo*tile, min(hi*tile, tokens))
		})
		kernel.Parallel(l.threads, (m.Rows+panel-1)/panel, func(lo, hi int) {
			l.int8.Mul(out.Floats, q, lo*panel, min(hi*panel, m.Rows))
		})
		return out, nil
	}
	if l.half {
		l.runHalf(out.Floats, x.Floats, tokens)
		return out, nil
	}
	kernel.Parallel(l.threads, (m.Rows+panel-1)/panel, func(lo, hi int) {
		s := scratches.Get().(*scratch)
		defer scratches.Put(s)
		for p := lo; p < hi; p++ {
			l.panel(out.Floats, x.Floats, tokens, p*panel, min(p*panel+panel, m.Rows), s)
		}
	})
	return out, nil
}

// armPanel is the number of weight rows that are made and multiplied at a time; activations are quantized again for each.
const armPanel = 8 * panel

// runArm is run on arm64.
func (l *linear) runArm(out, x []float32, tokens int) error {
	rows := l.m.Rows
	errs := make([]error, (rows+armPanel-1)/armPanel)
	kernel.Parallel(l.threads, len(errs), func(lo, hi int) {
		for ; lo < hi; lo++ {
			from := lo * armPanel
			w, err := l.arm(from, min(from+armPanel, rows))
			if errs[lo] = err; err == nil {
				w.Mul(out[from:], x, tokens, rows)
			}
		}
	})
	return errors.Join(errs...)
}

// rows returns rows lo to hi-1 of the weights, at most a panel.
func (l *linear) rows(lo, hi int, s *scratch) []float32 {
	m := l.m
	if l.floats != nil {
		return l.floats[lo*m.Cols : hi*m.Cols]
	}
	if n := panel * m.Cols; cap(s.rows) < n {
		s.rows, s.codes = make([]float32, n), make([]uint8, n)
	}
	w := s.rows[:(hi-lo)*m.Cols]
	l.decode(w, s.codes[:cap(s.codes)], lo, hi)
	return w
}

func (l *linear) decode(dst []float32, scratch []uint8, lo, hi int) {
	if l.half {
		l.m.FusedRows32(dst, scratch, lo, hi)
	} else {
		l.m.Rows32(dst, scratch, lo, hi)
	}
}

func (l *linear) panel(dst, x []float32, tokens, lo, hi int, s *scratch) {
	m, w := l.m, l.rows(lo, hi, s)
	if l.exact != nil {
		var bias []float32
		if m.Bias != nil {
			bias = m.Bias[lo:hi]
		}
		l.exact(dst[lo:], x, w, bias, tokens, hi-lo, m.Cols, m.Rows)
		return
	}
	kernel.MatMulT(dst[lo:], x, w, tokens, hi-lo, m.Cols, m.Rows, m.Cols, m.Cols)
	if m.Bias == nil {
		return
	}
	for t := range tokens {
		row := dst[t*m.Rows:]
		for r := lo; r < hi; r++ {
			row[r] += m.Bias[r]
		}
	}
}
