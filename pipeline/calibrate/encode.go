package calibrate

import (
	"cmp"
	"fmt"
	"math"

	"github.com/llmexport/llmexport/pipeline/effort"
	"github.com/llmexport/llmexport/pipeline/estimate"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// encodeRows is how many rows are encoded at a time, if that leaves work for all threads: enough for products with them to run at
// the speed of matrices.
const encodeRows = 64

// layRows is the cost of laying out what rows are multiplied by, in rows.
const layRows = 12

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
	e, err := c.prepareLike(s, cols, st)
	c.tally.AddWork(estimate.Prepare(c.quantizer, cols, crossed(st)))
	if err == nil {
		c.spec, c.cols, c.stats, c.last = s, cols, st, e
	}
	return e, err
}

// prepareLike lets methods take over what the encoder before it has for the same statistics, where there is memory for two.
func (c *coder) prepareLike(s quant.Spec, cols int, st *quant.Stats) (quant.Encoder, error) {
	if p, ok := c.quantizer.(similar); ok && kernel.HasDevice() && c.last != nil && c.stats == st && st != nil {
		return p.PrepareLike(c.last, s, cols, st, c.threads)
	}
	c.release()
	return c.quantizer.Prepare(s, cols, st, c.threads)
}

func crossed(st *quant.Stats) bool { return st != nil && st.Cross != nil }

// release frees the preparation of the last encoder, which is as large as a Hessian.
func (c *coder) release() { c.last, c.stats = nil, nil }

// encoding is a matrix and its stored form.
type encoding struct {
	quant.Matrix
	aim  quant.Matrix // what codes are chosen for: the matrix, or one that makes up for what the states lack
	name string       // of the tensor for errors, or empty
	// first is the place of the first row in the tensor, for errors.
	first int
	spec  quant.Spec
	// file holds codes and scales as they are stored in a file, hat [Rows, Cols] the weights that they stand for.
	file []byte
	hat  []float32

	layout  quant.Layout
	encoder quant.Encoder // nil for 16 bits
	blocks  quant.Blocks  // of file, until they are stored
	coupled bool          // runs of rows are encoded later, if the encoder is a [quant.Refiner]
}

// pack stores the blocks.
func (e *encoding) pack(threads int) {
	e.each(threads, func(from, to int) { e.store(from, to, e.blocks.Slice(from, to, e.Rows)) })
	e.blocks = quant.Blocks{}
}

// each calls f for runs of rows from to to-1, in parallel.
func (e *encoding) each(threads int, f func(from, to int)) {
	kernel.Parallel(threads, (e.Rows+encodeRows-1)/encodeRows, func(lo, hi int) { f(lo*encodeRows, min(hi*encodeRows, e.Rows)) })
}

// stored are the codes and the scales of rows from to to-1 in the file.
func (e *encoding) stored(from, to int) (codes, alpha []byte) {
	c, a := int(e.layout.Codes)/e.Rows, int(e.layout.Alpha)/e.Rows
	return e.file[from*c : to*c], e.file[int(e.layout.Codes)+from*a:][:(to-from)*a]
}

// store writes the blocks of rows from to to-1 to the file, and the weights that they stand for.
func (e *encoding) store(from, to int, b quant.Blocks) {
	codes, alpha := e.stored(from, to)
	quant.Pack(codes, b.Codes, e.spec.Bits)
	quant.PackAlpha(alpha, b, e.spec)
	b.Dequantize(e.hat[from*e.Cols:to*e.Cols], e.spec)
}

// encode returns codes and scales of w as they are stored in a file, and the weights that they stand for.
func (c *coder) encode(w quant.Matrix, s quant.Spec, st *quant.Stats) (file []byte, hat []float32, err error) {
	e := &encoding{Matrix: w, spec: s}
	err = c.encodeAll([]*encoding{e}, st)
	return e.file, e.hat, err
}

