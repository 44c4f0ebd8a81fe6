package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// dynquantGolden is what the stock engine computed for one layer; see testdata/dynquant/record.py.
type dynquantGolden struct {
	name    string
	weights WeightCodes
	option  DynOption
	tokens  int
	x, y    []float32
}

// readDynquantGoldens reads the recorded layers, or those of the file that DYNQUANT_GOLDENS names.
func readDynquantGoldens(t *testing.T) []dynquantGolden {
	t.Helper()
	path := filepath.Join("testdata", "dynquant", "layers.bin")
	if p := os.Getenv("DYNQUANT_GOLDENS"); p != "" {
		path = p
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r := bytes.NewReader(data)
	read := func(v any) {
		if err := binary.Read(r, binary.LittleEndian, v); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	floats := func(n uint32) []float32 {
		out := make([]float32, n)
		read(out)
		return out
	}
	var all []dynquantGolden
	for r.Len() > 0 {
		var h struct {
			Magic                                               [4]byte
			Name                                                [32]byte
			Rows, Cols, Block, Bits, Asym, Option, Tokens, Bias uint32
		}
		if read(&h); string(h.Magic[:]) != "DYNQ" {
			t.Fatalf("%s: header %+v", path, h)
		}
		blocks := h.Cols / h.Block
		g := dynquantGolden{name: string(bytes.TrimRight(h.Name[:], "\x00")), option: DynOption(h.Option), tokens: int(h.Tokens)}
		g.weights = WeightCodes{Rows: int(h.Rows), Cols: int(h.Cols), Block: int(h.Block), Bits: int(h.Bits), Option: DynOption(h.Option)}
		g.weights.Codes = make([]uint8, h.Rows*h.Cols)
		if _, err := io.ReadFull(r, g.weights.Codes); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if h.Asym != 0 {
			g.weights.Zero = floats(h.Rows * blocks)
		}
		g.weights.Scale = floats(h.Rows * blocks)
		if h.Bias != 0 {
			g.weights.Bias = floats(h.Rows)
		}
		g.x, g.y = floats(h.Tokens*h.Cols), floats(h.Tokens*h.Rows)
		all = append(all, g)
	}
	if len(all) == 0 {
		t.Fatalf("%s: no recorded layers", path)
	}
	return all
}

// dynquantAgreement compares computed with recorded outputs.
type dynquantAgreement struct {
	values, equal int
	relative      float64 // largest difference, relative to the largest magnitude of its row
}

func (a dynquantAgreement) String() string {
	return fmt.Sprintf("%d of %d bit-equal, largest relative difference %.3g", a.equal, a.values, a.relative)
}

func (a *dynquantAgreement) compare(got, want []float32, rows int) {
	for lo := 0; lo < len(want); lo += rows {
		magnitude := 0.0
		for _, v := range want[lo:][:rows] {
			magnitude = max(magnitude, math.Abs(float64(v)))
		}
		for i := lo; i < lo+rows; i++ {
			a.values++
			if math.Float32bits(got[i]) == math.Float32bits(want[i]) {
				a.equal++
			} else {
				a.relative = max(a.relative, math.Abs(float64(got[i])-float64(want[i]))/max(magnitude, 1e-30))
			}
		}
	}
}

// TestDynQuantGoldens holds the whole path, activations to outputs, against the engine, bit by bit.
func TestDynQuantGoldens(t *testing.T) {
	var all dynquantAgreement
	for _, g := range readDynquantGoldens(t) {
		t.Run(g.name, func(t *testing.T) {
			m, err := NewInt8Matrix(g.weights, 1)
			if err != nil {
				t.Fatal(err)
			}
			var q QuantizedRows
			quantizeFor(&q, g.x, g.tokens, m.Cols(), m.Block(), g.option)
			got := make([]float32, g.tokens*m.Rows())
			m.Mul(got, &q, 0, m.Rows())
			var a dynquantAgreement
			a.compare(got, g.y, m.Rows())
			if a.equal != a.values {
				t.Error(a)
			}
			all.compare(got, g.y, m.Rows())
		})
	}
	t.Log(all)
}

func dynquantWeights(rows, cols, block, bits int) WeightCodes {
	g := rand.New(rand.NewPCG(uint64(rows), uint64(cols)))
	w := WeightCodes{Rows: rows, Cols: cols, Block: block, Bits: bits, Option: DynBlock, Codes: make([]uint8, rows*cols),
		Scale: make([]float32, rows*cols/block), Zero: make([]float32, rows*cols/block), Bias: make([]float32, rows)}
	for i := range w.Codes {
		w.Codes[i] = uint8(g.IntN(1 << bits))
	}
	for i := range w.Scale {
		w.Scale[i], w.Zero[i] = g.Float32()*.01, g.Float32()*.02-.01
	}
	for i := range w.Bias {
		w.Bias[i] = g.Float32()
	}
	return w
}

func dynquantRows(rows, cols int) []float32 {
	g := rand.New(rand.NewPCG(uint64(rows), uint64(cols)))
	x := make([]float32, rows*cols)
	for i := range x {
		x[i] = float32(g.NormFloat64())
	}
	return x
}

// quantizeFor quantizes all rows as [QuantizedRows.Reset] chooses.
func quantizeFor(q *QuantizedRows, x []float32, rows, cols, block int, option DynOption) {
	q.Reset(rows, cols, block, option)
	q.Set(x, 0, rows)
}

func quantizeSym(q *QuantizedRows, x []float32, rows, cols, block int) {
	q.reset(rows, cols, block, schemeSym)
	q.Set(x, 0, rows)
}

func quantizeAsym(q *QuantizedRows, x []float32, rows, cols, block int) {
	q.reset(rows, cols, block, schemeAsym)
	q.Set(x, 0, rows)
}

func quantizeBlocks(q *QuantizedRows, x []float32, rows, cols, block int) {
	q.reset(rows, cols, block, schemeBlocks)
	q.Set(x, 0, rows)
}

var dynquantSchemes = map[string]func(dst *QuantizedRows, x []float32, rows, cols, block int){
	"sym": quantizeSym, "asym": quantizeAsym, "blocks": quantizeBlocks,
}

// TestInt8MatrixMulIsTheFormula compares with the documented meaning of codes, in float64.
func TestInt8MatrixMulIsTheFormula(t *testing.T) {
	const rows, cols, block, tokens = 7, 96, 32, 6
	// Rounding of float32: about ten operations a block on terms a few times larger than the result.
	const bound = 2e-5
	for name, quantize := range dynquantSchemes {
		for bits := 1; bits <= 8; bits++ {
			t.Run(fmt.Sprintf("%s/w%d", name, bits), func(t *testing.T) {
				w := dynquantWeights(rows, cols, block, bits)
				m, err := NewInt8Matrix(w, 1)
				if err != nil {
					t.Fatal(err)
				}
				var q QuantizedRows
				quantize(&q, dynquantRows(tokens, cols), tokens, cols, block)
				got := make([]float32, tokens*rows)
				m.Mul(got, &q, 0, rows)
				for i, y := range got {
					if want := dynquantFormula(w, &q, i/rows, i%rows); math.Abs(float64(y)-want) > bound {
						t.Fatalf("token %d, row %d: %v, want %v", i/rows, i%rows, y, want)
					}
				}
			})
		}
	}
}

// code is the signed code of an activation.
func (q *QuantizedRows) code(row, col int) int8 {
	first, size := q.tile(row)
	at := first*q.layout.pad(q.Cols) + col
	if step, half, eight := q.layout.steps(size); half != 0 {
		at = first*q.layout.pad(q.Cols) + col/8*eight + (1-col%2)*half + (row-first)*step + col%8/2
	}
	return int8(q.codes[at] ^ 128)
}

func dynquantFormula(w WeightCodes, q *QuantizedRows, token, row int) float64 {
	blocks := w.Cols / w.Block
	y := float64(w.Bias[row])
	for c := range w.Cols {
		b, code := c/w.Block, float64(q.code(token, c))
		var x float64
		switch q.scheme {
		case schemeSym:
			x = float64(q.Scales[token]) * code
		case schemeAsym:
			x = float64(q.Scales[token])*code + float64(q.Zeros[token])
		case schemeBlocks:
			x = float64(q.Scales[token*blocks+b])*(code+128) + float64(q.Zeros[token*blocks+b])
		}
		u := float64(w.Codes[row*w.Cols+c]) - float64(int(1)<<(w.Bits-1))
		y += x * (u*float64(w.Scale[row*blocks+b]) + float64(w.Zero[row*blocks+b]))
	}
	return y
}

// TestInt8MatrixMulSplits checks that the ways to share the work give the same bits and that nothing
// outside of the range is written.
func TestInt8MatrixMulSplits(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		for _, bits := range []int{4, 8} {
			for _, tokens := range []int{1, 2, 3, 4, 5, 8, 9} {
				for name, quantize := range dynquantSchemes {
					t.Run(fmt.Sprintf("%s/bits=%d/tokens=%d", name, bits, tokens), func(t *testing.T) {
						checkInt8Mul(t, dynquantWeights(22, 64, 32, bits), quantize, tokens,
							[][2]int{{0, 22}, {0, 0}, {0, 1}, {3, 14}, {5, 22}, {21, 22}})
					})
				}
			}
		}
	})
}

