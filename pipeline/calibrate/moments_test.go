package calibrate

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// The sums of windows against float64, the first tokens left out, for columns that are no multiple of a unit of work; and
// the same bits on any number of threads.
func TestMoments(t *testing.T) {
	const windows, tokens, skip = 5, 33, 4
	for _, cols := range []int{1, 16, 70, 300} {
		r := rand.New(rand.NewPCG(1, uint64(cols)))
		x, f := make([]float32, windows*tokens*cols), make([]float32, windows*tokens*cols)
		for i := range x {
			x[i] = float32(r.NormFloat64())
			f[i] = x[i] + float32(r.NormFloat64())/8
		}
		var first []float32
		for _, threads := range []int{1, 2, 7} {
			m := newMoments(cols, true)
			for w := 0; w < windows; { // on more threads more windows at a time
				from, to := w*tokens*cols, min(w+threads, windows)*tokens*cols
				m.add(x[from:to], f[from:to], tokens, skip, threads)
				w += threads
			}
			st, err := m.stats(threads)
			check(t, err)
			both := slices.Concat(st.Hessian, st.Cross)
			if first == nil {
				first = both
			}
			if !slices.Equal(first, both) {
				t.Errorf("%d columns, %d threads: other bits", cols, threads)
			}
			if st.Tokens != windows*(tokens-skip) || st.Cols != cols {
				t.Errorf("%d tokens of %d columns", st.Tokens, st.Cols)
			}
		}
		for i := range cols {
			for j := range cols {
				var h, c float64
				for k := range windows * tokens {
					if k%tokens >= skip {
						h += float64(x[k*cols+i]) * float64(x[k*cols+j])
						c += float64(f[k*cols+i]) * float64(x[k*cols+j])
					}
				}
				n := float64(windows * (tokens - skip))
				if got := float64(first[i*cols+j]); math.Abs(got-h/n) > 1e-5 {
					t.Fatalf("hessian[%d,%d] is %g, want %g", i, j, got, h/n)
				}
				if got := float64(first[cols*cols+i*cols+j]); math.Abs(got-c/n) > 1e-5 {
					t.Fatalf("cross[%d,%d] is %g, want %g", i, j, got, c/n)
				}
			}
		}
	}
}

// Where both streams are the same, so are their moments.
func TestCrossOfEqualStreams(t *testing.T) {
	const cols, tokens = 40, 64
	x := make([]float32, tokens*cols)
	r := rand.New(rand.NewPCG(2, 2))
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	m := newMoments(cols, true)
	m.add(x, x, tokens, 0, 2)
	m.add(x, x, tokens, 7, 2)
	st, err := m.stats(2)
	check(t, err)
	for i, h := range st.Hessian {
		if d := math.Abs(float64(h - st.Cross[i])); d > 1e-6 {
			t.Fatalf("element %d: %g and %g", i, h, st.Cross[i])
		}
		if h != st.Hessian[i%cols*cols+i/cols] {
			t.Fatalf("element %d: not symmetric", i)
		}
	}
}

func TestMomentsRefuse(t *testing.T) {
	for _, c := range []struct {
		name  string
		x     float32
		skip  int
		cross bool
		ok    bool
	}{
		{"NaN", float32(math.NaN()), 0, false, false},
		{"infinite", float32(math.Inf(1)), 0, false, false},
		{"too large to be squared", 1e20, 0, false, false},
		{"NaN in the float stream", float32(math.NaN()), 0, true, false},
		{"skipped", float32(math.NaN()), 1, false, true},
		{"large", 1e18, 0, false, true},
	} {
		const cols, tokens = 3, 4
		x, f := make([]float32, cols*tokens), make([]float32, cols*tokens)
		if c.cross {
			f[1] = c.x
			x[1] = 1
		} else {
			x[1] = c.x
		}
		m := newMoments(cols, c.cross)
		m.add(x, f, tokens, c.skip, 1)
		_, err := m.stats(2)
		if (err == nil) != c.ok || err != nil && !strings.Contains(err.Error(), "activations") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
