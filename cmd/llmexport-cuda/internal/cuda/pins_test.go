package cuda

import (
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// TestPins computes with rows, and results, that are pinned: nothing is copied from or to them after the work, so the program changes them at once, and
// they travel as they are. Memory that the driver does not pin is copied as before.
func TestPins(t *testing.T) {
	const m, n, k = 130, 256, 512
	for _, refused := range []bool{false, true} {
		e := engine(t)
		whole, sent, pinned := *e.driver, 0, 0
		memory := make([]float32, 1<<19)
		there := func(p unsafe.Pointer) bool {
			return uintptr(p)-uintptr(unsafe.Pointer(&memory[0])) < uintptr(4*len(memory))
		}
		e.driver.pinHost = func(p unsafe.Pointer, n uint64, flags uint32) int32 {
			if refused {
				return 1
			}
			pinned++
			return whole.pinHost(p, n, flags)
		}
		e.driver.unpinHost = func(p unsafe.Pointer) int32 {
			pinned--
			return whole.unpinHost(p)
		}
		e.driver.toDevice = func(to uint64, from unsafe.Pointer, n uint64, s uintptr) int32 {
			if there(from) {
				sent++
			}
			return whole.toDevice(to, from, n, s)
		}
		e.driver.toHost = func(to unsafe.Pointer, from, n uint64, s uintptr) int32 {
			if there(to) {
				sent++
			}
			return whole.toHost(to, from, n, s)
		}
		other := engine(t)
		unpin := NewGroup([]*Engine{e, other}).Pin(memory)
		if small := e.Pin(make([]float32, 100)); e.pins.has(make([]float32, 1<<16)) {
			t.Error("other memory is taken for pinned")
		} else {
			small()
		}
		e.pins.going.Wait()
		x, dst := memory[1000:][:m*k], memory[1<<18:][:m*n]
		sums := make([]float32, k*k)
		want := slices.Clone(sums)
		for i := range 20 {
			r := rand.New(rand.NewPCG(3, uint64(i)))
			a, b := floats(r, m*k, false), floats(r, n*k, false)
			var packed kernel.Packed
			packed.Pack(b, n, k, k)
			product := make([]float32, m*n)
			packed.MulT(product, a, m, n, k, 0, n)
			copy(x, a)
			if !e.Compute(&kernel.Product{Dst: dst, Rows: m, Cols: n, Stride: n, Parts: []kernel.Part{part(x, kernel.ByRow, k, packed.Factor(), k)}}) ||
				differ(dst, product) > 0 {
				t.Fatalf("product %d, refused %v: %d of %d elements differ", i, refused, differ(dst, product), m*n)
			}
			f := kernel.Factor{Data: x, Layout: kernel.ByPosition, Stride: k}
			if !e.Compute(&kernel.Product{Dst: sums, Rows: k, Cols: k, Stride: k, Sum: kernel.AddParts, Stay: true, Parts: []kernel.Part{{A: f, B: f, K: m}}}) {
				t.Fatalf("sum %d, refused %v: not computed", i, refused)
			}
			clear(x)
			turned, squares := make([]float32, k*m), make([]float32, k*k)
			for i := range m {
				for p := range k {
					turned[p*m+i] = a[i*k+p]
				}
			}
			kernel.MatMul(squares, turned, a, k, k, m, k, m, k)
			kernel.Add(want, want, squares)
		}
		if err := e.Settle(sums); err != nil || differ(sums, want) > 0 {
			t.Errorf("refused %v: %d of %d sums differ: %v", refused, differ(sums, want), k*k, err)
		}
		if other.pins.has(x) == refused {
			t.Errorf("refused %v: the other card of a group does not know", refused)
		}
		if unpin(); pinned != 0 || e.pins.has(x) || (sent > 0) == refused {
			t.Errorf("refused %v: %d pieces traveled without a copy, and %d of memory are still pinned", refused, sent, pinned)
		}
	}
}