// checkInt8Mul compares Mul on ranges of rows with the definition: one dot product at a time.
func checkInt8Mul(t *testing.T, w WeightCodes, quantize func(*QuantizedRows, []float32, int, int, int), tokens int, ranges [][2]int) {
	t.Helper()
	m, err := NewInt8Matrix(w, 1)
	if err != nil {
		t.Fatal(err)
	}
	var q QuantizedRows
	x := dynquantRows(tokens, w.Cols)
	quantize(&q, x, tokens, w.Cols, w.Block)
	want := make([]float32, tokens*w.Rows)
	withTier(t, "generic", func() {
		plain, err := NewInt8Matrix(w, 1)
		if err != nil {
			t.Fatal(err)
		}
		var q QuantizedRows
		quantize(&q, x, tokens, w.Cols, w.Block)
		for i := range want {
			plain.mulOne(want, &q, i/w.Rows, i%w.Rows)
		}
	})
	for _, bounds := range ranges {
		got := make([]float32, tokens*w.Rows)
		for i := range got {
			got[i] = canary
		}
		m.Mul(got, &q, bounds[0], bounds[1])
		for i, y := range got {
			expect := want[i]
			if r := i % w.Rows; r < bounds[0] || r >= bounds[1] {
				expect = canary
			}
			if !sameBits(y, expect) {
				t.Fatalf("rows %v: token %d, row %d: %x, want %x", bounds, i/w.Rows, i%w.Rows, y, expect)
			}
		}
	}
}

