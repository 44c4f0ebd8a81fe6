package cuda

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

var (
	shapes     = flag.Int("shapes", 8, "how many random shapes of each product are compared")
	checkpoint = flag.String("checkpoint", "../../../../pipeline/arch/testdata/qwen3-tied", "what TestPackage makes packages of")
	least      = flag.Int("least", 1<<20, "how many multiplications are worth the card there")
)

// dir is where the emulation is built.
var dir string

func TestMain(m *testing.M) {
	dir, _ = os.MkdirTemp("", "cuda")
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// engine opens the card that LLMEXPORT_CUDA_DRIVER names a driver of, or the emulation, which is built if there is a C++ compiler.
func engine(t *testing.T) *Engine {
	t.Helper()
	if os.Getenv("LLMEXPORT_CUDA_DRIVER") == "" {
		compiler, err := exec.LookPath("g++")
		if err != nil {
			t.Skip("no C++ compiler for the emulated driver")
		}
		path := filepath.Join(dir, "driver.so")
		options := []string{"-O2", "-march=native", "-ffp-contract=off", "-std=c++17", "-shared", "-fPIC", "-fno-gnu-unique", "-Wl,-Bsymbolic",
			"-Wno-unknown-pragmas", "-o", path, "emulated/driver.cpp"}
		if _, err := os.Stat(path); err != nil {
			if out, err := exec.Command(compiler, options...).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		}
		t.Setenv("LLMEXPORT_CUDA_DRIVER", path)
	}
	e, err := Open(0)
	if err != nil {
		t.Fatal(err)
	}
	e.least, e.slot = 0, 1<<17
	return e
}

// floats returns values of unlike sizes, with denormals and now and then an infinity.
func floats(r *rand.Rand, n int, infinite bool) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = r.Float32()*2 - 1
		switch r.IntN(40) {
		case 0:
			x[i] *= 1e-39
		case 1:
			x[i] *= 1e20
		case 2:
			x[i] *= 1e-30
		case 3:
			x[i] = float32(math.Copysign(0, -1))
		}
		if infinite && r.IntN(500) == 0 {
			x[i] = float32(math.Inf(1 - 2*r.IntN(2)))
		}
	}
	return x
}

// part returns factors of a product.
func part(a []float32, la kernel.Layout, lda int, b kernel.Factor, k int) kernel.Part {
	return kernel.Part{A: kernel.Factor{Data: a, Layout: la, Stride: lda}, B: b, K: k}
}

