package mnn

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// A quantized matrix in llm.mnn.weight:
//
//	1      number of dimensions, always 2
//	2 x 2  rows, cols as uint16; 2 x 4 as int32 when one exceeds 65535 (Quan.ShapeInt32)
//	1      number of sample values 2^bits, 0 for 256
//	2^bits sample values, signed bytes; ascending -2^(bits-1)... for a linear grid
//	...    codes, row-major, one most-significant-bit-first stream of bits bits a code
//	...    alpha: for each row, for each block: scale, or zero term and scale; fp16 or fp32
//	...    bias: rows fp32, or nothing

// WideShape reports whether the header of a matrix needs 32-bit dimensions.
func WideShape(rows, cols int) bool { return rows > 0xffff || cols > 0xffff }

// HeaderSize returns the length in bytes of the header of a linear matrix.
func HeaderSize(rows, cols, bits int) int64 {
	n := int64(1 + 4 + 1 + 1<<bits)
	if WideShape(rows, cols) {
		n += 4
	}
	return n
}

// AppendHeader appends the header of a matrix on the linear grid of bits bits.
func AppendHeader(b []byte, rows, cols, bits int) []byte {
	b = append(b, 2)
	if WideShape(rows, cols) {
		b = binary.LittleEndian.AppendUint32(b, uint32(rows))
		b = binary.LittleEndian.AppendUint32(b, uint32(cols))
	} else {
		b = binary.LittleEndian.AppendUint16(b, uint16(rows))
		b = binary.LittleEndian.AppendUint16(b, uint16(cols))
	}
	b = append(b, byte(1<<bits))
	for v := -(1 << (bits - 1)); v < 1<<(bits-1); v++ {
		b = append(b, byte(int8(v)))
	}
	return b
}

// Matrix is a decoded view of a stored weight. Codes stay packed in the file's bytes.
type Matrix struct {
	Rows, Cols int
	// Bits of a code; 16 for halves and 32 for floats, which have no blocks.
	Bits int
	// Blocks per row; 0 for 16 and 32 bits.
	Blocks int
	// Symmetric matrices have no zero terms.
	Symmetric bool
	// Samples maps a code to its signed value; ascending from -2^(bits-1) on a linear grid.
	Samples []int8
	Linear  bool
	// Codes are the packed codes, or the halves or floats.
	Codes []byte
	// Scale and Zero [Rows, Blocks]; Zero is nil when symmetric.
	Scale, Zero []float32
	// Bias [Rows] or nil.
	Bias []float32
}

// Weights provides random access to the bytes of llm.mnn.weight.
type Weights interface {
	// Size is the length of the file in bytes.
	Size() int64
	// Bytes returns n bytes from off, which stay valid and unchanged while the package is open. A range outside the
	// file is tensor.ErrCorrupt.
	Bytes(off, n int64) ([]byte, error)
}

// Open decodes the weight and bias of a linear layer from the weight file. Other convolutions are
// tensor.ErrUnsupported.
func (c *Convolution) Open(w Weights) (*Matrix, error) {
	for _, v := range []int32{c.KernelX, c.KernelY, c.StrideX, c.StrideY, c.DilateX, c.DilateY, c.Group} {
		if v != 1 {
			return nil, fmt.Errorf("convolution that is not a linear layer: %w", tensor.ErrUnsupported)
		}
	}
	if c.Relu || c.Relu6 || c.PadX != 0 || c.PadY != 0 {
		return nil, fmt.Errorf("convolution with padding or activation: %w", tensor.ErrUnsupported)
	}
	if c.Outputs <= 0 || c.Inputs <= 0 {
		return nil, fmt.Errorf("%d outputs, %d inputs: %w", c.Outputs, c.Inputs, tensor.ErrCorrupt)
	}
	m := &Matrix{Rows: int(c.Outputs), Cols: int(c.Inputs)}
	n := int64(m.Rows) * int64(m.Cols)
	if c.Quan == nil {
		if len(c.External) < 3 {
			return nil, fmt.Errorf("float weights are not external: %w", tensor.ErrUnsupported)
		}
		if c.External[1] != 4*n {
			return nil, fmt.Errorf("%d bytes for %d floats: %w", c.External[1], n, tensor.ErrCorrupt)
		}
		m.Bits = 32
		var err error
		if m.Codes, err = w.Bytes(c.External[0], c.External[1]); err != nil {
			return nil, err
		}
		return m, m.openBias(w, c.External[0]+c.External[1], c.External[2], c.Bias)
	}
	if len(c.External) < 4 {
		return nil, fmt.Errorf("external list has %d of 5 entries: %w", len(c.External), tensor.ErrUnsupported)
	}
	off, size, alpha, bias := c.External[0], c.External[1], c.External[2], c.External[3]
	body, err := w.Bytes(off, size)
	if err != nil {
		return nil, err
	}
	end, err := tensor.Add(off, size)
	if err != nil {
		return nil, err
	}
	switch c.Quan.Type {
	case 3:
		if size != 2*n {
			return nil, fmt.Errorf("%d bytes for %d halves: %w", size, n, tensor.ErrCorrupt)
		}
		m.Bits, m.Codes = 16, body
	case 1:
		if err := m.openCodes(body, c.Quan); err != nil {
			return nil, err
		}
		a, err := w.Bytes(end, alpha)
		if err != nil {
			return nil, fmt.Errorf("scales: %w", err)
		}
		if err := m.openAlpha(a, c.Quan); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("weight storage type %d: %w", c.Quan.Type, tensor.ErrUnsupported)
	}
	if end, err = tensor.Add(end, alpha); err != nil {
		return nil, err
	}
	return m, m.openBias(w, end, bias, c.Bias)
}

