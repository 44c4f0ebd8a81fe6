//go:build (amd64 || arm64) && !purego

package kernel

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

// int8Call describes the product of one panel and some tiles of rows of activations, their tokens. The assembly
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
			if tokens > 1 { // the bias of a single one may come early
				c.tiles = max(1, min((to-t)/tokens, int8CallColumns/m.cols))
			}
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
