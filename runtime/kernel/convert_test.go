package kernel

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// halfValue is IEEE 754 spelled out: the meaning of finite half-precision bits.
func halfValue(bits uint16) float64 {
	sign := 1.0
	if bits&0x8000 != 0 {
		sign = -1
	}
	exponent, fraction := int(bits>>10&31), float64(bits&0x3ff)
	if exponent == 0 {
		return sign * math.Ldexp(fraction, -24)
	}
	return sign * math.Ldexp(1024+fraction, exponent-25)
}

func TestF16Value(t *testing.T) {
	for i := range 1 << 16 {
		bits := uint16(i)
		got := F16Value(bits)
		switch {
		case bits&0x7fff > 0x7c00:
			if got == got || math.Float32bits(got)&0x400000 == 0 {
				t.Fatalf("%04x is %x, want a quiet NaN", bits, math.Float32bits(got))
			}
			if back := F16Bits(got); back != bits|0x200 {
				t.Fatalf("NaN %04x came back as %04x", bits, back)
			}
			continue
		case bits&0x7fff == 0x7c00:
			if !math.IsInf(float64(got), 0) || math.Signbit(float64(got)) != (bits&0x8000 != 0) {
				t.Fatalf("%04x is %g", bits, got)
			}
		case float64(got) != halfValue(bits) || math.Signbit(float64(got)) != (bits&0x8000 != 0):
			t.Fatalf("%04x is %g, want %g", bits, got, halfValue(bits))
		}
		if back := F16Bits(got); back != bits {
			t.Fatalf("%04x came back as %04x", bits, back)
		}
	}
}

// Every midpoint of neighbours goes to the even one, and the float32 next to it to its own side.
func TestF16BitsRounding(t *testing.T) {
	for i := range uint16(0x7c00) {
		low, high := halfValue(i), halfValue(i+1) // for the last one, 2^16 stands for infinity
		middle := float32((low + high) / 2)
		even := i + i&1
		for _, c := range []struct {
			x    float32
			want uint16
		}{
			{middle, even},
			{math.Nextafter32(middle, 0), i},
			{math.Nextafter32(middle, math.MaxFloat32), i + 1},
		} {
			if got := F16Bits(c.x); got != c.want {
				t.Fatalf("F16Bits(%g) = %04x, want %04x", c.x, got, c.want)
			}
			if got := F16Bits(-c.x); got != c.want|0x8000 {
				t.Fatalf("F16Bits(%g) = %04x, want %04x", -c.x, got, c.want|0x8000)
			}
		}
	}
	for x, want := range map[float32]uint16{
		0:                           0,
		math.SmallestNonzeroFloat32: 0,
		0x1p-126:                    0,
		65519.996:                   0x7bff,
		65520:                       0x7c00,
		math.MaxFloat32:             0x7c00,
		float32(math.Inf(1)):        0x7c00,
		float32(math.Inf(-1)):       0xfc00,
		-0x1p-149:                   0x8000,
		1:                           0x3c00,
		-2:                          0xc000,
	} {
		if got := F16Bits(x); got != want {
			t.Errorf("F16Bits(%g) = %04x, want %04x", x, got, want)
		}
	}
	if got := F16Bits(float32(math.Copysign(0, -1))); got != 0x8000 {
		t.Errorf("F16Bits(-0) = %04x", got)
	}
	if got := RoundF16(1.0 / 3); got != 0.333251953125 {
		t.Errorf("RoundF16(1/3) = %v", got)
	}
}

func TestToF32(t *testing.T) {
	le := binary.LittleEndian
	values := []float32{0, 1, -2.5, 0.15625, 65504, -0x1p-24}
	for _, c := range []struct {
		dtype  tensor.DType
		encode func([]byte, float32) []byte
	}{
		{tensor.F16, func(b []byte, x float32) []byte { return le.AppendUint16(b, F16Bits(x)) }},
		{tensor.BF16, func(b []byte, x float32) []byte { return le.AppendUint16(b, uint16(math.Float32bits(x)>>16)) }},
		{tensor.F32, func(b []byte, x float32) []byte { return le.AppendUint32(b, math.Float32bits(x)) }},
		{tensor.F64, func(b []byte, x float32) []byte { return le.AppendUint64(b, math.Float64bits(float64(x))) }},
	} {
		t.Run(c.dtype.String(), func(t *testing.T) {
			for n := range len(values) + 1 {
				var src []byte
				for _, x := range values[:n] {
					src = c.encode(src, x)
				}
				dst := make([]float32, n+1)
				dst[n] = canary
				if err := ToF32(dst[:n], src, c.dtype); err != nil {
					t.Fatal(err)
				}
				for i, x := range values[:n] {
					if c.dtype == tensor.BF16 {
						x = math.Float32frombits(math.Float32bits(x) &^ 0xffff)
					}
					if dst[i] != x {
						t.Errorf("value %d is %g, want %g", i, dst[i], x)
					}
				}
				if dst[n] != canary {
					t.Error("wrote past dst")
				}
				if err := ToF32(dst, src, c.dtype); !errors.Is(err, tensor.ErrCorrupt) {
					t.Errorf("short source: %v", err)
				}
			}
		})
	}
	for _, d := range []tensor.DType{tensor.Invalid, tensor.U8, tensor.I64, tensor.F8E4M3, tensor.DType(200)} {
		if err := ToF32(nil, nil, d); !errors.Is(err, tensor.ErrUnsupported) {
			t.Errorf("%s: %v", d, err)
		}
	}
}