// TestProducts compares the products with those of the CPU, bit by bit.
func TestProducts(t *testing.T) {
	e, large := engine(t), engine(t)
	large.slot = 1 << 20 // a piece has room for whole factors
	elements := 0
	for s := range *shapes {
		r := rand.New(rand.NewPCG(1, uint64(s)))
		e, large = large, e
		e.wide = s/2%2 == 1
		m, n, k := 1+r.IntN(300), 1+r.IntN(300), 1+r.IntN(700)
		if r.IntN(3) == 0 {
			m, n, k = (m+7)/8*8, (n+127)/128*128, (k+255)/256*256 // factors fill their memory, so that reading past them is noticed
		}
		infinite := s%5 == 4
		a, b, extra := floats(r, m*k, infinite), floats(r, n*k, infinite), r.IntN(3)
		ldd := n + extra
		before := floats(r, m*ldd, false)
		check := func(what string, got, want []float32, ok bool) {
			t.Helper()
			elements += len(want)
			if bad := differ(got, want); !ok || bad > 0 {
				t.Fatalf("%s %d x %d x %d, shape %d: computed %v, %d of %d elements differ", what, m, n, k, s, ok, bad, len(want))
			}
		}

		var packed kernel.Packed
		packed.Pack(b, n, k, k)
		got, want := slices.Clone(before), slices.Clone(before)
		packed.MulT(want, a, m, ldd, k, 0, n)
		check("packed", got, want, e.Compute(&kernel.Product{Dst: got, Rows: m, Cols: n, Stride: ldd,
			Parts: []kernel.Part{part(a, kernel.ByRow, k, packed.Factor(), k)}}) || ldd == 0)

		for _, t := range []tensor.DType{tensor.BF16, tensor.F16} {
			short := slices.Clone(b)
			narrow := stored(short, n, k, t)
			got, want = make([]float32, m*n), make([]float32, m*n)
			packed.Pack(short, n, k, k)
			packed.MulT(want, a, m, n, k, 0, n)
			check(t.String(), got, want, e.Compute(&kernel.Product{Dst: got, Rows: m, Cols: n, Stride: n, Parts: []kernel.Part{part(a, kernel.ByRow, k, narrow, k)}}))
		}

		got, want = slices.Clone(before), slices.Clone(before)
		kernel.MatMul(want, a, b, m, n, k, ldd, k, n)
		check("by position", got, want, e.Compute(&kernel.Product{Dst: got, Rows: m, Cols: n, Stride: ldd,
			Parts: []kernel.Part{part(a, kernel.ByRow, k, kernel.Factor{Data: b, Layout: kernel.ByPosition, Stride: n}, k)}}))

		// parts are added; those of a are [k, m], those of b [k, n]
		got, want = slices.Clone(before[:m*n]), slices.Clone(before[:m*n])
		transposed, product := make([]float32, m*k), make([]float32, m*n)
		var parts []kernel.Part
		for range 3 {
			for i := range m {
				for p := range k {
					transposed[i*k+p] = a[p*m+i]
				}
			}
			parts = append(parts, part(a, kernel.ByPosition, m, kernel.Factor{Data: b, Layout: kernel.ByPosition, Stride: n}, k))
			kernel.MatMul(product, transposed, b, m, n, k, n, k, n)
			kernel.Add(want, want, product)
			a, b = floats(r, m*k, infinite), floats(r, n*k, infinite)
		}
		check("added", got, want, e.Compute(&kernel.Product{Dst: got, Rows: m, Cols: n, Stride: n, Sum: kernel.AddParts, Parts: parts}))

		// the lower triangle of moments of them
		got = floats(r, n*n, false)
		want = slices.Clone(got)
		packed.Resize(n, k)
		for i, p := range parts {
			packed.PackColumns(p.B.Data, 0, n, n)
			packed.Syrk(want, p.B.Data, 0, n, 0, n, n, n)
			parts[i] = kernel.Part{A: p.B, B: p.B, K: k}
		}
		check("moments", got, want, e.Compute(&kernel.Product{Dst: got, Rows: n, Cols: n, Stride: n, Sum: kernel.AddLower, Parts: parts}))
	}
	if err := cmp.Or(e.Err(), large.Err()); err != nil {
		t.Fatal(err)
	}
	fmt.Printf("%s: %d shapes of 4 products, %d elements, 0 with other bits\n", e.Card(), *shapes, elements)
}

// TestPieces computes a product whose rows do not fit at once, and one that does not fit at all.
func TestPieces(t *testing.T) {
	e := engine(t)
	r := rand.New(rand.NewPCG(2, 2))
	m, n, k := 5, 40, 300
	a, b := floats(r, m*k, false), floats(r, n*k, false)
	got, want := make([]float32, m*n), make([]float32, m*n)
	p := kernel.Product{Dst: got, Rows: m, Cols: n, Stride: n,
		Parts: []kernel.Part{part(a, kernel.ByRow, k, kernel.Factor{Data: b, Layout: kernel.ByPosition, Stride: n}, k)}}
	e.Bound(1000)
	e.Bound(2000)
	if e.Compute(&p) || e.Err() != nil || differ(got, want) > 0 {
		t.Errorf("a product that does not fit was computed, or failed: %v", e.Err())
	}
	e.limit = 1 << 20
	e.piece = 4 * k * 2
	kernel.MatMul(want, a, b, m, n, k, n, k, n)
	if !e.Compute(&p) || differ(got, want) > 0 {
		t.Errorf("in pieces, %d elements differ", differ(got, want))
	}
}

// TestWide multiplies matrices of which a slot holds only some rows, or none.
func TestWide(t *testing.T) {
	e := engine(t)
	r := rand.New(rand.NewPCG(10, 10))
	for _, s := range [][3]int{{150, 3000, 40}, {150, 40, 3000}} { // of a head, and the gradient of its inputs
		m, n, k := s[0], s[1], s[2]
		a, b := floats(r, m*k, false), floats(r, n*k, false)
		got, want := make([]float32, m*n), make([]float32, m*n)
		kernel.MatMul(want, a, b, m, n, k, n, k, n)
		p := kernel.Product{Dst: got, Rows: m, Cols: n, Stride: n,
			Parts: []kernel.Part{part(a, kernel.ByRow, k, kernel.Factor{Data: b, Layout: kernel.ByPosition, Stride: n}, k)}}
		for _, slot := range []int{4 * 3000 * 3, 4 * 3000} {
			e := engine(t)
			e.slot = slot
			clear(got)
			if !e.Compute(&p) || differ(got, want) > 0 {
				t.Errorf("%d x %d x %d, slots of %d bytes: %d elements differ, %v", m, n, k, slot, differ(got, want), e.Err())
			}
		}
		e.slot = 4*3000 - 4
		if e.Compute(&p) || e.Err() != nil {
			t.Errorf("%d x %d x %d: a product of which no row fits a slot was computed, or failed: %v", m, n, k, e.Err())
		}
	}
}

