package kernel

import (
	"math/rand/v2"
	"testing"
)

func TestRotateParity(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(51, 52))
		for half := range 2*16 + 2 {
			for _, rest := range []int{0, 1, 5} {
				for _, heads := range []int{0, 1, 3, 5} {
					checkRotate(t, r, heads, 2*half, 2*half+rest, 1<<30)
					checkRotate(t, r, heads, 2*half, 2*half+rest, 15)
				}
			}
		}
		for _, s := range [][3]int{{16, 128, 128}, {3, 64, 256}, {2, 160, 161}, {300, 64, 64}} {
			checkRotate(t, r, s[0], s[1], s[2], 1<<30)
		}
	})
}

// checkRotate compares heads of dim elements, cut of them turned, with the definition, apart and in place.
func checkRotate(t *testing.T, r *rand.Rand, heads, cut, dim, oneOf int) {
	t.Helper()
	n := heads * dim
	x, cos, sin, gamma := spiced(r, n, oneOf), spiced(r, cut, oneOf), spiced(r, cut, oneOf), spiced(r, dim, 1<<30)
	want := append(append([]float32{}, x...), canaries(9)...)
	rotateGeneric(want[:n], x, cos, sin, heads, dim)
	got := canaries(n + 9)
	RotateHeads(got[:n:n], x, cos, sin, heads, dim)
	if i := firstDifference(got, want); i >= 0 {
		t.Fatalf("%d heads, %d of %d: element %d is %x, want %x", heads, cut, dim, i, got[i], want[i])
	}
	copy(got, x)
	RotateHeads(got[:n:n], got[:n], cos, sin, heads, dim)
	if i := firstDifference(got, want); i >= 0 {
		t.Fatalf("%d heads, %d of %d, in place: element %d is %x, want %x", heads, cut, dim, i, got[i], want[i])
	}
	for h := range heads {
		RotateHeads(got[h*dim:(h+1)*dim], x[h*dim:(h+1)*dim], cos, sin, 1, dim)
	}
	if i := firstDifference(got, want); i >= 0 {
		t.Fatalf("%d heads, %d of %d, one by one: element %d is %x, want %x", heads, cut, dim, i, got[i], want[i])
	}
	if n == 0 {
		return
	}
	engineNormGeneric(want[:n], x, gamma, heads, 1e-6)
	rotateGeneric(want[:n], want[:n], cos, sin, heads, dim)
	EngineNormRotateHeads(got[:n:n], x, gamma, cos, sin, heads, dim, 1e-6)
	if i := firstDifference(got, want); i >= 0 {
		t.Fatalf("%d heads, %d of %d, with a norm: element %d is %x, want %x", heads, cut, dim, i, got[i], want[i])
	}
}
