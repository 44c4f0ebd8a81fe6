package quant

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

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
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
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
	for word, want := range map[string]Needs{ImportanceWeights: Nothing, ImportanceUniform: Nothing, ImportanceHessian: Text, ImportanceMixed: Text} {
		if got := (&Search{Candidates: 1, Importance: word}).Needs(); got != want {
			t.Errorf("%s: needs %v", word, got)
		}
	}
	if _, err := (&HQQ{P: 1, Beta: 1, Growth: 1, Iterations: 1}).Prepare(Spec{4, 32, true, tensor.F16}, 32, nil, 1); !errors.Is(err, tensor.ErrUnsupported) {
		t.Errorf("symmetric without scale: %v", err)
	}
}