// TestAcross computes few rows of many columns, whose pieces begin within all kinds of factors, twice: the second time the rows are there.
func TestAcross(t *testing.T) {
	e := engine(t)
	r := rand.New(rand.NewPCG(11, 11))
	const m, n, k = 33, 2100, 70
	a, b := floats(r, m*k, false), floats(r, n*k, false)
	turned := make([]float32, len(b))
	for i := range n {
		for p := range k {
			turned[p*n+i] = b[i*k+p]
		}
	}
	version := kernel.NewVersion()
	for name, right := range map[string]kernel.Factor{
		"by row": {Data: b, Layout: kernel.ByRow, Stride: k}, "by position": {Data: turned, Layout: kernel.ByPosition, Stride: n},
		"F32": stored(slices.Clone(b), n, k, tensor.F32), "BF16": stored(slices.Clone(b), n, k, tensor.BF16), "F16": stored(slices.Clone(b), n, k, tensor.F16),
	} {
		w := slices.Clone(b)
		stored(w, n, k, right.Stored)
		got, want := make([]float32, m*(n+3)), make([]float32, m*(n+3))
		kernel.MatMulT(want, a, w, m, n, k, n+3, k, k)
		for range 2 {
			clear(got)
			p := part(a, kernel.ByRow, k, right, k)
			p.A.Version = version
			before := e.Spent().Received
			if !e.Compute(&kernel.Product{Dst: got, Rows: m, Cols: n, Stride: n + 3, Parts: []kernel.Part{p}}) || differ(got, want) > 0 {
				t.Errorf("%s: %d of %d elements differ, %v", name, differ(got, want), len(want), e.Err())
			}
			if received := e.Spent().Received - before; received != 4*m*n {
				t.Errorf("%s: %d bytes received, want %d", name, received, 4*m*n)
			}
		}
	}
}

// TestKept sends weights once, and rows that several products read one after the other, and gives weights up where memory is short.
func TestKept(t *testing.T) {
	e := engine(t)
	r := rand.New(rand.NewPCG(5, 5))
	const m, n, k, layers = 30, 64, 300, 4
	weights := make([]kernel.Packed, layers)
	for i := range weights {
		weights[i].Pack(floats(r, n*k, false), n, k, k)
	}
	pass := func(what string) (sent int64) {
		t.Helper()
		before := e.Spent().Sent
		for i := range weights {
			a, version := floats(r, m*k, false), kernel.NewVersion()
			got, want := make([]float32, m*n), make([]float32, m*n)
			weights[i].MulT(want, a, m, n, k, 0, n)
			for range 3 {
				p := part(a, kernel.ByRow, k, weights[i].Factor(), k)
				p.A.Version = version
				if !e.Compute(&kernel.Product{Dst: got, Rows: m, Cols: n, Stride: n, Parts: []kernel.Part{p}}) || differ(got, want) > 0 {
					t.Fatalf("%s: %d elements of layer %d differ, %v", what, differ(got, want), i, e.Err())
				}
			}
		}
		return e.Spent().Sent - before
	}
	const rows, all = layers * m * k * 4, layers * n * k * 4
	if got := pass("first"); got != rows+all {
		t.Errorf("first pass: %d bytes sent, want %d", got, rows+all)
	}
	if got := pass("second"); got != rows {
		t.Errorf("second pass: %d bytes sent, want %d", got, rows)
	}
	weights[1].SetRow(7, floats(r, k, false))
	if got := pass("changed"); got != rows+all/layers {
		t.Errorf("after a change: %d bytes sent, want %d", got, rows+all/layers)
	}
	e.limit = all/2 + 1<<17 // what all products use, and half of the weights
	if got := pass("short of memory"); got < rows+all/2 || e.Err() != nil {
		t.Errorf("with little memory: %d bytes sent, %v", got, e.Err())
	}
}

