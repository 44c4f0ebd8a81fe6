package kernel

// Chain is operations one after the other on rows, for a [Device] that keeps what lies between them: on the next token of each of several
// windows, or on all tokens of some windows. Results have the bits of the functions of this package that the steps name.
type Chain struct {
	Rows, At int       // windows, and the tokens of each of them before this one
	Widths   []int     // of the matrices [Rows, width], which the steps name by their index
	States   []float32 // matrix 0 before all steps, and of a chain of tokens after them
	Steps    []Step
	Pasts    *Pasts

	// Windows are the numbers of tokens of whole windows, whose rows follow one another. At and Pasts have no meaning then, and Out gets
	// matrix Result.
	Windows []int
	Result  int
	Out     []float32
	// Given are more matrices of whole windows before all steps, and Taken more of those after them.
	Given, Taken []Carried
	// Moments are sums that whole windows are added to after all steps, if all of Out is finite.
	Moments []Moment
	// GivesWay is that of a [Product].
	GivesWay bool
}

// Moment is a sum [N, N] that stays on a device as that of a [Product] may. The windows of a [Chain] are added to its lower triangle one by one:
// columns From to From+N-1 of a matrix, without the first Skip rows of each window, as [Packed.Syrk] does. Elements above the diagonal may
// change. From and the width of the matrix are multiples of 4.
type Moment struct {
	Dst                   []float32
	Matrix, From, N, Skip int
}

// Carried is a matrix of a [Chain], and memory of that size.
type Carried struct {
	Matrix int
	Data   []float32
}

// Longest is the largest number of tokens of whole windows.
func (c *Chain) Longest() (n int) {
	for _, w := range c.Windows {
		n = max(n, w)
	}
	return n
}

// Multiplications implements [Work].
func (c *Chain) Multiplications() (n int) {
	for _, s := range c.Steps {
		switch x := s.(type) {
		case *LinearStep:
			n += c.Rows * c.Widths[x.Dst] * c.Widths[x.Src]
		case *ExpertsStep:
			n += x.multiplications(3, c.Rows, c.Widths[x.Src])
		case *RecurrenceStep:
			n += c.Rows * x.Heads * (3*x.Key*x.Value + x.Together*(2*x.Key+2*x.Value))
		case *ExpertsBackStep:
			n += x.Of.multiplications(5, c.Rows, c.Widths[x.Of.Src])
		}
	}
	return n
}

// Pasts are the keys and values of the earlier tokens of all windows. The device adds those of every [Chain] to its own copy, not to the
// caller's: if it fails, the caller computes them again.
type Pasts struct {
	Length int // the most tokens of a window
	// Version names what is in memory here, see [NewVersion], the keys and values of Filled tokens of every window: a device that has none, or
	// those of another version, is given them.
	Version uint64
	Filled  int
	Of      []Past // of each attention
	// States is the number of steps that leave something else for the next token: convolutions and recurrences. Devices have that of windows which
	// they began themselves, with Filled 0; it is not here.
	States int

	left map[[2]int][]float32 // by Do, see Chain.left
}

// Past is that of an attention.
type Past struct {
	Heads, Key, Value int // key heads, and the widths of their keys and values
	// Of returns keys [Length, Key] and values [Value, Length] of a head in a window.
	Of func(window, head int) (keys, values *Packed)
}

// Step is a [*NormStep], [*LinearStep], [*RotateStep], [*AttendStep], [*GateStep], [*SigmoidStep], [*ConvolveStep], [*RecurrenceStep],
// [*ExpertsStep] or [*AddStep], or of whole windows the way back through one of them: a [*NormBackStep], [*AttendBackStep], [*GateBackStep] or
// [*ExpertsBackStep].
type Step interface{ step() }

// NormStep is [RMSNormRows] of runs as long as Gamma.
type NormStep struct {
	Dst, Src int
	Gamma    Factor // a vector
	Eps      float32
}

// NormBackStep is [RMSNormBack] of a norm that read X: Dst gets the gradient of X for Src, that of the result. Dst may be Src if there are no
// Sums.
type NormBackStep struct {
	Dst, Src, X int
	Gamma       Factor // a vector
	Eps         float32
	// Sums [spans, len(Gamma)] gets the gradients of Gamma, each the sum over Span runs; or nil.
	Sums []float64
	Span int
}

// LinearStep is Dst = Src · Weightsᵀ + Bias. The way back is another one, whose Weights are those by position.
type LinearStep struct {
	Dst, Src      int
	Weights, Bias Factor // Bias is a vector, or has no Data
}