func TestInt8MatrixMulExtremes(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		const cols = 4096
		w := dynquantWeights(4, cols, cols, 8)
		for i := range w.Codes {
			w.Codes[i] = 0 // -128
		}
		checkInt8Mul(t, w, func(q *QuantizedRows, x []float32, rows, cols, block int) {
			for i := range x {
				x[i] = 1
			}
			quantizeSym(q, x, rows, cols, block)
		}, 4, [][2]int{{0, 4}})
	})
}

// TestNewInt8MatrixNibbles checks that stored nibbles, also those of rows that begin in the middle of a byte, and several
// goroutines make the same matrix.
func TestNewInt8MatrixNibbles(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		for _, s := range [][3]int{{1, 8, 8}, {67, 64, 32}, {33, 33, 33}, {40, 12, 12}, {100, 120, 24}, {3, 7, 7}} {
			w := dynquantWeights(s[0], s[1], s[2], 4)
			p := w
			p.Codes, p.Nibbles = nil, stored(w.Codes)
			var got [2][]float32
			for i, w := range []WeightCodes{w, p} {
				m, err := NewInt8Matrix(w, 1+2*i)
				if err != nil {
					t.Fatal(err)
				}
				var q QuantizedRows
				quantizeSym(&q, dynquantRows(3, s[1]), 3, s[1], s[2])
				got[i] = make([]float32, 3*s[0])
				m.Mul(got[i], &q, 0, s[0])
			}
			if i := firstDifference(got[0], got[1]); i >= 0 {
				t.Errorf("%v: element %d is %x from nibbles, %x from codes", s, i, got[1][i], got[0][i])
			}
		}
	})
}

