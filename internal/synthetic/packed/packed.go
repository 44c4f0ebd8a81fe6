// Package packed makes checkpoints whose weights are codes already out of float ones, in the formats that
// pipeline/quantized reads, by rounding to nearest. It is for tests: it says nothing about how well the programs do that
// define the formats.
package packed

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Format is a way to store codes.
type Format string

// The formats.
const (
	GPTQ       Format = "gptq"
	GPTQv2     Format = "gptq_v2"
	AWQ        Format = "awq"
	Compressed Format = "compressed-tensors"
)

// Options say how matrices are stored.
type Options struct {
	Format Format
	// Bits are 4 for AWQ, 2, 3, 4 or 8 for GPTQ, and 2 to 8 for compressed-tensors.
	Bits int
	// Group is the number of columns that share a scale, or -1 for a whole row.
	Group     int
	Symmetric bool
	// Scale is the type of scales: F16, BF16 or F32. AWQ has F16.
	Scale tensor.DType
}

// Tensor is a tensor with its bytes.
type Tensor struct {
	tensor.Info
	Data []byte
}

// Matrix is a matrix of codes: the weight is Scale*(Codes-Zeros).
type Matrix struct {
	Rows, Cols, Groups int
	// Codes is [Rows, Cols]; Scale, already of its stored type, and Zeros are [Rows, Groups].
	Codes []uint8
	Scale []float32
	Zeros []int
}

// Round rounds weights [rows, cols] to the grid that spans each group and 0.
func (o Options) Round(w []float32, rows, cols int) (*Matrix, error) {
	group := o.Group
	if group == -1 {
		group = cols
	}
	if group < 1 || cols%group != 0 {
		return nil, fmt.Errorf("%d columns do not divide into groups of %d: %w", cols, group, tensor.ErrUnsupported)
	}
	n := cols / group
	m := &Matrix{Rows: rows, Cols: cols, Groups: n, Codes: make([]uint8, rows*cols), Scale: make([]float32, rows*n), Zeros: make([]int, rows*n)}
	top := float32(int(1)<<o.Bits - 1)
	for g := range m.Scale {
		part := w[g*group:][:group]
		lo, hi := float32(0), float32(0)
		for _, v := range part {
			lo, hi = min(lo, v), max(hi, v)
		}
		if o.Symmetric {
			hi = max(-lo, hi)
			lo = -hi
		}
		scale := o.round((hi - lo) / top)
		if scale == 0 {
			scale = 0x1p-14
		}
		zero := 1 << (o.Bits - 1)
		if !o.Symmetric {
			// GPTQ stores one less, so that there is no 0.
			zero = min(max(int(math.Round(float64(-lo/scale))), 1), int(top))
		}
		m.Scale[g], m.Zeros[g] = scale, zero
		for i, v := range part {
			u := int(math.Round(float64(v/scale))) + zero
			m.Codes[g*group+i] = uint8(min(max(u, 0), int(top)))
		}
	}
	return m, nil
}

// round gives a scale its type.
func (o Options) round(v float32) float32 {
	b := o.scales([]float32{v})
	var out [1]float32
	if err := kernel.ToF32(out[:], b, o.Scale); err != nil {
		panic("internal error: " + err.Error())
	}
	return out[0]
}

// scales are the bytes of scales.
func (o Options) scales(v []float32) []byte {
	b := make([]byte, len(v)*int(o.Scale.Size()))
	switch o.Scale {
	case tensor.F16:
		kernel.F32ToF16(b, v)
	case tensor.BF16:
		half := make([]uint16, len(v))
		kernel.F32ToBF16(half, v)
		for i, h := range half {
			binary.LittleEndian.PutUint16(b[2*i:], h)
		}
	default:
		for i, f := range v {
			binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(f))
		}
	}
	return b
}

// Pack returns the tensors of a module.
func (o Options) Pack(module string, m *Matrix) []Tensor {
	if o.Format == Compressed {
		return o.compressed(module, m)
	}
	less := 0
	if o.Format == GPTQ {
		less = 1
	}
	across := stream
	if o.Format == AWQ {
		across = nibbles
	}
	// Scales and zero points lie as [groups, rows].
	scale := make([]float32, len(m.Scale))
	zeros := make([]uint32, 0, len(m.Zeros))
	for g := range m.Groups {
		line := make([]uint8, m.Rows)
		for r := range m.Rows {
			scale[g*m.Rows+r] = m.Scale[r*m.Groups+g]
			line[r] = uint8(m.Zeros[r*m.Groups+g] - less)
		}
		zeros = append(zeros, across(line, o.Bits)...)
	}
	t := []Tensor{
		{tensor.Info{Name: module + ".scales", DType: o.Scale, Shape: tensor.Shape{int64(m.Groups), int64(m.Rows)}}, o.scales(scale)},
		integers(module+".qzeros", zeros, m.Groups, len(zeros)/m.Groups),
	}
	if o.Format == AWQ {
		var codes []uint32
		line := make([]uint8, m.Rows)
		for c := range m.Cols {
			for r := range line {
				line[r] = m.Codes[r*m.Cols+c]
			}
			codes = append(codes, nibbles(line, 4)...)
		}
		return append(t, integers(module+".qweight", codes, m.Cols, m.Rows/8))
	}
	high := m.Cols * o.Bits / 32
	codes := make([]uint32, high*m.Rows)
	for r := range m.Rows {
		for i, v := range stream(m.Codes[r*m.Cols:][:m.Cols], o.Bits) {
			codes[i*m.Rows+r] = v
		}
	}
	of := make([]uint32, m.Cols)
	for c := range of {
		of[c] = uint32(c / (m.Cols / m.Groups))
	}
	return append(t, integers(module+".qweight", codes, high, m.Rows), integers(module+".g_idx", of, m.Cols))
}

