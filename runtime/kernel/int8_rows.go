package kernel

import (
	"fmt"
	"math"
)

// DynOption is an engine's `dynamic_option` modulo 8: how a linear layer at `memory: low` turns its
// activations into int8. MNN reads it as the hint DYNAMIC_QUANT_OPTIONS (ConvInt8TiledExecutor.cpp).
type DynOption int

// The values that differ for linear layers. 1 changes only convolutions with a spatial kernel and
// counts as 0 here.
const (
	// DynToken gives a call of several tokens one symmetric scale each, and a call of one token one
	// scale and zero.
	DynToken DynOption = 0
	// DynBlock gives every token and weight block its own scale and zero.
	DynBlock DynOption = 2
)

// scheme says which formula a row of activations was quantized with.
type scheme uint8

const (
	schemeSym scheme = iota
	schemeAsym
	schemeBlocks
)

// QuantizedRows holds the activations of a linear layer as int8 codes. A row of activations is the
// vector of one token. With s, z a scale and a zero and c a code, the represented value is
//
//	several tokens   s*c              s per row
//	one token        s*c + z          s and z per row
//	DynBlock         s*(c+128) + z    s and z per row and block
//
// The zero value is empty. It is filled by Reset and, possibly from several goroutines, Set, which reuse its slices.
type QuantizedRows struct {
	Rows, Cols int
	// Block is the number of columns that share a scale in the weights this is multiplied with.
	Block int
	// Scales and Zeros are [Rows, 1], or [Rows, Cols/Block] with DynBlock. Zeros is empty where no z is used.
	Scales, Zeros []float32

	scheme scheme
	layout int8Layout
	// codes are bytes, code + 128, and terms the other factors of a row and block for Int8Matrix.Mul. Both lie in
	// tiles of rows, see tile: for each tile
	//
	//	codes  [layout.pad(Cols)/layout.group][rows of the tile][layout.group]
	//	terms  [Cols/Block][3: scale, sum, shift][rows of the tile]
	//
	// sum is scale times the sum of code+128 over the block. shift is the value of code -128 where it is added by
	// block, scale*-128 otherwise.
	codes []uint8
	terms []float32
}

// int8Layout is the layout of the codes of activations for the code that multiplies.
type int8Layout struct {
	rows int // the largest tile, a power of two and at most QuantizeTile
	// group is the number of columns whose codes lie together, 0 for all of a row; then a tile is one row. Of each
	// eight columns the odd ones come before the even ones, as in the bytes of stored weights of 4 bits the low half
	// holds an odd column.
	group int
	// pairs puts the two groups of a row next to each other in the largest tiles, so that sixteen bytes are two rows.
	pairs bool
}

// steps are the distances of two rows of a tile of size rows, of the odd and the even columns of eight, and of one eight and the next.
func (l int8Layout) steps(size int) (row, half, eight int) {
	if l.pairs && size == l.rows {
		return 2 * l.group, l.group, 8 * size
	}
	return l.group, l.group * size, 8 * size
}

// QuantizeTile divides the first row of every part in which QuantizedRows.Set may be given its rows.
const QuantizeTile = 8

// pad is the number of columns that are stored for cols.
func (l int8Layout) pad(cols int) int {
	if l.group == 0 {
		return cols
	}
	return (cols + 7) &^ 7
}

// tile is the first row and the size of the tile that row r is in. Tiles are as large as the layout says; the rows
// that are left form tiles of smaller powers of two.
func (q *QuantizedRows) tile(r int) (first, size int) {
	size = q.layout.rows
	first = q.Rows / size * size
	if r < first {
		return r / size * size, size
	}
	for size /= 2; ; size /= 2 {
		if q.Rows&size != 0 {
			if r < first+size {
				return first, size
			}
			first += size
		}
	}
}

// Reset prepares q for what MNN does to the activations [rows, cols] of a linear layer whose weights have blocks of block
// columns (block is cols for one scale a weight row); a call of Set for all rows has to follow. A call of one token is a
// decode, wherever it comes from, a chunk of one token and the head after a prefill that wants the last logits only
// included (ConvInt8TiledExecutor.cpp, mUseBatchQuan).
func (q *QuantizedRows) Reset(rows, cols, block int, option DynOption) {
	switch {
	case option == DynBlock:
		q.reset(rows, cols, block, schemeBlocks)
	case rows == 1:
		q.reset(rows, cols, block, schemeAsym)
	default:
		q.reset(rows, cols, block, schemeSym)
	}
}