// TestStay adds products to a result that stays on the card, until it is settled.
func TestStay(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	const n, k = 70, 300
	for _, sum := range []kernel.Sum{kernel.AddParts, kernel.AddLower} {
		e := engine(t)
		start := floats(r, n*n, false)
		got, want := slices.Clone(start), slices.Clone(start)
		product := func(dst []float32, stay bool) *kernel.Product {
			x := floats(rand.New(rand.NewPCG(7, uint64(e.Spent().Products))), n*k, false)
			p := part(x, kernel.ByPosition, n, kernel.Factor{Data: x, Layout: kernel.ByPosition, Stride: n}, k)
			return &kernel.Product{Dst: dst, Rows: n, Cols: n, Stride: n, Sum: sum, Parts: []kernel.Part{p, p}, Stay: stay}
		}
		var all []*kernel.Product
		for range 3 {
			p := product(got, true)
			all = append(all, p)
			if !e.Compute(p) {
				t.Fatal(e.Err())
			}
		}
		if differ(got, start) != 0 || e.Spent().Received != 0 {
			t.Errorf("sum %d: the result did not stay", sum)
		}
		for _, p := range all {
			p.Dst, p.Stay = want, false
			if !e.Compute(p) {
				t.Fatal(e.Err())
			}
		}
		e.least = 1 << 40 // a product that the card leaves to its caller
		if e.Compute(product(got, true)) || differ(got, want) != 0 {
			t.Errorf("sum %d: %d elements differ after a product that was left to the caller", sum, differ(got, want))
		}
		if e.least = 0; !e.Compute(all[0]) || !e.Compute(&kernel.Product{Dst: got, Rows: n, Cols: n, Stride: n, Sum: sum, Parts: all[0].Parts, Stay: true}) {
			t.Fatal(e.Err())
		}
		if err := e.Settle(got); err != nil || differ(got, want) != 0 || len(e.held) != 0 {
			t.Errorf("sum %d: %v, %d elements differ, %d results are held", sum, err, differ(got, want), len(e.held))
		}
		if err := e.Settle(got); err != nil {
			t.Errorf("nothing to settle: %v", err)
		}
		if !e.Compute(product(got, true)) {
			t.Fatal(e.Err())
		}
		e.failed = errors.New("fell off the bus")
		if e.Compute(product(got, true)) {
			t.Error("a card that failed computed")
		}
		if err := e.Settle(got); err == nil {
			t.Error("losing sums with the card gave no error")
		}
	}
}

// TestReach multiplies by triangles, as rows and by position, of blocks that the last one of is not whole.
func TestReach(t *testing.T) {
	e := engine(t)
	r := rand.New(rand.NewPCG(8, 8))
	const m, n, block = 70, 600, kernel.ReachColumns
	a, b := floats(r, m*n, false), floats(r, n*n, false)
	for _, wide := range []bool{false, true} {
		e.wide = wide
		got, want := make([]float32, m*n), make([]float32, m*n)
		p := part(a, kernel.ByRow, n, kernel.Factor{Data: b, Layout: kernel.ByRow, Stride: n, Version: kernel.NewVersion()}, n)
		p.Reach = kernel.Until
		for range 2 { // the second time b is there
			if !e.Compute(&kernel.Product{Dst: got, Rows: m, Cols: n, Stride: n, Parts: []kernel.Part{p}}) {
				t.Fatal(e.Err())
			}
		}
		for j := 0; j < n; j += block {
			width := min(block, n-j)
			kernel.MatMulT(want[j:], a, b[j*n:], m, width, j+width, n, n, n)
		}
		if bad := differ(got, want); bad > 0 {
			t.Errorf("until, tiles of 256 rows %v: %d elements differ", wide, bad)
		}
		p.B.Layout, p.B.Version, p.Reach = kernel.ByPosition, 0, kernel.From
		if !e.Compute(&kernel.Product{Dst: got, Rows: m, Cols: n, Stride: n, Parts: []kernel.Part{p}}) {
			t.Fatal(e.Err())
		}
		for j := 0; j < n; j += block {
			kernel.MatMul(want[j:], a[j:], b[j*n+j:], m, min(block, n-j), n-j, n, n, n)
		}
		if bad := differ(got, want); bad > 0 {
			t.Errorf("from, tiles of 256 rows %v: %d elements differ", wide, bad)
		}
	}
}

