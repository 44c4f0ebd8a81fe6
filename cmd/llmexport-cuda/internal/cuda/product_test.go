package cuda

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

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