// Set quantizes rows lo to hi-1 of x [Rows, Cols]. lo is a multiple of QuantizeTile, and hi is one or
// Rows. Goroutines may set different rows.
func (q *QuantizedRows) Set(x []float32, lo, hi int) {
	if lo < 0 || hi > q.Rows || lo%QuantizeTile != 0 || hi%QuantizeTile != 0 && hi != q.Rows || len(x) < hi*q.Cols {
		panic(fmt.Sprintf("internal error: rows %d to %d of [%d %d], %d elements", lo, hi, q.Rows, q.Cols, len(x)))
	}
	for r := lo; r < hi; r++ {
		row := x[r*q.Cols:][:q.Cols]
		switch q.scheme {
		case schemeSym:
			q.setSym(r, row)
		case schemeAsym:
			q.setAsym(r, row)
		case schemeBlocks:
			q.setBlocks(r, row)
		}
	}
}

// setSym is the prefill of option 0. For each row
//
//	scale = absmax/127, code = clamp(round(x * (127/absmax)), -128, 127)
//
// with halves to even, over the whole row; scale is 1 when absmax is below 1e-7. x must be finite.
//
// Emulates _AVX_MNNAbsMaxFP32 and _AVX_MNNDynamicQuant (GemmAVX2.cpp) and MNNQuantScaleFP32
// (CommonOptFunction.cpp), as called by BatchSymDynamicQuant with one thread.
func (q *QuantizedRows) setSym(r int, x []float32) {
	lo, hi := rangeOf(x, false)
	absMax := max(-lo, hi)
	quant, scale := float32(1), float32(1)
	if float64(absMax) >= 1e-7 {
		quant, scale = 127/absMax, absMax/127
	}
	q.Scales[r] = scale
	q.setRow(r, x, quant, 0)
}

// setAsym is the decode of option 0. For each row, as if decoded on its own,
// with q = 255/(max-min) and b = -min*255/(max-min) - 128, not rounded,
//
//	scale = (max-min)/255, zero = -b*scale, code = round(clamp(x*q + b, -128, 127))
//
// with halves away from zero. A range of at most 1e-7 gives scale 1, zero max and codes of 0. When
// cols is not a multiple of 8 the zeros of MNN's padding take part in min and max. x must be finite.
//
// Emulates the single-scale half of _AVX_MNNAsyQuantInfo (GemmAVX2.cpp), _AVX_MNNFloat2Int8
// (avx/GemmInt8.cpp) and BatchAsyDynamicQuant (ConvInt8TiledExecutor.cpp). Builds of MNN with
// AVX-512 round b; the wheels of PyPI have none of that code.
func (q *QuantizedRows) setAsym(r int, x []float32) {
	lo, hi := rangeOf(x, q.Cols%8 != 0)
	span := hi - lo
	quant, bias, scale := float32(1), -hi, float32(1)
	if float64(span) > 1e-7 {
		quant, scale = 255/span, span/255
		bias = float32(float32(-lo*255)/span) - 128
	}
	q.Scales[r], q.Zeros[r] = scale, -bias*scale
	q.setRow(r, x, quant, bias)
}

// setBlocks is option 2, prefill and decode. For each row and each block,
// with q = 255/(max-min) and b = -min*255/(max-min) - 128,
//
//	scale = (max-min)/255, zero = min, code = clamp(round(x*q + b), -128, 127)
//
// with halves to even. MNN takes rows in groups of four: b is not rounded in the full groups, and
// is rounded, halves away from zero, in the last rows%4 rows, so in every decode; zero stays min
// there, which shifts those values by up to half a step. A block whose range is below 1e-6 (full
// groups) or 1e-7 (last rows) gets scale 0, zero max and codes of 0. When cols is not a multiple of 8,
// which only a single block allows, the zeros of MNN's padding take part in min and max. x must be
// finite.
//
// Emulates the block half of _AVX_MNNAsyQuantInfo, _AVX_BatchMinMax and _AVX_MNNAsyQuantFunc
// (GemmAVX2.cpp).
func (q *QuantizedRows) setBlocks(r int, x []float32) {
	blocks, grouped := q.Cols/q.Block, q.Rows/4*4
	codes, terms, size := q.row(r)
	for b := range blocks {
		row := x[b*q.Block:][:q.Block]
		lo, hi := rangeOf(row, q.Cols%8 != 0)
		span := hi - lo
		var quant, bias, scale float32
		zero := hi
		if (r < grouped && span >= 1e-6) || (r >= grouped && float64(span) >= 1e-7) {
			quant, scale, zero = 255/span, span/255, lo
			bias = float32(-lo*255) / span
			if r >= grouped {
				bias = float32(math.Round(float64(bias)))
			}
			bias -= 128
		}
		q.Scales[r*blocks+b], q.Zeros[r*blocks+b] = scale, zero
		q.setBlock(codes[b*q.Block*size:], terms[3*b*size:], size, row, quant, bias, scale, zero)
	}
}

