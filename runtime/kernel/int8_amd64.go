//go:build !purego

package kernel

import (
	"encoding/binary"
	"math"
)

// int8Panels holds the weights in panels of int8PanelRows rows, the last one filled up with zeros, and with the columns
// filled up to a multiple of eight.
type int8Panels struct {
	// data is [panels, blocks] of records: the codes of the block and then, for each row, scale and after all of
	// these the offset. Codes of 4 bits are [block/8][rows][4], bytes as packages store them; all others are
	// [block/8][odd columns, even columns][rows][4], signed.
	data   []byte
	sums   []float32 // [panels, blocks, rows]: sum of the weights of a block
	record int       // bytes of a record
	groups int       // of eight columns in a block
}

// panelBytes is the size of four bytes for each row of a panel.
const panelBytes = 4 * int8PanelRows

// int8CallColumns limits the columns of all tiles of a call, which cannot be interrupted, to some ten microseconds.
const int8CallColumns = 1 << 14

// int8Call is what one panel and some tiles of rows of activations, their tokens, are multiplied from. The assembly
// knows the layout.
type int8Call struct {
	out    *float32 // [tiles*tokens][int8PanelRows], stride bytes apart
	stride int
	y      *float32 // scratch, [tokens][int8PanelRows] and 15 more
	w      *byte    // the panel
	sums   *float32 // [shifts][int8PanelRows], what shifts are multiplied with
	bias   *float32 // [int8PanelRows]
	tails  *float32 // [int8PanelRows]
	zeros  *float32 // [tiles*tokens], or nil: the bias is more by zero*tail
	x      *byte    // the codes of the tiles
	terms  *float32 // the terms of the tiles
	blocks int
	shifts int // the number of blocks, the last ones, with a shift
	groups int // of eight columns in a block
	early  int // 1 if the bias comes before the blocks, 0 if after them
	tiles  int
}

// Each of these computes tiles of as many tokens as the number in its name says.

//go:noescape
func int8Nibbles1AVX512(c *int8Call)

//go:noescape
func int8Nibbles2AVX512(c *int8Call)

//go:noescape
func int8Nibbles4AVX512(c *int8Call)

//go:noescape
func int8Nibbles8AVX512(c *int8Call)

//go:noescape
func int8Bytes1AVX512(c *int8Call)

//go:noescape
func int8Bytes2AVX512(c *int8Call)

//go:noescape
func int8Bytes4AVX512(c *int8Call)

//go:noescape
func int8Bytes8AVX512(c *int8Call)

//go:noescape
func int8Nibbles1AVXVNNI(c *int8Call)

//go:noescape
func int8Nibbles2AVXVNNI(c *int8Call)

//go:noescape
func int8Nibbles4AVXVNNI(c *int8Call)

//go:noescape
func int8Bytes1AVXVNNI(c *int8Call)

//go:noescape
func int8Bytes2AVXVNNI(c *int8Call)

//go:noescape
func int8Bytes4AVXVNNI(c *int8Call)

//go:noescape
func int8Nibbles1AVX2(c *int8Call)

//go:noescape
func int8Nibbles2AVX2(c *int8Call)

//go:noescape
func int8Nibbles4AVX2(c *int8Call)

//go:noescape
func int8Bytes1AVX2(c *int8Call)

//go:noescape
func int8Bytes2AVX2(c *int8Call)

//go:noescape
func int8Bytes4AVX2(c *int8Call)

// These set the codes plus 128 of n columns, a multiple of eight, and return their sum; groups of four lie stride bytes
// apart.

//go:noescape
func int8RoundEvenAVX2(dst *byte, x *float32, n, stride int, quant, bias float32) (sum int)

//go:noescape
func int8RoundAwayAVX2(dst *byte, x *float32, n, stride int, quant, bias float32) (sum int)

// These write the n bytes of codes, a multiple of sixteen, in pieces of four that lie panelBytes apart, and return the
// sum of the codes. Bytes become less by half and get the order of the panels.

