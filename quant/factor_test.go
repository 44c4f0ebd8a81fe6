package quant

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// hessian returns the mean of x xᵀ of tokens drawn so that columns are correlated and their sizes follow a power law.
func hessian(n, tokens int, seed uint64) []float32 {
	x := inputs(n, tokens, seed)
	return moment(x, x, n, tokens)
}

// inputs draws tokens of n channels: eight shared directions, noise, and sizes that fall with a power of the channel's
// index in a fixed shuffle.
func inputs(n, tokens int, seed uint64) []float32 {
	r := rand.New(rand.NewPCG(seed, 7))
	place := r.Perm(n)
	mix := make([]float32, 8*n)
	for i := range mix {
		mix[i] = float32(r.NormFloat64())
	}
	x := make([]float32, tokens*n)
	var latent [8]float64
	for t := range tokens {
		for k := range latent {
			latent[k] = r.NormFloat64()
		}
		for i := range n {
			v := r.NormFloat64()
			for k, l := range latent {
				v += float64(float64(mix[k*n+i]) * l * 0.4)
			}
			x[t*n+i] = float32(v / math.Sqrt(1+float64(place[i])*8/float64(n)))
		}
	}
	return x
}

// moment is the mean of x yᵀ over tokens, both [tokens, n].
func moment(x, y []float32, n, tokens int) []float32 {
	xt := make([]float32, n*tokens)
	for t := range tokens {
		for i := range n {
			xt[i*tokens+t] = x[t*n+i] / float32(tokens)
		}
	}
	h := make([]float32, n*n)
	kernel.MatMul(h, xt, y, n, n, tokens, n, tokens, n)
	if &x[0] == &y[0] {
		for i := range n {
			for j := range i {
				h[j*n+i] = h[i*n+j]
			}
		}
	}
	return h
}

// MᵀM times the matrix is 1, for sizes around the blocks of the algorithm, and the bits do not depend on threads.
func TestInvertFactor(t *testing.T) {
	// bound is the largest error of an element of the product: the condition of these matrices is below 10^4, float32
	// rounds at 6e-8.
	const bound = 2e-4
	for _, n := range []int{1, 2, 31, 127, 128, 129, 300, 384} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			a := hessian(n, 4*n+8, 5)
			var one []float32
			for _, threads := range []int{1, 2, 7, 16} {
				m := slices.Clone(a)
				if !invertFactor(m, n, threads) {
					t.Fatal("not positive definite")
				}
				if one == nil {
					one = m
				}
				for i := range m {
					if math.Float32bits(m[i]) != math.Float32bits(one[i]) {
						t.Fatalf("%d threads: element %d is %g, with one thread %g", threads, i, m[i], one[i])
					}
				}
			}
			b := make([]float64, n*n) // A · Mᵀ
			for p := range n {
				for j := range n {
					for q := range j + 1 {
						b[p*n+j] += float64(a[p*n+q]) * float64(one[j*n+q])
					}
				}
			}
			for i := range n {
				for j := range n {
					s, want := 0.0, 0.0
					for p := range i + 1 {
						s += float64(one[i*n+p]) * b[p*n+j]
					}
					if i == j {
						want = 1
					}
					if math.Abs(s-want) > bound {
						t.Fatalf("M A Mᵀ at %d, %d is %g", i, j, s)
					}
				}
			}
		})
	}
}

func TestInvertFactorRefuses(t *testing.T) {
	for name, change := range map[string]func(a []float32, n int){
		"zero":         func(a []float32, n int) { clear(a) },
		"negative":     func(a []float32, n int) { a[140*n+140] = -1 },
		"dead channel": func(a []float32, n int) { a[3*n+3] = 0 },
		"infinite":     func(a []float32, n int) { a[3*n+3] = float32(math.Inf(1)) },
		"NaN":          func(a []float32, n int) { a[150*n+2] = float32(math.NaN()) },
		"equal columns": func(a []float32, n int) {
			copy(a[141*n:][:141], a[140*n:])
			a[141*n+140] = a[140*n+140]
			a[141*n+141] = a[140*n+140]
		},
	} {
		t.Run(name, func(t *testing.T) {
			const n = 200
			a := hessian(n, 900, 6)
			change(a, n)
			if invertFactor(a, n, 1) {
				t.Error("is said to be positive definite")
			}
		})
	}
}

func BenchmarkInvertFactor(b *testing.B) {
	for _, n := range []int{512, 1536, 4096} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			a := make([]float32, n*n)
			for i := range a {
				a[i] = 0.5
			}
			for i := range n {
				a[i*n+i] = 2
			}
			m := make([]float32, n*n)
			for b.Loop() {
				copy(m, a)
				if !invertFactor(m, n, 1) {
					b.Fatal("refused")
				}
			}
			b.ReportMetric(2.0/3*float64(n)*float64(n)*float64(n)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
		})
	}
}