func TestF64ToF32(t *testing.T) {
	var src []byte
	for _, x := range []float64{0.1, 1e300, -1e300, 1e-300} {
		src = binary.LittleEndian.AppendUint64(src, math.Float64bits(x))
	}
	dst := make([]float32, 4)
	if err := ToF32(dst, src, tensor.F64); err != nil {
		t.Fatal(err)
	}
	inf := float32(math.Inf(1))
	if want := [4]float32{0.1, inf, -inf, 0}; [4]float32(dst) != want {
		t.Errorf("got %v, want %v", dst, want)
	}
}

func TestF32ToF16Panics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	F32ToF16(make([]byte, 3), make([]float32, 1))
}

func TestNonFinite(t *testing.T) {
	x := []float32{0, 1, -math.MaxFloat32, math.SmallestNonzeroFloat32}
	if got := NonFinite(x); got != -1 {
		t.Errorf("finite values: %d", got)
	}
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		y := append(append([]float32{}, x...), float32(bad), float32(bad))
		if got := NonFinite(y); got != 4 {
			t.Errorf("%g: %d", bad, got)
		}
	}
}

func FuzzF16(f *testing.F) {
	for _, x := range []float32{0, 1, 65519.99, 0x1p-24, 0x1p-25, float32(math.Inf(-1)), float32(math.NaN())} {
		f.Add(math.Float32bits(x))
	}
	f.Fuzz(func(t *testing.T, bits uint32) {
		x := math.Float32frombits(bits)
		src, dst := []float32{x}, []byte{0, 0, 0x5a}
		F32ToF16(dst[:2], src)
		if dst[2] != 0x5a {
			t.Fatal("wrote past dst")
		}
		h := binary.LittleEndian.Uint16(dst)
		y := make([]float32, 1)
		F16ToF32(y, dst[:2])
		if x != x {
			if y[0] == y[0] {
				t.Fatalf("NaN %08x became %g", bits, y[0])
			}
			return
		}
		if math.Abs(float64(x)) >= 65520 {
			if h&0x7fff != 0x7c00 {
				t.Fatalf("%g became %04x", x, h)
			}
			return
		}
		// No neighbour is nearer, and a tie has an even last bit.
		d := math.Abs(float64(x) - float64(y[0]))
		for _, n := range []uint16{h + 1, h - 1} {
			if n&0x7c00 == 0x7c00 || n&0x8000 != h&0x8000 {
				continue
			}
			if e := math.Abs(float64(x) - halfValue(n)); e < d || e == d && h&1 != 0 {
				t.Fatalf("%g became %04x, %04x is the right one", x, h, n)
			}
		}
	})
}

func BenchmarkConvert(b *testing.B) {
	for _, c := range []struct {
		name string
		size int
		f    func([]float32, []byte)
	}{{"BF16ToF32", 2, BF16ToF32}, {"F16ToF32", 2, F16ToF32}, {"F32FromBytes", 4, F32FromBytes}} {
		b.Run(c.name, func(b *testing.B) {
			dst := make([]float32, 1<<16)
			src := make([]byte, c.size<<16)
			for i := range src {
				src[i] = byte(i * 7)
			}
			b.SetBytes(int64(len(src)))
			for b.Loop() {
				c.f(dst, src)
			}
		})
	}
	b.Run("F32ToF16", func(b *testing.B) {
		src, dst := make([]float32, 1<<16), make([]byte, 2<<16)
		for i := range src {
			src[i] = float32(i) * 0.01
		}
		b.SetBytes(int64(len(dst)))
		for b.Loop() {
			F32ToF16(dst, src)
		}
	})
}

func TestF32ToBF16(t *testing.T) {
	for bits, want := range map[uint32]uint16{
		0x3f800000: 0x3f80, 0x3f808000: 0x3f80, 0x3f808001: 0x3f81, 0x3f818000: 0x3f82, 0xbf818000: 0xbf82, 0x80000000: 0x8000,
		0x7f7fffff: 0x7f80, 0x7f800000: 0x7f80, 0xff800000: 0xff80, 0x7f800001: 0x7fc0, 0xffffffff: 0xffff, 1: 0, 0x00018000: 2,
	} {
		dst := []uint16{7, 7}
		F32ToBF16(dst, []float32{math.Float32frombits(bits)})
		if dst[0] != want || dst[1] != 7 {
			t.Fatalf("%08x: %04x, want %04x", bits, dst, want)
		}
	}
}