// TestFactor compares inverses of factors with those of the CPU, bit by bit, and refuses what has none.
func TestFactor(t *testing.T) {
	e := engine(t)
	for s := range *shapes {
		r := rand.New(rand.NewPCG(13, uint64(s)))
		n := 4 * (1 + r.IntN(110))
		if s == 0 {
			n = 3 * factorColumns
		}
		a := floats(r, n*n, false)
		for i := range n {
			for j := range i {
				a[i*n+j] = float32(math.Max(-1, math.Min(1, float64(a[i*n+j]))))
			}
			a[i*n+i] = float32(n) * (1 + r.Float32())
		}
		got, want := quant.NewFactoring(slices.Clone(a), n), quant.NewFactoring(slices.Clone(a), n)
		got.Version = uint64(s%2) * kernel.NewVersion()
		if !quant.Factor(want, 1) || !e.Compute(got) {
			t.Fatalf("matrix %d [%d, %d]: not computed, %v", s, n, n, e.Err())
		}
		for i := range n {
			to := min(i/factorColumns*factorColumns+factorColumns, n)
			if bad := differ(got.A[i*n:i*n+to], want.A[i*n:i*n+to]); bad > 0 {
				t.Fatalf("matrix %d [%d, %d]: %d elements of row %d differ", s, n, n, bad, i)
			}
		}
		if stays := e.kept.of[got.Version] != nil; stays != (got.Version != 0) {
			t.Errorf("matrix %d, version %d: the factor stays %v", s, got.Version, stays)
		}
		a[(n-1)*n+n-1] = -1
		none := quant.NewFactoring(a, n)
		none.Version = uint64(s%2) * kernel.NewVersion()
		if e.Compute(none) || e.Err() != nil || e.kept.of[none.Version] != nil {
			t.Errorf("matrix %d: a matrix that is not positive definite has a factor, or the card failed: %v", s, e.Err())
		}
	}
	if e.Compute(quant.NewFactoring(make([]float32, 9), 3)) || e.Err() != nil {
		t.Errorf("3 columns: %v", e.Err())
	}
	tight := engine(t)
	tight.limit = 1 << 19
	if !tight.room(map[*buffer]uint64{&tight.b: tight.limit}) {
		t.Fatal(tight.Err())
	}
	f := quant.NewFactoring(definite(64), 64)
	f.Version = kernel.NewVersion()
	if !tight.Compute(f) || tight.Err() != nil || len(tight.kept.of) > 0 {
		t.Errorf("with little memory: %v, and %d factors stay", tight.Err(), len(tight.kept.of))
	}
	e.Bound(1 << 10)
	f = quant.NewFactoring(make([]float32, 64*64), 64)
	f.Version = kernel.NewVersion()
	if e.Compute(f) || e.Err() != nil {
		t.Errorf("without memory: %v", e.Err())
	}
}

// randomDescent returns a descent of random rows.
func randomDescent(r *rand.Rand, infinite bool) *kernel.Descent {
	block := []int{8, 32, 48, 64, 128, 150, 300}[r.IntN(7)]
	d := &kernel.Descent{Rows: 1 + r.IntN(70), Block: block, Sweeps: 1 + r.IntN(3), Bits: 2 + r.IntN(3), Half: r.IntN(2) == 0}
	d.Cols = d.Block * (1 + r.IntN(300/d.Block))
	n, blocks := d.Cols, d.Cols/d.Block
	h := floats(r, n*n, infinite)
	for i := range n {
		h[i*n+i] = 4 + r.Float32()
		for j := range i {
			h[i*n+j] *= 0.1
			h[j*n+i] = h[i*n+j]
		}
	}
	d.Hessian = kernel.Factor{Data: h, Layout: kernel.ByPosition, Stride: n, Version: uint64(r.IntN(2)) * kernel.NewVersion()}
	d.Ridge, d.Target, d.Codes = r.Float32(), floats(r, d.Rows*n, infinite), make([]float32, d.Rows*n)
	for i := range d.Codes {
		d.Codes[i] = float32(r.IntN(1<<d.Bits) - 1<<(d.Bits-1))
	}
	round := func(n int, least float32) []float32 {
		x := floats(r, n, false)
		for i := range x {
			if x[i] = x[i]*0.1 + least; d.Half {
				x[i] = kernel.RoundF16(x[i])
			}
		}
		return x
	}
	d.Scale, d.Sums, d.Totals = round(d.Rows*blocks, 0.3), make([]float32, n), make([]float64, blocks)
	if r.IntN(3) > 0 {
		d.Zero = round(d.Rows*blocks, 0)
	}
	for i := range n {
		sum := float64(d.Ridge)
		for _, v := range h[i*n+i/d.Block*d.Block:][:d.Block] {
			sum += float64(v)
		}
		d.Sums[i] = float32(sum)
		d.Totals[i/d.Block] += sum
	}
	return d
}

// cloneDescent copies what a descent changes.
func cloneDescent(d *kernel.Descent) *kernel.Descent {
	c := *d
	c.Codes, c.Scale, c.Zero = slices.Clone(d.Codes), slices.Clone(d.Scale), slices.Clone(d.Zero)
	return &c
}

