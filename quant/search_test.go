package quant

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// searchers are the methods that improve RTN's grids block by block, with all that they can be told.
func searchers() map[string]Quantizer {
	few, zero := NewSearch(), NewHQQ()
	few.Candidates = 1
	zero.Scale = false
	robust := NewHQQ()
	robust.P, robust.Beta, robust.Growth, robust.Iterations = 0.4, 1e4, 1.5, 7
	return map[string]Quantizer{
		"search": NewSearch(), "one candidate": few,
		"uniform": &Search{Candidates: 5, Importance: ImportanceUniform},
		"hessian": &Search{Candidates: 5, Importance: ImportanceHessian}, "mixed": &Search{Candidates: 5, Importance: ImportanceMixed},
		"hqq": NewHQQ(), "hqq zero": zero, "hqq robust": robust,
	}
}

// diagonalStats are statistics of independent inputs with the mean squares h.
func diagonalStats(h []float32) *Stats {
	s := &Stats{Cols: len(h), Tokens: 1, Hessian: make([]float32, len(h)*len(h))}
	for i, v := range h {
		s.Hessian[i*len(h)+i] = v
	}
	return s
}

// unevenInputs are mean squares that differ a lot from each other; some inputs are dead.
func unevenInputs(r *rand.Rand, n int) []float32 {
	h := make([]float32, n)
	for i := range h {
		if h[i] = float32(math.Exp(2 * r.NormFloat64())); i%17 == 3 {
			h[i] = 0
		}
	}
	return h
}

// encodeBy encodes a matrix, or returns an error.
func encodeBy(q Quantizer, w Matrix, s Spec, in *Stats) (Blocks, error) {
	l, err := s.Layout(w.Rows, w.Cols)
	if err != nil {
		return Blocks{}, err
	}
	b := NewBlocks(l, s)
	return b, Encode(q, b, w, s, in)
}

// fits says whether a quantizer can do anything for a spec.
func fits(q Quantizer, s Spec) bool {
	h, ok := q.(*HQQ)
	return !ok || h.Scale || !s.Symmetric
}

// blockErrors are the weighted squared errors of the blocks, of what the file will hold. A nil importance is 1.
func blockErrors(w, importance []float32, b Blocks, s Spec, block int) []float64 {
	e := make([]float64, len(b.Scale))
	for i, v := range w {
		zero, x := 0.0, 1.0
		if !s.Symmetric {
			zero = float64(b.Zero[i/block])
		}
		if importance != nil {
			x = float64(importance[i])
		}
		d := float64(b.Scale[i/block])*(float64(b.Codes[i])-float64(int(1)<<(s.Bits-1))) + zero - float64(v)
		e[i/block] += x * d * d
	}
	return e
}

// importancesOf are the weights of the errors of a row; h are mean squares of inputs.
func importancesOf(word string, row, h []float32, block int) []float32 {
	switch word {
	case ImportanceUniform:
		return nil
	case ImportanceHessian:
		return h
	}
	e := &searched{}
	if word == ImportanceMixed {
		e.diagonal = h
	}
	x := make([]float32, len(row))
	for at := 0; at < len(row); at += block {
		e.weigh(x[at:at+block], row[at:at+block], at)
	}
	return x
}

