//go:build !purego

package kernel

import "unsafe"

// int8Rows is the number of output rows that a panel of weights holds.
const int8Rows = 16

// int8Panels holds the weights in panels of int8Rows rows, the last one filled up with zeros.
type int8Panels struct {
	// codes is [panels, cols/4, int8Rows, 4], unsigned: 0..15 for 4 bits, signed code + 128 for all other widths.
	codes []byte
	terms []int8Terms // [panels, blocks]
}

// int8Terms are the weightTerms of a panel and block. The assembly knows the layout.
type int8Terms struct {
	lift                     [int8Rows]int32
	scale, offset, sum, tail [int8Rows]float32
}

// These fail to compile when the sizes are not those of _asm/dynquant.go.
var (
	_ [320]byte = [unsafe.Sizeof(int8Terms{})]byte{}
	_ [16]byte  = [unsafe.Sizeof(rowTerm{})]byte{}
)

// Each of these adds n blocks of one panel to y, [tokens][int8Rows], for one or four tokens (the number in the name),
// starting at the block that the pointers show. cols and blocks are the distances between tokens in x and rows, groups
// is a quarter of the block, sum the offset in int8Terms of what rowTerm.shift is multiplied with. Those of AVX2 for
// four tokens compute the first eight outputs of the panel only.

//go:noescape
func int8Nibbles1AVX2(y *float32, terms *int32, w *byte, x *int8, rows *rowTerm, cols, blocks, n, groups, sum int)

//go:noescape
func int8Nibbles4AVX2(y *float32, terms *int32, w *byte, x *int8, rows *rowTerm, cols, blocks, n, groups, sum int)

//go:noescape
func int8Bytes1AVX2(y *float32, terms *int32, w *byte, x *int8, rows *rowTerm, cols, blocks, n, groups, sum int)

//go:noescape
func int8Bytes4AVX2(y *float32, terms *int32, w *byte, x *int8, rows *rowTerm, cols, blocks, n, groups, sum int)

//go:noescape
func int8Nibbles1VNNI(y *float32, terms *int32, w *byte, x *int8, rows *rowTerm, cols, blocks, n, groups, sum int)

//go:noescape
func int8Nibbles4VNNI(y *float32, terms *int32, w *byte, x *int8, rows *rowTerm, cols, blocks, n, groups, sum int)

//go:noescape
func int8Bytes1VNNI(y *float32, terms *int32, w *byte, x *int8, rows *rowTerm, cols, blocks, n, groups, sum int)

//go:noescape
func int8Bytes4VNNI(y *float32, terms *int32, w *byte, x *int8, rows *rowTerm, cols, blocks, n, groups, sum int)

// pack replaces the codes and terms of m by panels. Columns that form no groups of four stay with the generic code.
func (m *Int8Matrix) pack() {
	if !use.avx2 || m.cols%4 != 0 {
		return
	}
	count := (m.rows + int8Rows - 1) / int8Rows
	p := &int8Panels{codes: make([]byte, count*int8Rows*m.cols), terms: make([]int8Terms, count*m.blocks)}
	lift := int8(-128) // flips the sign bit, which is what adding 128 does
	if m.nibbles {
		lift = 0
	}
	for r := range m.rows {
		panel, lane := r/int8Rows, r%int8Rows
		to := p.codes[panel*int8Rows*m.cols+4*lane:]
		for i, c := range m.codes[r*m.cols:][:m.cols] {
			to[i/4*4*int8Rows+i%4] = byte(c ^ lift)
		}
		for b, t := range m.terms[r*m.blocks:][:m.blocks] {
			to := &p.terms[panel*m.blocks+b]
			to.lift[lane], to.scale[lane], to.offset[lane], to.sum[lane], to.tail[lane] = t.lift, t.scale, t.offset, t.sum, t.tail
		}
	}
	m.panels, m.codes, m.terms = p, nil, nil
}

// mulPanels is Mul on panels; it returns false when m has none.
func (m *Int8Matrix) mulPanels(dst []float32, x *QuantizedRows, rowLo, rowHi int) bool {
	if m.panels == nil {
		return false
	}
	for r := rowLo &^ (int8Rows - 1); r < rowHi; r += int8Rows {
		lo, hi := max(r, rowLo), min(r+int8Rows, rowHi)
		for t := 0; t < x.Rows; {
			tokens := 1
			if t+4 <= x.Rows {
				tokens = 4
			}
			var y [4][int8Rows]float32
			bias := m.biasBlock(x, t) // the same for four
			m.mulPanel(&y, x, r/int8Rows, t, tokens, 0, bias+1)
			for i := range tokens {
				for row := lo; row < hi; row++ {
					y[i][row-r] += m.biasOf(x, t+i, row)
				}
			}
			m.mulPanel(&y, x, r/int8Rows, t, tokens, bias+1, m.blocks)
			for i := range tokens {
				copy(dst[(t+i)*m.rows+lo:(t+i)*m.rows+hi], y[i][lo-r:])
			}
			t += tokens
		}
	}
	return true
}

// mulPanel adds blocks from to to-1 of a panel for one or four tokens.
func (m *Int8Matrix) mulPanel(y *[4][int8Rows]float32, x *QuantizedRows, panel, t, tokens, from, to int) {
	n, groups := to-from, m.block/4
	if n == 0 {
		return
	}
	terms := &m.panels.terms[panel*m.blocks+from]
	w := m.panels.codes[(panel*m.cols+from*m.block)*int8Rows:]
	codes, rows := &x.Codes[t*m.cols+from*m.block], &x.terms[t*m.blocks+from]
	sum := unsafe.Offsetof(terms.tail)
	if x.scheme == schemeBlocks {
		sum = unsafe.Offsetof(terms.sum)
	}
	lift, four := &terms.lift[0], tokens == 4
	switch {
	case use.vnni && four && m.nibbles:
		int8Nibbles4VNNI(&y[0][0], lift, &w[0], codes, rows, m.cols, m.blocks, n, groups, int(sum))
	case use.vnni && four:
		int8Bytes4VNNI(&y[0][0], lift, &w[0], codes, rows, m.cols, m.blocks, n, groups, int(sum))
	case use.vnni && m.nibbles:
		int8Nibbles1VNNI(&y[0][0], lift, &w[0], codes, rows, m.cols, m.blocks, n, groups, int(sum))
	case use.vnni:
		int8Bytes1VNNI(&y[0][0], lift, &w[0], codes, rows, m.cols, m.blocks, n, groups, int(sum))
	case four:
		half := &terms.lift[int8Rows/2] // the arrays of the other eight outputs are as far from it
		if m.nibbles {
			int8Nibbles4AVX2(&y[0][0], lift, &w[0], codes, rows, m.cols, m.blocks, n, groups, int(sum))
			int8Nibbles4AVX2(&y[0][8], half, &w[32], codes, rows, m.cols, m.blocks, n, groups, int(sum))
		} else {
			int8Bytes4AVX2(&y[0][0], lift, &w[0], codes, rows, m.cols, m.blocks, n, groups, int(sum))
			int8Bytes4AVX2(&y[0][8], half, &w[32], codes, rows, m.cols, m.blocks, n, groups, int(sum))
		}
	case m.nibbles:
		int8Nibbles1AVX2(&y[0][0], lift, &w[0], codes, rows, m.cols, m.blocks, n, groups, int(sum))
	default:
		int8Bytes1AVX2(&y[0][0], lift, &w[0], codes, rows, m.cols, m.blocks, n, groups, int(sum))
	}
}
