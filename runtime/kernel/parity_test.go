package kernel

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// Every tier has to give the bits of the generic code. The slices have exactly the length that the call needs, canaries
// lie after the destinations, and the first element is at an odd offset.

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
						if bits%3 == 0 {
							w.Zero = nil
						}
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

// TestInt8MatrixParityTokens takes every number of tokens that ends in another tile.
func TestInt8MatrixParityTokens(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		for _, bits := range []int{4, 6} {
			w := dynquantWeights(67, 64, 32, bits)
			for name, quantize := range dynquantSchemes {
				for _, tokens := range []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 255, 256, 257} {
					t.Run(fmt.Sprintf("w%d/%s/tokens=%d", bits, name, tokens), func(t *testing.T) {
						checkInt8Mul(t, w, quantize, tokens, [][2]int{{0, 67}, {32, 64}, {31, 65}})
					})
				}
			}
		}
		w := dynquantWeights(32, 1<<15, 64, 4) // more columns than a call takes of several tiles
		checkInt8Mul(t, w, quantizeSym, 17, [][2]int{{0, 32}})
	})
}

// quantizeRows are rows that quantization treats in ways of their own.
func quantizeRows(r *rand.Rand, rows, cols int) []float32 {
	x := random(r, rows*cols)
	for i := range rows {
		row := x[i*cols:][:cols]
		for c := range row {
			switch i % 11 {
			case 1:
				row[c] = 0
			case 2:
				row[c] = -3.25
			case 3:
				row[c] *= 1e-8
			case 4:
				row[c] = float32(c%256-128) / 2 // halves in the way of rounding
			case 5:
				row[c] = 5 + row[c]*1e-3
			case 6:
				row[c] = float32(math.Copysign(0, float64(row[c])))
			case 7:
				row[c] *= 1e35
			case 8:
				row[c] = -float32(c % 2)
			case 9:
				row[c] = float32(c%511) - 255
			}
		}
	}
	return x
}

func TestQuantizeParity(t *testing.T) {
	shapes := [][2]int{{64, 8}, {64, 64}, {72, 24}, {160, 40}, {192, 64}, {1536, 64}, {1028, 1028}}
	for cols := 1; cols <= 70; cols++ {
		shapes = append(shapes, [2]int{cols, cols})
	}
	forEachImpl(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(23, 24))
		var got, parts QuantizedRows // reused, so that they hold what a larger call left
		for _, s := range shapes {
			cols, block := s[0], s[1]
			for name, quantize := range dynquantSchemes {
				for _, rows := range []int{1, 2, 3, 4, 5, 7, 8, 9, 17, 23} {
					x := quantizeRows(r, rows+1, cols)[cols:]
					var want QuantizedRows
					withTier(t, "generic", func() { quantize(&want, x, rows, cols, block) })
					quantize(&got, x, rows, cols, block)
					checkQuantized(t, &got, &want, name)
					parts.reset(rows, cols, block, want.scheme)
					for lo := rows / QuantizeTile * QuantizeTile; lo >= 0; lo -= QuantizeTile {
						parts.Set(x, lo, min(lo+QuantizeTile, rows))
					}
					checkQuantized(t, &parts, &want, name+" in parts")
				}
			}
		}
	})
}

func checkQuantized(t *testing.T, got, want *QuantizedRows, name string) {
	t.Helper()
	if i := firstDifference(got.Scales, want.Scales); i >= 0 || len(got.Scales) != len(want.Scales) {
		t.Fatalf("%s: [%d %d]: scale %d is %x, want %x", name, want.Rows, want.Cols, i, got.Scales[i], want.Scales[i])
	}
	if i := firstDifference(got.Zeros, want.Zeros); i >= 0 || len(got.Zeros) != len(want.Zeros) {
		t.Fatalf("%s: [%d %d]: zero %d is %x, want %x", name, want.Rows, want.Cols, i, got.Zeros[i], want.Zeros[i])
	}
	for r := range want.Rows {
		for c := range want.Cols {
			if g, w := got.code(r, c), want.code(r, c); g != w {
				t.Fatalf("%s: [%d %d]: code %d of row %d is %d, want %d", name, want.Rows, want.Cols, c, r, g, w)
			}
		}
		_, g, n := got.row(r)
		_, w, _ := want.row(r)
		for b := range want.Cols / want.Block {
			for kind := range 3 {
				if g, w := g[(3*b+kind)*n], w[3*b+kind]; !sameBits(g, w) {
					t.Fatalf("%s: [%d %d]: term %d of row %d, block %d is %x, want %x", name, want.Rows, want.Cols, kind, r, b, g, w)
				}
			}
		}
	}
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
						quantizeBlocks(q, x, rows, cols, block)
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
