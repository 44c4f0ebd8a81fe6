package mnn_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// memory is a weight file in memory.
type memory []byte

func (m memory) Size() int64 { return int64(len(m)) }

func (m memory) Bytes(off, n int64) ([]byte, error) {
	if off < 0 || n < 0 || off > m.Size() || n > m.Size()-off {
		return nil, tensor.ErrCorrupt
	}
	return m[off : off+n : off+n], nil
}

// stored writes a matrix with a bias behind three other bytes, and the op that reads it.
func stored(t testing.TB, w quant.Matrix, s quant.Spec, bias []float32) (memory, *mnn.Convolution, quant.Blocks) {
	t.Helper()
	l, err := s.Layout(w.Rows, w.Cols)
	if err != nil {
		t.Fatal(err)
	}
	b := quant.NewBlocks(l, s)
	if err := quant.Encode(quant.RTN{}, b, w, s, nil); err != nil {
		t.Fatal(err)
	}
	file := mnn.AppendHeader([]byte("abc"), w.Rows, w.Cols, s.Bits)
	if got := int64(len(file) - 3); got != mnn.HeaderSize(w.Rows, w.Cols, s.Bits) {
		t.Fatalf("header of %d bytes, HeaderSize says %d", got, mnn.HeaderSize(w.Rows, w.Cols, s.Bits))
	}
	codes, alpha := make([]byte, l.Codes), make([]byte, l.Alpha)
	quant.Pack(codes, b.Codes, s.Bits)
	quant.PackAlpha(alpha, b, s)
	size := int64(len(file)-3) + l.Codes
	file = append(append(file, codes...), alpha...)
	for _, v := range bias {
		file = binary.LittleEndian.AppendUint32(file, math.Float32bits(v))
	}
	c := &mnn.Convolution{
		KernelX: 1, KernelY: 1, StrideX: 1, StrideY: 1, DilateX: 1, DilateY: 1, Group: 1,
		Outputs: int32(w.Rows), Inputs: int32(w.Cols), External: []int64{3, size, l.Alpha, 4 * int64(len(bias)), 0},
		Quan: &mnn.Quan{Type: 1, MaxOrBits: int32(s.HeaderBits()), QuantScale: 1, ShapeInt32: mnn.WideShape(w.Rows, w.Cols), ScaleFP16: s.Scale == tensor.F16},
	}
	if !s.Symmetric {
		c.Quan.Min, c.Quan.ReadType = 1, int32(l.Rows*l.Blocks)
	}
	return file, c, b
}

// agree demands that the reader finds the codes, terms and bias that the writer was given, in any window of
// rows, and that its floats are those numbers combined.
func agree(t *testing.T, w quant.Matrix, s quant.Spec, bias []float32) {
	t.Helper()
	file, c, b := stored(t, w, s, bias)
	m, err := c.Open(file)
	if err != nil {
		t.Fatalf("%v: %v", s, err)
	}
	blocks := len(b.Scale) / w.Rows
	if m.Rows != w.Rows || m.Cols != w.Cols || m.Bits != s.Bits || m.Blocks != blocks || m.Symmetric != s.Symmetric || !m.Linear {
		t.Fatalf("%v: opened as %d x %d, %d bits, %d blocks, symmetric %t, linear %t", s, m.Rows, m.Cols, m.Bits, m.Blocks, m.Symmetric, m.Linear)
	}
	same := func(what string, got, want []float32) {
		if len(got) != len(want) {
			t.Fatalf("%v: %d %s, want %d", s, len(got), what, len(want))
		}
		for i := range got {
			if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
				t.Fatalf("%v: %s %d is %g, want %g", s, what, i, got[i], want[i])
			}
		}
	}
	same("scales", m.Scale, b.Scale)
	same("zero terms", m.Zero, b.Zero)
	same("biases", m.Bias, bias)
	for _, lo := range []int{0, 1, w.Rows - 1} {
		for _, hi := range []int{lo + 1, w.Rows} {
			if lo >= w.Rows || hi > w.Rows {
				continue
			}
			n := (hi - lo) * w.Cols
			codes, floats := make([]uint8, n+1), make([]float32, n+1)
			codes[n], floats[n] = 0x5a, 7
			m.Unpack(codes, lo, hi)
			if !bytes.Equal(codes[:n], b.Codes[lo*w.Cols:hi*w.Cols]) || codes[n] != 0x5a {
				t.Fatalf("%v: codes of rows %d to %d differ", s, lo, hi)
			}
			m.Rows32(floats, make([]uint8, n), lo, hi)
			for i, v := range floats[:n] {
				k := (lo*w.Cols + i) / (w.Cols / blocks)
				want := b.Scale[k] * float32(int(codes[i])-1<<(s.Bits-1))
				if !s.Symmetric {
					want = float32(want) + b.Zero[k]
				}
				if v != want {
					t.Fatalf("%v: weight %d of rows %d to %d is %g, want %g", s, i, lo, hi, v, want)
				}
				if d := math.Abs(float64(v) - float64(w.Data[lo*w.Cols+i])); w.Data[lo*w.Cols+i] != 0 &&
					!(d <= s.Bound(b.Scale[k], zero(b, k))+0x1p-22*math.Abs(float64(v))) {
					t.Fatalf("%v: weight %g came back as %g", s, w.Data[lo*w.Cols+i], v)
				}
			}
			if floats[n] != 7 {
				t.Fatalf("%v: wrote behind the rows", s)
			}
		}
	}
}