// TestDescent compares codes and scales after the descent of gptq with those of the CPU, bit by bit.
func TestDescent(t *testing.T) {
	e := engine(t)
	changed := 0
	for s := range *shapes {
		d := randomDescent(rand.New(rand.NewPCG(11, uint64(s))), s%5 == 4)
		got, want := cloneDescent(d), cloneDescent(d)
		quant.Descend(want)
		if !e.Compute(got) {
			t.Fatalf("shape %d: not computed, %v", s, e.Err())
		}
		if c, a, z := differ(got.Codes, want.Codes), differ(got.Scale, want.Scale), differ(got.Zero, want.Zero); c+a+z > 0 {
			t.Fatalf("shape %d, %d x %d, blocks of %d, %d sweeps: %d codes, %d scales and %d zero terms differ", s, d.Rows, d.Cols, d.Block, d.Sweeps, c, a, z)
		}
		changed += differ(d.Codes, want.Codes) + differ(d.Scale, want.Scale)
	}
	if changed == 0 {
		t.Error("nothing moved")
	}
}

// randomFeedback returns rows to be rounded. Some blocks are constant, have no importance or no grid of halves.
func randomFeedback(r *rand.Rand) *kernel.Feedback {
	block := []int{8, 20, 32, 48, 64, 96, 128}[r.IntN(7)]
	f := &kernel.Feedback{Rows: 1 + r.IntN(40), Block: block, Candidates: 1 + r.IntN(mostCandidates), Bits: 2 + r.IntN(7), Half: r.IntN(2) == 0}
	blocks := 1 + r.IntN(400/block)
	f.Cols = block * blocks
	n := f.Cols
	m := floats(r, n*n, false)
	for i := range n {
		m[i*n+i] = 1 + r.Float32()
		for j := range i {
			m[i*n+j] = float32(0.1 * r.NormFloat64())
		}
	}
	f.Factor = kernel.Factor{Data: m, Layout: kernel.ByPosition, Stride: n, Version: uint64(r.IntN(2)) * kernel.NewVersion()}
	f.Work, f.Codes, f.Importance = floats(r, f.Rows*n, false), make([]float32, f.Rows*n), floats(r, n, false)
	for i, v := range f.Importance {
		f.Importance[i] = float32(math.Abs(float64(v)))
	}
	for at := range blocks {
		of := r.Perm(blocks)[0]
		x := f.Work[of*block : (of+1)*block]
		switch r.IntN(8) {
		case 0:
			clear(f.Importance[at*block : (at+1)*block])
		case 1:
			for i := range x {
				x[i] = []float32{0, float32(math.Copysign(0, -1)), 1.5}[at%3]
			}
		case 2:
			kernel.Scale(x, x, []float32{1e-30, 1e-8, 1e5, 1e30}[at%4])
		}
	}
	order := r.Perm(blocks)
	for _, b := range order {
		for _, c := range r.Perm(block) {
			f.Order = append(f.Order, b*block+c)
		}
	}
	f.Scale = make([]float32, f.Rows*blocks)
	for i := range f.Scale {
		f.Scale[i] = 0.25
	}
	if r.IntN(3) > 0 {
		f.Zero = make([]float32, f.Rows*blocks)
	}
	return f
}

// cloneFeedback copies what a feedback changes.
func cloneFeedback(f *kernel.Feedback) *kernel.Feedback {
	c := *f
	c.Work, c.Codes, c.Scale, c.Zero = slices.Clone(f.Work), slices.Clone(f.Codes), slices.Clone(f.Scale), slices.Clone(f.Zero)
	return &c
}

// TestFeedback compares grids and codes of the feedback of gptq with those of the CPU, bit by bit.
func TestFeedback(t *testing.T) {
	e := engine(t)
	outgrown := 0
	for s := range *shapes {
		f := randomFeedback(rand.New(rand.NewPCG(13, uint64(s))))
		got, want := cloneFeedback(f), cloneFeedback(f)
		finite := quant.Feed(want)
		if e.Compute(got) != finite || e.Err() != nil {
			t.Fatalf("shape %d: computed where the CPU says %v, or %v", s, finite, e.Err())
		}
		if !finite {
			outgrown++
			want = f
		}
		if c, a, z := differ(got.Codes, want.Codes), differ(got.Scale, want.Scale), differ(got.Zero, want.Zero); c+a+z > 0 {
			t.Fatalf("shape %d, %d x %d, blocks of %d, %d bits: %d codes, %d scales and %d zero terms differ", s, f.Rows, f.Cols, f.Block, f.Bits, c, a, z)
		}
	}
	if outgrown > *shapes/2 {
		t.Errorf("%d of %d outgrew float32", outgrown, *shapes)
	}
}

