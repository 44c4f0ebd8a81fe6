package kernel

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// sumsOfRows are the CRC-32 of rows of width elements.
func sumsOfRows(t *testing.T, x []float32, width int) []uint32 {
	t.Helper()
	var sums []uint32
	for ; len(x) > 0; x = x[width:] {
		b, err := binary.Append(nil, binary.LittleEndian, x[:width])
		if err != nil {
			t.Fatal(err)
		}
		sums = append(sums, crc32.ChecksumIEEE(b))
	}
	return sums
}

// TestArmMatrixGoldens holds layers against the engine on arm64, bit by bit. The recorded layers are those of
// TestDynQuantGoldens, except for what NewArmMatrix refuses.
func TestArmMatrixGoldens(t *testing.T) {
	layers := readDynquantGoldens(t)
	for _, cpu := range []struct {
		ArmCPU
		half    bool
		file    string
		refused string
	}{
		{ArmI8MM, false, "arm64-i8mm.bin", "cols30 cols36 rows2-cols4"},
		{ArmSDOT, false, "arm64-sdot.bin", "cols30 cols36 rows2-cols4"},
		{ArmBase, false, "arm64-base.bin", "cols30 cols36 rows2-cols4 rows1-cols8"},
		{ArmI8MM, true, "arm64-half-i8mm.bin", "cols30 cols36 rows2-cols4"},
		{ArmSDOT, true, "arm64-half-sdot.bin", "cols30 cols36 rows2-cols4"},
	} {
		data, err := os.ReadFile(filepath.Join("testdata", "dynquant", cpu.file))
		if err != nil {
			t.Fatal(err)
		}
		r := bytes.NewReader(data)
		for _, g := range layers {
			var h struct {
				Name   [32]byte
				Tokens uint32
			}
			sums := make([]uint32, g.tokens)
			for _, v := range []any{&h, sums} {
				if err := binary.Read(r, binary.LittleEndian, v); err != nil {
					t.Fatalf("%s: %v", cpu.file, err)
				}
			}
			if name := string(bytes.TrimRight(h.Name[:], "\x00")); name != g.name || int(h.Tokens) != g.tokens {
				t.Fatalf("%s: %s of %d tokens, want %s of %d", cpu.file, name, h.Tokens, g.name, g.tokens)
			}
			t.Run(strings.TrimSuffix(cpu.file, ".bin")+"/"+g.name, func(t *testing.T) {
				refused := false
				for _, prefix := range strings.Fields(cpu.refused) {
					refused = refused || strings.HasPrefix(g.name, prefix)
				}
				m, err := NewArmMatrix(g.weights, ArmForm{cpu.ArmCPU, cpu.half, g.weights.Rows})
				if (err != nil) != refused {
					t.Fatalf("refused: %v, want %v", err, refused)
				}
				if refused {
					return
				}
				got := make([]float32, g.tokens*m.rows)
				x := g.x
				if cpu.half {
					x = slices.Clone(x)
					HalfStore(x, x)
				}
				m.Mul(got, x, g.tokens, m.rows)
				for i, sum := range sumsOfRows(t, got, m.rows) {
					if sum != sums[i] {
						t.Errorf("token %d differs", i)
					}
				}
			})
		}
		if r.Len() > 0 {
			t.Errorf("%s: %d bytes too many", cpu.file, r.Len())
		}
	}
}

// TestArmWraps: two products of -128 and -128 do not fit the int16 that sums of two are kept in without dot products.
func TestArmWraps(t *testing.T) {
	x := make([]float32, 16)
	for i := range x {
		x[i] = -1
	}
	x[0] = 1
	w := WeightCodes{Rows: 1, Cols: 16, Block: 16, Bits: 8, Codes: make([]uint8, 16), Scale: []float32{1}}
	y := map[ArmCPU]float32{}
	for _, cpu := range []ArmCPU{ArmI8MM, ArmSDOT, ArmBase} {
		m, err := NewArmMatrix(w, ArmForm{CPU: cpu, Rows: 1})
		if err != nil {
			t.Fatal(err)
		}
		var got [1]float32
		m.Mul(got[:], x, 1, 1)
		y[cpu] = got[0]
	}
	const lost = 7 << 16 * 2. / 255 // seven sums of two, in steps of the activations
	if y[ArmI8MM] != y[ArmSDOT] || math.Abs(float64(y[ArmI8MM]-y[ArmBase])-lost) > .01 {
		t.Errorf("%v: without dot products %g less, want %g", y, y[ArmI8MM]-y[ArmBase], float64(lost))
	}
}

// TestArmOpsGoldens holds the float ops against the engine on arm64, bit by bit.
func TestArmOpsGoldens(t *testing.T) {
	for _, g := range readEngineGoldens(t, "arm64.bin") {
		tokens := uint32(0)
		for _, n := range g.calls {
			tokens += n
		}
		switch {
		case testing.Short() && tokens > 40: // attention in portable code takes long
		case strings.HasPrefix(g.name, "norm-3x1001-packed"): // the engine adds channels that fill no vector in another order
		default:
			t.Run(g.name, func(t *testing.T) { g.check(t, g.compute(true)) })
		}
	}
}
