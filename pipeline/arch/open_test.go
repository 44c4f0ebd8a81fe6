package arch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// memory is a source of F32 tensors whose elements count up from a start.
type memory struct {
	infos []tensor.Info
	bytes map[string][]byte
}

func counting(tensors map[string]tensor.Shape) *memory {
	m := &memory{bytes: map[string][]byte{}}
	for name, shape := range tensors {
		n := int64(1)
		for _, d := range shape {
			n *= d
		}
		var b []byte
		for i := range n {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(i)))
		}
		m.bytes[name] = b
		m.infos = append(m.infos, tensor.Info{Name: name, DType: tensor.F32, Shape: shape, Size: int64(len(b))})
	}
	return m
}

func (m *memory) Tensors() []tensor.Info { return m.infos }

func (m *memory) Open(name string) (*io.SectionReader, error) {
	b, ok := m.bytes[name]
	if !ok {
		return nil, fmt.Errorf("no tensor %q", name)
	}
	return io.NewSectionReader(bytes.NewReader(b), 0, int64(len(b))), nil
}

func TestOpen(t *testing.T) {
	tensors := map[string]tensor.Shape{
		"matrix": {6, 4}, "stack": {2, 3, 4}, "vector": {6}, "conv": {3, 1, 4}, "scalar": {},
	}
	unit := func(x, squares float64) float32 { return float32(x / math.Sqrt(squares)) }
	sigma := func(x float64) float32 { return float32(math.Log1p(math.Exp(x))) }
	batch := &Batch{"vector", "vector", "vector", "vector", 1}
	folded := func(gain float64, row ...float32) (out []float32) {
		for _, x := range row {
			out = append(out, float32(float64(x)*(gain/math.Sqrt(gain+1))))
		}
		return out
	}
	for _, tt := range []struct {
		name string
		view View
		want []float32
	}{
		{"zeros", View{Rows: 6, Cols: 6, Tensor: "matrix", Zeros: 2}, []float32{
			0, 1, 2, 3, 0, 0, 4, 5, 6, 7, 0, 0, 8, 9, 10, 11, 0, 0, 12, 13, 14, 15, 0, 0, 16, 17, 18, 19, 0, 0, 20, 21, 22, 23, 0, 0,
		}},
		{"rows of two", View{Rows: 3, Cols: 8, Tensor: "conv", Side: "conv", Zeros: 4}, []float32{
			0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7, 4, 5, 6, 7, 8, 9, 10, 11, 8, 9, 10, 11,
		}},
		{"rows", View{Rows: 2, Cols: 4, Tensor: "matrix", Runs: []Run{{Start: 3, Count: 2}}}, []float32{12, 13, 14, 15, 16, 17, 18, 19}},
		{"steps", View{Rows: 4, Cols: 4, Tensor: "matrix", Runs: []Run{{Start: 1, Count: 2, Step: 3}, {Start: 0, Count: 2}}},
			[]float32{4, 5, 6, 7, 16, 17, 18, 19, 0, 1, 2, 3, 4, 5, 6, 7}},
		{"expert", View{Rows: 3, Cols: 4, Tensor: "stack", Runs: []Run{{Start: 3, Count: 3}}}, []float32{12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23}},
		{"bias", View{Rows: 3, Tensor: "vector", Runs: []Run{{Start: 0, Count: 3, Step: 2}}}, []float32{0, 2, 4}},
		{"transposed expert", View{Rows: 2, Cols: 3, Tensor: "stack", Transposed: true, From: 3, Runs: []Run{{Start: 1, Count: 2, Step: 2}}},
			[]float32{13, 17, 21, 15, 19, 23}},
		{"tap", View{Rows: 3, Tensor: "conv", Transposed: true, Runs: []Run{{Start: 2, Count: 1}}}, []float32{2, 6, 10}},
		{"flat", View{Rows: 2, Cols: 6, Tensor: "conv", Flat: true}, []float32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}},
		{"one plus", View{Rows: 6, Tensor: "vector", Map: OnePlus}, []float32{1, 2, 3, 4, 5, 6}},
		{"decay", View{Rows: 2, Tensor: "vector", Map: NegExp, Runs: []Run{{Start: 0, Count: 2}}}, []float32{-1, -math.E}},
		{"scaled", View{Rows: 2, Cols: 4, Tensor: "matrix", Runs: []Run{{Start: 1, Count: 1, Scale: 2}, {Start: 0, Count: 1, Scale: 0.5}}},
			[]float32{8, 10, 12, 14, 0, 0.5, 1, 1.5}},
		{"softplus plus", View{Rows: 1, Tensor: "scalar", Map: Softplus, Plus: "scalar"}, []float32{sigma(0)}},
		{"unit rows", View{Rows: 2, Cols: 4, Tensor: "matrix", Map: UnitRows, Runs: []Run{{Start: 0, Count: 2}}},
			[]float32{0, unit(1, 14), unit(2, 14), unit(3, 14), unit(4, 126), unit(5, 126), unit(6, 126), unit(7, 126)}},
		{"stacked vectors", View{Rows: 18, Tensor: "vector", Then: []string{"conv"}}, []float32{0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}},
		{"stacked rows", View{Rows: 9, Cols: 4, Tensor: "conv", Then: []string{"matrix"}}, []float32{
			0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23}},
		{"ones", View{Rows: 3}, []float32{1, 1, 1}},
		{"folded rows", View{Rows: 6, Cols: 4, Tensor: "matrix", Flat: true, Batch: batch}, slices.Concat(
			make([]float32, 4), folded(1, 4, 5, 6, 7), folded(2, 8, 9, 10, 11), folded(3, 12, 13, 14, 15), folded(4, 16, 17, 18, 19), folded(5, 20, 21, 22, 23))},
		{"folded biases", View{Rows: 6, Batch: batch}, slices.Concat(
			folded(0, 0), []float32{
				float32(1 - 1/math.Sqrt2), float32(2 - 4/math.Sqrt(3)), float32(3 - 9/math.Sqrt(4)), float32(4 - 16/math.Sqrt(5)), float32(5 - 25/math.Sqrt(6)),
			})},
		{"folded biases of a convolution", View{Rows: 6, Tensor: "vector", Batch: batch}, []float32{0, 1, 2, 3, 4, 5}}, // all are at the mean
	} {
		t.Run(tt.name, func(t *testing.T) {
			src := counting(tensors)
			tt.view.Name = "view"
			s, err := Open(&Decoder{Views: []View{tt.view}}, src)
			if err != nil {
				t.Fatal(err)
			}
			infos := s.Tensors()
			info := infos[len(infos)-1]
			if info.Name != "view" || len(infos) != len(tensors)+1 || info.Size != int64(4*len(tt.want)) {
				t.Fatalf("%+v", info)
			}
			r, err := s.Open("view")
			if err != nil {
				t.Fatal(err)
			}
			all, err := io.ReadAll(r)
			if err != nil || len(all) != 4*len(tt.want) {
				t.Fatalf("%d bytes, %v", len(all), err)
			}
			for i, w := range tt.want {
				if got := math.Float32frombits(binary.LittleEndian.Uint32(all[4*i:])); got != w {
					t.Errorf("element %d is %v, want %v", i, got, w)
				}
			}
			// Any piece of it is the same.
			for lo := range all {
				for _, n := range []int{1, 3, 5, 16, 33} {
					p := make([]byte, n)
					k, err := r.ReadAt(p, int64(lo))
					if want := min(n, len(all)-lo); k != want || !bytes.Equal(p[:k], all[lo:lo+k]) || (k == n) != (err == nil) {
						t.Fatalf("%d bytes at %d: %d, %v", n, lo, k, err)
					}
				}
			}
		})
	}
}

