package kernel

import "math"

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
//	QuantizeSym     s*c              s per row
//	QuantizeAsym    s*c + z          s and z per row
//	QuantizeBlocks  s*(c+128) + z    s and z per row and block
//
// The zero value is empty; the Quantize functions reuse its slices.
type QuantizedRows struct {
	Rows, Cols int
	// Block is the number of columns that share a scale in the weights this is multiplied with.
	Block int
	// Codes is [Rows, Cols].
	Codes []int8
	// Scales and Zeros are [Rows, 1], or [Rows, Cols/Block] from QuantizeBlocks. QuantizeSym leaves
	// Zeros empty.
	Scales, Zeros []float32

	scheme scheme
	terms  []rowTerm // [Rows, Cols/Block]
}

// rowTerm is what Int8Matrix.Mul needs of one row and block besides the codes.
type rowTerm struct {
	scale float32
	shift float32 // the value of code -128 where it is added by block, scale*-128 otherwise
	sum   float32 // scale times the sum of code+128
	lift  int32   // 128 times the sum of the codes, for weights that are stored with 128 more
}

// Quantize does what MNN does to the activations x [rows, cols] of a linear layer whose weights have
// blocks of block columns (block is cols for one scale a weight row). A call of one token is a
// decode, wherever it comes from: also a chunk of one token, and the head behind a prefill that
// wants the last logits only (ConvInt8TiledExecutor.cpp, mUseBatchQuan).
func Quantize(dst *QuantizedRows, x []float32, rows, cols, block int, option DynOption) {
	switch {
	case option == DynBlock:
		QuantizeBlocks(dst, x, rows, cols, block)
	case rows == 1:
		QuantizeAsym(dst, x, rows, cols, block)
	default:
		QuantizeSym(dst, x, rows, cols, block)
	}
}

// QuantizeSym is the prefill of option 0. For each row of x [rows, cols]
//
//	scale = absmax/127, code = clamp(round(x * (127/absmax)), -128, 127)
//
// with halves to even, over the whole row; scale is 1 when absmax is below 1e-7. x must be finite.
//
// Emulates _AVX_MNNAbsMaxFP32 and _AVX_MNNDynamicQuant (GemmAVX2.cpp) and MNNQuantScaleFP32
// (CommonOptFunction.cpp), as called by BatchSymDynamicQuant with one thread.
func QuantizeSym(dst *QuantizedRows, x []float32, rows, cols, block int) {
	dst.resize(rows, cols, block, schemeSym)
	for r := range rows {
		row, codes := x[r*cols:][:cols], dst.Codes[r*cols:][:cols]
		absMax := float32(0)
		for _, v := range row {
			absMax = max(absMax, float32(math.Abs(float64(v))))
		}
		quant, scale := float32(1), float32(1)
		if float64(absMax) >= 1e-7 {
			quant, scale = 127/absMax, absMax/127
		}
		dst.Scales[r] = scale
		for i, v := range row {
			codes[i] = clampInt8(roundEven(float32(v * quant)))
		}
		dst.finish(r)
	}
}

// QuantizeAsym is the decode of option 0. For each row of x [rows, cols], as if decoded on its own,
// with q = 255/(max-min) and b = -min*255/(max-min) - 128, not rounded,
//
//	scale = (max-min)/255, zero = -b*scale, code = round(clamp(x*q + b, -128, 127))
//
// with halves away from zero. A range of at most 1e-7 gives scale 1, zero max and codes of 0. When
// cols is no multiple of 8 the zeros of MNN's padding take part in min and max. x must be finite.
//
// Emulates the single-scale half of _AVX_MNNAsyQuantInfo (GemmAVX2.cpp), _AVX_MNNFloat2Int8
// (avx/GemmInt8.cpp) and BatchAsyDynamicQuant (ConvInt8TiledExecutor.cpp). Builds of MNN with
// AVX-512 round b; the wheels of PyPI have none of that code.
func QuantizeAsym(dst *QuantizedRows, x []float32, rows, cols, block int) {
	dst.resize(rows, cols, block, schemeAsym)
	for r := range rows {
		row, codes := x[r*cols:][:cols], dst.Codes[r*cols:][:cols]
		lo, hi := rangeOf(row, cols%8 != 0)
		span := hi - lo
		quant, bias, scale := float32(1), -hi, float32(1)
		if float64(span) > 1e-7 {
			quant, scale = 255/span, span/255
			bias = float32(float32(-lo*255)/span) - 128
		}
		dst.Scales[r], dst.Zeros[r] = scale, -bias*scale
		for i, v := range row {
			codes[i] = roundAway(float32(v*quant) + bias)
		}
		dst.finish(r)
	}
}

