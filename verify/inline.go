package verify

import (
	"fmt"
	"math"
	"sync"

	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Compare reads rows of a matrix back as the engine does and compares them with the source's, as the weights check
// compares a finished package. It is for sources that are not kept: whoever writes the weights asks while both are at
// hand. want holds whole rows of cols columns, codes and alpha are what spec makes of them. worst is the largest share
// that an error has of its bound; off and total are the squares of errors and of weights, where the methods promise
// no more than nearness. A weight that is too far off is tensor.ErrCorrupt.
func (c Closeness) Compare(spec quant.Spec, cols int, codes, alpha []byte, want []float32) (worst, off, total float64, err error) {
	if cols <= 0 || len(want)%cols != 0 {
		return 0, 0, 0, fmt.Errorf("internal error: %d weights in rows of %d", len(want), cols)
	}
	if err := numbers(want); err != nil {
		return 0, 0, 0, err
	}
	x := rowsPool.Get().(*storedRows)
	defer rowsPool.Put(x)
	m, err := x.open(spec, cols, codes, alpha, len(want)/cols)
	if err != nil {
		return 0, 0, 0, err
	}
	m.Rows32(x.floats, x.codes, 0, m.Rows)
	for r := range m.Rows {
		got, want := x.floats[r*cols:(r+1)*cols], want[r*cols:(r+1)*cols]
		switch {
		case c >= Rewritten || c == Fitted && spec.Bits != 16:
			var d, w float64
			if d, w, err = distance(got, want); err == nil && c == Fitted && d > fittedRow*fittedError[spec.Bits]*w {
				err = tooFar(d/w, fittedRow*fittedError[spec.Bits], spec.Bits)
			}
			off, total = off+d, total+w
		case spec.Bits == 16:
			var share float64
			share, err = compareRow(got, want, func(c int) float64 { return bound(m, spec, want, r, c, false) })
			worst = max(worst, share)
		default:
			var share float64
			share, err = compareBlocks(m, spec, r, got, want)
			worst = max(worst, share)
		}
		if err != nil {
			return 0, 0, 0, fmt.Errorf("row %d of them: %w", r, err)
		}
	}
	return worst, off, total, nil
}

// Share is what a whole matrix has used up of its bound, from the worst and the sums that Compare gave of its rows.
func (c Closeness) Share(spec quant.Spec, worst, off, total float64) (float64, error) {
	if c != Fitted || spec.Bits == 16 || total == 0 {
		return worst, nil
	}
	share := off / total / fittedError[spec.Bits]
	if share > 1 {
		return 0, tooFar(off/total, fittedError[spec.Bits], spec.Bits)
	}
	return share, nil
}

// Compared is the finding of the weights check for a package whose weights were compared while they were written.
func Compared(tensors int, worst float64, name string) Finding {
	f, _ := pass(map[string]float64{"tensors": float64(tensors), "worst_share_of_bound": worst},
		"all weights of %d tensors within the bounds of their specs, compared while they were written; closest is %s at %.3f of its bound", tensors, name, worst)
	return f
}

func tooFar(off, limit float64, bits int) error {
	return fmt.Errorf("is off by %.3g of its squared weights, more than the %.3g that %d bits leave: %w", off, limit, bits, tensor.ErrCorrupt)
}

// compareBlocks is compareRow with one bound for each block.
func compareBlocks(m *mnn.Matrix, spec quant.Spec, r int, got, want []float32) (worst float64, err error) {
	width := m.Cols / m.Blocks
	var zeroGot, zeroWant = true, true
	for b := range m.Blocks {
		scale, zero := m.Scale[r*m.Blocks+b], float32(0)
		if !m.Symmetric {
			zero = m.Zero[r*m.Blocks+b]
		}
		if scale-scale != 0 || zero-zero != 0 {
			return 0, fmt.Errorf("block %d has scale %g and zero term %g: %w", b, scale, zero, tensor.ErrCorrupt)
		}
		var largest float32
		g, w := got[b*width:(b+1)*width], want[b*width:(b+1)*width]
		for i, v := range g {
			zeroGot, zeroWant = zeroGot && v == 0, zeroWant && w[i] == 0
			if d := float32(math.Abs(float64(v - w[i]))); d > largest {
				largest = d
			}
		}
		if largest == 0 {
			continue
		}
		limit := spec.Bound(scale, zero)
		if float64(largest) > limit {
			return 0, fmt.Errorf("block %d is off by %.3g, more than the %.3g of its spec: %w", b, largest, limit, tensor.ErrCorrupt)
		}
		worst = max(worst, float64(largest)/limit)
	}
	if zeroGot && !zeroWant {
		return 0, fmt.Errorf("all weights are 0, those of the source are not: %w", tensor.ErrCorrupt)
	}
	return worst, nil
}

// storedRows is the memory of a comparison.
type storedRows struct {
	matrix      mnn.Matrix
	samples     []int8
	scale, zero []float32
	codes       []uint8
	floats      []float32
}

var rowsPool = sync.Pool{New: func() any { return &storedRows{} }}

// open makes a matrix of stored rows.
func (x *storedRows) open(spec quant.Spec, cols int, codes, alpha []byte, rows int) (*mnn.Matrix, error) {
	lay, err := spec.Layout(rows, cols)
	if err != nil {
		return nil, err
	}
	if int64(len(codes)) != lay.Codes || int64(len(alpha)) != lay.Alpha {
		return nil, fmt.Errorf("internal error: %d and %d bytes for %d rows of %d columns in %s", len(codes), len(alpha), rows, cols, spec)
	}
	x.floats, x.codes = resize(x.floats, rows*cols), resize(x.codes, rows*cols)
	x.matrix = mnn.Matrix{Rows: rows, Cols: cols, Bits: spec.Bits, Symmetric: spec.Symmetric, Codes: codes, Linear: true}
	if spec.Bits == 16 {
		return &x.matrix, nil
	}
	x.scale, x.samples = resize(x.scale, rows*lay.Blocks), x.samples[:0]
	b := quant.Blocks{Scale: x.scale}
	if !spec.Symmetric {
		x.zero = resize(x.zero, rows*lay.Blocks)
		b.Zero = x.zero
	}
	quant.UnpackAlpha(b, alpha, spec)
	for code := range 1 << spec.Bits {
		x.samples = append(x.samples, int8(code-1<<(spec.Bits-1)))
	}
	x.matrix.Blocks, x.matrix.Scale, x.matrix.Zero, x.matrix.Samples = lay.Blocks, b.Scale, b.Zero, x.samples
	return &x.matrix, nil
}

func resize[T any](b []T, n int) []T {
	if cap(b) < n {
		return make([]T, n)
	}
	return b[:n]
}