// RotateStep is [RotateHeads] of all rows, in place, with the angles of At, or of a row's place in its window.
type RotateStep struct {
	Matrix, Heads, Dim, Turned int
	Cos, Sin                   Factor // vectors: [positions, Turned]
}

// AttendStep adds keys and values to the past, and computes the attention of queries [Rows, Heads*Key] over it: of Heads/Past.Heads
// adjacent heads over the same keys.
type AttendStep struct {
	Dst, Queries, Keys, Values int
	Past, Heads                int
	Scale                      float32 // of queries
	// Span returns the first position that sums have, and the first that a token at a position attends to.
	Span func(at int) (from, first int)
	// Together is the number of queries of a whole window, from a multiple of it on, whose sums have the same positions: those until the last of
	// these queries. Past has no meaning there: keys and values are those of the matrices.
	Together int
	// Weights is a matrix [Rows, Heads*Longest] of whole windows that gets the weights at the positions that tokens attend to, or 0.
	Weights int
}

// AttendBackStep is the way back through an [AttendStep] of whole windows, which had these Queries, Keys, Values and Weights and made Out:
// matrices that begin with D get their gradients for DOut, that of Out. Scores [Rows, Heads*Longest] gets what lies between. Package forward
// defines the order of sums (attendBack).
type AttendBackStep struct {
	Queries, Keys, Values, Weights, Out int
	DOut, Scores                        int
	DQueries, DKeys, DValues            int
	Heads                               int
	Scale                               float32
	// Span is that of an AttendStep for Together queries of a window, which give one summand to the gradients of keys and values.
	Span     func(at int) (from, first int)
	Together int
}

// GateStep multiplies [SiLU] of a matrix by another one. Dst may be Matrix.
type GateStep struct{ Dst, Matrix, By int }

// GateBackStep turns Matrix and By of a [GateStep] into their gradients, for D, that of the result: [SiLUBack].
type GateBackStep struct{ Matrix, By, D int }

// AddStep is [Add] of Src to Dst.
type AddStep struct{ Dst, Src int }

func (*NormStep) step()       {}
func (*NormBackStep) step()   {}
func (*LinearStep) step()     {}
func (*RotateStep) step()     {}
func (*AttendStep) step()     {}
func (*AttendBackStep) step() {}
func (*GateStep) step()       {}
func (*GateBackStep) step()   {}
func (*AddStep) step()        {}

// Vector is a vector as a device takes it, under a new version.
func Vector(x []float32) Factor {
	if len(x) == 0 {
		return Factor{}
	}
	return Factor{Data: x, Layout: ByPosition, Stride: len(x), Version: NewVersion()}
}

// place is the place of a row in its window.
func (c *Chain) place(row int) int {
	if c.Windows == nil {
		return c.At
	}
	for _, n := range c.Windows {
		if row < n {
			break
		}
		row -= n
	}
	return row
}