// No block is worse than RTN's in what the method minimises.
func TestSearchersAreNeverWorseThanRTN(t *testing.T) {
	const cols = 256
	r := rand.New(rand.NewPCG(61, 62))
	h := unevenInputs(r, cols)
	stats := diagonalStats(h)
	floorDead(h)
	rows := rowsOf(cols)
	for i := range 5 {
		row := make([]float32, cols)
		for j := range row {
			row[j] = float32(math.Exp(float64(i)*r.NormFloat64()) * r.NormFloat64())
		}
		rows[fmt.Sprint("random ", i)] = row
	}
	for _, s := range specs() {
		for name, q := range searchers() {
			if !fits(q, s) {
				continue
			}
			for what, row := range rows {
				w := Matrix{1, cols, row}
				rtn := encode(t, w, s)
				got, err := encodeBy(q, w, s, stats)
				if err != nil {
					t.Fatalf("%v %s %s: %v", s, name, what, err)
				}
				l, _ := s.Layout(1, cols)
				var importance []float32
				if m, ok := q.(*Search); ok {
					importance = importancesOf(m.Importance, row, h, l.BlockCols)
				}
				want, have := blockErrors(row, importance, rtn, s, l.BlockCols), blockErrors(row, importance, got, s, l.BlockCols)
				for b := range want {
					// An error of one unit in the last place of each weight is none.
					none := 0.0
					for i, v := range row[b*l.BlockCols : (b+1)*l.BlockCols] {
						x := 1.0
						if importance != nil {
							x = float64(importance[b*l.BlockCols+i])
						}
						none += x * float64(v) * float64(v) * 0x1p-46
					}
					if !(have[b] <= want[b]*(1+1e-5)+none) {
						t.Errorf("%v %s %s: block %d has error %g, RTN's %g", s, name, what, b, have[b], want[b])
					}
				}
				for _, u := range got.Codes {
					if int(u) >= 1<<s.Bits {
						t.Fatalf("%v %s %s: code %d", s, name, what, u)
					}
				}
			}
		}
	}
}

// The numbers of the literature for Gaussian weights whose inputs are uneven: relative weighted error in %.
func TestFormatSweep(t *testing.T) {
	const rows, cols = 128, 512
	r := rand.New(rand.NewPCG(63, 64))
	w := Matrix{rows, cols, make([]float32, rows*cols)}
	for i := range w.Data {
		w.Data[i] = float32(0.02 * r.NormFloat64())
	}
	h := make([]float32, cols)
	for i := range h {
		h[i] = float32(math.Exp(0.75 * r.NormFloat64()))
	}
	stats := diagonalStats(h)
	importance := make([]float32, len(w.Data))
	for i := range importance {
		importance[i] = h[i%cols]
	}
	search := &Search{Candidates: 20, Importance: ImportanceHessian}
	zero := NewHQQ()
	zero.Scale = false
	for _, c := range []struct {
		spec string
		q    Quantizer
		want float64
	}{
		{"w4-b64-asym", RTN{}, 8.98}, {"w4-b64-asym", zero, 8.67}, {"w4-b64-asym", search, 7.77},
		{"w4-b32-asym", RTN{}, 7.83}, {"w4-b32-asym", search, 6.53}, {"w4-b128-asym", search, 8.85},
		{"w3-b64-asym", RTN{}, 19.3}, {"w3-b64-asym", zero, 18.6}, {"w3-b64-asym", search, 15.8},
		{"w2-b64-asym", RTN{}, 45.1}, {"w2-b64-asym", zero, 43.5}, {"w2-b64-asym", search, 30.9},
		{"w4-b64-sym", RTN{}, 9.55}, {"w4-b64-sym", search, 8.78},
		{"w3-b64-sym", RTN{}, 19.3}, {"w3-b64-sym", search, 17.1},
		{"w2-b64-sym", RTN{}, 39.6}, {"w2-b64-sym", search, 34.1},
	} {
		s, err := ParseSpec(c.spec)
		if err != nil {
			t.Fatal(err)
		}
		b, err := encodeBy(c.q, w, s, stats)
		if err != nil {
			t.Fatal(err)
		}
		var e, p float64
		for _, v := range blockErrors(w.Data, importance, b, s, s.Block) {
			e += v
		}
		for i, v := range w.Data {
			p += float64(importance[i]) * float64(v) * float64(v)
		}
		got := 100 * math.Sqrt(e/p)
		t.Logf("%s %s: %.2f %%, want %.2f", c.spec, c.q.Name(), got, c.want)
		if math.Abs(got/c.want-1) > 0.025 {
			t.Errorf("%s %s: %.2f %%, want %.2f", c.spec, c.q.Name(), got, c.want)
		}
	}
}

