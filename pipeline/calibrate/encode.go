package calibrate

import (
	"cmp"
	"fmt"

	"github.com/llmexport/llmexport/pipeline/effort"
	"github.com/llmexport/llmexport/pipeline/estimate"
	"github.com/llmexport/llmexport/pipeline/forward"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// encodeRows is how many rows are encoded at a time: enough for products with them to run at the speed of matrices.
const encodeRows = 64

// maxHalf is the largest finite fp16 number.
const maxHalf = 65504

// coder encodes matrices. Consecutive matrices that read the same vector and are stored alike share the preparation of their
// encoder.
type coder struct {
	quantizer quant.Quantizer
	threads   int
	tally     *effort.Tally // or nil

	spec  quant.Spec
	cols  int
	stats *quant.Stats
	last  quant.Encoder // or nil
}

// prepare returns the encoder of a matrix.
func (c *coder) prepare(s quant.Spec, cols int, st *quant.Stats) (quant.Encoder, error) {
	if c.last != nil && c.spec == s && c.cols == cols && c.stats == st {
		return c.last, nil
	}
	c.release()
	e, err := c.quantizer.Prepare(s, cols, st, c.threads)
	c.tally.AddWork(estimate.Prepare(c.quantizer, cols, crossed(st)))
	if err == nil {
		c.spec, c.cols, c.stats, c.last = s, cols, st, e
	}
	return e, err
}

func crossed(st *quant.Stats) bool { return st != nil && st.Cross != nil }

// release frees the preparation of the last encoder, which is as large as a Hessian.
func (c *coder) release() { c.last, c.stats = nil, nil }

// encode returns codes and scales of w as they are stored in a file, and the weights that they stand for.
func (c *coder) encode(w quant.Matrix, s quant.Spec, st *quant.Stats) (file []byte, hat []float32, err error) {
	l, err := s.Layout(w.Rows, w.Cols)
	if err != nil {
		return nil, nil, err
	}
	file, hat = make([]byte, l.Bytes()), make([]float32, len(w.Data))
	if s.Bits == 16 {
		kernel.F32ToF16(file, w.Data)
		kernel.F16ToF32(hat, file)
		return file, hat, storable(w.Data)
	}
	e, err := c.prepare(s, w.Cols, st)
	if err != nil {
		return nil, nil, err
	}
	codes, alpha := l.Codes/int64(l.Rows), l.Alpha/int64(l.Rows)
	failed := make([]error, (w.Rows+encodeRows-1)/encodeRows)
	kernel.Parallel(c.threads, len(failed), func(lo, hi int) {
		for u := lo; u < hi; u++ {
			from, to := u*encodeRows, min((u+1)*encodeRows, w.Rows)
			part := quant.Matrix{Rows: to - from, Cols: w.Cols, Data: w.Data[from*w.Cols : to*w.Cols]}
			b := quant.NewBlocks(quant.Layout{Rows: part.Rows, Cols: l.Cols, BlockCols: l.BlockCols, Blocks: l.Blocks}, s)
			if err := e.Encode(b, part); err != nil {
				failed[u] = fmt.Errorf("rows %d to %d: %w", from, to-1, err)
				return
			}
			quant.Pack(file[int64(from)*codes:int64(to)*codes], b.Codes, s.Bits)
			quant.PackAlpha(file[l.Codes+int64(from)*alpha:l.Codes+int64(to)*alpha], b, s)
			b.Dequantize(hat[from*w.Cols:to*w.Cols], s)
			c.tally.AddWork(estimate.Encode(c.quantizer, part.Rows, w.Cols, crossed(st)))
		}
	})
	return file, hat, cmp.Or(failed...)
}

// storable rejects weights that cannot be stored in 16 bits.
func storable(x []float32) error {
	if i := kernel.NonFinite(x); i >= 0 {
		return fmt.Errorf("weight is %v: %w", x[i], tensor.ErrCorrupt)
	}
	for _, v := range x {
		if !(v >= -maxHalf && v <= maxHalf) {
			return fmt.Errorf("weight %g exceeds the range of fp16: %w", v, tensor.ErrUnsupported)
		}
	}
	return nil
}

// decodeMatrix reads the output of coder.encode.
func decodeMatrix(file []byte, rows, cols int, s quant.Spec) ([]float32, error) {
	hat := make([]float32, rows*cols)
	if s.Bits == 16 {
		kernel.F16ToF32(hat, file)
		return hat, nil
	}
	l, err := s.Layout(rows, cols)
	if err != nil {
		return nil, err
	}
	b := quant.NewBlocks(l, s)
	quant.Unpack(b.Codes, file[:l.Codes], s.Bits)
	quant.UnpackAlpha(b, file[l.Codes:], s)
	b.Dequantize(hat, s)
	return hat, nil
}

// measure fills in the errors of a matrix.
func (op *Op) measure(lin *forward.Linear, hat []float32, st *quant.Stats, threads int) {
	rows, cols := lin.Rows, lin.Cols
	if total := distance(lin.W, nil); total > 0 {
		op.WeightError = distance(lin.W, hat) / total
	}
	if st == nil {
		return
	}
	op.Tokens = st.Tokens
	for i := range cols {
		if st.Hessian[i*cols+i] == 0 {
			op.Dead++
		}
	}
	if total := form(lin.W, nil, rows, cols, st.Hessian, threads); total > 0 {
		op.OutputError = form(lin.W, hat, rows, cols, st.Hessian, threads) / total
	}
}

// distance is the sum of the squares of a - b; b may be nil for zeros.
func distance(a, b []float32) float64 {
	var sum float64
	for i, v := range a {
		if b != nil {
			v -= b[i]
		}
		sum += float64(float64(v) * float64(v))
	}
	return sum
}

// form is tr(d H dᵀ), d = a - b [rows, cols]: the mean square of the outputs of d over the tokens of H. b may be nil for zeros.
func form(a, b []float32, rows, cols int, h []float32, threads int) float64 {
	parts := make([]float64, rows)
	kernel.Parallel(threads, (rows+encodeRows-1)/encodeRows, func(lo, hi int) {
		n := encodeRows * cols
		part, g := make([]float32, n), make([]float32, n)
		for u := lo; u < hi; u++ {
			from, to := u*encodeRows, min((u+1)*encodeRows, rows)
			d := a[from*cols : to*cols]
			if b != nil {
				d = part[:len(d)]
				for i, v := range a[from*cols : to*cols] {
					d[i] = v - b[from*cols+i]
				}
			}
			kernel.MatMul(g, d, h, to-from, cols, cols, cols, cols, cols)
			for r := from; r < to; r++ {
				var sum float64
				for j, v := range d[(r-from)*cols : (r-from+1)*cols] {
					sum += float64(float64(v) * float64(g[(r-from)*cols+j]))
				}
				parts[r] = sum
			}
		}
	})
	var sum float64
	for _, v := range parts {
		sum += v
	}
	return sum
}
