package net

import (
	"fmt"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// Linear is y = W x + Bias.
type Linear struct {
	// Weight names the checkpoint tensor.
	Weight arch.Weight
	// Rows are outputs, Cols inputs.
	Rows, Cols int
	// W is [Rows, Cols]. Products are made with a copy in another layout: whoever changes W calls Set.
	W []float32
	// Bias is [Rows], or nil. It may be changed at any time.
	Bias []float32

	threads int
	packed  kernel.Packed
	ready   bool // packed holds W
	// streamed, if set, reads the weights anew for every product, as neither W nor packed has room for them.
	streamed *streamed
}

// Set makes w [Rows, Cols] the weights, and keeps the slice. w may be l.W itself, after its values have been changed.
func (l *Linear) Set(w []float32) {
	if len(w) != l.Rows*l.Cols {
		panic(fmt.Sprintf("internal error: net.Linear.Set: %d weights for %d x %d", len(w), l.Rows, l.Cols))
	}
	l.W, l.ready = w, false
}

// Gradient adds the gradient of the weights to dw [Rows, Cols]: the sum over tokens of dy xᵀ, of x [tokens, Cols] and
// dy [tokens, Rows] as a [Visitor] gets them. Sums are those of kernel.MatMul, and each call adds one to dw.
func (l *Linear) Gradient(dw, x, dy []float32) {
	n := rowsIn("Linear.Gradient", x, l.Cols, dy, l.Rows)
	if len(dw) != l.Rows*l.Cols {
		panic(fmt.Sprintf("internal error: net.Linear.Gradient: %d values for %d x %d", len(dw), l.Rows, l.Cols))
	}
	kernel.Parallel(l.threads, (l.Rows+kernel.PanelRows-1)/kernel.PanelRows, func(lo, hi int) {
		lo, hi = lo*kernel.PanelRows, min(hi*kernel.PanelRows, l.Rows)
		left, product := make([]float32, (hi-lo)*n), make([]float32, (hi-lo)*l.Cols)
		transpose(left, dy[lo:], n, hi-lo, n, l.Rows)
		kernel.MatMul(product, left, x, hi-lo, l.Cols, n, l.Cols, n, l.Cols)
		sum := dw[lo*l.Cols : hi*l.Cols]
		kernel.Add(sum, sum, product)
	})
}

// apply is dst = x · Wᵀ + Bias: x [n, Cols], dst [n, Rows].
func (l *Linear) apply(dst, x []float32) {
	n := rowsIn("Linear", x, l.Cols, dst, l.Rows)
	if l.streamed != nil {
		l.applyStreamed(dst, x, n)
		return
	}
	l.pack()
	tiles(l.threads, n, l.Rows, func(from, to, lo, hi int) {
		l.packed.MulT(dst[from*l.Rows:], x[from*l.Cols:], to-from, l.Rows, l.Cols, lo, hi)
		for i := from; i < to && l.Bias != nil; i++ {
			y := dst[i*l.Rows+lo : i*l.Rows+hi]
			kernel.Add(y, y, l.Bias[lo:hi])
		}
	})
}

func (l *Linear) pack() {
	if l.ready {
		return
	}
	l.packed.Resize(l.Rows, l.Cols)
	kernel.Parallel(l.threads, (l.Rows+kernel.PanelRows-1)/kernel.PanelRows, func(lo, hi int) {
		lo, hi = lo*kernel.PanelRows, min(hi*kernel.PanelRows, l.Rows)
		l.packed.PackRows(l.W[lo*l.Cols:], lo, hi-lo, l.Cols)
	})
	l.ready = true
}

// back is dst = dy · W, the gradient of the inputs: dy [n, Rows], dst [n, Cols].
func (l *Linear) back(dst, dy []float32) {
	n := rowsIn("Linear", dy, l.Rows, dst, l.Cols)
	tiles(l.threads, n, l.Cols, func(from, to, lo, hi int) {
		kernel.MatMul(dst[from*l.Cols+lo:], dy[from*l.Rows:], l.W[lo:], to-from, hi-lo, l.Rows, l.Cols, l.Rows, l.Cols)
	})
}

const (
	// spanTokens and leastColumns are how much of a product a thread does at a time: enough to lay tokens out once for
	// many columns, and weights once for many tokens.
	spanTokens, leastColumns = 384, 128
	// unitsPerThread lets a thread that was held up hand its share to the others.
	unitsPerThread = 4
)

// tiles covers a product [n, cols] with calls of f for tokens from to to-1 and columns lo to hi-1, in parallel. lo is a
// multiple of kernel.PanelRows.
func tiles(threads, n, cols int, f func(from, to, lo, hi int)) {
	if n == 0 {
		return
	}
	spans := (n + spanTokens - 1) / spanTokens
	parts := max(1, min((unitsPerThread*threads+spans-1)/spans, cols/leastColumns))
	part := ((cols+parts-1)/parts + kernel.PanelRows - 1) / kernel.PanelRows * kernel.PanelRows
	parts = (cols + part - 1) / part
	kernel.Parallel(threads, spans*parts, func(u, end int) {
		for ; u < end; u++ {
			lo := u % parts * part
			f(n*(u/parts)/spans, n*(u/parts+1)/spans, lo, min(lo+part, cols))
		}
	})
}

// transpose writes rows of src, of n elements each, as columns of dst.
func transpose(dst, src []float32, rows, n, lddst, ldsrc int) {
	const side = 16 // a square of cache lines
	for r := 0; r < rows; r += side {
		for p := 0; p < n; p += side {
			for i := r; i < min(r+side, rows); i++ {
				for j, v := range src[i*ldsrc+p:][:min(side, n-p)] {
					dst[(p+j)*lddst+i] = v
				}
			}
		}
	}
}

func addAll(threads int, dst, x []float32) {
	kernel.Parallel(threads, len(x), func(lo, hi int) { kernel.Add(dst[lo:hi], dst[lo:hi], x[lo:hi]) })
}

func mulAll(threads int, dst, x []float32) {
	kernel.Parallel(threads, len(x), func(lo, hi int) { kernel.Mul(dst[lo:hi], dst[lo:hi], x[lo:hi]) })
}

func scaleAll(threads int, x []float32, factor float32) {
	kernel.Parallel(threads, len(x), func(lo, hi int) { kernel.Scale(x[lo:hi], x[lo:hi], factor) })
}
