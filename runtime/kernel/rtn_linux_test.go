package kernel

import (
	"math/rand/v2"
	"testing"
)

func TestRTNBounds(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(37, 38))
		for _, block := range []int{1, 8, 15, 16, 17, 32, 40, 64, 128} {
			for _, n := range []int{1, 3} {
				x := guarded(t, random(r, block*n))
				lo, hi := guarded(t, make([]float32, n)), guarded(t, make([]float32, n))
				codes := guarded(t, make([]uint8, block*n))
				BlockExtremes(lo, hi, x)
				for bits := 1; bits <= 8; bits++ {
					GridCodes(codes, x, lo, hi, bits)
					if size := len(codes) * bits; size%8 == 0 {
						PackCodes(guarded(t, make([]byte, size/8)), codes, bits)
					}
				}
			}
		}
		for _, n := range []int{63, 64, 65, 129} {
			BF16ToF32(guarded(t, random(r, n)), guarded(t, make([]byte, 2*n)))
			F16ToF32(guarded(t, random(r, n)), guarded(t, make([]byte, 2*n)))
			F32ToF16(guarded(t, make([]byte, 2*n)), guarded(t, random(r, n)))
		}
	})
}
