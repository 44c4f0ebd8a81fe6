package kernel

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// Every tier has to give the bits of the generic code. The slices have exactly the length that the call needs, canaries
// lie behind the destinations, and the first element is at an odd offset.

// spiced is random data in which one element of many is an extreme.
func spiced(r *rand.Rand, n, oneOf int) []float32 {
	x := random(r, n+1)[1:]
	for i := range x {
		if r.IntN(oneOf) == 0 {
			x[i] = extremes[r.IntN(len(extremes))]
		}
	}
	return x[:n:n]
}

func canaries(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = canary
	}
	return x
}

// TestInt8MatrixParity takes every width, shapes that fill no panel, group or token tile, and the largest codes.
func TestInt8MatrixParity(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		for bits := 1; bits <= 8; bits++ {
			for _, s := range [][3]int{ // rows, cols, block
				{1, 8, 8}, {3, 12, 12}, {16, 64, 8}, {17, 64, 16}, {31, 72, 24}, {33, 96, 32}, {5, 80, 40}, {16, 192, 64},
				{7, 36, 36}, {4, 33, 33}, {2, 6, 6}, {15, 144, 48}, {48, 256, 128}, {9, 1028, 1028},
			} {
				for name, quantize := range dynquantSchemes {
					t.Run(fmt.Sprintf("w%d/%v/%s", bits, s, name), func(t *testing.T) {
						w := dynquantWeights(s[0], s[1], s[2], bits)
						for _, tokens := range []int{1, 3, 4, 7} {
							checkInt8Mul(t, w, quantize, tokens, [][2]int{{0, s[0]}, {s[0] / 2, s[0]}})
						}
						for i := range w.Codes { // runs of the extremes
							w.Codes[i] = byte((i / 5 % 2) * (1<<bits - 1))
						}
						checkInt8Mul(t, w, quantize, 5, [][2]int{{0, s[0]}})
					})
				}
			}
		}
	})
}

// TestInt8MatrixParityLimits holds sums of codes that would overflow an int16 in any order.
func TestInt8MatrixParityLimits(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		for _, bits := range []int{4, 8} {
			for _, weight := range []byte{0, 1<<bits - 1} {
				for _, code := range []int8{-128, 127} {
					w := dynquantWeights(16, 512, 256, bits)
					for i := range w.Codes {
						w.Codes[i] = weight
					}
					checkInt8Mul(t, w, func(q *QuantizedRows, x []float32, rows, cols, block int) {
						for i := range x { // all but one code of a block
							x[i] = float32(code) + 128
							if i%block == 0 {
								x[i] = 127 - float32(code)
							}
						}
						QuantizeBlocks(q, x, rows, cols, block)
					}, 5, [][2]int{{0, 16}})
				}
			}
		}
	})
}

func TestEngineExpsParity(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(15, 16))
		for n := 0; n <= 72; n += 8 {
			for range 50 {
				x := spiced(r, n, 10)
				for i := range x {
					x[i] *= float32(math.Exp(r.Float64()*10 - 5))
				}
				want, got := canaries(n+9), canaries(n+9)
				engineExpsGeneric(want[:n], x)
				engineExps(got[:n:n], x)
				if i := firstDifference(got, want); i >= 0 {
					t.Fatalf("exp(%x) is %x, want %x", x[i], got[i], want[i])
				}
			}
		}
		x := make([]float32, 1<<16) // a sample of all float32
		for i := range x {
			x[i] = math.Float32frombits(uint32(i)<<16 | r.Uint32()&0xffff)
		}
		want, got := make([]float32, len(x)), make([]float32, len(x))
		engineExpsGeneric(want, x)
		engineExps(got, x)
		if i := firstDifference(got, want); i >= 0 {
			t.Fatalf("exp(%x) is %x, want %x", x[i], got[i], want[i])
		}
	})
}

// TestConvertParity takes all 16-bit values, and float32 values around every rounding of a half.
func TestConvertParity(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		bits := make([]byte, 2<<16)
		for i := range 1 << 16 {
			binary.LittleEndian.PutUint16(bits[2*i:], uint16(i))
		}
		r := rand.New(rand.NewPCG(17, 18))
		var floats []float32
		for i := range 1 << 16 {
			f := F16Value(uint16(i))
			for _, d := range []uint32{0, 1, 0xfff, 0x1000, 0x1001, 0x1fff} {
				floats = append(floats, math.Float32frombits(math.Float32bits(f)+d))
			}
			floats = append(floats, math.Float32frombits(r.Uint32()))
		}
		floats = append(floats, extremes...)
		lengths := []int{1 << 16, convertTestPiece + 1, convertTestPiece + 17}
		for n := range 2*16 + 2 {
			lengths = append(lengths, n)
		}
		for _, n := range lengths {
			for _, c := range []struct {
				name       string
				call, want func([]float32, []byte)
			}{{"bf16", BF16ToF32, bf16ToF32Generic}, {"f16", F16ToF32, f16ToF32Generic}} {
				want, got := canaries(n+9), canaries(n+9)
				src := append(make([]byte, 1), bits[len(bits)-2*n:]...)[1:]
				c.want(want[:n], src)
				c.call(got[:n:n], src[:2*n:2*n])
				for i := range got {
					if math.Float32bits(got[i]) != math.Float32bits(want[i]) { // NaNs keep their bits
						t.Fatalf("%s, %d values: element %d is %x, want %x", c.name, n, i, math.Float32bits(got[i]), math.Float32bits(want[i]))
					}
				}
			}
		}
		for _, n := range append(lengths, len(floats)) {
			want, got := make([]byte, 2*n+9), make([]byte, 2*n+9)
			src := floats[len(floats)-n:]
			f32ToF16Generic(want[:2*n], src)
			F32ToF16(got[:2*n:2*n], src[:n:n])
			if string(got) != string(want) {
				t.Fatalf("float32 to half, %d values", n)
			}
		}
	})
}

// convertTestPiece is the length that the SIMD code converts in one call.
const convertTestPiece = 1 << 14