func TestSearchersRefuse(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, c := range []struct {
		name string
		spec Spec
		set  map[int]float32
		want error
	}{
		{"NaN", Spec{4, 32, false, tensor.F16}, map[int]float32{40: nan}, tensor.ErrCorrupt},
		{"NaN of a whole row", Spec{3, WholeRow, true, tensor.F32}, map[int]float32{127: nan}, tensor.ErrCorrupt},
		{"infinity", Spec{4, 32, false, tensor.F16}, map[int]float32{5: inf}, tensor.ErrCorrupt},
		{"both infinities", Spec{8, 32, true, tensor.F16}, map[int]float32{1: -inf, 2: inf}, tensor.ErrCorrupt},
		{"scale beyond halves", Spec{2, 32, true, tensor.F16}, map[int]float32{9: 2e5}, tensor.ErrUnsupported},
		{"zero term beyond halves", Spec{8, 32, false, tensor.F16}, map[int]float32{9: 2e5}, tensor.ErrUnsupported},
		{"span beyond floats", Spec{8, 32, false, tensor.F32}, map[int]float32{9: 3e38, 10: -3e38}, tensor.ErrUnsupported},
		{"columns", Spec{4, 32, false, tensor.Invalid}, nil, tensor.ErrUnsupported},
	} {
		row := make([]float32, 2*128)
		for i, v := range c.set {
			row[128+i] = v // the second row
		}
		stats := diagonalStats(make([]float32, 128))
		for name, q := range searchers() {
			if !fits(q, c.spec) {
				continue
			}
			b := Blocks{Codes: make([]uint8, 256), Scale: make([]float32, 8), Zero: make([]float32, 8)}
			err := Encode(q, b, Matrix{2, 128, row}, c.spec, stats)
			if !errors.Is(err, c.want) {
				t.Errorf("%s %s: error %v, want %v", name, c.name, err, c.want)
			} else if c.set != nil && !strings.HasPrefix(err.Error(), "row 1: ") {
				t.Errorf("%s %s: error %q does not name the row", name, c.name, err)
			}
		}
	}
	for name, q := range searchers() {
		if _, err := q.Prepare(Half, 32, diagonalStats(make([]float32, 32)), 1); err == nil {
			t.Errorf("%s: 16 bits have no codes", name)
		}
		if m, ok := q.(Method); ok && m.Calibrated() {
			for _, in := range []*Stats{nil, diagonalStats(make([]float32, 64))} {
				if _, err := q.Prepare(Spec{4, 32, false, tensor.F16}, 32, in, 1); err == nil {
					t.Errorf("%s: prepared without the statistics of its inputs", name)
				}
			}
		}
	}
}

// The same rows give the same codes, scales and zeros for any cut into rows and any number of threads.
func TestSearchersDoNotDependOnCuts(t *testing.T) {
	const rows, cols = 14, 128
	r := rand.New(rand.NewPCG(65, 66))
	w := Matrix{rows, cols, make([]float32, rows*cols)}
	for i := range w.Data {
		w.Data[i] = float32(r.NormFloat64())
	}
	stats := diagonalStats(unevenInputs(r, cols))
	for _, s := range specs() {
		l, _ := s.Layout(rows, cols)
		for name, q := range searchers() {
			if !fits(q, s) || s.Bits != 2 && s.Bits != 4 || s.Block == 128 {
				continue
			}
			whole, err := encodeBy(q, w, s, stats)
			if err != nil {
				t.Fatal(err)
			}
			for _, threads := range []int{1, 2, 7} {
				e, err := q.Prepare(s, cols, stats, threads)
				if err != nil {
					t.Fatal(err)
				}
				cut := NewBlocks(l, s)
				kernel.Parallel(threads, 2*threads, func(lo, hi int) {
					from, to := lo*rows/(2*threads), hi*rows/(2*threads)
					part := Blocks{Codes: cut.Codes[from*cols : to*cols], Scale: cut.Scale[from*l.Blocks : to*l.Blocks]}
					if !s.Symmetric {
						part.Zero = cut.Zero[from*l.Blocks : to*l.Blocks]
					}
					if from == to {
						return
					}
					if err := e.Encode(part, Matrix{to - from, cols, w.Data[from*cols : to*cols]}); err != nil {
						t.Error(err)
					}
				})
				if diff := cmp.Diff(whole, cut); diff != "" {
					t.Fatalf("%v %s on %d threads (-whole +cut):\n%s", s, name, threads, diff)
				}
			}
		}
	}
}

