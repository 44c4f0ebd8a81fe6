package kernel

import (
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"unsafe"
)

// guarded copies x to memory after which a page may be neither read nor written: a kernel that goes beyond the end of
// a slice, by a single byte, ends the test.
func guarded[T any](t *testing.T, x []T) []T {
	t.Helper()
	page := os.Getpagesize()
	size := len(x) * int(unsafe.Sizeof(x[0]))
	pages := (size+page-1)/page*page + page
	m, err := syscall.Mmap(-1, 0, pages, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Munmap(m) })
	end := pages - page
	if err := syscall.Mprotect(m[end:], syscall.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	g := unsafe.Slice((*T)(unsafe.Pointer(&m[end-size])), len(x))
	copy(g, x)
	return g
}

func TestBounds(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(21, 22))
		float := func(n int) []float32 { return guarded(t, random(r, n)) }
		for _, bits := range []int{4, 8} {
			for _, s := range [][3]int{{1, 8, 8}, {17, 36, 36}, {33, 7, 7}, {64, 72, 24}, {32, 64, 64}} {
				w := dynquantWeights(s[0], s[1], s[2], bits)
				w.Codes = guarded(t, w.Codes)
				if bits == 4 {
					w.Codes, w.Nibbles = nil, guarded(t, stored(w.Codes))
				}
				m, err := NewInt8Matrix(w, 1)
				if err != nil {
					t.Fatal(err)
				}
				if data, sums := m.panelArrays(); data != nil {
					*data, *sums = guarded(t, *data), guarded(t, *sums)
				}
				m.bias, m.tails = guarded(t, m.bias), guarded(t, m.tails)
				for name, quantize := range dynquantSchemes {
					for _, tokens := range []int{1, 2, 4, 5, 8, 17} {
						var q QuantizedRows
						x := guarded(t, dynquantRows(tokens, s[1]))
						quantize(&q, x, tokens, s[1], s[2])
						q.codes, q.terms = guarded(t, q.codes), guarded(t, q.terms)
						if name != "sym" {
							q.Zeros = guarded(t, q.Zeros)
						}
						q.Set(x, 0, tokens)
						m.Mul(float(tokens*s[0]), &q, 0, s[0])
					}
				}
			}
		}
		for _, n := range []int{1, 7, 8, 9, 15, 16, 17} {
			engineExps(float(n&^7+8), float(n&^7+8))
			Exps(guarded(t, make([]float64, n)), float(n), 1)
			ExpsInPlace(guarded(t, make([]float64, n)))
			Exponents(float(n), float(n))
			ScaleExact(float(n), float(n), 3)
			BF16ToF32(float(n), guarded(t, make([]byte, 2*n)))
			F16ToF32(float(n), guarded(t, make([]byte, 2*n)))
			F32ToF16(guarded(t, make([]byte, 2*n)), float(n))
		}
	})
}