//go:noescape
func int8SpreadNibblesAVX2(dst, codes *byte, n int) (sum int)

//go:noescape
func int8SpreadBytesAVX2(dst, codes *byte, n, half int) (sum int)

// int8RangeAVX2 takes a multiple of eight elements, and not 0.
//
//go:noescape
func int8RangeAVX2(x *float32, n int) (lo, hi float32)

// int8PeakAVX512 runs n times 24 independent VPDPBUSD of 64 codes, for benchmarks to compare with.
func int8PeakAVX512(n int)

func layoutOfInt8() int8Layout {
	switch {
	case use.vnni:
		return int8Layout{rows: 8, group: 4}
	case use.avx2:
		return int8Layout{rows: 4, group: 4}
	}
	return int8Layout{rows: 1}
}

func minMax(x []float32) (lo, hi float32) {
	n := len(x) &^ 7
	if !use.avx2 || n == 0 {
		return minMaxGeneric(x)
	}
	lo, hi = int8RangeAVX2(&x[0], n)
	for _, v := range x[n:] {
		lo, hi = min(lo, v), max(hi, v)
	}
	return lo, hi
}

func quantizeBlock(codes []uint8, x []float32, stride int, quant, bias float32, away bool) int32 {
	if stride == 0 {
		return quantizeBlockGeneric(codes, x, stride, quant, bias, away)
	}
	n, sum := len(x)&^7, 0
	if n > 0 {
		_ = codes[(n/4-1)*stride+3]
		if away {
			sum = int8RoundAwayAVX2(&codes[0], &x[0], n, stride, quant, bias)
		} else {
			sum = int8RoundEvenAVX2(&codes[0], &x[0], n, stride, quant, bias)
		}
	}
	if n == len(x) {
		return int32(sum)
	}
	codes = codes[n/4*stride:]
	clear(codes[:4])
	clear(codes[stride:][:4]) // what fills up the columns counts as 0
	return int32(sum) + quantizeBlockGeneric(codes, x[n:], stride, quant, bias, away)
}

// newPanels makes panels, to be filled by packPanels, unless the generic code multiplies.
func (m *Int8Matrix) newPanels(n int) bool {
	if !use.avx2 {
		return false
	}
	p := &int8Panels{groups: (m.block + 7) / 8}
	p.record = (p.groups*2 + 2) * panelBytes
	if m.nibbles {
		p.record = (p.groups + 2) * panelBytes
	}
	p.data = make([]byte, n*m.blocks*p.record)
	p.sums = make([]float32, n*m.blocks*int8PanelRows)
	m.panels = p
	return true
}

// packPanels converts rows lo to hi-1, lo being the first of a panel.
func (m *Int8Matrix) packPanels(w *WeightCodes, lo, hi int) {
	p := m.panels
	padded := make([]uint8, (m.cols+7)&^7)
	for r := lo; r < hi; r++ {
		panel, lane := r/int8PanelRows, r%int8PanelRows
		row, stored := padded, w.Nibbles != nil && m.cols%8 == 0
		switch {
		case stored:
			row = w.Nibbles[r*m.cols/2:][:m.cols/2]
		case w.Codes != nil && m.cols%8 == 0:
			row = w.Codes[r*m.cols:][:m.cols]
		default:
			w.row(padded, r)
		}
		scale, zero := m.scales(w, r)
		size, tail := len(row)/m.blocks, float32(0)
		for b := range m.blocks {
			record := p.data[(panel*m.blocks+b)*p.record:][:p.record]
			codes := row[b*size:][:size]
			var n int32
			switch {
			case stored:
				n = packStored(record[4*lane:], codes)
			case m.nibbles:
				n = packNibbles(record[4*lane:], codes)
			default:
				n = packBytes(record[4*lane:], codes, w.half()) - int32(w.half()*m.block)
			}
			z := float32(0)
			if zero != nil {
				z = zero[b]
			}
			term := m.term(scale[b], z, n)
			terms := record[p.record-2*panelBytes+4*lane:]
			binary.LittleEndian.PutUint32(terms, math.Float32bits(term.scale))
			binary.LittleEndian.PutUint32(terms[panelBytes:], math.Float32bits(term.offset))
			p.sums[(panel*m.blocks+b)*int8PanelRows+lane] = term.sum
			tail += term.sum
		}
		m.tails[r] = tail
	}
}

