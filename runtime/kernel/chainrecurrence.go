package kernel

import (
	"math"
	"slices"
)

// ConvolveStep is causal convolutions of windows, one for each column of Dst: the sum of Bias, or 0, and of the last rows times Taps, in float64; and
// [SiLU] of that. If Gated, Src has three times as many columns, of which the product of the first and the last third is convolved, and the result,
// instead, multiplied by the second.
type ConvolveStep struct {
	Dst, Src int // not the same
	Gated    bool
	Taps     Factor // a vector: [taps, width of Dst], that of the row itself last
	Bias     Factor // a vector, or has no Data
	State    int    // of a chain of tokens, see Pasts
}

// SigmoidStep multiplies a matrix by the sigmoid of another one, which is as wide, or has a factor for each row.
type SigmoidStep struct{ Matrix, By int }

// RecurrenceStep is linear attention with decay over windows: the gated delta rule if Rule is set, whose Mixed has queries and keys of all key
// heads, which are scaled to unit length, and values of all heads; or else Mamba 2, whose Mixed has values, keys and queries. Heads/KeyHeads adjacent
// heads have the same queries and keys. Times has an element for each head: t is the [Softplus] of it and Bias, within TimeMin and TimeMax, and the
// logarithm of what remains of the state Decay times t, rounded to float32 with Mamba 2. There values are written times t, and read values get Direct
// times their own value. The rule has Strengths, an element for each head, of which it takes the sigmoid. Package forward defines the order of sums
// (recurrence, rule), for Together tokens at a time.
type RecurrenceStep struct {
	Dst, Mixed, Times           int
	Rule                        bool
	Strengths                   int     // of the rule
	Eps                         float64 // of the rule: is added to squares of lengths
	KeyHeads, Heads, Key, Value int
	Decay, Bias, Direct         Factor // vectors
	TimeMin, TimeMax            float64
	Together                    int
	State                       int // of a chain of tokens, see Pasts
}

func (*ConvolveStep) step()   {}
func (*SigmoidStep) step()    {}
func (*RecurrenceStep) step() {}

func (c *Chain) convolve(x *ConvolveStep, dst, src []float32) {
	width := c.Widths[x.Dst]
	taps, read := len(x.Taps.Data)/width, src
	third := func(r, k int) []float32 { return src[(3*r+k)*width:][:width] }
	if x.Gated {
		read = make([]float32, c.Rows*width)
		for r := range c.Rows {
			Mul(read[r*width:(r+1)*width], third(r, 0), third(r, 2))
		}
	}
	for r := range c.Rows {
		rows, last := read, r // of the row and those before it
		if c.Windows == nil {
			rows, last = append(c.left(x.State, r, (taps-1)*width), read[r*width:(r+1)*width]...), taps-1
		}
		y := dst[r*width : (r+1)*width]
		for i := range y {
			sum := 0.0
			if x.Bias.Data != nil {
				sum = float64(x.Bias.Data[i])
			}
			for j := max(0, taps-1-c.place(r)); j < taps; j++ {
				sum += float64(float64(x.Taps.Data[j*width+i]) * float64(rows[(last+j+1-taps)*width+i]))
			}
			y[i] = float32(sum)
		}
		if x.Gated {
			Mul(y, y, third(r, 1))
		} else {
			SiLU(y, y)
		}
		if c.Windows == nil {
			copy(c.left(x.State, r, 0), rows[width:])
		}
	}
}

// left is what a step left in a window after its last token, n floats that are 0 at first.
func (c *Chain) left(state, window, n int) []float32 {
	if c.Pasts.left == nil {
		c.Pasts.left = map[[2]int][]float32{}
	}
	at := [2]int{state, window}
	if c.At == 0 && n > 0 {
		c.Pasts.left[at] = make([]float32, n)
	}
	return slices.Clip(c.Pasts.left[at])
}

func (c *Chain) sigmoid(x *SigmoidStep, dst, by []float32) {
	each := c.Widths[x.Matrix] / c.Widths[x.By]
	for i := range dst {
		dst[i] *= float32(1 / (1 + Exp(-float64(by[i/each]))))
	}
}

func (c *Chain) recur(x *RecurrenceStep, m [][]float32) {
	if c.Windows == nil {
		for r := range c.Rows {
			c.recurToken(x, m, r)
		}
		return
	}
	start := 0
	for _, n := range c.Windows {
		Parallel(0, x.Heads, func(h, end int) {
			for ; h < end; h++ {
				state := make([]float32, x.Key*x.Value)
				for at := 0; at < n; at += x.Together {
					x.chunk(m, state, start+at, min(x.Together, n-at), h)
				}
			}
		})
		start += n
	}
}

// recurToken computes the token of a window, from what it reads and what those before it in its chunk did, and the states before the chunk.
func (c *Chain) recurToken(x *RecurrenceStep, m [][]float32, r int) {
	size, of, at := x.Key*x.Value, []int{x.Mixed, x.Times}, c.At%x.Together
	if x.Rule {
		of = append(of, x.Strengths)
	}
	floats := x.Heads * size
	for _, i := range of {
		floats += x.Together * c.Widths[i]
	}
	left, mine := c.left(x.State, r, floats), make([][]float32, len(m))
	for _, i := range of {
		width := c.Widths[i]
		mine[i], left = left[:x.Together*width], left[x.Together*width:]
		copy(mine[i][at*width:], m[i][r*width:(r+1)*width])
	}
	width := c.Widths[x.Dst]
	mine[x.Dst] = make([]float32, x.Together*width)
	for h := range x.Heads {
		x.chunk(mine, left[h*size:(h+1)*size], 0, at+1, h)
	}
	copy(m[x.Dst][r*width:(r+1)*width], mine[x.Dst][at*width:])
}