// encodeAll encodes matrices that read the same vector, or prepares them if runs of their rows are encoded later.
// Together they have more rows for the threads. It returns an error for the first matrix and row that cannot be stored.
func (c *coder) encodeAll(all []*encoding, st *quant.Stats) (err error) {
	total := 0
	for _, e := range all {
		total += e.Rows
		if e.layout, err = e.spec.Layout(e.Rows, e.Cols); err != nil {
			return e.named(err)
		}
		e.file, e.hat = make([]byte, e.layout.Bytes()), kernel.Scratch(len(e.Data))
		e.aim = e.Matrix
		if e.spec.Bits == 16 {
			continue
		}
		if e.encoder, err = c.prepare(e.spec, e.Cols, st); err != nil {
			return e.named(err)
		}
		if a, ok := e.encoder.(quant.Aimer); ok && st != nil && st.Residue != nil {
			e.aim = a.Aim(e.Matrix, st.Residue, c.threads)
			c.tally.AddWork(estimate.Aim(e.Rows, e.Cols))
		}
	}
	type unit struct {
		*encoding
		from, to int
	}
	var units []unit
	step := kernel.Span(c.threads, total, encodeRows, layRows)
	for _, e := range all {
		if _, ok := e.encoder.(quant.Refiner); ok && e.coupled {
			continue
		}
		if t, ok := e.encoder.(quant.Together); ok && kernel.HasDevice() {
			if err := e.encodeTogether(t, c.threads); err != nil {
				return err
			}
			c.tally.AddWork(estimate.Encode(c.quantizer, e.Rows, e.Cols, crossed(st)))
			continue
		}
		for from := 0; from < e.Rows; from += step {
			units = append(units, unit{e, from, min(from+step, e.Rows)})
		}
	}
	failed := make([]error, len(units))
	kernel.Parallel(c.threads, len(units), func(lo, hi int) {
		for i, u := range units[lo:hi] {
			if err := u.encode(u.from, u.to); err != nil {
				failed[lo+i] = u.ofRows(u.from, u.to, err)
				return
			}
			if u.encoder != nil {
				c.tally.AddWork(estimate.Encode(c.quantizer, u.to-u.from, u.Cols, crossed(st)))
			}
		}
	})
	return cmp.Or(failed...)
}

// named adds the name of the matrix to an error.
func (e *encoding) named(err error) error {
	if e.name == "" {
		return err
	}
	return fmt.Errorf("%s: %w", e.name, err)
}

// ofRows adds rows, and the name of the matrix, to an error.
func (e *encoding) ofRows(from, to int, err error) error {
	return e.named(fmt.Errorf("rows %d to %d: %w", e.first+from, e.first+to-1, err))
}

// encodeTogether encodes all rows at once.
func (e *encoding) encodeTogether(t quant.Together, threads int) error {
	e.blocks = quant.NewBlocks(e.layout, e.spec)
	if err := t.EncodeTogether(e.blocks, e.aim, threads); err != nil {
		return e.ofRows(0, e.Rows, err)
	}
	e.pack(threads)
	return nil
}

// encode encodes some rows.
func (e *encoding) encode(from, to int) error {
	data, hat := e.aim.Data[from*e.Cols:to*e.Cols], e.hat[from*e.Cols:to*e.Cols]
	if e.encoder == nil {
		half := e.file[2*from*e.Cols : 2*to*e.Cols]
		kernel.F32ToF16(half, data)
		kernel.F16ToF32(hat, half)
		return storable(data)
	}
	part := quant.Matrix{Rows: to - from, Cols: e.Cols, Data: data}
	b := quant.NewBlocks(quant.Layout{Rows: part.Rows, Cols: e.Cols, BlockCols: e.layout.BlockCols, Blocks: e.layout.Blocks}, e.spec)
	if err := e.encoder.Encode(b, part); err != nil {
		return err
	}
	e.store(from, to, b)
	return nil
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
	quant.Unpacked(file[:l.Codes], file[l.Codes:], l, s).Dequantize(hat, s)
	return hat, nil
}

// squares are sums of squares over the rows of a matrix so far: of the weights and their errors, and of the outputs and theirs.
type squares struct{ weights, errors, outputs, outputErrors float64 }

// add takes further rows and what is stored of them. If they are not the last ones, they have whole spans of distanceSpan weights.
func (s *squares) add(w quant.Matrix, hat []float32, st *quant.Stats, threads int) {
	s.weights = plus(s.weights, distances(w.Data, nil, threads))
	s.errors = plus(s.errors, distances(w.Data, hat, threads))
	if st != nil {
		s.outputs = plus(s.outputs, formParts(w.Data, nil, w.Rows, w.Cols, st, threads))
		s.outputErrors = plus(s.outputErrors, formParts(w.Data, hat, w.Rows, w.Cols, st, threads))
	}
}

// set fills in the errors of a matrix.
func (op *Op) set(s *squares, st *quant.Stats) {
	if s.weights > 0 {
		op.WeightError = s.errors / s.weights
	}
	if st == nil {
		return
	}
	op.Tokens = st.Tokens
	var sum, logs float64
	diagonal := st.Diagonal()
	for _, v := range diagonal {
		if v == 0 {
			op.Dead++
			continue
		}
		sum, logs = sum+float64(v), logs+math.Log2(float64(v))
	}
	if n := float64(len(diagonal) - op.Dead); n > 0 {
		op.Spread = sum / n / math.Exp2(logs/n)
	}
	if s.outputs > 0 {
		op.OutputError = s.outputErrors / s.outputs
	}
}

// plus adds parts to a sum, in their order.
func plus(sum float64, parts []float64) float64 {
	for _, v := range parts {
		sum += v
	}
	return sum
}