func zero(b quant.Blocks, k int) float32 {
	if b.Zero == nil {
		return 0
	}
	return b.Zero[k]
}

func random(rows, cols int) quant.Matrix {
	r := rand.New(rand.NewPCG(uint64(rows), uint64(cols)))
	w := quant.Matrix{Rows: rows, Cols: cols, Data: make([]float32, rows*cols)}
	for i := range w.Data {
		w.Data[i] = float32(r.NormFloat64())
	}
	return w
}

func TestWriterAndReaderAgree(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	for _, bits := range []int{2, 3, 4, 5, 6, 8} {
		for _, symmetric := range []bool{false, true} {
			for _, scale := range []tensor.DType{tensor.F16, tensor.F32} {
				for _, c := range []struct{ rows, cols, block int }{
					{3, 128, 32}, {3, 128, 64}, {3, 128, 128}, {1, 256, 128}, {3, 128, quant.WholeRow}, {5, 24, quant.WholeRow}, {2, 8, quant.WholeRow},
					// One dimension beyond 65535: 32 bits in the header.
					{1<<16 - 1, 8, quant.WholeRow}, {1 << 16, 8, quant.WholeRow}, {1, 1 << 16, 64},
				} {
					s := quant.Spec{Bits: bits, Block: c.block, Symmetric: symmetric, Scale: scale}
					if c.rows*c.cols > 1<<15 && bits != 3 && bits != 8 {
						continue
					}
					t.Run(fmt.Sprintf("%v/%dx%d", s, c.rows, c.cols), func(t *testing.T) {
						bias := []float32(nil)
						if symmetric {
							bias = random(1, c.rows).Data
						}
						agree(t, random(c.rows, c.cols), s, bias)
					})
				}
			}
		}
	}
}

// The worked example of the format's description, with its own terms: 4 bits, blocks of 32.
func TestOpenWorkedExample(t *testing.T) {
	file := mnn.AppendHeader(nil, 2, 64, 4)
	if want := "\x02\x02\x00\x40\x00\x10\xf8\xf9\xfa\xfb\xfc\xfd\xfe\xff\x00\x01\x02\x03\x04\x05\x06\x07"; string(file) != want {
		t.Fatalf("header % x", file)
	}
	ramp := []byte{0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef}
	for range 4 {
		file = append(file, ramp...)
	}
	file = append(file, 0x01, 0x23, 0x45, 0x68, 0x9a, 0xbc, 0xde, 0xf0, 0x12, 0x34, 0x56, 0x89, 0xab, 0xcd, 0xef, 0x01)
	file = append(append(file, ramp...), ramp...)
	file = append(file, 0, 0, 0, 0x30, 0, 0x44, 0, 0x38, 0x77, 0x37, 0x77, 0x3b, 0, 0, 0, 0x34)
	c := &mnn.Convolution{KernelX: 1, KernelY: 1, StrideX: 1, StrideY: 1, DilateX: 1, DilateY: 1, Group: 1, Outputs: 2, Inputs: 64,
		External: []int64{0, 86, 16, 0, 0}, Quan: &mnn.Quan{Type: 1, Min: 1, ReadType: 4, QuantScale: 1, ScaleFP16: true}}
	m, err := c.Open(memory(file))
	if err != nil {
		t.Fatal(err)
	}
	row := make([]float32, 64)
	m.Rows32(row, make([]uint8, 64), 1, 2)
	for i, want := range []float64{-6.998291, -6.0651855, -5.13208, -4.1989746} {
		if math.Abs(float64(row[i])-want) > 1e-6 {
			t.Errorf("weight %d is %g, want %g", i, row[i], want)
		}
	}
	// The other convention gives the block's minimum: zero = minimum + 8*scale.
	c.Quan.Min = -8
	for _, at := range []int{86, 90, 94, 98} {
		copy(file[at:], []byte{0, 0})
	}
	if m, err = c.Open(memory(file)); err != nil {
		t.Fatal(err)
	}
	if m.Zero[1] != 4 || m.Scale[1] != 0.5 {
		t.Errorf("minimum 0 and scale 0.5 gave zero term %g, scale %g", m.Zero[1], m.Scale[1])
	}
}