// Do is what a device computes, in this memory: keys and values are stored in those of the pasts.
func (c *Chain) Do() {
	matrices := make([][]float32, len(c.Widths))
	for i, width := range c.Widths {
		matrices[i] = make([]float32, c.Rows*width)
	}
	copy(matrices[0], c.States)
	for _, x := range c.Given {
		copy(matrices[x.Matrix], x.Data)
	}
	for _, step := range c.Steps {
		switch x := step.(type) {
		case *NormStep:
			RMSNormRows(matrices[x.Dst], matrices[x.Src], x.Gamma.Data, len(matrices[x.Src])/len(x.Gamma.Data), x.Eps)
		case *NormBackStep:
			copy(matrices[x.Dst], matrices[x.Src])
			width := len(x.Gamma.Data)
			sum := make([]float64, width)
			clear(x.Sums)
			for at := 0; at < len(matrices[x.Dst]); at += width {
				if x.Sums != nil {
					sum = x.Sums[at/width/x.Span*width:][:width]
				}
				RMSNormBack(sum, matrices[x.X][at:at+width], matrices[x.Dst][at:at+width], x.Gamma.Data, x.Eps)
			}
		case *LinearStep:
			n, k := c.Widths[x.Dst], c.Widths[x.Src]
			if x.Weights.Layout == ByPosition {
				Parallel(0, c.Rows, func(lo, hi int) {
					MatMul(matrices[x.Dst][lo*n:], matrices[x.Src][lo*k:], x.Weights.Data, hi-lo, n, k, n, k, x.Weights.Stride)
				})
				continue
			}
			p := x.Weights.packed(n, k)
			Parallel(0, c.Rows, func(lo, hi int) { p.MulT(matrices[x.Dst][lo*n:], matrices[x.Src][lo*k:], hi-lo, n, k, 0, n) })
			for r := 0; r < c.Rows && x.Bias.Data != nil; r++ {
				y := matrices[x.Dst][r*n : (r+1)*n]
				Add(y, y, x.Bias.Data)
			}
		case *RotateStep:
			width := x.Heads * x.Dim
			for r := range c.Rows {
				at := c.place(r) * x.Turned
				row := matrices[x.Matrix][r*width : (r+1)*width]
				RotateHeads(row, row, x.Cos.Data[at:at+x.Turned], x.Sin.Data[at:at+x.Turned], x.Heads, x.Dim)
			}
		case *AttendStep:
			if c.Windows != nil {
				c.attendWhole(x, matrices)
				continue
			}
			c.attend(x, matrices)
		case *AttendBackStep:
			c.attendBack(x, matrices)
		case *GateStep:
			SiLU(matrices[x.Dst], matrices[x.Matrix])
			Mul(matrices[x.Dst], matrices[x.Dst], matrices[x.By])
		case *GateBackStep:
			SiLUBack(matrices[x.D], matrices[x.Matrix], matrices[x.By])
		case *ExpertsStep:
			x.do(matrices[x.Dst], matrices[x.Src], matrices[x.Scores], c.Rows, c.Widths[x.Src])
		case *ExpertsBackStep:
			x.do(matrices, c.Rows, c.Widths[x.Of.Src])
		case *AddStep:
			Add(matrices[x.Dst], matrices[x.Dst], matrices[x.Src])
		case *ConvolveStep:
			c.convolve(x, matrices[x.Dst], matrices[x.Src])
		case *SigmoidStep:
			c.sigmoid(x, matrices[x.Matrix], matrices[x.By])
		case *RecurrenceStep:
			c.recur(x, matrices)
		}
	}
	if c.Windows != nil {
		copy(c.Out, matrices[c.Result])
		for _, x := range c.Taken {
			copy(x.Data, matrices[x.Matrix])
		}
		if NonFinite(c.Out) < 0 {
			c.addMoments(matrices)
		}
		return
	}
	copy(c.States, matrices[0])
}

func (c *Chain) addMoments(matrices [][]float32) {
	for _, x := range c.Moments {
		width, start := c.Widths[x.Matrix], 0
		for _, n := range c.Windows {
			if n > x.Skip {
				var p Packed
				p.Resize(x.N, n-x.Skip)
				from := matrices[x.Matrix][(start+x.Skip)*width+x.From:]
				p.PackColumns(from, 0, x.N, width)
				p.Syrk(x.Dst, from, 0, x.N, 0, x.N, x.N, width)
			}
			start += n
		}
	}
}

func (c *Chain) attendWhole(x *AttendStep, matrices [][]float32) {
	out, start := make([]float32, c.Rows*c.Widths[x.Dst]), 0
	for _, n := range c.Windows {
		Parallel(0, x.Heads, func(h, end int) {
			for ; h < end; h++ {
				c.attendWholeHead(x, out, matrices, start, n, h)
			}
		})
		start += n
	}
	copy(matrices[x.Dst], out)
}

// attendWholeHead computes a head of the window of n tokens from start on.
func (c *Chain) attendWholeHead(x *AttendStep, out []float32, matrices [][]float32, start, n, h int) {
	key := c.Widths[x.Queries] / x.Heads
	kv := c.Widths[x.Keys] / key
	value, own := c.Widths[x.Values]/kv, h/(x.Heads/kv)
	q, scores := make([]float32, x.Together*key), make([]float32, x.Together*n)
	var keys Packed
	keys.Pack(matrices[x.Keys][start*kv*key+own*key:], n, key, kv*key)
	for i0 := 0; i0 < n; i0 += x.Together {
		rows := min(x.Together, n-i0)
		from, _ := x.Span(i0 + rows - 1)
		to := i0 + rows
		for r := range rows {
			Scale(q[r*key:(r+1)*key], matrices[x.Queries][((start+i0+r)*x.Heads+h)*key:][:key], x.Scale)
		}
		keys.MulT(scores, q, rows, n, key, from, to)
		for r := range rows {
			row := scores[r*n : (r+1)*n]
			_, first := x.Span(i0 + r)
			Softmax(row[first : i0+r+1])
			if x.Weights != 0 {
				copy(matrices[x.Weights][((start+i0+r)*x.Heads+h)*c.Longest():][first:], row[first:i0+r+1])
			}
			clear(row[from:first])
			clear(row[i0+r+1 : to])
		}
		MatMul(out[((start+i0)*x.Heads+h)*value:], scores[from:], matrices[x.Values][((start+from)*kv+own)*value:], rows, value, to-from,
			x.Heads*value, n, kv*value)
	}
}

