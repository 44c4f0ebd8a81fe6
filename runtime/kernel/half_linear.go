package kernel

// halfMatrix is a matrix whose rows begin stride apart.
type halfMatrix struct {
	data   []float32
	stride int
}

func (m halfMatrix) row(r, n int) []float32 { return m.data[r*m.stride:][:n] }

// at is the part of m from that row and column on.
func (m halfMatrix) at(row, col int) halfMatrix {
	return halfMatrix{m.data[row*m.stride+col:], m.stride}
}

// newHalfMatrix is a matrix of zeros.
func newHalfMatrix(rows, cols int) halfMatrix { return halfMatrix{make([]float32, rows*cols), cols} }

// each writes f of the rows of x and y to those of dst.
func (m halfMatrix) each(f func(dst, x, y []float32), x, y halfMatrix, rows, cols int) {
	for r := range rows {
		f(m.row(r, cols), x.row(r, cols), y.row(r, cols))
	}
}

// halfProduct writes x [e, l] times w [h, l], transposed, to dst [e, h]. Sums begin with the first term, and every further one is fused.
//
// Emulates MNNPackedMatMulFP16.S and MNNPackedMatMulRemainFP16.S.
func halfProduct(dst, x, w halfMatrix, e, l, h int) {
	tile := make([]float64, halfLanes*l)
	var s [halfLanes]float32
	for r := 0; r < h; r += halfLanes {
		n := min(halfLanes, h-r)
		if n < halfLanes {
			clear(tile)
		}
		for k := range n {
			for i, v := range w.row(r+k, l) {
				tile[halfLanes*i+k] = float64(v)
			}
		}
		for t := range e {
			halfDots(&s, x.row(t, l), tile)
			copy(dst.row(t, h)[r:], s[:n])
		}
	}
}

// The tiles of the engine's products in half precision: rows of activations, rows of weights, and channels that lie together.
const (
	halfTileE, halfTileH, halfPack = 12, 16, 8
	// halfDepth is how often a product is divided by Strassen's rule.
	halfDepth = 5
)

// HalfLinear is a linear layer in half precision.
type HalfLinear struct {
	Tokens, Cols int
	// X [Tokens, Cols] are the activations, halves.
	X []float32
}

// Strassen reports whether the engine, with one thread, divides the product with rows rows of weights by Strassen's rule.
func (p *HalfLinear) Strassen(rows int) bool { return halfDivides(p.Tokens, p.Cols, rows, 0) }

// All writes the products of all rows of weights w [rows, Cols], halves, plus the bias to dst [Tokens, rows], as the engine does where
// Strassen says so.
//
// Emulates Convolution1x1Strassen.cpp and StrassenMatmulComputor.cpp with one thread.
func (p *HalfLinear) All(dst, w, bias []float32, rows int) {
	halfStrassen(halfMatrix{dst, rows}, halfMatrix{p.X, p.Cols}, halfMatrix{w, p.Cols}, bias, p.Tokens, p.Cols, rows, 0)
}

// Panel writes the products of some rows of weights w [rows, Cols], halves, plus the bias to dst, where those of a token begin stride after
// those of the one before, as the engine does elsewhere.
func (p *HalfLinear) Panel(dst, w, bias []float32, rows, stride int) {
	halfBlocks(halfMatrix{dst, stride}, halfMatrix{p.X, p.Cols}, halfMatrix{w, p.Cols}, bias, p.Tokens, p.Cols, rows)
}

// halfBlocks is a product whose sums are taken in blocks of columns, and then those of blocks, if rows of activations and weights fill the cache.
func halfBlocks(c, x, w halfMatrix, bias []float32, e, l, h int) {
	limit := 32768 / (min(halfTileE, e) + halfTileH)
	if l > limit {
		limit = limit / halfPack * halfPack
	}
	halfProduct(c, x, w, e, min(l, limit), h)
	if l > limit {
		part := newHalfMatrix(e, h)
		for from := limit; from < l; from += limit {
			halfProduct(part, x.at(0, from), w.at(0, from), e, min(limit, l-from), h)
			c.each(halfAdd, c, part, e, h)
		}
	}
	addHalfBias(c, bias, e, h)
}