func (m *Matrix) openBias(w Weights, off, size int64, inline []float32) error {
	if size == 0 {
		if len(inline) != 0 && len(inline) != m.Rows {
			return fmt.Errorf("bias has %d of %d elements: %w", len(inline), m.Rows, tensor.ErrCorrupt)
		}
		m.Bias = inline
		return nil
	}
	if size != 4*int64(m.Rows) {
		return fmt.Errorf("bias has %d bytes for %d rows: %w", size, m.Rows, tensor.ErrCorrupt)
	}
	b, err := w.Bytes(off, size)
	if err != nil {
		return fmt.Errorf("bias: %w", err)
	}
	m.Bias = Floats(b)
	return nil
}

// openCodes reads the header and finds the packed codes.
func (m *Matrix) openCodes(b []byte, q *Quan) error {
	short := fmt.Errorf("weight header is truncated: %w", tensor.ErrCorrupt)
	if len(b) < 1 {
		return short
	}
	if b[0] != 2 {
		return fmt.Errorf("weight header has %d dimensions, want 2: %w", b[0], tensor.ErrCorrupt)
	}
	b = b[1:]
	var rows, cols int
	if q.ShapeInt32 {
		if len(b) < 8 {
			return short
		}
		rows, cols = int(int32(binary.LittleEndian.Uint32(b))), int(int32(binary.LittleEndian.Uint32(b[4:])))
		b = b[8:]
	} else {
		if len(b) < 4 {
			return short
		}
		rows, cols = int(binary.LittleEndian.Uint16(b)), int(binary.LittleEndian.Uint16(b[2:]))
		b = b[4:]
	}
	if rows != m.Rows || cols != m.Cols {
		return fmt.Errorf("weight header has %d x %d, the op %d x %d: %w", rows, cols, m.Rows, m.Cols, tensor.ErrCorrupt)
	}
	if len(b) < 1 {
		return short
	}
	count := int(b[0])
	if count == 0 {
		count = 256
	}
	b = b[1:]
	if len(b) < count {
		return short
	}
	for m.Bits = 1; 1<<m.Bits < count; m.Bits++ {
	}
	m.Linear = count == 1<<m.Bits
	m.Samples = make([]int8, 1<<m.Bits)
	for i := range count {
		m.Samples[i] = int8(b[i])
		m.Linear = m.Linear && int(m.Samples[i]) == i-count/2
	}
	m.Codes = b[count:]
	want := (int64(m.Rows)*int64(m.Cols)*int64(m.Bits) + 7) / 8
	if int64(len(m.Codes)) != want {
		return fmt.Errorf("%d bytes of codes, want %d: %w", len(m.Codes), want, tensor.ErrCorrupt)
	}
	return nil
}

func (m *Matrix) openAlpha(b []byte, q *Quan) error {
	m.Symmetric = q.ReadType == 0
	size := 4
	if q.ScaleFP16 {
		size = 2
	}
	if len(b)%size != 0 {
		return fmt.Errorf("%d bytes of scales of %d bytes each: %w", len(b), size, tensor.ErrCorrupt)
	}
	count, per := len(b)/size, 2
	if m.Symmetric {
		per = 1
	}
	if count == 0 || count%(per*m.Rows) != 0 || m.Cols%(count/(per*m.Rows)) != 0 {
		return fmt.Errorf("%d scales do not divide into %d rows of %d columns: %w", count/per, m.Rows, m.Cols, tensor.ErrCorrupt)
	}
	m.Blocks = count / (per * m.Rows)
	// Engines multiply alpha by quantScale; old writers leave it 0 for "unused".
	scale := q.QuantScale
	if scale == 0 {
		scale = 1
	}
	m.Scale = make([]float32, count/per)
	if !m.Symmetric {
		m.Zero = make([]float32, count/per)
	}
	// Convert in pieces: a large model has many scales, and a buffer for all would have to be cleared first.
	var piece [1024]float32
	for at := 0; at < count; at += len(piece) {
		alpha := piece[:min(len(piece), count-at)]
		if q.ScaleFP16 {
			f16(alpha, b[2*at:][:2*len(alpha)])
		} else {
			kernel.F32FromBytes(alpha, b[4*at:][:4*len(alpha)])
		}
		if m.Symmetric {
			for i, v := range alpha {
				m.Scale[at+i] = v * scale
			}
			continue
		}
		for i := 0; i < len(alpha); i += 2 {
			z, s := float32(alpha[i]*scale), float32(alpha[i+1]*scale)
			if q.Min < 0 { // the first element is the block minimum
				z = float32(float32(-q.Min)*s) + z
			} else if q.Min == 0 {
				z = float32(128*s) + z
			}
			m.Scale[(at+i)/2], m.Zero[(at+i)/2] = s, z
		}
	}
	return nil
}

