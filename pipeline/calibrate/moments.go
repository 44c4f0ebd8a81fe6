package calibrate

import (
	"fmt"
	"math"
	"slices"
	"sync/atomic"

	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// moments gathers second moments of the inputs of an op: the lower half of the sum of x̂ x̂ᵀ and, if a float stream runs next to
// the quantized one, the sum of x x̂ᵀ. Windows are added one by one, in order, so that the sums depend neither on threads nor on
// how many windows are in memory.
type moments struct {
	cols    int
	tokens  int64
	hessian []float32
	cross   []float32 // or nil

	packed []kernel.Packed // of each window at hand, x̂ᵀ

	// sinks requests that sinks are shortened; lengths are the squared lengths of all inputs so far, of which the first are sorted.
	sinks   bool
	lengths []float32
	sorted  int
	least   float32         // of lengths
	shares  map[int]float32 // by which inputs that were added last were shortened, where they were

	stay bool // the sums may stay on a device until stats, their only reader
}

// sinkLength is the squared length, in medians of all inputs, beyond which an input counts as one of this length.
//
// Models learn to park attention at a token, often the first, whose activations are thousands of times those of others. Its inputs
// of a down projection would be all of the mean of x̂ x̂ᵀ, and with it of the ridge, so that codes would be chosen for this token
// alone. It must not be left out either: its output is what makes the token a sink, and a column that only it uses would look
// unused. Ordinary tokens of trained models stay below 600, so that models without sinks keep their moments to the bit.
const sinkLength = 2000

// newInputMoments returns moments of inputs of linear layers, in which sinks are shortened.
func newInputMoments(cols int, cross bool) *moments {
	m := newMoments(cols, cross)
	m.sinks, m.stay = true, true
	return m
}

func newMoments(cols int, cross bool) *moments {
	m := &moments{cols: cols, hessian: kernel.Floats(cols * cols)}
	if cross {
		m.cross = kernel.Floats(cols * cols)
	}
	return m
}

// momentRows and momentColumns are the size of a unit of work, a piece of a moment, of which a thread has at least momentPieces.
const momentRows, momentColumns, momentPieces = 48, 288, 4

// piece is a part of the cross moment, or of the lower half of the Hessian.
type piece struct {
	cross            bool
	from, to, lo, hi int // rows and columns
}

// size is about how many elements of the moment are in the piece.
func (p piece) size() int {
	n := (p.to - p.from) * (p.hi - p.lo)
	if !p.cross && p.hi > p.from {
		n -= (p.hi - p.from) * (p.hi - p.from) / 2
	}
	return n
}

// pieces divides the moments, the largest first.
func (m *moments) pieces(threads int) (all []piece) {
	columns := momentColumns
	for columns > kernel.PanelRows && (m.cols+momentRows-1)/momentRows*((m.cols+columns-1)/columns) < momentPieces*threads {
		columns -= kernel.PanelRows
	}
	for from := 0; from < m.cols; from += momentRows {
		to := min(from+momentRows, m.cols)
		for lo := 0; lo < m.cols; lo += columns {
			hi := min(lo+columns, m.cols)
			if m.cross != nil {
				all = append(all, piece{true, from, to, lo, hi})
			}
			if lo < to {
				all = append(all, piece{false, from, to, lo, min(hi, to)})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b piece) int { return b.size() - a.size() })
	return all
}

// packWindows makes x [windows * tokens, cols], without the first skip tokens of each window, factors of products over tokens: packed,
// one for each window, of which there may be more.
func packWindows(packed []kernel.Packed, x []float32, cols, tokens, skip, threads int) []kernel.Packed {
	size := tokens * cols
	windows := len(x) / size
	for len(packed) < windows {
		packed = append(packed, kernel.Packed{})
	}
	for w := range windows {
		packed[w].Resize(cols, tokens-skip)
	}
	panels := (cols + kernel.PanelRows - 1) / kernel.PanelRows
	kernel.Parallel(threads, windows*panels, func(u, end int) {
		for ; u < end; u++ {
			w, lo := u/panels, u%panels*kernel.PanelRows
			packed[w].PackColumns(x[w*size+skip*cols:(w+1)*size], lo, min(kernel.PanelRows, cols-lo), cols)
		}
	})
	return packed
}

// add takes the inputs of whole windows of so many tokens, without the first skip of each: quantized [windows * tokens, cols], and
// those of the float model, which are not read if there is no cross moment.
func (m *moments) add(quantized, float []float32, tokens, skip, threads int) {
	quantized, float = m.shorten(quantized, float, tokens, skip, threads)
	size, n := tokens*m.cols, tokens-skip
	windows := len(quantized) / size
	m.tokens += int64(windows * n)
	hessian, cross := m.offload(quantized, float, windows, size, skip*m.cols, n)
	if hessian && cross {
		return
	}
	m.packed = packWindows(m.packed, quantized, m.cols, tokens, skip, threads)
	pieces := slices.DeleteFunc(m.pieces(max(1, threads)), func(p piece) bool { return p.cross && cross || !p.cross && hessian })
	kernel.Parallel(threads, len(pieces), func(u, end int) {
		var product []float32
		for ; u < end; u++ {
			for w := range windows {
				from, to := w*size+skip*m.cols, (w+1)*size
				if p := pieces[u]; !p.cross {
					m.packed[w].Syrk(m.hessian, quantized[from:to], p.from, p.to, p.lo, p.hi, m.cols, m.cols)
				} else {
					product = grow(product, momentRows*m.cols)
					m.addCross(p, product, float[from:to], &m.packed[w])
				}
			}
		}
	})
}

// sortTail sorts a list whose first known values are sorted.
func sortTail(list []float32, known int) {
	tail := slices.Clone(list[known:])
	slices.Sort(tail)
	for i, j, at := known, len(tail), len(list); j > 0; {
		at--
		if i > 0 && list[i-1] > tail[j-1] {
			i--
			list[at] = list[i]
		} else {
			j--
			list[at] = tail[j]
		}
	}
}

// note adds the squared length of an input.
func (m *moments) note(length float32) {
	if len(m.lengths) == 0 {
		m.least = length
	}
	m.lengths, m.least = append(m.lengths, length), min(m.least, length)
}

// allShort reports whether a squared length is at most sinkLength medians, without sorting: the median is one of the lengths that are large
// enough for that if no more than those before it are not.
func (m *moments) allShort(length float32) bool {
	if float64(length) <= sinkLength*float64(m.least) {
		return true
	}
	small := 0
	for _, v := range m.lengths {
		if !(float64(length) <= sinkLength*float64(v)) {
			small++
		}
	}
	return small <= (len(m.lengths)-1)/2
}

// shorten returns the inputs with sinks made shorter, in both streams by the factor of the quantized one. It leaves the arguments
// as they are. An input is compared with those before and those of its chunkTokens, so that it does not matter how many come at a time.
func (m *moments) shorten(quantized, float []float32, tokens, skip, threads int) (q, f []float32) {
	if !m.sinks {
		return quantized, float
	}
	m.shares = map[int]float32{}
	all := len(quantized) / m.cols
	squares := make([]float32, all)
	kernel.Parallel(threads, all, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			var sum float64
			for _, v := range quantized[i*m.cols : (i+1)*m.cols] {
				sum += float64(float64(v) * float64(v))
			}
			squares[i] = float32(sum)
		}
	})
	step := windowsOf(chunkTokens, tokens) * tokens
	for at := 0; at < all; at += step {
		m.share(squares[at:min(at+step, all)], at, tokens, skip)
	}
	if len(m.shares) == 0 {
		return quantized, float
	}
	q, f = slices.Clone(quantized), float
	if m.cross != nil {
		f = slices.Clone(float)
	}
	for i, factor := range m.shares {
		row := q[i*m.cols : (i+1)*m.cols]
		kernel.Scale(row, row, factor)
		if m.cross != nil {
			row = f[i*m.cols : (i+1)*m.cols]
			kernel.Scale(row, row, factor)
		}
	}
	return q, f
}