func (o Options) compressed(module string, m *Matrix) []Tensor {
	var codes []uint32
	for r := range m.Rows {
		codes = append(codes, stream(m.Codes[r*m.Cols:][:m.Cols], o.Bits)...)
	}
	shape := make([]byte, 16)
	binary.LittleEndian.PutUint64(shape, uint64(m.Rows))
	binary.LittleEndian.PutUint64(shape[8:], uint64(m.Cols))
	t := []Tensor{
		integers(module+".weight_packed", codes, m.Rows, len(codes)/m.Rows),
		{tensor.Info{Name: module + ".weight_scale", DType: o.Scale, Shape: tensor.Shape{int64(m.Rows), int64(m.Groups)}}, o.scales(m.Scale)},
		{tensor.Info{Name: module + ".weight_shape", DType: tensor.I64, Shape: tensor.Shape{2}}, shape},
	}
	if o.Symmetric {
		return t
	}
	high := (m.Rows*o.Bits + 31) / 32
	zeros := make([]uint32, high*m.Groups)
	line := make([]uint8, m.Rows)
	for g := range m.Groups {
		for r := range line {
			line[r] = uint8(m.Zeros[r*m.Groups+g])
		}
		for i, v := range stream(line, o.Bits) {
			zeros[i*m.Groups+g] = v
		}
	}
	return append(t, integers(module+".weight_zero_point", zeros, high, m.Groups))
}

// stream packs numbers one after the other, low bits first.
func stream(v []uint8, bits int) []uint32 {
	words := make([]uint32, (len(v)*bits+31)/32)
	for i, u := range v {
		for b := range bits {
			if u>>b&1 != 0 {
				words[(i*bits+b)/32] |= 1 << ((i*bits + b) % 32)
			}
		}
	}
	return words
}

// nibbles packs numbers eight to a word in the order of AWQ.
func nibbles(v []uint8, _ int) []uint32 {
	words := make([]uint32, len(v)/8)
	for i := range words {
		for k, from := range [8]int{0, 2, 4, 6, 1, 3, 5, 7} {
			words[i] |= uint32(v[8*i+from]&15) << (4 * k)
		}
	}
	return words
}

// integers is a tensor of 32-bit words.
func integers(name string, v []uint32, shape ...int) Tensor {
	t := Tensor{Info: tensor.Info{Name: name, DType: tensor.I32}}
	for _, d := range shape {
		t.Shape = append(t.Shape, int64(d))
	}
	for _, w := range v {
		t.Data = binary.LittleEndian.AppendUint32(t.Data, w)
	}
	return t
}

// Config is the quantization_config that goes with the options.
func (o Options) Config() json.RawMessage {
	c := map[string]any{"quant_method": string(o.Format), "bits": o.Bits, "group_size": o.Group}
	switch o.Format {
	case GPTQ, GPTQv2:
		c["quant_method"], c["checkpoint_format"] = "gptq", string(o.Format)
		c["sym"], c["desc_act"] = o.Symmetric, false
	case AWQ:
		c["version"], c["zero_point"], c["modules_to_not_convert"] = "gemm", !o.Symmetric, nil
	case Compressed:
		weights := map[string]any{"num_bits": o.Bits, "type": "int", "symmetric": o.Symmetric, "strategy": "group", "group_size": o.Group}
		if o.Group == -1 {
			weights["strategy"], weights["group_size"] = "channel", nil
		}
		c = map[string]any{
			"quant_method": string(o.Format), "format": "pack-quantized", "quantization_status": "compressed", "ignore": []string{"lm_head"},
			"config_groups": map[string]any{"group_0": map[string]any{"targets": []string{"Linear"}, "weights": weights, "input_activations": nil}},
		}
	}
	b, err := json.Marshal(c)
	if err != nil {
		panic("internal error: " + err.Error())
	}
	return b
}