func addHalfBias(c halfMatrix, bias []float32, e, h int) {
	if bias == nil {
		return
	}
	for t := range e {
		row := c.row(t, h)
		halfAdd(row, row, bias[:h])
	}
}

// halfDivides reports whether Strassen's rule saves the engine memory traffic.
func halfDivides(e, l, h, depth int) bool {
	eSub, hSub, lSub := e/halfTileE/2*halfTileE, h/halfTileH/2*halfTileH, l/2
	if depth >= halfDepth || eSub == 0 || hSub == 0 || l%(2*halfPack) != 0 {
		return false
	}
	add := float32(4*float32(eSub*lSub)) + float32(4*float32(lSub)*float32(hSub)) + float32(7*float32(eSub*hSub))
	saved := float32(e / halfTileE * (halfTileE*hSub + lSub/halfPack*halfTileE*halfPack + lSub*hSub))
	return saved-add*2 > 0
}

// halfStrassen is Winograd's form of Strassen's product of the even part, and plain products of what is left, where the engine takes it.
func halfStrassen(c, a, b halfMatrix, bias []float32, e, l, h, depth int) {
	if halfDivides(e, l, h, depth) {
		halfStrassenOnce(c, a, b, bias, e, l, h, depth+1)
	} else {
		halfBlocks(c, a, b, bias, e, l, h)
	}
}

// halfStrassenOnce divides a product, and its seven products where that saves more.
func halfStrassenOnce(c, a, b halfMatrix, bias []float32, e, l, h, depth int) {
	eSub, hSub, lSub := e/halfTileE/2*halfTileE, h/halfTileH/2*halfTileH, l/2
	a12, a21, a22 := a.at(0, lSub), a.at(eSub, 0), a.at(eSub, lSub)
	b12, b21, b22 := b.at(hSub, 0), b.at(0, lSub), b.at(hSub, lSub)
	c12, c21, c22 := c.at(0, hSub), c.at(eSub, 0), c.at(eSub, hSub)
	x, y, p := newHalfMatrix(eSub, lSub), newHalfMatrix(hSub, lSub), newHalfMatrix(eSub, hSub)
	multiply := func(c, a, b halfMatrix) { halfStrassen(c, a, b, nil, eSub, lSub, hSub, depth) }

	x.each(halfSub, a, a21, eSub, lSub)
	y.each(halfSub, b22, b12, hSub, lSub)
	multiply(c21, x, y)
	x.each(halfAdd, a21, a22, eSub, lSub)
	y.each(halfSub, b12, b, hSub, lSub)
	multiply(c22, x, y)
	x.each(halfSub, x, a, eSub, lSub)
	y.each(halfSub, b22, y, hSub, lSub)
	multiply(c12, x, y)
	x.each(halfSub, a12, x, eSub, lSub)
	multiply(c, x, b22)
	multiply(p, a, b)
	c12.each(halfAdd, c12, p, eSub, hSub)
	c21.each(halfAdd, c12, c21, eSub, hSub)
	c12.each(halfAdd, c22, c12, eSub, hSub)
	c22.each(halfAdd, c22, c21, eSub, hSub)
	c12.each(halfAdd, c, c12, eSub, hSub)
	y.each(halfSub, y, b21, hSub, lSub)
	multiply(c, a22, y)
	c21.each(halfSub, c21, c, eSub, hSub)
	multiply(c, a12, b21)
	c.each(halfAdd, c, p, eSub, hSub)
	addHalfBias(c, bias, 2*eSub, 2*hSub)

	if rest := h - 2*hSub; rest > 0 {
		if bias != nil {
			halfBlocks(c.at(0, 2*hSub), a, b.at(2*hSub, 0), bias[2*hSub:], 2*eSub, l, rest)
		} else {
			halfBlocks(c.at(0, 2*hSub), a, b.at(2*hSub, 0), nil, 2*eSub, l, rest)
		}
	}
	if rest := e - 2*eSub; rest > 0 {
		halfBlocks(c.at(2*eSub, 0), a.at(2*eSub, 0), b, bias, rest, l, h)
	}
}
