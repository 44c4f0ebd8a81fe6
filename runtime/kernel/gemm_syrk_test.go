package kernel

import (
	"math/rand/v2"
	"testing"
)

// checkSyrk compares the lower triangle with the canonical order, and the upper one with what it held.
func checkSyrk(t *testing.T, h, x []float32, tokens, n, pad int, f func(h, x []float32, ldh, ldx int)) {
	t.Helper()
	want := append([]float32{}, h...)
	cols := turned(x, tokens, n)
	for i := range n {
		for j := range i + 1 {
			a, b := cols[i*tokens:(i+1)*tokens], cols[j*tokens:(j+1)*tokens]
			for p := 0; p < tokens; p += 256 {
				q := min(p+256, tokens)
				want[i*n+j] += canonicalDot(a[p:q], b[p:q])
			}
		}
	}
	ldh := n + pad
	got := append(spaced(h, n, n, ldh, canary), canaries(9)...)
	f(got[:len(got)-9:len(got)-9], spaced(x, tokens, n, n+2*pad, canary), ldh, n+2*pad)
	checkWindow(t, "Syrk", got, want, n, n, ldh)
}

// syrk is all of Packed.Syrk.
func syrk(h, x []float32, tokens, n, ldh, ldx int) {
	packColumns(x, tokens, n, ldx).Syrk(h, x, 0, n, 0, n, ldh, ldx)
}

// packColumns is the transpose of x [tokens, n].
func packColumns(x []float32, tokens, n, ldx int) *Packed {
	p := new(Packed)
	p.Resize(n, tokens)
	p.PackColumns(x, 0, n, ldx)
	return p
}

func TestSyrk(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(31, 32))
		for _, n := range []int{0, 1, 2, 5, 6, 7, 11, 12, 13, 31, 32, 33, 36, 47, 64, 65, 100} {
			for _, tokens := range []int{0, 1, 5, 40} {
				h, x := random(r, n*n), spiced(r, tokens*n, 1000)
				checkSyrk(t, h, x, tokens, n, n%3, func(h, x []float32, ldh, ldx int) { syrk(h, x, tokens, n, ldh, ldx) })
				checkSyrk(t, h, x, tokens, n, 1, func(h, x []float32, ldh, ldx int) { // by rows and columns
					p := packColumns(x, tokens, n, ldx)
					for from := 0; from < n; {
						to := min(n, from+1+r.IntN(40))
						for lo := 0; lo < n; {
							hi := min(n, lo+PanelRows*(1+r.IntN(3)))
							p.Syrk(h, x, from, to, lo, hi, ldh, ldx)
							lo = hi
						}
						from = to
					}
				})
			}
		}
		for _, s := range [][2]int{{600, 50}, {256, 33}, {257, 12}, {3, 450}} {
			tokens, n := s[0], s[1]
			checkSyrk(t, random(r, n*n), random(r, tokens*n), tokens, n, 1, func(h, x []float32, ldh, ldx int) { syrk(h, x, tokens, n, ldh, ldx) })
		}
		// Whole segments in several calls.
		const tokens, n = 700, 40
		checkSyrk(t, random(r, n*n), random(r, tokens*n), tokens, n, 0, func(h, x []float32, ldh, ldx int) {
			syrk(h, x, 512, n, ldh, ldx)
			syrk(h, x[512*ldx:], tokens-512, n, ldh, ldx)
		})
	})
}

func TestSyrkPanics(t *testing.T) {
	x := make([]float32, 16)
	p := packColumns(x, 4, 4, 4)
	for name, f := range map[string]func(){
		"h":       func() { p.Syrk(x[:15], x, 0, 4, 0, 4, 4, 4) },
		"x":       func() { p.Syrk(x, x[:15], 0, 4, 0, 4, 4, 4) },
		"hi":      func() { p.Syrk(x, x, 0, 4, 0, 5, 4, 4) },
		"lo":      func() { p.Syrk(x, x, 0, 4, 1, 4, 4, 4) },
		"from":    func() { p.Syrk(x, x, -1, 4, 0, 4, 4, 4) },
		"to":      func() { p.Syrk(x, x, 0, 5, 0, 4, 4, 4) },
		"columns": func() { p.PackColumns(x[:15], 0, 4, 4) },
		"dst":     func() { p.TMulT(x[:15], x, 4, 4, 4, 0, 4) },
		"a":       func() { p.TMulT(x, x[:15], 4, 4, 4, 0, 4) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		})
	}
}