func TestOpenRefused(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		view       View
	}{
		{"name", "has a tensor of this name", View{Name: "matrix", Rows: 6, Cols: 4, Tensor: "matrix"}},
		{"missing", `no tensor "x"`, View{Name: "v", Rows: 6, Cols: 4, Tensor: "x"}},
		{"width", "too small for 6 x 5", View{Name: "v", Rows: 6, Cols: 5, Tensor: "matrix"}},
		{"rows", "too small for 7 x 4", View{Name: "v", Rows: 7, Cols: 4, Tensor: "matrix"}},
		{"beyond", "too small for 2 x 4", View{Name: "v", Rows: 2, Cols: 4, Tensor: "matrix", Runs: []Run{{Start: 5, Count: 2}}}},
		{"count", "too small for 3 x 4", View{Name: "v", Rows: 3, Cols: 4, Tensor: "matrix", Runs: []Run{{Count: 2}}}},
		{"columns", "too small for 2 x 3", View{Name: "v", Rows: 2, Cols: 3, Tensor: "matrix", Transposed: true, From: 4, Runs: []Run{{Count: 2}}}},
		{"stacked missing", `no tensor "x"`, View{Name: "v", Rows: 12, Tensor: "vector", Then: []string{"x"}}},
		{"stacked width", "vector cannot follow matrix", View{Name: "v", Rows: 7, Cols: 4, Tensor: "matrix", Then: []string{"vector"}}},
		{"stacked rows", "too small for 13 x 1", View{Name: "v", Rows: 13, Tensor: "vector", Then: []string{"vector"}}},
		{"stacked runs", "vector cannot follow vector", View{Name: "v", Rows: 6, Tensor: "vector", Then: []string{"vector"}, Runs: []Run{{Count: 6}}}},
		{"stacked map", "vector cannot follow vector", View{Name: "v", Rows: 12, Tensor: "vector", Then: []string{"vector"}, Map: OnePlus}},
		{"batch missing", `no tensor "x"`, View{Name: "v", Rows: 6, Batch: &Batch{"vector", "vector", "x", "vector", 1}}},
		{"batch of others", "vector has shape [6], want 3", View{Name: "v", Rows: 3, Batch: &Batch{"vector", "vector", "vector", "vector", 1}}},
		{"batch of some rows", "matrix: a norm of batches", View{
			Name: "v", Rows: 6, Cols: 3, Tensor: "matrix", Transposed: true, Batch: &Batch{"vector", "vector", "vector", "vector", 1},
		}},
		{"plus", "vector has a different size", View{Name: "v", Rows: 1, Tensor: "matrix", Transposed: true, Runs: []Run{{Count: 1}}, Plus: "vector"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Open(&Decoder{Views: []View{tt.view}}, counting(map[string]tensor.Shape{"matrix": {6, 4}, "vector": {6}}))
			if err == nil || !strings.Contains(err.Error(), tt.text) || !(errors.Is(err, tensor.ErrCorrupt) || errors.Is(err, tensor.ErrUnsupported)) {
				t.Errorf("got %v, want one with %q", err, tt.text)
			}
		})
	}
}