// packStored spreads codes of 4 bits, two a byte, and returns their sum.
func packStored(to, codes []byte) int32 {
	n := len(codes) &^ 15
	sum := 0
	if n > 0 {
		_ = to[(n/4-1)*panelBytes+3]
		sum = int8SpreadNibblesAVX2(&to[0], &codes[0], n)
	}
	for ; n < len(codes); n += 4 {
		v := binary.LittleEndian.Uint32(codes[n:])
		binary.LittleEndian.PutUint32(to[n/4*panelBytes:], v)
		sum += int(sumBytes(uint64(v&0x0f0f0f0f) + uint64(v>>4&0x0f0f0f0f)))
	}
	return int32(sum)
}

// packNibbles packs and spreads codes of 4 bits and returns their sum.
func packNibbles(to []byte, codes []uint8) int32 {
	var n uint64
	for g := 0; 8*g < len(codes); g++ {
		v := binary.LittleEndian.Uint64(codes[8*g:])
		binary.LittleEndian.PutUint32(to[panelBytes*g:], evenBytes(v)<<4|evenBytes(v>>8))
		n += sumBytes(v)
	}
	return int32(n)
}

// packBytes spreads unsigned codes as signed ones, which are less by half, and returns the sum of the unsigned ones.
// What fills up the columns is no weight of 0 then, but meets a 0.
func packBytes(to []byte, codes []uint8, half int) int32 {
	n := len(codes) &^ 15
	sum := 0
	if n > 0 {
		_ = to[(n/4-1)*panelBytes+3]
		sum = int8SpreadBytesAVX2(&to[0], &codes[0], n, half)
	}
	if n == len(codes) {
		return int32(sum)
	}
	v := binary.LittleEndian.Uint64(codes[n:])
	sum += int(sumBytes(v))
	// Subtracting half in each byte: with the highest bit set there is no borrow.
	const ones = 0x0101010101010101
	v = (v | 0x80*ones) - uint64(half&127)*ones ^ (^v^uint64(half)*ones)&(0x80*ones)
	binary.LittleEndian.PutUint32(to[n/4*panelBytes:], evenBytes(v>>8))
	binary.LittleEndian.PutUint32(to[(n/4+1)*panelBytes:], evenBytes(v))
	return int32(sum)
}

// evenBytes is bytes 0, 2, 4 and 6 of v.
func evenBytes(v uint64) uint32 {
	v &= 0x00ff00ff00ff00ff
	v = (v | v>>8) & 0x0000ffff0000ffff
	return uint32(v | v>>16)
}

// sumBytes adds up the bytes of v.
func sumBytes(v uint64) uint64 {
	return (v&0x00ff00ff00ff00ff + v>>8&0x00ff00ff00ff00ff) * 0x0001000100010001 >> 48
}

// int8CacheBytes of activation codes stay in the second level cache, next to a panel, while panels pass.
const int8CacheBytes = 1 << 18

// mulPanels is Mul on panels. A panel stays in the cache while as many tokens pass as stay there for the next panel.
func (m *Int8Matrix) mulPanels(dst []float32, x *QuantizedRows, rowLo, rowHi int) {
	var s int8Scratch
	step := max(1, int8CacheBytes/x.layout.pad(m.cols)/QuantizeTile) * QuantizeTile
	for t := 0; t < x.Rows; t += step {
		for first := rowLo &^ (int8PanelRows - 1); first < rowHi; first += int8PanelRows {
			m.mulPanel(dst, &s, x, t, min(t+step, x.Rows), max(first, rowLo), min(first+int8PanelRows, rowHi))
		}
	}
}

// int8Scratch is cleared once for all panels.
type int8Scratch struct {
	y    [QuantizeTile*int8PanelRows + 15]float32
	part [QuantizeTile][int8PanelRows]float32 // the outputs of a panel of which not all are wanted
}

