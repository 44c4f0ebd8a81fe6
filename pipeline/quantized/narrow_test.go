package quantized

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// TestNarrowValues holds the tables to values of the specifications.
func TestNarrowValues(t *testing.T) {
	for code, want := range map[byte]float32{
		0x00: 0, 0x01: 1.0 / 512, 0x07: 7.0 / 512, 0x08: 1.0 / 64, 0x38: 1, 0x3f: 1.875, 0x40: 2, 0x7e: 448, 0xb8: -1, 0xfe: -448,
	} {
		if e4m3[code] != want {
			t.Errorf("e4m3 %#x is %g, want %g", code, e4m3[code], want)
		}
	}
	if e4m3[0x7f] == e4m3[0x7f] || e4m3[0xff] == e4m3[0xff] || !math.Signbit(float64(e4m3[0x80])) {
		t.Error("e4m3: NaN or the sign of zero")
	}
	if !math.Signbit(float64(e2m1[8])) || e2m1[7] != 6 || e2m1[15] != -6 {
		t.Error("e2m1")
	}
}

func floatsLE(v ...float32) (b []byte) {
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

// narrowSource is a module of fp8 and one of mxfp4, with a tensor of floats next to them.
func narrowSource() memory {
	codes := make([]byte, 3*5)
	for i := range codes {
		codes[i] = byte(0x38 + i)
	}
	blocks := make([]byte, 2*2*16)
	for i := range blocks {
		blocks[i] = byte(i * 7)
	}
	return memory{
		{Info: tensor.Info{Name: "a.weight", DType: tensor.F8E4M3, Shape: tensor.Shape{3, 5}}, Data: codes},
		{Info: tensor.Info{Name: "a.weight_scale_inv", DType: tensor.F32, Shape: tensor.Shape{2, 3}}, Data: floatsLE(1, 2, 3, 4, 5, 6)},
		{Info: tensor.Info{Name: "e.up_blocks", DType: tensor.U8, Shape: tensor.Shape{2, 2, 1, 16}}, Data: blocks},
		{Info: tensor.Info{Name: "e.up_scales", DType: tensor.U8, Shape: tensor.Shape{2, 2, 1}}, Data: []byte{127, 128, 126, 0}},
		{Info: tensor.Info{Name: "norm.weight", DType: tensor.F32, Shape: tensor.Shape{1}}, Data: floatsLE(1)},
	}
}

const (
	fp8Config   = `{"quantization_config":{"quant_method":"fp8","weight_block_size":[2,2]}}`
	mxfp4Config = `{"quantization_config":{"quant_method":"mxfp4"}}`
)

func TestNarrow(t *testing.T) {
	src := narrowSource()
	for _, c := range []struct {
		name, config, tensor string
		shape                string
		want                 func(i int) float32
	}{
		{"fp8", fp8Config, "a.weight", "[3 5]", func(i int) float32 {
			return e4m3[0x38+i] * float32(1+i/5/2*3+i%5/2)
		}},
		{"mxfp4", mxfp4Config, "e.up.transposed", "[2 2 32]", func(i int) float32 {
			return e2m1[byte(i/2*7)>>(i%2*4)&15] * []float32{1, 2, 0.5, float32(math.Ldexp(1, -127))}[i/32]
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := Open([]byte(c.config), src)
			if err != nil {
				t.Fatal(err)
			}
			if len(s.Names()) != 0 || s.Method() != c.name {
				t.Errorf("names %v, method %s", s.Names(), s.Method())
			}
			var info tensor.Info
			for _, x := range s.Tensors() {
				if x.Name == c.tensor {
					info = x
				}
				if strings.Contains(x.Name, "_scale_inv") && c.name == "fp8" {
					t.Errorf("%s is shown", x.Name)
				}
			}
			if fmt.Sprint(info.Shape) != c.shape || info.DType != tensor.F32 {
				t.Fatalf("%+v", info)
			}
			r, err := s.Open(c.tensor)
			if err != nil {
				t.Fatal(err)
			}
			all, err := io.ReadAll(r)
			if err != nil || int64(len(all)) != info.Size {
				t.Fatalf("%d bytes, %v", len(all), err)
			}
			for i := range len(all) / 4 {
				if got := math.Float32frombits(binary.LittleEndian.Uint32(all[4*i:])); got != c.want(i) {
					t.Errorf("element %d is %g, want %g", i, got, c.want(i))
				}
			}
		})
	}
}

func TestNarrowRefused(t *testing.T) {
	for _, c := range []struct {
		name, config, text string
		change             func(m memory)
		kind               error
	}{
		{"no scales", fp8Config, "there is no a.weight_scale_inv", func(m memory) { m[1].Name = "other" }, tensor.ErrCorrupt},
		{"scales of another shape", fp8Config, "scales have shape", func(m memory) {
			m[1].Shape = tensor.Shape{3, 2}
		}, tensor.ErrCorrupt},
		{"half a block", mxfp4Config, "e.up_blocks", func(m memory) {
			m[2].Shape = tensor.Shape{2, 2, 2, 8}
		}, tensor.ErrCorrupt},
		{"excluded", `{"quantization_config":{"quant_method":"fp8","weight_block_size":[2,2],"modules_to_not_convert":["a"]}}`, "names it",
			func(memory) {}, tensor.ErrCorrupt},
		{"nothing", fp8Config, "no such tensors", func(m memory) { m[0].DType = tensor.U8 }, tensor.ErrCorrupt},
		{"NaN", fp8Config, "is not a number", func(m memory) { m[0].Data[7] = 0x7f }, tensor.ErrCorrupt},
		{"NaN scale", mxfp4Config, "is not a number", func(m memory) { m[3].Data[1] = 255 }, tensor.ErrCorrupt},
		{"infinite scale", fp8Config, "scale", func(m memory) { copy(m[1].Data, floatsLE(float32(math.Inf(1)))) }, tensor.ErrCorrupt},
	} {
		t.Run(c.name, func(t *testing.T) {
			src := narrowSource()
			c.change(src)
			s, err := Open([]byte(c.config), src)
			for _, name := range []string{"a.weight", "e.up.transposed"} {
				if err != nil {
					break
				}
				if r, e := s.Open(name); e == nil {
					_, err = io.ReadAll(r)
				}
			}
			if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %v, want one with %q", err, c.text)
			}
		})
	}
}