// The digests hold codes and terms still, on every architecture and tier of kernels. Weights and inputs come from an
// integer hash, so that nothing but the methods rounds.
func TestSearchersAreTheSameEverywhere(t *testing.T) {
	const rows, cols = 4, 384
	hash := func(i int) int32 { return int32(uint32(i+1)*2654435761) >> 8 }
	w := Matrix{rows, cols, make([]float32, rows*cols)}
	for i := range w.Data {
		w.Data[i] = float32(hash(i)) * 0x1p-26
	}
	h := make([]float32, cols)
	for i := range h {
		h[i] = float32(hash(7*i)&0xffff) * 0x1p-12
	}
	want := map[string]string{
		"uniform":       "b5f92b9c4d4a31b7",
		"hessian":       "a12122dd86a983bb",
		"hqq":           "eea1ab170b09c60d",
		"hqq robust":    "d465b86104110be6",
		"hqq zero":      "d0dbe73ecb87a321",
		"mixed":         "32dd88a3cc79fdc9",
		"one candidate": "399c8e76e700aefd",
		"search":        "a46f44733bfbfddf",
	}
	all := searchers()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		sum := uint64(14695981039346656037)
		add := func(v uint32) { sum = (sum ^ uint64(v)) * 1099511628211 }
		for _, s := range specs() {
			if !fits(all[name], s) {
				continue
			}
			b, err := encodeBy(all[name], w, s, diagonalStats(h))
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range b.Codes {
				add(uint32(c))
			}
			for i := range b.Scale {
				add(math.Float32bits(b.Scale[i]))
				if !s.Symmetric {
					add(math.Float32bits(b.Zero[i]))
				}
			}
		}
		if got := fmt.Sprintf("%016x", sum); got != want[name] {
			t.Errorf("%q: %q, want %q", name, got, want[name])
		}
	}
}

func TestSearchOptions(t *testing.T) {
	for _, c := range []struct {
		m    Method
		want string
	}{
		{NewSearch(), ""},
		{&Search{Candidates: 0, Importance: ImportanceWeights}, "candidates"},
		{&Search{Candidates: 201, Importance: ImportanceWeights}, "candidates"},
		{&Search{Candidates: 1, Importance: ""}, "importance"},
		{&Search{Candidates: 1, Importance: "diagonal"}, "hessian, mixed, uniform, weights"},
		{NewHQQ(), ""},
		{&HQQ{P: 0, Beta: 10, Growth: 1, Iterations: 1}, "p must"},
		{&HQQ{P: 1.5, Beta: 10, Growth: 1, Iterations: 1}, "p must"},
		{&HQQ{P: math.NaN(), Beta: 10, Growth: 1, Iterations: 1}, "p must"},
		{&HQQ{P: 1, Beta: -1, Growth: 1, Iterations: 1}, "beta must"},
		{&HQQ{P: 1, Beta: math.Inf(1), Growth: 1, Iterations: 1}, "beta must"},
		{&HQQ{P: 1, Beta: 1, Growth: 0.99, Iterations: 1}, "growth must"},
		{&HQQ{P: 1, Beta: 1, Growth: 1, Iterations: 0}, "iterations must"},
		{&HQQ{P: 1, Beta: 1, Growth: 1, Iterations: 1}, ""},
	} {
		err := c.m.Validate()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.m, err, c.want)
		}
	}
	for word, want := range map[string]bool{ImportanceWeights: false, ImportanceUniform: false, ImportanceHessian: true, ImportanceMixed: true} {
		if got := (&Search{Candidates: 1, Importance: word}).Calibrated(); got != want {
			t.Errorf("%s: calibrated %v", word, got)
		}
	}
	if _, err := (&HQQ{P: 1, Beta: 1, Growth: 1, Iterations: 1}).Prepare(Spec{4, 32, true, tensor.F16}, 32, nil, 1); !errors.Is(err, tensor.ErrUnsupported) {
		t.Errorf("symmetric without scale: %v", err)
	}
}
