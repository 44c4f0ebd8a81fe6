package verify

import (
	"fmt"
	"math"
	"sync"

	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/mnn"
)

// CompareWritten reads rows of a matrix back as the engine does and compares them with the source's, as the weights check
// compares a finished package. It is for sources that are not kept: the writer of the weights calls it while both are
// available. want holds whole rows of cols columns; codes and alpha are their form in spec. share is the largest ratio of
// an error to its bound; more than 1 means a weight is too far off.
func CompareWritten(c quant.Closeness, spec quant.Spec, cols int, codes, alpha []byte, want []float32) (share float64, err error) {
	if cols <= 0 || len(want)%cols != 0 || c.Weights == quant.Fitted || c.Floats != quant.Kept {
		return 0, fmt.Errorf("internal error: %d weights in rows of %d, %+v", len(want), cols, c)
	}
	if err := numbers(want); err != nil {
		return 0, err
	}
	x := rowsPool.Get().(*storedRows)
	defer rowsPool.Put(x)
	m, err := x.open(spec, cols, codes, alpha, len(want)/cols)
	if err != nil {
		return 0, err
	}
	m.Rows32(x.floats, x.codes, 0, m.Rows)
	judge := func(r int, got, want []float32) (float64, error) { return compareBlocks(m, spec, r, got, want), nil }
	if spec.Bits == 16 || c.Weights != quant.Rounded {
		if judge, err = judgeOf(c, spec, cols, func(r, col int, want []float32) float64 { return bound(m, spec, want, r, col, false) }); err != nil {
			return 0, err
		}
	}
	for r := range m.Rows {
		got, want := x.floats[r*cols:(r+1)*cols], want[r*cols:(r+1)*cols]
		if _, _, err := distance(got, want); err != nil {
			share = math.Max(share, broken)
			continue
		}
		s, err := judge(r, got, want)
		if err != nil {
			return 0, fmt.Errorf("row %d of them: %w", r, err)
		}
		share = math.Max(share, s)
	}
	return share, nil
}

// broken is the share reported for NaN and infinite weights, and for rows that are zero only in the package.
const broken = 1e6

// Compared returns the finding of the weights check for a package whose weights were compared while they were written;
// worst is the largest share that CompareWritten returned.
func Compared(tensors int, worst float64, name string) Finding {
	f := Finding{Passed: worst <= 1, Headline: shareOfBound(worst), Value: map[string]float64{"tensors": float64(tensors), "worst_share_of_bound": worst}}
	if !f.Passed {
		f, _ = f.say("%s: is off by %.3g times the bound of its method, compared while it was written", name, worst)
		return f
	}
	f, _ = f.say("all weights of %d tensors are as close to the source's as their methods promise, compared while they were written; "+
		"%s uses up most of its bound, %.3f", tensors, name, worst)
	return f
}

// compareBlocks is compareRow with one bound for each block: it returns the largest share.
func compareBlocks(m *mnn.Matrix, spec quant.Spec, r int, got, want []float32) (worst float64) {
	width := m.Cols / m.Blocks
	for b := range m.Blocks {
		var zero float32
		if !m.Symmetric {
			zero = m.Zero[r*m.Blocks+b]
		}
		var largest float32
		g, w := got[b*width:(b+1)*width], want[b*width:(b+1)*width]
		for i, v := range g {
			if d := float32(math.Abs(float64(v - w[i]))); d > largest {
				largest = d
			}
		}
		if largest > 0 {
			worst = math.Max(worst, float64(largest)/spec.Bound(m.Scale[r*m.Blocks+b], zero))
		}
	}
	return worst
}

// storedRows is the scratch memory of a comparison.
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