// Damage to the op or the file is an error, never a panic.
func TestOpenRefuses(t *testing.T) {
	s := quant.Spec{Bits: 4, Block: 32, Scale: tensor.F16}
	for name, damage := range map[string]func(file *memory, c *mnn.Convolution){
		"no rows":             func(_ *memory, c *mnn.Convolution) { c.Outputs = 0 },
		"negative columns":    func(_ *memory, c *mnn.Convolution) { c.Inputs = -64 },
		"other rows":          func(_ *memory, c *mnn.Convolution) { c.Outputs = 4 },
		"other columns":       func(_ *memory, c *mnn.Convolution) { c.Inputs = 32 },
		"wide header":         func(_ *memory, c *mnn.Convolution) { c.Quan.ShapeInt32 = true },
		"empty":               func(_ *memory, c *mnn.Convolution) { c.External[1] = 0 },
		"only dimensions":     func(_ *memory, c *mnn.Convolution) { c.External[1] = 5 },
		"only sample count":   func(_ *memory, c *mnn.Convolution) { c.External[1] = 6 },
		"a byte short":        func(_ *memory, c *mnn.Convolution) { c.External[1]-- },
		"scales cut":          func(_ *memory, c *mnn.Convolution) { c.External[2] -= 4 },
		"odd scales":          func(_ *memory, c *mnn.Convolution) { c.External[2]-- },
		"no scales":           func(_ *memory, c *mnn.Convolution) { c.External[2] = 0 },
		"bias of other rows":  func(_ *memory, c *mnn.Convolution) { c.External[3] = 8 },
		"negative offset":     func(_ *memory, c *mnn.Convolution) { c.External[0] = -1 },
		"offset out of file":  func(_ *memory, c *mnn.Convolution) { c.External[0] = 1 << 40 },
		"offset overflows":    func(_ *memory, c *mnn.Convolution) { c.External[0], c.External[1] = math.MaxInt64, math.MaxInt64 },
		"short list":          func(_ *memory, c *mnn.Convolution) { c.External = c.External[:3] },
		"three dimensions":    func(f *memory, _ *mnn.Convolution) { (*f)[3] = 3 },
		"sample count 3":      func(f *memory, _ *mnn.Convolution) { (*f)[8] = 3 },
		"file cut":            func(f *memory, _ *mnn.Convolution) { *f = (*f)[:len(*f)-1] },
		"unknown storage":     func(_ *memory, c *mnn.Convolution) { c.Quan.Type = 2 },
		"halves of 4 bits":    func(_ *memory, c *mnn.Convolution) { c.Quan.Type = 3 },
		"floats of 4 bits":    func(_ *memory, c *mnn.Convolution) { c.Quan = nil },
		"inline bias too few": func(_ *memory, c *mnn.Convolution) { c.External[3], c.Bias = 0, make([]float32, 2) },
	} {
		t.Run(name, func(t *testing.T) {
			file, c, _ := stored(t, random(3, 64), s, random(1, 3).Data)
			damage(&file, c)
			m, err := c.Open(file)
			if !errors.Is(err, tensor.ErrCorrupt) && !errors.Is(err, tensor.ErrUnsupported) {
				t.Errorf("%v, %v", m, err)
			}
		})
	}
}

// FuzzBlocks makes a matrix, a spec and a shape of arbitrary bytes: what RTN and Pack write, Open reads back.
func FuzzBlocks(f *testing.F) {
	for bits := range uint8(6) {
		for form := range uint8(16) {
			f.Add(bits, form, uint8(2), []byte{0, 0, 128, 63, 1, 2, 3, 4, 0, 0, 32, 193, byte(form), 200, 9, 60})
		}
	}
	f.Fuzz(func(t *testing.T, bits, form, rows uint8, data []byte) {
		s := quant.Spec{Bits: []int{2, 3, 4, 5, 6, 8}[bits%6], Symmetric: form&1 != 0, Scale: tensor.F16}
		if form&2 != 0 {
			s.Scale = tensor.F32
		}
		s.Block = []int{quant.WholeRow, 32, 64, 128}[form>>2&3]
		w := quant.Matrix{Rows: int(rows%5) + 1, Cols: 8 * (int(form>>4) + 1)}
		if s.Block != quant.WholeRow {
			w.Cols = s.Block * (int(form>>4)%3 + 1)
		}
		w.Data = make([]float32, w.Rows*w.Cols)
		for i := range w.Data {
			if len(data) < 4 {
				break
			}
			w.Data[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[i*4%(len(data)-3):]))
		}
		l, err := s.Layout(w.Rows, w.Cols)
		if err != nil {
			t.Fatal(err)
		}
		if err := quant.Encode(quant.RTN{}, quant.NewBlocks(l, s), w, s, nil); err != nil {
			if !errors.Is(err, tensor.ErrCorrupt) && !errors.Is(err, tensor.ErrUnsupported) {
				t.Fatal(err)
			}
			return
		}
		agree(t, w, s, nil)
	})
}

func BenchmarkRows32(b *testing.B) {
	for _, bits := range []int{3, 4, 8} {
		s := quant.Spec{Bits: bits, Block: 64, Scale: tensor.F16}
		b.Run(s.String(), func(b *testing.B) {
			file, c, _ := stored(b, random(32, 4096), s, nil)
			m, err := c.Open(file)
			if err != nil {
				b.Fatal(err)
			}
			dst, scratch := make([]float32, 32*4096), make([]uint8, 32*4096)
			b.SetBytes(4 * 32 * 4096)
			for b.Loop() {
				m.Rows32(dst, scratch, 0, 32)
			}
		})
	}
}