// places are the columns of Mixed where queries, keys and values of a head begin, and how many columns it has.
func (x *RecurrenceStep) places(head int) (q, k, v, width int) {
	keys, own := x.KeyHeads*x.Key, head/(x.Heads/x.KeyHeads)*x.Key
	if width = 2*keys + x.Heads*x.Value; x.Rule {
		return own, keys + own, 2*keys + head*x.Value, width
	}
	return width - keys + own, width - 2*keys + own, head * x.Value, width
}

// chunk computes a head of n tokens from row at on, and the state after them.
func (x *RecurrenceStep) chunk(m [][]float32, state []float32, at, n, h int) {
	key, value := x.Key, x.Value
	qAt, kAt, vAt, width := x.places(h)
	q, k, v, fade, since := make([]float32, n*key), make([]float32, n*key), make([]float32, n*value), make([]float32, n*n), make([]float32, n)
	times, keep, all := make([]float32, n), make([]float64, n), 1.0
	for i := range n {
		row, of := m[x.Mixed][(at+i)*width:], (at+i)*x.Heads+h
		copy(q[i*key:(i+1)*key], row[qAt:])
		copy(k[i*key:(i+1)*key], row[kAt:])
		copy(v[i*value:(i+1)*value], row[vAt:])
		time := min(max(Softplus(float64(m[x.Times][of])+float64(x.Bias.Data[h])), x.TimeMin), x.TimeMax)
		if times[i] = float32(time); !x.Rule {
			time = float64(times[i])
		}
		keep[i] = float64(float32(Exp(time * float64(x.Decay.Data[h]))))
		all *= keep[i]
		since[i] = float32(all)
		for j := range i + 1 {
			product := 1.0
			for _, f := range keep[j+1 : i+1] {
				product *= f
			}
			fade[i*n+j] = float32(product)
		}
	}
	u := make([]float32, n*value)
	if x.Rule {
		x.solve(m, state, q, k, v, u, fade, since, at, h)
	} else {
		for i := range n {
			Scale(u[i*value:(i+1)*value], v[i*value:(i+1)*value], times[i])
		}
	}
	qk, read := make([]float32, n*n), make([]float32, n*(key+n))
	MatMulT(qk, q, k, n, n, key, n, key, key)
	for i := range n {
		row := read[i*(key+n):]
		Scale(row[:key], q[i*key:(i+1)*key], since[i])
		Mul(row[key:key+n], qk[i*n:(i+1)*n], fade[i*n:(i+1)*n])
	}
	right, out := append(append([]float32(nil), state...), u...), m[x.Dst][at*x.Heads*value+h*value:]
	MatMul(out, read, right, n, value, key+n, x.Heads*value, key+n, value)
	for i := range n * value {
		if !x.Rule {
			out[i/value*x.Heads*value+i%value] += float32(x.Direct.Data[h] * v[i])
		}
	}
	if n < x.Together {
		return
	}
	added, keys := make([]float32, key*value), make([]float32, key*n)
	for i := range n {
		for d := range key {
			keys[d*n+i] = k[i*key+d] * fade[(n-1)*n+i]
		}
	}
	MatMul(added, keys, u, key, value, n, value, n, value)
	Scale(state, state, since[n-1])
	Add(state, state, added)
}

// solve scales queries and keys, and computes what the delta rule writes for them.
func (x *RecurrenceStep) solve(m [][]float32, state, q, k, v, u, fade, since []float32, at, h int) {
	n, key, value := len(since), x.Key, x.Value
	strength := make([]float32, n)
	for i := range n {
		x.unit(q[i*key:(i+1)*key], 1/math.Sqrt(float64(key)))
		x.unit(k[i*key:(i+1)*key], 1)
		strength[i] = float32(1 / (1 + Exp(-float64(m[x.Strengths][(at+i)*x.Heads+h]))))
	}
	kk, w, t, left := make([]float32, n*n), make([]float32, n*value), make([]float32, n*n), make([]float32, n*n)
	MatMulT(kk, k, k, n, n, key, n, key, key)
	MatMul(w, k, state, n, value, key, value, key, value)
	for i := range n {
		for d := range value {
			w[i*value+d] = v[i*value+d] - float32(since[i]*w[i*value+d])
		}
		t[i*n+i] = 1
		for j := range i {
			a := float32(strength[i]*fade[i*n+j]) * kk[i*n+j]
			for l := range j + 1 {
				t[i*n+l] -= float32(a * t[j*n+l])
			}
		}
		Mul(left[i*n:(i+1)*n], t[i*n:(i+1)*n], strength)
	}
	MatMul(u, left, w, n, value, n, value, n, value)
}

// unit scales a query or a key to the length factor.
func (x *RecurrenceStep) unit(v []float32, factor float64) {
	sum := x.Eps
	for _, f := range v {
		sum += float64(float64(f) * float64(f))
	}
	factor /= math.Sqrt(sum)
	for i, f := range v {
		v[i] = float32(float64(f) * factor)
	}
}