// distance is the sum of the squares of a - b; b may be nil for zeros.
func distance(a, b []float32, threads int) float64 { return plus(0, distances(a, b, threads)) }

// distanceSpan is how many squares are summed before their sum is added to the others.
const distanceSpan = 1 << 14

// distances are the summands of distance.
func distances(a, b []float32, threads int) []float64 {
	parts := make([]float64, (len(a)+distanceSpan-1)/distanceSpan)
	kernel.Parallel(threads, len(parts), func(u, end int) {
		for ; u < end; u++ {
			lo, hi := u*distanceSpan, min((u+1)*distanceSpan, len(a))
			for i, v := range a[lo:hi] {
				if b != nil {
					v -= b[lo+i]
				}
				parts[u] += float64(float64(v) * float64(v))
			}
		}
	})
	return parts
}

// formColumns is how many columns of a product are summed before their sum is added to the others.
const formColumns = 256

// form is tr(d H dᵀ), d = a - b [rows, cols]: the mean square of the outputs of d over the tokens of the Hessian H. b may be nil for zeros.
func form(a, b []float32, rows, cols int, st *quant.Stats, threads int) float64 {
	return plus(0, formParts(a, b, rows, cols, st, threads))
}

// forms are the summands of form that belong to each row.
func forms(a, b []float32, rows, cols int, st *quant.Stats, threads int) []float64 {
	parts, sums := formParts(a, b, rows, cols, st, threads), make([]float64, rows)
	for i, v := range parts {
		sums[i/(len(parts)/rows)] += v
	}
	return sums
}

// deviceRows is how many rows a device multiplies at a time.
const deviceRows = 1024

// formParts are the summands of form: for every row, one for each span of columns.
func formParts(a, b []float32, rows, cols int, st *quant.Stats, threads int) []float64 {
	blocks := (cols + formColumns - 1) / formColumns
	parts := make([]float64, rows*blocks)
	start := 0
	if kernel.HasDevice() {
		start = offloadForm(parts, a, b, rows, cols, st.Factor(), threads)
	}
	kernel.Parallel(threads, (rows-start+encodeRows-1)/encodeRows*blocks, func(u, end int) {
		difference, product := make([]float32, encodeRows*cols), make([]float32, encodeRows*formColumns)
		for ; u < end; u++ {
			from, lo := start+u/blocks*encodeRows, u%blocks*formColumns
			to, hi := min(from+encodeRows, rows), min(lo+formColumns, cols)
			d := subtracted(difference, a, b, from*cols, to*cols)
			kernel.MatMul(product, d, st.Hessian[lo:], to-from, hi-lo, cols, formColumns, cols, cols)
			for r := range to - from {
				parts[(from+r)*blocks+u%blocks] = dot(d[r*cols+lo:r*cols+hi], product[r*formColumns:])
			}
		}
	})
	return parts
}

// offloadForm lets the device multiply by h, and returns the first row that it did not.
func offloadForm(parts []float64, a, b []float32, rows, cols int, h kernel.Factor, threads int) (from int) {
	step := min(rows, deviceRows)
	var difference []float32
	if b != nil {
		difference = kernel.Scratch(step * cols)
	}
	product := kernel.Scratch(step * cols)
	blocks := len(parts) / max(rows, 1)
	for ; from < rows; from += step {
		n := min(step, rows-from)
		d := a[from*cols:][:n*cols]
		if b != nil {
			d = difference[:n*cols]
			kernel.Parallel(threads, n, func(lo, hi int) { subtracted(d[lo*cols:], a, b, (from+lo)*cols, (from+hi)*cols) })
		}
		if !kernel.Offload(&kernel.Product{Dst: product, Rows: n, Cols: cols, Stride: cols, Parts: []kernel.Part{{
			A: kernel.Factor{Data: d, Layout: kernel.ByRow, Stride: cols}, B: h, K: cols,
		}}}) {
			break
		}
		kernel.Parallel(threads, n*blocks, func(u, end int) {
			for ; u < end; u++ {
				r, lo := u/blocks, u%blocks*formColumns
				hi := min(lo+formColumns, cols)
				parts[from*blocks+u] = dot(d[r*cols+lo:r*cols+hi], product[r*cols+lo:])
			}
		})
	}
	return min(from, rows)
}

// subtracted returns elements from to to-1 of a - b, in memory that is given; those of a if b is nil.
func subtracted(memory, a, b []float32, from, to int) []float32 {
	if b == nil {
		return a[from:to]
	}
	d := memory[:to-from]
	for i, v := range a[from:to] {
		d[i] = v - b[from+i]
	}
	return d
}

// dot is the sum of the products of the elements of x with those of y.
func dot(x, y []float32) (sum float64) {
	for i, v := range x {
		sum += float64(float64(v) * float64(y[i]))
	}
	return sum
}
