package backendtest

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// append puts floats into the weight file and returns their offset.
func (b *builder) append(v []float32) int64 {
	at := b.file.Size()
	for _, x := range v {
		b.file = binary.LittleEndian.AppendUint32(b.file, math.Float32bits(x))
	}
	return at
}

// float32Spec stands for weights without quantization.
var float32Spec = quant.Spec{Bits: 32}

// linear appends y = W x + bias for x [tokens, cols, 1, 1], with W stored as s says. stored is what the file
// holds of W.
func (b *builder) linear(t *testing.T, x int32, w quant.Matrix, bias []float32, s quant.Spec) (y int32, stored []float32) {
	t.Helper()
	p := &mnn.Convolution{
		KernelX: 1, KernelY: 1, StrideX: 1, StrideY: 1, DilateX: 1, DilateY: 1, Group: 1,
		Outputs: int32(w.Rows), Inputs: int32(w.Cols),
	}
	at, stored := b.file.Size(), make([]float32, len(w.Data))
	switch s.Bits {
	case 32:
		p.External = []int64{b.append(w.Data), 4 * int64(len(w.Data)), 4 * int64(len(bias))}
		copy(stored, w.Data)
	case 16:
		for i, v := range w.Data {
			b.file = binary.LittleEndian.AppendUint16(b.file, kernel.F16Bits(v))
			stored[i] = kernel.RoundF16(v)
		}
		p.Quan = &mnn.Quan{Type: 3}
		p.External = []int64{at, 2 * int64(len(w.Data)), 0, 4 * int64(len(bias)), 0}
	default:
		l, err := s.Layout(w.Rows, w.Cols)
		if err != nil {
			t.Fatal(err)
		}
		q := quant.NewBlocks(l, s)
		if err := quant.Encode(quant.RTN{}, q, w, s, nil); err != nil {
			t.Fatal(err)
		}
		codes, alpha := make([]byte, l.Codes), make([]byte, l.Alpha)
		quant.Pack(codes, q.Codes, s.Bits)
		quant.PackAlpha(alpha, q, s)
		b.file = append(mnn.AppendHeader(b.file, w.Rows, w.Cols, s.Bits), codes...)
		size := b.file.Size() - at
		b.file = append(b.file, alpha...)
		p.Quan = &mnn.Quan{Type: 1, MaxOrBits: int32(s.HeaderBits()), QuantScale: 1, ScaleFP16: s.Scale == tensor.F16}
		if !s.Symmetric {
			p.Quan.Min, p.Quan.ReadType = 1, int32(len(q.Scale))
		}
		p.External = []int64{at, size, l.Alpha, 4 * int64(len(bias)), 0}
		for i := range stored {
			k := i / l.BlockCols
			stored[i] = q.Scale[k] * float32(int(q.Codes[i])-1<<(s.Bits-1))
			if !s.Symmetric {
				stored[i] = float32(stored[i]) + q.Zero[k]
			}
		}
	}
	b.append(bias)
	return b.op(mnn.OpConvolution, p, x), stored
}

// storage lists the forms in which a linear layer may be stored.
func storage() []quant.Spec {
	all := []quant.Spec{float32Spec, quant.Half}
	for _, bits := range []int{2, 3, 4, 5, 6, 8} {
		for _, block := range []int{quant.WholeRow, 32, 64} {
			all = append(all,
				quant.Spec{Bits: bits, Block: block, Scale: tensor.F16},
				quant.Spec{Bits: bits, Block: block, Symmetric: true, Scale: tensor.F32})
		}
	}
	return all
}

func testLinear(t *testing.T, be backend.Backend) {
	const rows, cols = 37, 128
	w := quant.Matrix{Rows: rows, Cols: cols, Data: random(4, rows*cols)}
	for _, s := range storage() {
		for _, bias := range [][]float32{nil, random(5, rows)} {
			t.Run(fmt.Sprintf("%v/bias %t", s, bias != nil), func(t *testing.T) {
				for _, tokens := range []int{1, 7} {
					x := random(6, tokens*cols)
					var first []float32
					for _, o := range []backend.Options{{Threads: 1}, {Threads: 2}, {Threads: 5}, {Threads: 5, CacheBytes: 1 << 20}} {
						b := &builder{}
						y, stored := b.linear(t, b.reshape(b.input("input_ids"), -1, cols, 1, 1), w, bias, s)
						e, err := b.compile(be, y, o)
						if err != nil {
							t.Fatal(err)
						}
						got, err := e.Run(t.Context(), []backend.State{e.NewState()}, backend.Call{Embeddings: x, Tokens: tokens})
						if err != nil {
							t.Fatal(err)
						}
						want := make([]float64, tokens*rows)
						for i := range tokens {
							for r := range rows {
								sum := 0.
								for c := range cols {
									sum += float64(x[i*cols+c]) * float64(stored[r*cols+c])
								}
								if bias != nil {
									sum += float64(bias[r])
								}
								want[i*rows+r] = sum
							}
						}
						near(t, got, want)
						if first == nil {
							first = got
						}
						same(t, got, first)
					}
				}
			})
		}
	}
}

// same demands equal bits.
func same(t *testing.T, got, want []float32) {
	t.Helper()
	sameBits(t, "result", got, want)
}

// sameBits is same with a name of the values for messages.
func sameBits(t *testing.T, name string, got, want []float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d values, want %d", name, len(got), len(want))
	}
	for i := range got {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("%s: value %d is %g, want the bits of %g", name, i, got[i], want[i])
		}
	}
}