func TestNewInt8MatrixErrors(t *testing.T) {
	tests := []struct {
		name  string
		spoil func(w *WeightCodes)
		want  error
	}{
		{"block does not divide", func(w *WeightCodes) { w.Block = 24 }, tensor.ErrCorrupt},
		{"no rows", func(w *WeightCodes) { w.Rows = 0 }, tensor.ErrCorrupt},
		{"block of 4", func(w *WeightCodes) { w.Block = 4 }, tensor.ErrUnsupported},
		{"block too long", func(w *WeightCodes) { w.Cols, w.Block = 1<<17, 1<<17 }, tensor.ErrUnsupported},
		{"9 bits", func(w *WeightCodes) { w.Bits = 9 }, tensor.ErrUnsupported},
		{"codes missing", func(w *WeightCodes) { w.Codes = w.Codes[1:] }, tensor.ErrCorrupt},
		{"scales missing", func(w *WeightCodes) { w.Scale = nil }, tensor.ErrCorrupt},
		{"zeros missing", func(w *WeightCodes) { w.Zero = w.Zero[1:] }, tensor.ErrCorrupt},
		{"bias too long", func(w *WeightCodes) { w.Bias = append(w.Bias, 0) }, tensor.ErrCorrupt},
		{"code too large", func(w *WeightCodes) { w.Codes[5] = 16 }, tensor.ErrCorrupt},
		{"nibbles missing", func(w *WeightCodes) { w.Nibbles, w.Codes = stored(w.Codes)[1:], nil }, tensor.ErrCorrupt},
		{"nibbles and codes", func(w *WeightCodes) { w.Nibbles = stored(w.Codes) }, tensor.ErrCorrupt},
		{"nibbles of 5 bits", func(w *WeightCodes) { w.Nibbles, w.Codes, w.Bits = stored(w.Codes), nil, 5 }, tensor.ErrCorrupt},
		{"last code too large", func(w *WeightCodes) { w.Codes[len(w.Codes)-1] = 255 }, tensor.ErrCorrupt},
		{"size overflows", func(w *WeightCodes) { w.Rows, w.Cols, w.Block = math.MaxInt, 64, 64 }, tensor.ErrCorrupt},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := dynquantWeights(8, 64, 32, 4)
			tt.spoil(&w)
			if m, err := NewInt8Matrix(w, 1); m != nil || !errors.Is(err, tt.want) {
				t.Errorf("got %v, %v; want %v", m, err, tt.want)
			}
		})
	}
}

// TestInt8Panics checks that a call that would leave a slice panics before it computes anything.
func TestInt8Panics(t *testing.T) {
	m, err := NewInt8Matrix(dynquantWeights(40, 64, 32, 4), 1)
	if err != nil {
		t.Fatal(err)
	}
	x := dynquantRows(10, 64)
	for name, call := range map[string]func(q *QuantizedRows){
		"columns": func(q *QuantizedRows) { quantizeFor(q, x, 10, 32, 32, DynToken); m.Mul(make([]float32, 400), q, 0, 40) },
		"block":   func(q *QuantizedRows) { quantizeFor(q, x, 10, 64, 64, DynToken); m.Mul(make([]float32, 400), q, 0, 40) },
		"dst":     func(q *QuantizedRows) { m.Mul(make([]float32, 399), q, 0, 40) },
		"outputs": func(q *QuantizedRows) { m.Mul(make([]float32, 500), q, 0, 41) },
		"tokens":  func(q *QuantizedRows) { q.Rows = 11; m.Mul(make([]float32, 500), q, 0, 40) },
		"zeros": func(q *QuantizedRows) {
			quantizeAsym(q, x, 10, 64, 32)
			q.Zeros = nil
			m.Mul(make([]float32, 400), q, 0, 40)
		},
		"first row":     func(q *QuantizedRows) { q.Set(x, 4, 10) },
		"last row":      func(q *QuantizedRows) { q.Set(x, 0, 9) },
		"rows":          func(q *QuantizedRows) { q.Set(x, 8, 16) },
		"missing input": func(q *QuantizedRows) { q.Set(x[:639], 0, 10) },
	} {
		t.Run(name, func(t *testing.T) {
			var q QuantizedRows
			quantizeFor(&q, x, 10, 64, 32, DynToken)
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			call(&q)
		})
	}
}

func TestDynQuantDoesNotAllocate(t *testing.T) {
	m, err := NewInt8Matrix(dynquantWeights(16, 64, 32, 4), 1)
	if err != nil {
		t.Fatal(err)
	}
	x, dst := dynquantRows(1, 64), make([]float32, 16)
	var q QuantizedRows
	for _, option := range []DynOption{DynBlock, DynToken} {
		quantizeFor(&q, x, 1, 64, 32, option)
		if n := testing.AllocsPerRun(10, func() {
			quantizeFor(&q, x, 1, 64, 32, option)
			m.Mul(dst, &q, 0, 16)
		}); n != 0 {
			t.Errorf("option %d: %v allocations a decode", option, n)
		}
	}
}