// share notes the squared lengths of inputs from number at on, and by which factors they are shortened.
func (m *moments) share(squares []float32, at, tokens, skip int) {
	var longest float32
	for i, v := range squares {
		if i%tokens >= skip {
			m.note(v)
			longest = max(longest, v)
		}
	}
	if len(m.lengths) == 0 || m.allShort(longest) {
		return
	}
	sortTail(m.lengths, m.sorted)
	m.sorted = len(m.lengths)
	median := float64(m.lengths[(len(m.lengths)-1)/2])
	for i, v := range squares {
		if i%tokens >= skip && median != 0 && float64(v) > sinkLength*median {
			m.shares[at+i] = float32(math.Sqrt(sinkLength * median / float64(v)))
		}
	}
}

// offload lets the device add windows of so many values, without the first skip values of each, and reports which moments have them.
func (m *moments) offload(quantized, float []float32, windows, size, skip, n int) (hessian, cross bool) {
	cross = m.cross == nil
	if !kernel.HasDevice() || n == 0 || windows == 0 {
		return false, cross
	}
	parts := func(a []float32) (list []kernel.Part) {
		for w := range windows {
			from, to := w*size+skip, (w+1)*size
			list = append(list, kernel.Part{A: kernel.Factor{Data: a[from:to], Layout: kernel.ByPosition, Stride: m.cols},
				B: kernel.Factor{Data: quantized[from:to], Layout: kernel.ByPosition, Stride: m.cols}, K: n})
		}
		return list
	}
	p := kernel.Product{Dst: m.hessian, Rows: m.cols, Cols: m.cols, Stride: m.cols, Sum: kernel.AddLower, Parts: parts(quantized), Stay: m.stay}
	hessian = kernel.Offload(&p)
	if !cross {
		p.Dst, p.Sum, p.Parts = m.cross, kernel.AddParts, parts(float)
		cross = kernel.Offload(&p)
	}
	return hessian, cross
}

