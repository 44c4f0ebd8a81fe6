package quant

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

func TestSearchGrids(t *testing.T) {
	const block, blocks = 64, 5
	r := rand.New(rand.NewPCG(67, 68))
	w, importance := make([]float32, block*blocks), make([]float32, block*blocks)
	for i := range w {
		w[i], importance[i] = float32(r.NormFloat64()), float32(r.ExpFloat64())
	}
	type grids struct{ Scale, Zero []float32 }
	run := func(w, importance []float32, s Spec) grids {
		n := len(w) / block
		g := grids{make([]float32, n), make([]float32, n)}
		searchGrids(g.Scale, g.Zero, w, importance, s, 8)
		return g
	}
	scaled := func(x []float32, f float32) []float32 {
		y := slices.Clone(x)
		for i := range y {
			y[i] *= f
		}
		return y
	}
	for _, s := range []Spec{{4, block, false, tensor.F32}, {3, block, true, tensor.F16}} {
		all := run(w, importance, s)
		for name, got := range map[string]grids{
			"larger importances":  run(w, scaled(importance, 0x1p90), s),
			"smaller importances": run(w, scaled(importance, 0x1p-90), s),
		} {
			if diff := cmp.Diff(all, got); diff != "" {
				t.Errorf("%v: %s change the grid:\n%s", s, name, diff)
			}
		}
		larger := run(scaled(w, 4), importance, s)
		if diff := cmp.Diff(grids{scaled(all.Scale, 4), scaled(all.Zero, 4)}, larger); diff != "" {
			t.Errorf("%v: larger weights have another grid:\n%s", s, diff)
		}
		for b := range blocks {
			one := run(w[b*block:(b+1)*block], importance[b*block:(b+1)*block], s)
			if one.Scale[0] != all.Scale[b] || one.Zero[0] != all.Zero[b] {
				t.Errorf("%v: block %d alone has another grid", s, b)
			}
		}
		if diff := cmp.Diff(run(w, slices.Repeat([]float32{1}, len(w)), s), run(w, make([]float32, len(w)), s)); diff != "" {
			t.Errorf("%v: no importance is not the same importance:\n%s", s, diff)
		}
	}
}

// Where four weights of four values have all importance, they are on the grid, as far as its terms can be stored.
func TestSearchGridsOfFewWeights(t *testing.T) {
	r := rand.New(rand.NewPCG(71, 72))
	w, importance := make([]float32, 64), make([]float32, 64)
	for i := range w {
		if w[i] = float32(r.NormFloat64()); i%16 == 5 {
			w[i], importance[i] = float32(i/16)*0.25, 1
		}
	}
	var scale, zero [1]float32
	searchGrids(scale[:], zero[:], w, importance, Spec{4, 64, false, tensor.F16}, 8)
	for i := 5; i < 64; i += 16 {
		q := math.RoundToEven(float64((w[i] - zero[0]) / scale[0]))
		if d := math.Abs(float64(w[i]) - q*float64(scale[0]) - float64(zero[0])); d > 1e-3 {
			t.Errorf("weight %g is off by %g with scale %g", w[i], d, scale[0])
		}
	}
}

// Whole rows, as long as those of large models: nearly as good as the best of all scales of a grid in the middle.
func TestSearchOfLongRows(t *testing.T) {
	const cols, tries = 12288, 512
	r := rand.New(rand.NewPCG(69, 70))
	w, ones := make([]float32, cols), slices.Repeat([]float32{1}, cols)
	for i := range w {
		w[i] = float32(r.NormFloat64())
	}
	for _, bits := range []int{2, 3, 4, 8} {
		for _, symmetric := range []bool{false, true} {
			s := Spec{bits, WholeRow, symmetric, tensor.F16}
			var scale, zero, inverse [tries]float32
			for i := range tries {
				scale[i] = 4 * float32(i+1) / tries / float32(int(1)<<(bits-1))
				inverse[i] = 1 / scale[i]
				if !symmetric {
					zero[i] = scale[i] / 2
				}
			}
			var all [tries]float64
			kernel.GridErrors(all[:], w, ones, zero[:], scale[:], inverse[:], bits)
			best := slices.Min(all[:])
			searchGrids(scale[:1], zero[:1], w, ones, s, NewSearch().Candidates)
			inverse[0] = 1 / scale[0]
			kernel.GridErrors(all[:1], w, ones, zero[:1], scale[:1], inverse[:1], bits)
			if all[0] > 1.01*best {
				t.Errorf("%v: error %g, best %g", s, all[0], best)
			}
		}
	}
}

// Weights and importances of all magnitudes: the grid is one that can be stored, and never worse than RTN's.
func TestSearchGridsOfWildBlocks(t *testing.T) {
	r := rand.New(rand.NewPCG(81, 82))
	all := specs()
	for i := range 4000 {
		s, n := all[r.IntN(len(all))], []int{32, 64, 128, 200}[r.IntN(4)]
		w, importance := make([]float32, n), make([]float32, n)
		size, spread, contrast := 60*r.Float64()-50, 20*r.Float64(), 10*r.Float64()
		offset := r.NormFloat64() * math.Exp(size+4*r.NormFloat64()) * float64(r.IntN(2))
		for j := range w {
			if w[j] = float32(offset + r.NormFloat64()*math.Exp(size+spread*(r.Float64()-0.5))); r.IntN(9) == 0 {
				w[j] = 0
			}
			if importance[j] = float32(math.Exp(contrast * r.NormFloat64())); r.IntN(5) == 0 {
				importance[j] = 0
			}
		}
		var rtn grid
		var scale, zero, rtnScale, rtnZero [1]float32
		kernel.BlockExtremes(rtn.lo[:1], rtn.hi[:1], w)
		storable := false
		if s.Symmetric {
			storable = rtn.symmetric(rtnScale[:], s)
		} else {
			storable = rtn.asymmetric(rtnScale[:], rtnZero[:], s)
		}
		searchGrids(scale[:], zero[:], w, importance, s, 6)
		if got := isFinite(scale[0]) && isFinite(zero[0]); got != storable {
			t.Fatalf("block %d, %v: scale %g, zero %g; storable: %v", i, s, scale[0], zero[0], storable)
		}
		if !storable {
			continue
		}
		failure := func(scale, zero float32) (e float64) {
			codes := make([]uint8, n)
			kernel.GridCodes(codes, w, []float32{zero}, []float32{1 / scale}, s.Bits)
			for j, v := range w {
				d := float64(scale)*(float64(codes[j])-float64(int(1)<<(s.Bits-1))) + float64(zero) - float64(v)
				e += float64(importance[j]) * d * d
			}
			return e
		}
		// What the rounding of weights of that size to float32 makes.
		none, top := 0.0, max(math.Abs(float64(rtn.lo[0])), math.Abs(float64(rtn.hi[0])))
		for _, p := range importance {
			none += float64(p) * top * top * 0x1p-46
		}
		if got, want := failure(scale[0], zero[0]), failure(rtnScale[0], rtnZero[0]); !(got <= want*(1+1e-4)+none) {
			t.Errorf("block %d, %v: error %g with scale %g and zero %g, RTN's %g", i, s, got, scale[0], zero[0], want)
		}
	}
}