// QuantizeBlocks is option 2, prefill and decode. For each row of x [rows, cols] and each block,
// with q = 255/(max-min) and b = -min*255/(max-min) - 128,
//
//	scale = (max-min)/255, zero = min, code = clamp(round(x*q + b), -128, 127)
//
// with halves to even. MNN takes rows in groups of four: b is not rounded in the full groups, and
// is rounded, halves away from zero, in the last rows%4 rows, so in every decode; zero stays min
// there, which shifts those values by up to half a step. A block whose range is below 1e-6 (full
// groups) or 1e-7 (last rows) gets scale 0, zero max and codes of 0. When cols is no multiple of 8,
// which only a single block allows, the zeros of MNN's padding take part in min and max. x must be
// finite.
//
// Emulates the block half of _AVX_MNNAsyQuantInfo, _AVX_BatchMinMax and _AVX_MNNAsyQuantFunc
// (GemmAVX2.cpp).
func QuantizeBlocks(dst *QuantizedRows, x []float32, rows, cols, block int) {
	dst.resize(rows, cols, block, schemeBlocks)
	blocks, grouped := cols/block, rows/4*4
	for r := range rows {
		for b := range blocks {
			row, codes := x[r*cols+b*block:][:block], dst.Codes[r*cols+b*block:][:block]
			lo, hi := rangeOf(row, cols%8 != 0)
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
			dst.Scales[r*blocks+b], dst.Zeros[r*blocks+b] = scale, zero
			for i, v := range row {
				codes[i] = clampInt8(roundEven(float32(v*quant) + bias))
			}
		}
		dst.finish(r)
	}
}

func (q *QuantizedRows) resize(rows, cols, block int, s scheme) {
	blocks := cols / block
	q.Rows, q.Cols, q.Block, q.scheme = rows, cols, block, s
	q.Codes = resized(q.Codes, rows*cols)
	q.terms = resized(q.terms, rows*blocks)
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

// finish computes the terms of row r. The sum emulates MNNSumByAxisLForMatmul_A
// (CommonOptFunction.cpp): exact in integers, one rounding to float32, one multiplication.
func (q *QuantizedRows) finish(r int) {
	blocks := q.Cols / q.Block
	for b := range blocks {
		n := int32(128 * q.Block)
		for _, c := range q.Codes[r*q.Cols+b*q.Block:][:q.Block] {
			n += int32(c)
		}
		term := &q.terms[r*blocks+b]
		if q.scheme == schemeBlocks {
			term.scale, term.shift = q.Scales[r*blocks+b], q.Zeros[r*blocks+b]
		} else {
			term.scale, term.shift = q.Scales[r], q.Scales[r]*-128
		}
		term.sum = term.scale * float32(n)
		term.lift = 128 * (n - int32(128*q.Block))
	}
}

func resized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

func rangeOf(x []float32, padded bool) (lo, hi float32) {
	lo, hi = x[0], x[0]
	for _, v := range x[1:] {
		lo, hi = min(lo, v), max(hi, v)
	}
	if padded {
		lo, hi = min(lo, 0), max(hi, 0)
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