// addCross adds a piece of the product of a window.
func (m *moments) addCross(p piece, product, float []float32, quantized *kernel.Packed) {
	quantized.TMulT(product, float[p.from:], p.to-p.from, m.cols, m.cols, p.lo, p.hi)
	for i := p.from; i < p.to; i++ {
		sum := m.cross[i*m.cols:][p.lo:p.hi]
		kernel.Add(sum, sum, product[(i-p.from)*m.cols:][p.lo:p.hi])
	}
}

// stats divides by the number of tokens and fills the upper half. The moments cannot be used afterwards.
func (m *moments) stats(threads int) (*quant.Stats, error) {
	for _, sum := range [][]float32{m.hessian, m.cross} {
		if err := kernel.Settle(sum); err != nil {
			return nil, err
		}
	}
	factor := 1 / float32(max(m.tokens, 1))
	var broken atomic.Bool
	kernel.Parallel(threads, (m.cols+mirrorRows-1)/mirrorRows, func(u, end int) {
		from, to := u*mirrorRows, min(end*mirrorRows, m.cols)
		for lo := from; lo < to; lo += mirrorRows {
			if !m.mirror(lo, min(lo+mirrorRows, to), factor) {
				broken.Store(true)
			}
		}
		if m.cross != nil {
			rows := m.cross[from*m.cols : to*m.cols]
			kernel.Scale(rows, rows, factor)
			if kernel.NonFinite(rows) >= 0 {
				broken.Store(true)
			}
		}
	})
	if broken.Load() {
		return nil, fmt.Errorf("activations are NaN, infinite, or too large to be squared")
	}
	return &quant.Stats{Cols: m.cols, Tokens: m.tokens, Hessian: m.hessian, Version: kernel.NewVersion(), Cross: m.cross}, nil
}

// mirrorRows is the side of a square that is transposed at a time.
const mirrorRows = 32

// mirror scales the lower half of rows from to to-1 of the Hessian, copies it to the upper half, and reports whether it is finite.
func (m *moments) mirror(from, to int, factor float32) bool {
	n, finite := m.cols, true
	for lo := 0; lo < to; lo += mirrorRows {
		for i := from; i < to; i++ {
			for j := lo; j < min(lo+mirrorRows, i+1); j++ {
				v := float32(m.hessian[i*n+j] * factor) // not fused with v-v
				m.hessian[i*n+j], m.hessian[j*n+i] = v, v
				finite = finite && v-v == 0
			}
		}
	}
	return finite
}

func grow(b []float32, n int) []float32 {
	if cap(b) < n {
		return make([]float32, n)
	}
	return b[:n]
}
