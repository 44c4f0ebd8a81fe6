package kernel

import (
	"fmt"
	"math"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// ArmCPU is an arm64 CPU as the engine sees it: which of its int8 kernels run there.
type ArmCPU int

// The CPUs whose kernels differ.
const (
	// ArmI8MM has matrix products of int8, as ARMv8.6 and later.
	ArmI8MM ArmCPU = iota + 1
	// ArmSDOT has dot products of int8, as Cortex-A55 and A75 to A78 and Apple's up to the A14 and M1.
	ArmSDOT
	// ArmBase has neither, as Cortex-A53 and A72.
	ArmBase
)

func (c ArmCPU) String() string {
	switch c {
	case ArmI8MM:
		return "i8mm"
	case ArmSDOT:
		return "sdot"
	case ArmBase:
		return "armv8.0"
	}
	return fmt.Sprintf("ArmCPU(%d)", int(c))
}

// tile is how many rows of weights the kernels take at once, which decides how packing rounds sums of 4-bit codes, and how many
// columns of a block. The engine's outputs of blocks that these do not divide are not those of the weights, with dot products neither.
func (c ArmCPU) tile() (rows, cols int) {
	switch c {
	case ArmI8MM, ArmSDOT:
		return 8, 8
	}
	return 4, 16
}

// half is what codes of that many bits are larger by in the kernels than in the formula of [WeightCodes]. Codes of 2, 3 and 4
// bits stay unsigned where there is a kernel for them.
func (c ArmCPU) half(bits int) int {
	if bits == 4 || (bits == 2 || bits == 3) && c != ArmBase {
		return 1 << (bits - 1)
	}
	return 0
}

// ArmMatrix multiplies int8 activations with quantized weights as MNN on arm64 does at `memory: low` and `precision: normal`, or `low`.
// It says what a phone computes and is not made for speed. It is immutable and safe for concurrent use.
//
// Emulates DenseConvInt8TiledExecutor (ConvInt8TiledExecutor.cpp), MNNAsyQuantInfo_FP32 (CommonOptFunction.cpp), the
// functions of arm/arm64/low_memory/MNNDynamicQuantFunctions.hpp and the kernels MNNGemmInt8AddBiasScale_* of arm/arm64 and arm82/asm/arm64,
// which agree in the order of their float operations. In half precision also MNNAsyQuantInfo_FP16 (Arm82Functions.cpp), MNNQuantScaleFP16.S,
// MNNDynamicQuantFP16_Pack8.S and MNNDynamicQuanInput_ARM82.S.
type ArmMatrix struct {
	cpu ArmCPU
	// half quantizes activations with factors and sums that are halves, and rounds results.
	half              bool
	rows, cols, block int
	blocks            int // cols/block
	bits              int
	wraps             bool
	codes             []int8       // [rows, cols]
	terms             []weightTerm // [rows, blocks]
	tails             []float32    // [rows]: sum of the weights of a row
	bias              []float32    // [rows]
	option            DynOption
}

// ArmForm says what an [ArmMatrix] computes as.
type ArmForm struct {
	CPU ArmCPU
	// Half is `precision: low`, otherwise it is `normal`.
	Half bool
	// Rows of the layer, of which the matrix may have some.
	Rows int
}

// NewArmMatrix converts w, of which it keeps nothing. It fails as [NewInt8Matrix] does, where the engine reads columns that it has only filled up,
// and in half precision on CPUs that have none.
func NewArmMatrix(w WeightCodes, f ArmForm) (*ArmMatrix, error) {
	if err := w.check(); err != nil {
		return nil, err
	}
	cpu, half := f.CPU, f.Half
	if half && cpu == ArmBase {
		return nil, fmt.Errorf("half precision on %s: %w", cpu, tensor.ErrUnsupported)
	}
	tileRows, tileCols := cpu.tile()
	if w.Block%tileCols != 0 {
		return nil, fmt.Errorf("int8 activations on %s with blocks of %d columns, not a multiple of %d: %w", cpu, w.Block, tileCols, tensor.ErrUnsupported)
	}
	m := &ArmMatrix{cpu: cpu, half: half, bits: w.Bits, rows: w.Rows, cols: w.Cols, block: w.Block, blocks: w.Cols / w.Block, option: w.Option,
		codes: make([]int8, w.Rows*w.Cols), terms: make([]weightTerm, w.Rows*w.Cols/w.Block), tails: make([]float32, w.Rows), bias: make([]float32, w.Rows)}
	copy(m.bias, w.Bias)
	offset, row := cpu.half(w.Bits), make([]uint8, w.Cols)
	m.wraps = cpu == ArmBase && w.Bits == 8
	for r := range w.Rows {
		w.row(row, r)
		codes := m.codes[r*m.cols:][:m.cols]
		for i, u := range row {
			codes[i] = int8(int(u) + offset - 1<<(w.Bits-1))
		}
		for b := range m.blocks {
			var sum int32
			for _, c := range codes[b*m.block:][:m.block] {
				sum += int32(c)
			}
			at := r*m.blocks + b
			alpha, zero, size := w.Scale[at], float32(0), float32(m.block)
			if w.Zero != nil {
				zero = w.Zero[at]
			}
			t := weightTerm{scale: alpha, offset: zero - float32(float32(offset)*alpha)}
			if w.Bits == 4 && f.Rows%tileRows != 0 {
				t.sum = float32(fma32(float64(float32(sum-int32(8*m.block))), float64(alpha), float64(float32(size*zero))))
			} else {
				t.sum = float32(fma32(float64(float32(sum)), float64(alpha), float64(float32(size*t.offset))))
			}
			m.terms[at] = t
			m.tails[r] += t.sum
		}
	}
	return m, nil
}

// armRow is a token's activations: with s, z a scale and a zero of the row or block, c stands for s*c + z.
type armRow struct {
	codes       []int8
	scale, zero []float32 // [blocks]
	sums        []float32 // [blocks], of s*c
}

// Mul computes the products of x [tokens, cols]; those of a token begin stride after those of the one before in dst. x must be finite, and halves
// in half precision.
func (m *ArmMatrix) Mul(dst, x []float32, tokens, stride int) {
	if tokens < 1 || len(x) < tokens*m.cols || stride < m.rows || len(dst) < (tokens-1)*stride+m.rows {
		panic(fmt.Sprintf("internal error: %d by [%d %d] into %d elements", len(x), m.rows, m.cols, len(dst)))
	}
	in, codes := make([]armRow, tokens), make([]float32, tokens*m.cols)
	for t := range in {
		in[t] = m.quantize(x[t*m.cols:][:m.cols], tokens == 1)
		widen(codes[t*m.cols:][:m.cols], in[t].codes)
	}
	const panel = 32
	w, dots := make([]float32, panel*m.cols), armDots{sums: make([]int32, tokens*panel), part: make([]float32, tokens*panel)}
	for r := 0; r < m.rows; r += panel {
		n := min(panel, m.rows-r)
		widen(w, m.codes[r*m.cols:(r+n)*m.cols])
		m.panel(dst[r:], stride, in, codes, w, &dots, r, n)
	}
}

// widen writes codes to dst.
func widen(dst []float32, codes []int8) {
	for i, c := range codes {
		dst[i] = float32(c)
	}
}

// panel computes n outputs from r on of all tokens, whose codes are those of x; w has the codes of the weights.
func (m *ArmMatrix) panel(dst []float32, stride int, in []armRow, x, w []float32, dots *armDots, r, n int) {
	for b := range m.blocks {
		if m.wraps {
			for i := range len(in) * n {
				at := b * m.block
				dots.sums[i] = m.dot(in[i/n].codes[at:][:m.block], m.codes[(r+i%n)*m.cols+at:][:m.block])
			}
		} else {
			dots.set(x[b*m.block:], w[b*m.block:], len(in), n, m.block, m.cols)
		}
		for t := range in {
			y, order := dst[t*stride:][:n], m.order(t, len(in))
			if b == 0 {
				clear(y)
			}
			for i := range y {
				y[i] = m.add(y[i], dots.sums[t*n+i], &in[t], r+i, b, order)
			}
		}
	}
	for t := range in {
		y := dst[t*stride:][:n]
		for i := range y {
			bias := m.bias[r+i]
			if len(in) == 1 && m.option != DynBlock {
				bias += float32(m.tails[r+i] * in[t].zero[0])
			}
			y[i] += bias
		}
		if m.half {
			HalfStore(y, y)
		}
	}
}

// armDots are the products of codes of some tokens and some rows, over a block.
type armDots struct {
	sums []int32
	part []float32
}

// set computes them for the tokens and n rows that begin stride apart in x and w.
func (d *armDots) set(x, w []float32, tokens, n, block, stride int) {
	// float32 holds the sums of that many products of codes, whatever their order.
	const exact = 1 << 24 / (128 * 128)
	sums, part := d.sums[:tokens*n], d.part[:tokens*n]
	clear(sums)
	for lo := 0; lo < block; lo += exact {
		MatMulT(part, x[lo:], w[lo:], tokens, n, min(exact, block-lo), n, stride, stride)
		for i, v := range part {
			sums[i] += int32(v)
		}
	}
}

// armOrder is the order of operations of a kernel.
type armOrder int

const (
	// apart is what [ArmMatrix.add] says.
	apart armOrder = iota
	// jointScales multiplies D by the product of both scales.
	jointScales
	// running does so, too, and adds every term to y, fused.
	running
)

// order is that of the kernel which computes token t. In half precision those for one token have an order of their own: where there are matrix
// products the last of an odd number comes to it, and for codes of 2 and 3 bits with dot products all do.
func (m *ArmMatrix) order(t, tokens int) armOrder {
	switch {
	case m.half && m.cpu == ArmI8MM && tokens%2 == 1 && t == tokens-1, m.half && m.cpu == ArmSDOT && m.bits == 2:
		return running
	case m.half && m.cpu == ArmSDOT && m.bits == 3:
		return jointScales
	}
	return apart
}

// add adds block b of output r of a token, whose products add up to dot, to y:
//
//	f = dot * weight scale, f *= activation scale
//	f = fused(scaled sum of the codes * weight of code 0 + f)
//	f = fused(activation zero * sum of the block's weights + f)     DynBlock
//	y = f + y
//
// The bias follows the last block. That of a decode without DynBlock has zero * sum of the row's weights in it.
func (m *ArmMatrix) add(y float32, dot int32, x *armRow, r, b int, order armOrder) float32 {
	t, d := &m.terms[r*m.blocks+b], float32(dot)
	var f float64
	switch order {
	case apart:
		f = float64(float32(float32(d*t.scale) * x.scale[b]))
	case jointScales:
		f = float64(float32(d * float32(t.scale*x.scale[b])))
	case running:
		f = fma32(float64(d), float64(float32(t.scale*x.scale[b])), float64(y))
		y = 0
	}
	f = fma32(float64(x.sums[b]), float64(t.offset), f)
	if m.option == DynBlock {
		f = fma32(float64(x.zero[b]), float64(t.sum), f)
	}
	return y + float32(f)
}

// dot is the sum of products where sums of two products are int16, which -128*-128 twice does not fit.
func (m *ArmMatrix) dot(x, w []int8) int32 {
	var d int32
	for i := 0; i < len(x); i += 16 {
		for j := i; j < i+8; j++ {
			d += int32(int16(int32(x[j])*int32(w[j]) + int32(x[j+8])*int32(w[j+8])))
		}
	}
	return d
}

// quantize has three rules, as [QuantizedRows] has.
func (m *ArmMatrix) quantize(x []float32, decode bool) armRow {
	q := armRow{codes: make([]int8, m.cols), scale: make([]float32, m.blocks), zero: make([]float32, m.blocks), sums: make([]float32, m.blocks)}
	var quant, bias, scale, zero float32
	switch {
	case m.option == DynBlock:
	case decode:
		quant, bias, scale, zero = m.token(minMaxGeneric(x))
	default:
		quant, scale = armSymmetric(minMaxGeneric(x))
	}
	for b := range m.blocks {
		part, codes := x[b*m.block:][:m.block], q.codes[b*m.block:][:m.block]
		if m.option == DynBlock {
			quant, bias, scale, zero = m.cpu.block(minMaxGeneric(part))
		}
		m.round(codes, part, quant, bias)
		var sum int32
		for _, c := range codes {
			sum += int32(c)
		}
		q.scale[b], q.zero[b], q.sums[b] = scale, zero, scale*float32(sum)
	}
	return q
}

// round makes codes of x. In half precision factor and bias are rounded, and products and sums; a small token has an infinite factor, and what
// is not a number becomes 0.
func (m *ArmMatrix) round(codes []int8, x []float32, quant, bias float32) {
	if !m.half {
		for i, v := range x {
			codes[i] = clampAway(float32(v*quant) + bias)
		}
		return
	}
	quant, bias = RoundF16(quant), RoundF16(bias)
	for i, v := range x {
		y := RoundF16(RoundF16(v*quant) + bias)
		if y != y {
			y = 0
		}
		codes[i] = clampAway(y)
	}
}

// armSymmetric is the prefill of option 0 (MNNQuantScaleFP32.S).
func armSymmetric(lo, hi float32) (quant, scale float32) {
	most := max(-lo, hi)
	if most <= 0 {
		most = 127
	}
	return 127 / most, most / 127
}

// token is the decode of option 0 (MNNAsyQuantInfo_FP32 and _FP16, of which only that rounds the bias).
func (m *ArmMatrix) token(lo, hi float32) (quant, bias, scale, zero float32) {
	quant, bias, scale = 1, -hi, 1
	if span := hi - lo; float64(span) > 1e-7 {
		quant, scale = 255/span, span/255
		bias = float32(-lo*255) / span
		if m.half {
			bias = float32(math.Round(float64(bias)))
		}
		bias -= 128
	}
	return quant, bias, scale, -bias * scale
}

// block is option 2 (MNNDynamicQuantFunctions.hpp, and MNNAsyQuantInfo_FP32 where there are no dot products).
func (c ArmCPU) block(lo, hi float32) (quant, bias, scale, zero float32) {
	span := hi - lo
	if c == ArmBase {
		if float64(span) < 1e-7 {
			return 0, 0, 0, hi
		}
		const middle = float32(128) / 255
		return 255 / span, float32(math.Round(float64(float32(-lo*255)/span))) - 128, span / 255,
			float32(fma32(float64(middle), float64(span), float64(lo)))
	}
	if span <= 0 {
		return 0, 0, 0, hi
	}
	bias = -(float32(255*lo)/span + 128)
	return 255 / span, float32(math.Round(float64(bias))), span / 255, float32(span*128)/255 + lo
}

// clampAway rounds halves away from zero, and limits after that.
func clampAway(v float32) int8 {
	return int8(min(max(math.Round(float64(v)), math.MinInt8), math.MaxInt8))
}