// attendBack is the way back through attention.
func (c *Chain) attendBack(x *AttendBackStep, m [][]float32) {
	kv, start := c.Widths[x.Keys]*x.Heads/c.Widths[x.Queries], 0
	clear(m[x.DKeys])
	clear(m[x.DValues])
	for _, n := range c.Windows {
		Parallel(0, kv, func(own, end int) {
			for ; own < end; own++ {
				c.attendBackHeads(x, m, start, n, own, kv)
			}
		})
		start += n
	}
}

// attendBackHeads is the way back for the heads that share keys, in the window of n tokens from start on.
func (c *Chain) attendBackHeads(x *AttendBackStep, m [][]float32, start, n, own, kv int) {
	key, longest := c.Widths[x.Queries]/x.Heads, c.Longest()
	value, shared := c.Widths[x.Values]/kv, x.Heads/kv
	var values Packed
	values.Pack(m[x.Values][(start*kv+own)*value:], n, value, kv*value)
	for i0 := 0; i0 < n; i0 += x.Together {
		few := min(x.Together, n-i0)
		from, _ := x.Span(i0)
		to, rows := i0+few, shared*few
		q, do := make([]float32, key*rows), make([]float32, value*rows) // transposed
		p, ds := make([]float32, rows*longest), make([]float32, rows*longest)
		for r := range rows {
			i := i0 + r%few
			at := (start+i)*x.Heads + own*shared + r/few
			_, first := x.Span(i)
			copy(p[r*longest+first:], m[x.Weights][at*longest:][first:i+1])
			row, out := m[x.DOut][at*value:][:value], m[x.Out][at*value:]
			var lanes [4]float64
			for d, v := range row {
				lanes[d%4] += float64(float64(v) * float64(out[d]))
				do[d*rows+r] = v
			}
			dot := float32(lanes[0] + lanes[1] + lanes[2] + lanes[3])
			s := ds[r*longest:][:longest]
			values.MulT(s, row, 1, n, value, from, to)
			for j := from; j < to; j++ {
				s[j] = p[r*longest+j] * (s[j] - dot)
			}
			dq := m[x.DQueries][at*key:][:key]
			MatMul(dq, s[from:], m[x.Keys][((start+from)*kv+own)*key:], 1, key, to-from, key, longest, kv*key)
			Scale(dq, dq, x.Scale)
			for d, v := range m[x.Queries][at*key:][:key] {
				q[d*rows+r] = v * x.Scale
			}
		}
		add := func(dst, left, right []float32, dim int) {
			sum := make([]float32, dim*(to-from))
			MatMul(sum, left, right[from:], dim, to-from, rows, to-from, rows, longest)
			for i, v := range sum {
				d, j := i/(to-from), from+i%(to-from)
				dst[((start+j)*kv+own)*dim+d] += v
			}
		}
		add(m[x.DValues], do, p, value)
		add(m[x.DKeys], q, ds, key)
	}
}

func (c *Chain) attend(x *AttendStep, matrices [][]float32) {
	p := &c.Pasts.Of[x.Past]
	from, first := x.Span(c.At)
	n, shared := c.At+1, x.Heads/p.Heads
	q, scores := make([]float32, p.Key), make([]float32, n)
	for h := range c.Rows * x.Heads {
		row, head := h/x.Heads, h%x.Heads
		keys, values := p.Of(row, head/shared)
		if own := row*p.Heads + head/shared; head%shared == 0 {
			keys.SetRow(c.At, matrices[x.Keys][own*p.Key:][:p.Key])
			values.SetColumn(c.At, matrices[x.Values][own*p.Value:][:p.Value])
		}
		Scale(q, matrices[x.Queries][h*p.Key:][:p.Key], x.Scale)
		keys.MulT(scores, q, 1, n, p.Key, from, n)
		Softmax(scores[first:])
		clear(scores[from:first])
		values.MulTSpan(matrices[x.Dst][h*p.Value:][:p.Value], scores[from:], 1, p.Value, n, from, n)
	}
}
