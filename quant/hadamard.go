package quant

import "math"

// Hadamard is an orthogonal matrix Q of order n that spreads each channel over many: random signs, followed by a
// Hadamard matrix divided by the root of its order.
//
// That is the Kronecker product of Sylvester's matrix of order 2^k and one of Paley's, where n = 2^k * m and m is an
// order that Paley's constructions give: 12, 20, 24, 28, 36, 44, ... for a prime m-1 or m/2-1. Other n, and those whose
// m would exceed 256, get a block-diagonal Q with the largest power of two that divides n as order of the blocks.
// (R. E. A. C. Paley, "On orthogonal matrices", 1933.)
type Hadamard struct {
	n, order, paley int
	signs           []float64
	// core is Paley's matrix, [paley, paley] of 1 and -1, nil if that order is 1.
	core []int8
}

// paleyLimit bounds the order of the matrix that is applied as a product.
const paleyLimit = 256

// NewHadamard returns the rotation of n channels, n > 0, whose signs follow from seed.
func NewHadamard(n int, seed uint64) *Hadamard {
	h := &Hadamard{n: n, order: n & -n, paley: 1, signs: make([]float64, n)}
	if odd := n / h.order; odd > 1 {
		for m := 4 * odd; m <= min(n, paleyLimit) && n%m == 0; m *= 2 {
			if h.core = paley(m); h.core != nil {
				h.order, h.paley = n, m
				break
			}
		}
	}
	for i := range h.signs {
		h.signs[i] = 1
		if mix(seed+uint64(i))>>63 == 1 {
			h.signs[i] = -1
		}
	}
	return h
}

// Channels is the order n of the matrix.
func (h *Hadamard) Channels() int { return h.n }

// Block is the order of the blocks on its diagonal; n if the matrix mixes all channels.
func (h *Hadamard) Block() int { return h.order }

// Apply replaces every run of n elements of x by itself times Q, so that the columns of W are turned by applying it to
// rows: W Q. Columns, of which the same call makes Qᵀ w, turn the outputs of a matrix: Qᵀ W. It panics unless n divides
// the length of x. It is safe for concurrent use.
func (h *Hadamard) Apply(x []float64) {
	if len(x)%h.n != 0 {
		panic("internal error: a rotation of another length")
	}
	var group [paleyLimit]float64
	norm := 1 / math.Sqrt(float64(h.order))
	for ; len(x) > 0; x = x[h.n:] {
		run := x[:h.n]
		for i, s := range h.signs {
			run[i] *= s
		}
		for lo := 0; lo < h.n; lo += h.order {
			h.block(run[lo:lo+h.order], group[:h.paley])
		}
		for i := range run {
			run[i] *= norm
		}
	}
}

// block multiplies by the product of Sylvester's and Paley's matrix: groups of paley elements by the latter, and then
// butterflies between groups.
func (h *Hadamard) block(x, group []float64) {
	if h.core != nil {
		for lo := 0; lo < len(x); lo += h.paley {
			clear(group)
			for i, v := range x[lo : lo+h.paley] {
				for j, c := range h.core[i*h.paley : (i+1)*h.paley] {
					group[j] += float64(v * float64(c))
				}
			}
			copy(x[lo:], group)
		}
	}
	for half := h.paley; half < len(x); half *= 2 {
		for lo := 0; lo < len(x); lo += 2 * half {
			a, b := x[lo:lo+half], x[lo+half:lo+2*half]
			for i, v := range b {
				a[i], b[i] = a[i]+v, a[i]-v
			}
		}
	}
}

// paley returns a Hadamard matrix of order m, a multiple of 4, or nil if neither construction gives one from a prime.
func paley(m int) []int8 {
	h := make([]int8, m*m)
	if q := m - 1; prime(q) { // q = 3 mod 4: I + S with a skew S
		c := conference(q, -1)
		copy(h, c)
		for i := range m {
			h[i*m+i] = 1
		}
		return h
	}
	q := m/2 - 1
	if q%4 != 1 || !prime(q) {
		return nil
	}
	// C x [1 1; 1 -1] + I x [1 -1; -1 -1] with a symmetric C
	c, n := conference(q, 1), q+1
	for i := range n {
		for j := range n {
			v := [4]int8{c[i*n+j], c[i*n+j], c[i*n+j], -c[i*n+j]}
			if i == j {
				v = [4]int8{1, -1, -1, -1}
			}
			h[2*i*m+2*j], h[2*i*m+2*j+1] = v[0], v[1]
			h[(2*i+1)*m+2*j], h[(2*i+1)*m+2*j+1] = v[2], v[3]
		}
	}
	return h
}

// conference is the matrix [0 1; sign Q] of order q+1, where Q[i,j] is the Legendre symbol of i-j modulo the prime
// q.
func conference(q int, sign int8) []int8 {
	square := make([]int8, q)
	for i := range square {
		square[i] = -1
	}
	for i := 1; i < q; i++ {
		square[i*i%q] = 1
	}
	square[0] = 0
	n := q + 1
	c := make([]int8, n*n)
	for i := 1; i < n; i++ {
		c[i], c[i*n] = 1, sign
		for j := 1; j < n; j++ {
			c[i*n+j] = square[(i-j+q)%q]
		}
	}
	return c
}

func prime(n int) bool {
	for d := 2; d*d <= n; d++ {
		if n%d == 0 {
			return false
		}
	}
	return n > 1
}

// mix is the output function of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014) at a position of its sequence.
func mix(at uint64) uint64 {
	z := (at + 1) * 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
