package kernel

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// engineGolden is what the stock engine computed in one op; see testdata/engineops/record.py.
type engineGolden struct {
	name  string
	kind  uint32
	seed  uint64
	a     [6]uint32
	calls []uint32
	rows  []uint32 // CRC-32 of each row
}

// readEngineGoldens reads a file of recorded ops, or the one that ENGINE_GOLDENS names.
func readEngineGoldens(t *testing.T, name string) []engineGolden {
	t.Helper()
	path := filepath.Join("testdata", "engineops", name)
	if p := os.Getenv("ENGINE_GOLDENS"); p != "" {
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
	list := func() []uint32 {
		var n uint32
		read(&n)
		out := make([]uint32, n)
		read(out)
		return out
	}
	var all []engineGolden
	for r.Len() > 0 {
		var h struct {
			Magic      [4]byte
			Name       [32]byte
			Kind, Seed uint32
			A          [6]uint32
		}
		if read(&h); string(h.Magic[:]) != "EOPS" {
			t.Fatalf("%s: header %+v", path, h)
		}
		all = append(all, engineGolden{
			name: string(bytes.TrimRight(h.Name[:], "\x00")), kind: h.Kind, seed: uint64(h.Seed), a: h.A, calls: list(), rows: list(),
		})
	}
	if len(all) == 0 {
		t.Fatalf("%s: no recorded ops", path)
	}
	return all
}

// engineValues is values of record.py.
func engineValues(seed uint64, n int, scale float32) []float32 {
	out := make([]float32, n)
	for i := range out {
		z := (uint64(i) + seed<<32) * 0x9E3779B97F4A7C15
		z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
		z = (z ^ z>>27) * 0x94D049BB133111EB
		z ^= z >> 31
		out[i] = float32(float32(float32(z>>40)*0x1p-23)-1) * scale
	}
	return out
}

// compute returns the rows of the case, as the engine computes them on x86 or arm64.
func (g *engineGolden) compute(arm bool) [][]float32 {
	var rows [][]float32
	n := int(g.a[0])
	switch g.kind {
	case 0:
		x := engineValues(g.seed, int(g.calls[0])*n, float32(g.a[2])/16)
		gamma := engineValues(g.seed+1000, n, 1)
		norm := EngineRMSNormRows
		if g.a[1] != 0 && g.calls[0] > 1 {
			norm = EngineRMSNormPackedRows
		}
		for ; len(x) > 0; x = x[n:] {
			if arm {
				ArmRMSNormRows(x[:n], x[:n], gamma, 1, g.a[1] != 0 && g.calls[0] > 1, 1e-6)
			} else {
				norm(x[:n], x[:n], gamma, 1, 1e-6)
			}
			rows = append(rows, x[:n])
		}
	case 1:
		x := engineValues(g.seed, n, float32(g.a[2])/16)
		if arm {
			ArmSiLU(x, x)
		} else {
			EngineSiLU(x, x)
		}
		rows = append(rows, x)
	case 3:
		x := engineValues(g.seed, n, float32(g.a[2])/16)
		op := engineUnaries[g.a[1]]
		if g.a[1] == 5 || g.a[1] == 8 { // square roots and logarithms are of magnitudes
			EngineAbs(x, x)
		}
		op(x, x)
		rows = append(rows, x)
	case 4:
		x := engineValues(g.seed, int(g.calls[0])*n, float32(g.a[2])/16)
		EngineSoftmaxRows(x, x, n)
		for ; len(x) > 0; x = x[n:] {
			rows = append(rows, x[:n])
		}
	case 5:
		x := engineValues(g.seed, int(g.calls[0])*n, float32(g.a[2])/16)
		gamma, beta := engineValues(g.seed+1000, n, 1), engineValues(g.seed+2000, n, 1)
		norm := EngineLayerNormRows
		if g.a[1] != 0 && g.calls[0] > 1 {
			norm = EngineLayerNormPackedRows
		}
		norm(x, x, gamma, beta, int(g.calls[0]), 1e-6)
		for ; len(x) > 0; x = x[n:] {
			rows = append(rows, x[:n])
		}
	case 6:
		x := engineValues(g.seed, n, float32(g.a[2])/16)
		EngineReLU(x, x, 0)
		rows = append(rows, x)
	case 2, 7:
		heads, kv, dim := n, int(g.a[1]), int(g.a[2])
		width := (heads + 2*kv) * dim
		cache := NewKVCache(kv, dim)
		for _, c := range g.calls {
			a := EngineAttention{Tokens: int(c), Heads: heads, Arm: arm}
			table := engineValues(g.seed, (cache.Len()+a.Tokens)*width, 1)[cache.Len()*width:]
			var q, k, v []float32
			for ; len(table) > 0; table = table[width:] {
				for _, x := range table[:heads*dim] {
					q = append(q, x*(float32(g.a[3])/16))
				}
				k = append(k, table[heads*dim:(heads+kv)*dim]...)
				v = append(v, table[(heads+kv)*dim:width]...)
			}
			cache.Append(k, v, a.Tokens)
			if g.kind == 7 {
				a.MaskWidth = cache.Len()
				a.Mask = windowMask(a.Tokens, cache.Len(), int(g.a[4]))
			}
			if g.a[5] != 0 {
				a.Sinks = engineValues(g.seed+1000, heads, 4)
			}
			out := make([]float32, len(q))
			for from := 0; from < a.Tokens; from += 29 {
				a.Attend(out, q, cache, 0, heads, from, min(from+29, a.Tokens))
			}
			for ; len(out) > 0; out = out[heads*dim:] {
				rows = append(rows, out[:heads*dim])
			}
		}
	}
	return rows
}

// engineUnaries are the functions by their number in MNN's schema.
var engineUnaries = map[uint32]func(dst, x []float32){
	0: EngineAbs, 5: EngineSqrt, 7: EngineExp, 8: EngineLog, 28: EngineExpm1, 29: EngineSigmoid, 30: EngineTanh, 32: EngineGELU, 33: EngineGELUErf,
	1: func(dst, x []float32) { EngineReLU(dst, x, 1); Scale(dst, dst, -1) },
}

// windowMask is what the engine feeds for the last tokens of keys positions: causal, and with a window of that many positions.
func windowMask(tokens, keys, window int) []float32 {
	mask := make([]float32, tokens*keys)
	for i := range mask {
		query, key := keys-tokens+i/keys, i%keys
		if key > query || window > 0 && key <= query-window {
			mask[i] = -math.MaxFloat32
		}
	}
	return mask
}

// check compares the rows with those of the engine and returns how many are equal.
func (g *engineGolden) check(t *testing.T, rows [][]float32) (equal int) {
	t.Helper()
	if len(rows) != len(g.rows) {
		t.Fatalf("%d rows, want %d", len(rows), len(g.rows))
	}
	for i, row := range rows {
		if sumsOfRows(t, row, len(row))[0] == g.rows[i] {
			equal++
		} else if equal == i {
			t.Errorf("row %d differs: %v", i, row[:min(len(row), 4)])
		}
	}
	if equal < len(rows) {
		t.Errorf("%d of %d rows differ", len(rows)-equal, len(rows))
	}
	return equal
}

// TestEngineGoldens holds the ops against the engine, bit by bit.
func TestEngineGoldens(t *testing.T) {
	equal, all := 0, 0
	for _, g := range readEngineGoldens(t, "ops.bin") {
		t.Run(g.name, func(t *testing.T) {
			equal += g.check(t, g.compute(false))
			all += len(g.rows)
		})
	}
	t.Logf("%d of %d rows bit-equal", equal, all)
}

// TestFma32 compares with big.Float, which rounds once.
func TestFma32(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	random32 := func() float64 {
		return float64(math.Float32frombits(r.Uint32()&0x807fffff | uint32(64+r.IntN(128))<<23))
	}
	check := func(x, y, z float64) {
		t.Helper()
		p := new(big.Float).SetPrec(200).Mul(big.NewFloat(x), big.NewFloat(y))
		want, _ := p.Add(p, big.NewFloat(z)).Float32()
		if got := fma32(x, y, z); got != float64(want) {
			t.Fatalf("fma32(%v, %v, %v) is %v, want %v", x, y, z, got, want)
		}
	}
	for range 100000 {
		check(random32(), random32(), random32())
	}
	// Sums in the middle of two float32, or so close to it that float64 does not tell.
	for range 100000 {
		z := float64(math.Float32frombits(r.Uint32()&0x807fffff | 127<<23))
		d := float64(r.IntN(256)) * 0x1p-23
		x, y := 1+d, math.Copysign(0x1p-24*(1-d), float64(r.IntN(2))-.5)
		if !twice(x*y + z) {
			t.Fatalf("%v*%v + %v is not in the middle", x, y, z)
		}
		check(x, y, z)
	}
	// The same for subnormal sums.
	for range 100000 {
		z := float64(math.Float32frombits(r.Uint32() & 0x807fffff))
		d := float64(r.IntN(256)) * 0x1p-23
		check(0x1p-75*(1+d), math.Copysign(0x1p-75*(1-d), float64(r.IntN(2))-.5), z)
	}
}

func TestExpf(t *testing.T) {
	for k, v := range roots {
		want := new(big.Float).SetPrec(200).SetInt64(1 << 20)
		want.SetMantExp(want, k-20)
		for range 5 {
			want.Sqrt(want)
		}
		if w, _ := want.Float64(); w != v {
			t.Errorf("root %d is %v, want %v", k, v, w)
		}
	}
	for _, tt := range []struct{ x, want float32 }{
		{0, 1}, {1, math.E}, {-1, 1 / math.E}, {88.72, 3.3931806e38}, {88.73, float32(math.Inf(1))}, {-104, 0},
		{-math.MaxFloat32, 0}, {float32(math.Inf(-1)), 0}, {-103, 0x1p-149},
	} {
		if got := expf(tt.x); math.Abs(float64(got-tt.want)) > 1e-5*math.Abs(float64(tt.want)) && got != tt.want {
			t.Errorf("expf(%v) is %v, want %v", tt.x, got, tt.want)
		}
	}
	if got := expf(float32(math.NaN())); got == got {
		t.Errorf("expf(NaN) is %v", got)
	}
	for x := float32(-100); x < 88; x += 0.0123 {
		if got, want := float64(expf(x)), Exp(float64(x)); math.Abs(got-want) > 0x1.02p-24*want+0x1p-150 {
			t.Fatalf("expf(%v) is %v, want %v", x, got, want)
		}
	}
}

// TestEngineFormulas checks that the ops are, up to rounding, what they are called.
func TestEngineFormulas(t *testing.T) {
	near := func(t *testing.T, got, want []float32, bound float64) {
		t.Helper()
		for i := range want {
			if d := math.Abs(float64(got[i] - want[i])); !(d <= bound) {
				t.Fatalf("[%d] is %v, want %v", i, got[i], want[i])
			}
		}
	}
	x, gamma := engineValues(1, 1003, 3), engineValues(2, 1003, 1)
	got, want := make([]float32, len(x)), make([]float32, len(x))
	RMSNorm(want, x, gamma, 1e-6)
	EngineRMSNormRows(got, x, gamma, 1, 1e-6)
	near(t, got, want, 1e-6)
	EngineRMSNormPackedRows(got, x, gamma, 1, 1e-6)
	near(t, got, want, 2e-6)
	SiLU(want, x)
	EngineSiLU(got, x)
	near(t, got, want, 1e-6)

	const past, dim = 60, 10
	a := EngineAttention{Tokens: 30, Heads: 3}
	q, k, v := engineValues(3, 900, 4), engineValues(4, 900, 1), engineValues(5, 900, 1)
	cache := NewKVCache(1, dim)
	cache.Append(k, v, past+a.Tokens)
	got, want = make([]float32, 900), make([]float32, 900)
	a.Attend(got, q, cache, 0, a.Heads, 0, a.Tokens)
	for i := range a.Tokens * a.Heads {
		p := make([]float32, past+i/a.Heads+1)
		for j := range p {
			for d := range dim {
				p[j] += q[i*dim+d] * k[j*dim+d] / float32(math.Sqrt(dim))
			}
		}
		Softmax(p)
		for j, w := range p {
			for d := range dim {
				want[i*dim+d] += w * v[j*dim+d]
			}
		}
	}
	near(t, got, want, 1e-6)
}

func BenchmarkEngine(b *testing.B) {
	x, gamma, dst := engineValues(1, 768, 3), engineValues(2, 768, 1), make([]float32, 768)
	b.Run("norm", func(b *testing.B) {
		for b.Loop() {
			EngineRMSNormRows(dst, x, gamma, 1, 1e-6)
		}
	})
	b.Run("silu", func(b *testing.B) {
		for b.Loop() {
			EngineSiLU(dst, x)
		}
	})
}
