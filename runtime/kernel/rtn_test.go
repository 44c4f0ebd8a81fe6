package kernel

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// rtnLengths are block lengths around the assembly's group and piece.
func rtnLengths() []int {
	l := []int{1<<14 - 1, 1 << 14, 1<<14 + 1, 1<<14 + 16, 1<<15 + 40}
	for n := 1; n <= 66; n++ {
		l = append(l, n)
	}
	return append(l, 128, 576, 896)
}

func TestBlockExtremes(t *testing.T) {
	negative := float32(math.Copysign(0, -1))
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	minusNaN := math.Float32frombits(math.Float32bits(nan) | 1<<31)
	for _, c := range []struct{ x, want []float32 }{
		{[]float32{3}, []float32{3, 3}},
		{[]float32{3, -1, 2}, []float32{-1, 3}},
		{[]float32{0, negative, 0}, []float32{negative, 0}},
		{[]float32{-2, -inf, inf}, []float32{-inf, inf}},
		{[]float32{inf, nan, -1}, []float32{-1, nan}},
		{[]float32{-inf, minusNaN, -1}, []float32{minusNaN, -1}},
	} {
		got := make([]float32, 2)
		BlockExtremes(got[:1], got[1:], c.x)
		for i := range got {
			if math.Float32bits(got[i]) != math.Float32bits(c.want[i]) {
				t.Errorf("%v: %v, want %v", c.x, got, c.want)
			}
		}
	}
}

func TestBlockExtremesParity(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(31, 32))
		for _, block := range rtnLengths() {
			for _, n := range []int{1, 2, 5, 33} {
				if block*n > 1<<17 {
					continue
				}
				for _, oneOf := range []int{1 << 30, 40} {
					x := spiced(r, block*n, oneOf)
					wantLo, wantHi := canaries(n+3), canaries(n+3)
					gotLo, gotHi := canaries(n+3), canaries(n+3)
					blockExtremesGeneric(wantLo[:n], wantHi[:n], x, block)
					BlockExtremes(gotLo[:n:n], gotHi[:n:n], x)
					for i := range gotLo { // NaNs keep their bits
						if math.Float32bits(gotLo[i]) != math.Float32bits(wantLo[i]) || math.Float32bits(gotHi[i]) != math.Float32bits(wantHi[i]) {
							t.Fatalf("%d blocks of %d: block %d has %x to %x, want %x to %x", n, block, i, gotLo[i], gotHi[i], wantLo[i], wantHi[i])
						}
					}
				}
			}
		}
	})
}

func TestGridCodesParity(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(33, 34))
		for _, block := range rtnLengths() {
			for bits := 1; bits <= 8; bits++ {
				n := 1 + r.IntN(5)
				x := random(r, block*n+1)[1:]
				zero, inverse := random(r, n), random(r, n)
				for i := range x {
					switch r.IntN(8) {
					case 0: // a tie
						b := i / block
						inverse[b], zero[b] = 4, 0.5
						x[i] = float32(r.IntN(512)-256) / 8
					case 1: // far off the grid
						x[i] *= 1 << 18
					}
				}
				want, got := bytes.Repeat([]byte{0xa5}, len(x)+9), bytes.Repeat([]byte{0xa5}, len(x)+9)
				gridCodesGeneric(want[:len(x)], x, zero, inverse, block, bits)
				GridCodes(got[:len(x):len(x)], x, zero, inverse, bits)
				if !bytes.Equal(got, want) {
					t.Fatalf("%d blocks of %d, %d bits", n, block, bits)
				}
			}
		}
	})
}

func TestPackCodesParity(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(35, 36))
		for bits := 1; bits <= 8; bits++ {
			for _, n := range append(rtnLengths(), 0) {
				if n*bits%8 != 0 {
					continue
				}
				codes := make([]uint8, n+1)[1:]
				for i := range codes {
					codes[i] = uint8(r.Uint32() >> (32 - bits))
				}
				size := n * bits / 8
				want, got := bytes.Repeat([]byte{0xa5}, size+17), bytes.Repeat([]byte{0xa5}, size+17)
				packCodesGeneric(want[:size], codes, bits)
				PackCodes(got[:size:size], codes, bits)
				if !bytes.Equal(got, want) {
					t.Fatalf("%d codes of %d bits: % x, want % x", n, bits, got, want)
				}
			}
		}
	})
}

func TestRTNPanics(t *testing.T) {
	f := func(n int) []float32 { return make([]float32, n) }
	for name, call := range map[string]func(){
		"extremes of unequal lengths":  func() { BlockExtremes(f(1), f(2), f(4)) },
		"extremes of a broken block":   func() { BlockExtremes(f(2), f(2), f(5)) },
		"extremes of empty blocks":     func() { BlockExtremes(f(2), f(2), nil) },
		"extremes without blocks":      func() { BlockExtremes(nil, nil, f(2)) },
		"codes of unequal lengths":     func() { GridCodes(make([]uint8, 3), f(4), f(1), f(1), 4) },
		"codes of unequal terms":       func() { GridCodes(make([]uint8, 4), f(4), f(1), f(2), 4) },
		"codes of 9 bits":              func() { GridCodes(make([]uint8, 4), f(4), f(1), f(1), 9) },
		"codes that end within a byte": func() { PackCodes(make([]byte, 2), make([]uint8, 5), 3) },
		"packed codes of 0 bits":       func() { PackCodes(nil, make([]uint8, 4), 0) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			call()
		})
	}
	BlockExtremes(nil, nil, nil)
	GridCodes(nil, nil, nil, nil, 4)
}

func BenchmarkRTN(b *testing.B) {
	const block = 64
	x := random(rand.New(rand.NewPCG(1, 1)), 1<<14)
	lo, hi := make([]float32, len(x)/block), make([]float32, len(x)/block)
	codes, packed := make([]uint8, len(x)), make([]byte, len(x))
	run := func(name string, f func()) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(4 * len(x)))
			for b.Loop() {
				f()
			}
		})
	}
	run("BlockExtremes", func() { BlockExtremes(lo, hi, x) })
	run("GridCodes", func() { GridCodes(codes, x, lo, hi, 4) })
	clear(codes)
	for _, bits := range []int{2, 3, 4, 5, 6} {
		run(fmt.Sprintf("PackCodes%d", bits), func() { PackCodes(packed[:len(x)*bits/8], codes, bits) })
	}
}
