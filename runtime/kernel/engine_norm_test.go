package kernel

import (
	"math/rand/v2"
	"testing"
)

// normKinds are the norms and their definitions.
var normKinds = []struct {
	name    string
	rows    func(dst, x, gamma []float32, rows int, eps float32)
	generic func(dst, x, gamma []float32, rows int, eps float32)
}{
	{"exact", RMSNormRows, rmsNormGeneric},
	{"engine", EngineRMSNormRows, engineNormGeneric},
	{"packed", EngineRMSNormPackedRows, enginePackedNormGeneric},
}

func TestNormParity(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(61, 62))
		for width := 0; width < 2*64+2; width++ {
			checkNormParity(t, r, 1+width%5, width, 1<<30)
			checkNormParity(t, r, width%40, width, 300)
		}
		for rows := range 2*normChunk + 2 {
			checkNormParity(t, r, rows, 64, 1<<30)
			checkNormParity(t, r, rows, 77, 1<<30)
		}
		checkNormParity(t, r, 17, 1024, 1<<30)
		checkNormParity(t, r, 3, 4099, 1<<30)
	})
}

func checkNormParity(t *testing.T, r *rand.Rand, rows, width, oneOf int) {
	t.Helper()
	n := rows * width
	x, gamma := spiced(r, n, oneOf), spiced(r, width, oneOf)
	for _, k := range normKinds {
		check := func(what string, got, want []float32) {
			t.Helper()
			if i := firstDifference(got, want); i >= 0 {
				t.Fatalf("%s, %s, %d rows of %d: element %d is %x, want %x", k.name, what, rows, width, i, got[i], want[i])
			}
		}
		want, got := canaries(n+9), canaries(n+9)
		if width > 0 {
			k.generic(want[:n], x, gamma, rows, 1e-6)
		}
		k.rows(got[:n:n], x, gamma, rows, 1e-6)
		check("rows", got, want)
		copy(got, x)
		k.rows(got[:n:n], got[:n:n], gamma, rows, 1e-6)
		check("in place", got, want)
		for i := range rows {
			k.rows(got[i*width:(i+1)*width], x[i*width:(i+1)*width], gamma, 1, 1e-6)
		}
		check("one by one", got, want)
	}
}

func FuzzNormParity(f *testing.F) {
	f.Add(uint16(3), uint16(64), uint16(20), uint64(1))
	f.Add(uint16(33), uint16(9), uint16(1000), uint64(2))
	f.Fuzz(func(t *testing.T, rows, width, oneOf uint16, seed uint64) {
		forEachImpl(t, func(t *testing.T) {
			checkNormParity(t, rand.New(rand.NewPCG(seed, 0)), int(rows%50), int(width%600), 2+int(oneOf))
		})
	})
}

func TestEngineSiLUParity(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(63, 64))
		silu := func(d, x []float32) {
			full := len(x) &^ 7
			engineSiLUGeneric(d[:full], x[:full])
			for i, v := range x[full:] {
				d[full+i] = v / (1 + engineExpTail(-v))
			}
		}
		checkParity(t, "EngineSiLU", r, 1, func(d []float32, in [][]float32) { EngineSiLU(d, in[0]) },
			func(d []float32, in [][]float32) { silu(d, in[0]) })
		checkParity(t, "EngineSiLUMul", r, 2, func(d []float32, in [][]float32) { EngineSiLUMul(d, in[0], in[1]) },
			func(d []float32, in [][]float32) {
				s := make([]float32, len(d))
				silu(s, in[0])
				mulGeneric(d, s, in[1])
			})
		// Beyond the limits of the polynomial.
		x := random(r, 1000)
		for i := range x {
			x[i] *= 100
		}
		got, want := make([]float32, len(x)), make([]float32, len(x))
		EngineSiLU(got, x)
		silu(want, x)
		if i := firstDifference(got, want); i >= 0 {
			t.Fatalf("EngineSiLU(%x) is %x, want %x", x[i], got[i], want[i])
		}
	})
}