func (q *QuantizedRows) reset(rows, cols, block int, s scheme) {
	blocks := cols / block
	q.Rows, q.Cols, q.Block, q.scheme, q.layout = rows, cols, block, s, layoutOfInt8()
	q.codes = resized(q.codes, rows*q.layout.pad(cols))
	q.terms = resized(q.terms, 3*rows*blocks)
	scales := rows
	if s == schemeBlocks {
		scales *= blocks
	}
	q.Scales = resized(q.Scales, scales)
	if s == schemeSym {
		scales = 0
	}
	q.Zeros = resized(q.Zeros, scales)
}

// setRow sets the codes and terms of row r, which has one scale.
func (q *QuantizedRows) setRow(r int, x []float32, quant, bias float32) {
	codes, terms, size := q.row(r)
	scale, step := q.Scales[r], q.Block*size
	for b := range q.Cols / q.Block {
		q.setBlock(codes[b*step:], terms[3*b*size:], size, x[b*q.Block:][:q.Block], quant, bias, scale, scale*-128)
	}
}

// row is where the codes and terms of row r begin, and the size of its tile.
func (q *QuantizedRows) row(r int) (codes []uint8, terms []float32, size int) {
	first, size := q.tile(r)
	step, _, _ := q.layout.steps(size)
	codes = q.codes[first*q.layout.pad(q.Cols)+(r-first)*step:]
	terms = q.terms[3*first*(q.Cols/q.Block)+r-first:]
	return codes, terms, size
}

// setBlock sets the codes and terms of a block, which begin codes and terms. The sum emulates MNNSumByAxisLForMatmul_A
// (CommonOptFunction.cpp): exact in integers, one rounding to float32, one multiplication.
func (q *QuantizedRows) setBlock(codes []uint8, terms []float32, size int, x []float32, quant, bias, scale, shift float32) {
	_, half, eight := q.layout.steps(size)
	sum := quantizeBlock(codes, x, half, eight, quant, bias, q.scheme == schemeAsym)
	terms[0], terms[size], terms[2*size] = scale, scale*float32(sum), shift
}

// quantizeBlockGeneric sets codes of x, plus 128, and returns their sum. half and eight are those of int8Layout.steps; half is 0 if
// columns lie in their order.
func quantizeBlockGeneric(codes []uint8, x []float32, half, eight int, quant, bias float32, away bool) int32 {
	var sum int32
	for i, v := range x {
		v = float32(v*quant) + bias
		var c uint8
		if away {
			c = uint8(roundAway(v)) ^ 128
		} else {
			c = uint8(clampInt8(roundEven(v))) ^ 128
		}
		sum += int32(c)
		if half != 0 {
			i = i/8*eight + (1-i%2)*half + i%8/2
		}
		codes[i] = c
	}
	return sum
}

func resized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

func rangeOf(x []float32, padded bool) (lo, hi float32) {
	lo, hi = minMax(x)
	if padded {
		lo, hi = min(lo, 0), max(hi, 0)
	}
	return lo + 0, hi + 0 // no -0, which depends on the order
}

func minMaxGeneric(x []float32) (lo, hi float32) {
	lo, hi = x[0], x[0]
	for _, v := range x[1:] {
		lo, hi = min(lo, v), max(hi, v)
	}
	return lo, hi
}

// roundEven rounds halves to even for |v| < 2^22: the addition leaves no fraction bits.
func roundEven(v float32) int32 {
	const shift = 3 << 22
	return int32(float32(v+shift) - shift)
}

func clampInt8(v int32) int8 { return int8(min(max(v, math.MinInt8), math.MaxInt8)) }

// roundAway clamps first and rounds by adding one half and truncating, both in float32.
func roundAway(v float32) int8 {
	v = min(max(v, math.MinInt8), math.MaxInt8)
	if v < 0 {
		return int8(v - 0.5)
	}
	return int8(v + 0.5)
}