// TestFailures leaves codes and scales as they were where memory does not suffice, and where any call of the driver fails.
func TestFailures(t *testing.T) {
	d := randomDescent(rand.New(rand.NewPCG(12, 1)), false)
	e := engine(t)
	e.Bound(1000)
	if e.Compute(cloneDescent(d)) || e.Err() != nil {
		t.Errorf("a descent that does not fit was computed, or failed: %v", e.Err())
	}
	calls := 0
	for failed := true; failed; calls++ {
		e, got := engine(t), cloneDescent(d)
		failed = !failAt(e, calls, func() bool { return e.Compute(got) })
		if failed && (e.Err() == nil || differ(got.Codes, d.Codes)+differ(got.Scale, d.Scale)+differ(got.Zero, d.Zero) > 0 || e.Compute(got)) {
			t.Errorf("call %d failed: no error, or something changed, or the card was used afterwards: %v", calls, e.Err())
		}
	}
	if calls < 20 {
		t.Errorf("a descent made %d calls", calls-1)
	}
	f := randomFeedback(rand.New(rand.NewPCG(13, 1)))
	for failed, call := true, 0; failed; call += 2 {
		e, got := engine(t), cloneFeedback(f)
		failed = !failAt(e, call, func() bool { return e.Compute(got) })
		if failed && (e.Err() == nil || differ(got.Codes, f.Codes)+differ(got.Scale, f.Scale)+differ(got.Zero, f.Zero) > 0) {
			t.Errorf("call %d of a feedback failed: no error, or something changed: %v", call, e.Err())
		}
	}
	const n = 2*factorColumns + 4
	for failed, call := true, 0; failed; call += 3 {
		a := make([]float32, n*n)
		for i := range n {
			a[i*n+i] = 1
		}
		e, f := engine(t), quant.NewFactoring(a, n)
		f.Version = kernel.NewVersion()
		if failed = !failAt(e, call, func() bool { return e.Compute(f) }); failed && (e.Err() == nil || len(e.kept.of) > 0) {
			t.Errorf("call %d of a factoring failed without an error, or its result stays", call)
		}
	}
}

// failAt lets one call of the driver fail, counted from 0, while f runs.
func failAt(e *Engine, call int, f func() bool) bool {
	whole := *e.driver
	var calls atomic.Int64
	rc := func(r int32) int32 {
		if calls.Add(1) == int64(call)+1 {
			return 719
		}
		return r
	}
	e.driver = &driver{
		setCurrent: whole.setCurrent, newStream: whole.newStream, firstStream: whole.firstStream, newEvent: whole.newEvent, allocHost: whole.allocHost,
		freeHost: whole.freeHost,
		after:    whole.after, free: whole.free,
		alloc: func(p *uint64, n uint64) int32 { return rc(whole.alloc(p, n)) },
		toDevice: func(to uint64, from unsafe.Pointer, n uint64, s uintptr) int32 {
			return rc(whole.toDevice(to, from, n, s))
		},
		toHost: func(to unsafe.Pointer, from, n uint64, s uintptr) int32 { return rc(whole.toHost(to, from, n, s)) },
		record: func(e, s uintptr) int32 { return rc(whole.record(e, s)) },
		await:  func(e uintptr) int32 { return rc(whole.await(e)) },
		launch: func(k uintptr, gx, gy, gz, bx, by, bz, shared uint32, s uintptr, a, x unsafe.Pointer) int32 {
			return rc(whole.launch(k, gx, gy, gz, bx, by, bz, shared, s, a, x))
		},
	}
	return f()
}

