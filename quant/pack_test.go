package quant

import (
	"bytes"
	"encoding/hex"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// unhex reads bytes written in hex with spaces.
func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The bytes are those of the format's description, samples that an engine has read.
func TestPackSamples(t *testing.T) {
	for _, c := range []struct {
		name  string
		bits  int
		codes []uint8
		want  string
	}{
		{"2 bits", 2, []uint8{0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3}, "01 55 aa bf"},
		{"3 bits", 3, []uint8{0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7}, "00 94 9b 92 dd bf"},
		{"4 bits", 4, []uint8{0, 1, 2, 3, 14, 15}, "01 23 ef"},
		{"5 bits", 5, []uint8{31, 0, 16, 1, 0, 0, 0, 31}, "f8 20 10 00 1f"},
		{"6 bits", 6, []uint8{63, 0, 32, 1}, "fc 08 01"},
		{"8 bits", 8, []uint8{0, 128, 255}, "00 80 ff"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := make([]byte, len(c.codes)*c.bits/8)
			Pack(got, c.codes, c.bits)
			if want := unhex(t, c.want); !bytes.Equal(got, want) {
				t.Errorf("% x, want % x", got, want)
			}
		})
	}
}

// A stream is defined bit by bit: code i has bits i*b to i*b+b-1, the most significant first.
func TestPackIsOneStream(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, bits := range []int{1, 2, 3, 4, 5, 6, 7, 8} {
		codes := make([]uint8, 8*11)
		for i := range codes {
			codes[i] = uint8(r.Uint32() >> (32 - bits))
		}
		want := make([]byte, 11*bits)
		for i, c := range codes {
			for k := range bits {
				if c>>(bits-1-k)&1 != 0 {
					at := i*bits + k
					want[at/8] |= 0x80 >> (at % 8)
				}
			}
		}
		got := make([]byte, len(want))
		Pack(got, codes, bits)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%d bits (-want +got):\n%s", bits, diff)
		}
	}
}

func TestPackPanicsOnWrongLength(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	Pack(make([]byte, 3), make([]uint8, 8), 4)
}

// example is the 2 x 64 matrix of the format's worked example, in blocks of 32.
func example() Matrix {
	m := Matrix{Rows: 2, Cols: 64, Data: make([]float32, 128)}
	for j := range 32 {
		m.Data[j] = -1 + 0.125*float32(j%16)
		m.Data[32+j] = 0.5 * float32(j%16)
		m.Data[64+j] = -7 + float32(j%15)
		m.Data[96+j] = 0.25 * float32(j%16-8)
	}
	return m
}

const (
	exampleRow0 = "0123456789abcdef 0123456789abcdef 0123456789abcdef 0123456789abcdef"
	exampleRow1 = "01234568 9abcdef0 12345689 abcdef01 0123456789abcdef 0123456789abcdef"
)

// nibbles turns packed 4-bit codes into one code a byte.
func nibbles(packed []byte) []uint8 {
	var codes []uint8
	for _, b := range packed {
		codes = append(codes, b>>4, b&15)
	}
	return codes
}

func TestPackWorkedExample(t *testing.T) {
	for _, c := range []struct {
		name         string
		spec         Spec
		codes, alpha string
		scale, zero  []float32
	}{
		{
			name: "asymmetric", spec: Spec{Bits: 4, Block: 32, Scale: tensor.F16},
			codes: exampleRow0 + exampleRow1,
			alpha: "0000 0030 0044 0038 7737 773b 0000 0034",
			scale: []float32{0.125, 0.5, 14. / 15, 0.25}, zero: []float32{0, 4, 7. / 15, 0},
		},
		{
			name: "symmetric", spec: Spec{Bits: 4, Block: 32, Symmetric: true, Scale: tensor.F16},
			codes: "12345567 89abbcde 12345567 89abbcde 8899aabbccddeeff 8899aabbccddeeff" +
				"12345678 9abcdef1 23456789 abcdef12 12345567 89abbcde 12345567 89abbcde",
			alpha: "9230 493c 003c 9234",
			scale: []float32{1. / 7, 7.5 / 7, 7. / 7, 2. / 7},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := c.spec.Layout(2, 64)
			if err != nil {
				t.Fatal(err)
			}
			if l.Codes != 64 || l.Alpha != int64(len(unhex(t, c.alpha))) || l.Bytes() != l.Codes+l.Alpha {
				t.Fatalf("layout %+v", l)
			}
			want := unhex(t, c.codes)
			got := make([]byte, l.Codes)
			Pack(got, nibbles(want), 4)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("codes (-want +got):\n%s", diff)
			}
			alpha := make([]byte, l.Alpha)
			PackAlpha(alpha, Blocks{Scale: c.scale, Zero: c.zero}, c.spec)
			if want := unhex(t, c.alpha); !bytes.Equal(alpha, want) {
				t.Errorf("alpha % x, want % x", alpha, want)
			}
		})
	}
}

// The description's own arithmetic takes codes from unrounded scales and rounds both terms afterwards. RTN
// rounds the scale first, derives the zero term from the rounded scale, and only then takes codes: where the
// scale is not a half (row 1, first block: 14/15 becomes 0.93310547) the zero term is half(-7 + 8*0.93310547)
// = 0.46484375 = 3770 instead of half(7/15) = 3777, so that the block's least weight is met exactly. No code of
// this example is close enough to a tie to change: (w-min)/scale grows by 1/4000 only, and 7.5 rounds up in both.
func TestRTNWorkedExample(t *testing.T) {
	w := example()
	s := Spec{Bits: 4, Block: 32, Scale: tensor.F16}
	l, err := s.Layout(w.Rows, w.Cols)
	if err != nil {
		t.Fatal(err)
	}
	b := NewBlocks(l, s)
	if err := Encode(RTN{}, b, w, s, nil); err != nil {
		t.Fatal(err)
	}
	codes, alpha := make([]byte, l.Codes), make([]byte, l.Alpha)
	Pack(codes, b.Codes, 4)
	PackAlpha(alpha, b, s)
	if want := unhex(t, exampleRow0+exampleRow1); !bytes.Equal(codes, want) {
		t.Errorf("codes\n% x, want\n% x", codes, want)
	}
	if want := unhex(t, "0000 0030 0044 0038 7037 773b 0000 0034"); !bytes.Equal(alpha, want) {
		t.Errorf("alpha % x, want % x", alpha, want)
	}
	if got := b.Scale[2]*-8 + b.Zero[2]; got != -7 {
		t.Errorf("least weight is stored as %g", got)
	}
}

func TestPackAlphaFloat32(t *testing.T) {
	got := make([]byte, 8)
	PackAlpha(got, Blocks{Scale: []float32{0.5}, Zero: []float32{-1}}, Spec{Bits: 4, Scale: tensor.F32})
	if want := unhex(t, "000080bf 0000003f"); !bytes.Equal(got, want) {
		t.Errorf("% x, want % x", got, want)
	}
}