// mulPanel computes outputs lo to hi-1, which are of one panel, for tokens from to to-1.
func (m *Int8Matrix) mulPanel(dst []float32, s *int8Scratch, x *QuantizedRows, from, to, lo, hi int) {
	p, pad, first := m.panels, x.layout.pad(m.cols), lo&^(int8PanelRows-1)
	record := first / int8PanelRows * m.blocks
	c := int8Call{
		y: &s.y[0], w: &p.data[record*p.record], bias: &m.bias[first], tails: &m.tails[first],
		blocks: m.blocks, groups: p.groups,
	}
	if x.scheme == schemeBlocks {
		c.sums, c.shifts = &p.sums[record*int8PanelRows], m.blocks
	} else {
		c.sums, c.shifts = c.tails, 1
	}
	whole := hi-lo == int8PanelRows
	for t := from; t < to; {
		_, tokens := x.tile(t)
		c.out, c.stride, c.tiles = &s.part[0][0], panelBytes, 1
		if whole {
			c.out, c.stride = &dst[t*m.rows+lo], 4*m.rows
			c.tiles = max(1, min((to-t)/tokens, int8CallColumns/m.cols))
		}
		c.x, c.terms, c.early, c.zeros = &x.codes[t*pad], &x.terms[3*t*m.blocks], 0, nil
		if m.biasBlock(x, t) == 0 {
			c.early = 1
		}
		if x.scheme == schemeAsym {
			c.zeros = &x.Zeros[t]
		}
		int8Tile(&c, m.nibbles, tokens)
		if !whole {
			for i := range tokens {
				copy(dst[(t+i)*m.rows+lo:(t+i)*m.rows+hi], s.part[i][lo-first:])
			}
		}
		t += tokens * c.tiles
	}
}

func int8Tile(c *int8Call, nibbles bool, tokens int) {
	switch {
	case use.vnni:
		int8TileAVX512(c, nibbles, tokens)
	case use.avxvnni:
		int8TileAVXVNNI(c, nibbles, tokens)
	default:
		int8TileAVX2(c, nibbles, tokens)
	}
}

func int8TileAVX512(c *int8Call, nibbles bool, tokens int) {
	switch {
	case nibbles && tokens == 1:
		int8Nibbles1AVX512(c)
	case nibbles && tokens == 2:
		int8Nibbles2AVX512(c)
	case nibbles && tokens == 4:
		int8Nibbles4AVX512(c)
	case nibbles && tokens == 8:
		int8Nibbles8AVX512(c)
	case tokens == 1:
		int8Bytes1AVX512(c)
	case tokens == 2:
		int8Bytes2AVX512(c)
	case tokens == 4:
		int8Bytes4AVX512(c)
	case tokens == 8:
		int8Bytes8AVX512(c)
	}
}

func int8TileAVXVNNI(c *int8Call, nibbles bool, tokens int) {
	switch {
	case nibbles && tokens == 1:
		int8Nibbles1AVXVNNI(c)
	case nibbles && tokens == 2:
		int8Nibbles2AVXVNNI(c)
	case nibbles && tokens == 4:
		int8Nibbles4AVXVNNI(c)
	case tokens == 1:
		int8Bytes1AVXVNNI(c)
	case tokens == 2:
		int8Bytes2AVXVNNI(c)
	case tokens == 4:
		int8Bytes4AVXVNNI(c)
	}
}

func int8TileAVX2(c *int8Call, nibbles bool, tokens int) {
	switch {
	case nibbles && tokens == 1:
		int8Nibbles1AVX2(c)
	case nibbles && tokens == 2:
		int8Nibbles2AVX2(c)
	case nibbles && tokens == 4:
		int8Nibbles4AVX2(c)
	case tokens == 1:
		int8Bytes1AVX2(c)
	case tokens == 2:
		int8Bytes2AVX2(c)
	case tokens == 4:
		int8Bytes4AVX2(c)
	}
}