// TestQuantize encodes a matrix with the card and without, and with a card that fails meanwhile.
func TestQuantize(t *testing.T) {
	const rows, cols, tokens = 8, 448, 500
	r := rand.New(rand.NewPCG(9, 9))
	random := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		return x
	}
	x := random(tokens * cols)
	y := random(tokens * cols)
	kernel.AddScaled(y, x, 3)
	st := &quant.Stats{Cols: cols, Tokens: tokens, Hessian: make([]float32, cols*cols), Cross: make([]float32, cols*cols)}
	transposed := make([]float32, cols*tokens)
	for i := range cols {
		for p := range tokens {
			transposed[i*tokens+p] = x[p*cols+i]
		}
	}
	kernel.MatMul(st.Hessian, transposed, x, cols, cols, tokens, cols, tokens, cols)
	kernel.MatMul(st.Cross, transposed, y, cols, cols, tokens, cols, tokens, cols)
	w := quant.Matrix{Rows: rows, Cols: cols, Data: random(rows * cols)}
	s := quant.Spec{Bits: 4, Block: 64, Scale: tensor.F32}
	l, err := s.Layout(rows, cols)
	if err != nil {
		t.Fatal(err)
	}
	encode := func() quant.Blocks {
		b := quant.NewBlocks(l, s)
		c, err := quant.NewGPTQ().Prepare(s, cols, st, 1)
		if err == nil {
			err = c.(quant.Together).EncodeTogether(b, w, 1)
		}
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	want := encode()
	e := engine(t)
	e.slot = 1 << 18
	kernel.SetDevice(e)
	defer kernel.SetDevice(nil)
	got := encode()
	// The factor, the mismatch, the target, the feedback and the descent.
	if n := e.Spent().Products; n != 1+2+1+1+1 || e.Err() != nil {
		t.Errorf("%d pieces of work were done on the card, %v", n, e.Err())
	}
	if !reflect.DeepEqual(got, want) {
		t.Error("codes or scales differ")
	}
	// The card fails in the factor, the mismatch, the target, the feedback and the descent.
	for _, c := range []struct{ call, done int }{{50, 0}, {180, 1}, {270, 3}, {302, 4}, {345, 5}} {
		e := engine(t)
		e.slot = 1 << 18
		kernel.SetDevice(e)
		if same := failAt(e, c.call, func() bool { return reflect.DeepEqual(encode(), want) }); !same || e.Err() == nil || e.Spent().Products != int64(c.done) {
			t.Errorf("call %d fails: the same codes and scales %v, %v after %d pieces of work", c.call, same, e.Err(), e.Spent().Products)
		}
	}
}

// TestPackage makes packages with one card, with two and without: the same files. What computes less than the threshold stays on the CPU.
func TestPackage(t *testing.T) {
	for i, quantize := range []string{"{method: gptq, block: 32, budget: {bpw: 6}}", "{method: gptq, block: 32}"} {
		files := func() []manifest.File {
			dir, err := stagetest.Export(t.Context(), t.TempDir(), *checkpoint,
				"calibrate: {tokens: 256, window: 64, probe: 64}\nquantize: "+quantize+"\nverify: {enabled: false}\n")
			if err != nil {
				t.Fatal(err)
			}
			m, err := manifest.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			return m.Files
		}
		want := files()
		for n := range 1 + i {
			cards := []*Engine{engine(t), engine(t)}[:n+1]
			for _, e := range cards {
				e.least, e.moving = *least, []seat{here, there, here}[i+n]
			}
			kernel.SetDevice(cards[0])
			if n > 0 {
				kernel.SetDevice(NewGroup(cards))
			}
			got := files()
			kernel.SetDevice(nil)
			if len(want) == 0 || !reflect.DeepEqual(got, want) {
				t.Errorf("quantize %s, %d cards:\ngot  %v\nwant %v", quantize, n+1, got, want)
			}
			for i, e := range cards {
				s := e.Spent()
				if s.Products == 0 || e.Err() != nil {
					t.Errorf("quantize %s, card %d of %d: %d pieces of work, %v", quantize, i, n+1, s.Products, e.Err())
				}
				t.Logf("quantize %s, card %d of %d: %d pieces of work, %d multiplications", quantize, i, n+1, s.Products, s.Multiplications)
			}
		}
	}
}

// TestOpen refuses what cannot be used.
func TestOpen(t *testing.T) {
	engine(t)
	if _, err := Open(99); err == nil {
		t.Error("card 99 was opened")
	}
	t.Setenv("LLMEXPORT_CUDA_DRIVER", filepath.Join(t.TempDir(), "none.so"))
	if _, err := Open(0); err == nil {
		t.Error("a driver that does not exist was opened")
	}
}

// TestMeasure measures small products, and compares them.
func TestMeasure(t *testing.T) {
	e := engine(t)
	m, err := e.Measure([]Shape{{70, 40}, {40, 70}}, []Shape{{300, 40}}, 50, 1)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Products) != 8 || len(m.Works) != 29 || len(e.held) != 0 || m.Send <= 0 || m.Receive <= 0 || m.Peak <= 0 {
		t.Errorf("measured %+v", m)
	}
	for _, p := range m.Products {
		if p.Differ != 0 || p.Card <= 0 || p.CPU <= 0 || p.Tile128 <= 0 || p.Tile256 <= 0 {
			t.Errorf("%+v", p)
		}
	}
	for _, p := range m.Works {
		if p.Differ != 0 || p.Card <= 0 || p.CPU <= 0 {
			t.Errorf("%+v", p)
		}
	}
}