// Unpack writes the unsigned codes of rows lo to hi, one in a byte; for 8 bits or fewer.
func (m *Matrix) Unpack(dst []uint8, lo, hi int) {
	n := (hi - lo) * m.Cols
	dst = dst[:n]
	switch start := lo * m.Cols; m.Bits {
	case 8:
		copy(dst, m.Codes[start:])
	case 4:
		if start%2 == 0 && n%2 == 0 {
			src := m.Codes[start/2:][:n/2]
			for i, c := range src {
				dst[2*i], dst[2*i+1] = c>>4, c&15
			}
			return
		}
		fallthrough
	default:
		bit := start * m.Bits
		mask := uint32(1)<<m.Bits - 1
		for i := range dst {
			at, sh := bit>>3, bit&7
			v := uint32(m.Codes[at]) << 8
			if sh+m.Bits > 8 {
				v |= uint32(m.Codes[at+1])
			}
			dst[i] = uint8(v >> (16 - sh - m.Bits) & mask)
			bit += m.Bits
		}
	}
}

// Part returns rows lo to hi-1 of a matrix of codes, of which lo is a multiple of 8.
func (m *Matrix) Part(lo, hi int) *Matrix {
	p := *m
	p.Rows = hi - lo
	p.Codes = m.Codes[lo*m.Cols*m.Bits/8 : (hi*m.Cols*m.Bits+7)/8]
	p.Scale = m.Scale[lo*m.Blocks : hi*m.Blocks]
	if m.Zero != nil {
		p.Zero = m.Zero[lo*m.Blocks : hi*m.Blocks]
	}
	if m.Bias != nil {
		p.Bias = m.Bias[lo:hi]
	}
	return &p
}

// Rows32 writes rows lo to hi as floats: scale*sample + zero, or the stored number. scratch holds
// (hi-lo)*Cols codes and may be nil for 16 and 32 bits.
func (m *Matrix) Rows32(dst []float32, scratch []uint8, lo, hi int) {
	n := (hi - lo) * m.Cols
	dst = dst[:n]
	switch m.Bits {
	case 32:
		b := m.Codes[4*lo*m.Cols:][:4*n]
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		}
		return
	case 16:
		f16(dst, m.Codes[2*lo*m.Cols:][:2*n])
		return
	}
	m.Unpack(scratch, lo, hi)
	width := m.Cols / m.Blocks
	var value [256]float32
	for b := range (hi - lo) * m.Blocks {
		s := m.Scale[lo*m.Blocks+b]
		var z float32
		if m.Zero != nil {
			z = m.Zero[lo*m.Blocks+b]
		}
		d, c := dst[b*width:(b+1)*width], scratch[b*width:(b+1)*width]
		if len(m.Samples) <= 16 {
			for u, q := range m.Samples {
				value[u] = float32(s*float32(q)) + z
			}
			for i, u := range c {
				d[i] = value[u]
			}
			continue
		}
		for i, u := range c {
			d[i] = float32(s*float32(m.Samples[u])) + z
		}
	}
}

// FusedRows32 is Rows32 where a product and the sum with its zero are rounded once, as by the engine on arm64.
func (m *Matrix) FusedRows32(dst []float32, scratch []uint8, lo, hi int) {
	if m.Bits > 8 || m.Zero == nil {
		m.Rows32(dst, scratch, lo, hi)
		return
	}
	m.Unpack(scratch, lo, hi)
	width := m.Cols / m.Blocks
	for b, s := range m.Scale[lo*m.Blocks : hi*m.Blocks] {
		z := m.Zero[lo*m.Blocks+b]
		for i, u := range scratch[b*width : (b+1)*width] {
			dst[b*width+i] = kernel.FMA(s, float32(m.Samples[u]), z)
		}
	}
}
