package packed

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"

	"github.com/llmexport/llmexport/pipeline/safetensors"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// The formats of narrow floats.
const (
	FP8   Format = "fp8"   // e4m3 with an F32 scale for every block of rows and columns, as DeepSeek-V3
	MXFP4 Format = "mxfp4" // e2m1 with a power of two for 32 columns, the stacked experts of gpt-oss
)

// Narrow says how matrices become narrow floats.
type Narrow struct {
	Format Format
	// Block is the rows and columns of a scale of FP8.
	Block [2]int
}

// projections are the matrices that FP8 is for.
var projections = regexp.MustCompile(`_proj(_with_mqa)?\.weight$`)

// Convert writes two checkpoints of the one in directory src, to directories that must exist: dst has narrow matrices, and
// floats the same numbers as F32 in their places. It holds all of them in memory.
func (n Narrow) Convert(dst, floats, src string) error {
	c, err := safetensors.OpenDir(src)
	if err != nil {
		return err
	}
	defer c.Close()
	var out, wide []Tensor
	for _, t := range c.Tensors() {
		raw, err := readAll(c, t.Name)
		if err != nil {
			return err
		}
		if same := (Tensor{t, raw}); n.Format == FP8 && !projections.MatchString(t.Name) || n.Format == MXFP4 && len(t.Shape) != 3 {
			out, wide = append(out, same), append(wide, same)
			continue
		}
		w := make([]float32, len(raw)/int(t.DType.Size()))
		if err := kernel.ToF32(w, raw, t.DType); err != nil {
			return err
		}
		var parts []Tensor
		if n.Format == FP8 {
			parts = n.fp8(t, w)
		} else if parts, err = mxfp4(t, w); err != nil {
			return err
		}
		out, wide = append(out, parts...), append(wide, Tensor{tensor.Info{Name: t.Name, DType: tensor.F32, Shape: t.Shape}, floatBytes(w)})
	}
	err = errors.Join(Write(dst, out), Write(floats, wide))
	return errors.Join(err, copyOthers(dst, src, n.Config()), copyOthers(floats, src, nil))
}

// Config is the quantization_config that goes with the format.
func (n Narrow) Config() json.RawMessage {
	c := map[string]any{
		"quant_method": string(n.Format), "modules_to_not_convert": []string{"model.layers.*.self_attn", "model.embed_tokens", "lm_head"},
	}
	if n.Format == FP8 {
		c = map[string]any{"quant_method": string(n.Format), "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": n.Block}
	}
	b, err := json.Marshal(c)
	if err != nil {
		panic("internal error: " + err.Error())
	}
	return b
}

// fp8 rounds w in place and returns codes and scales.
func (n Narrow) fp8(t tensor.Info, w []float32) []Tensor {
	rows, cols := int(t.Shape[0]), int(t.Shape[1])
	high, wide := (rows+n.Block[0]-1)/n.Block[0], (cols+n.Block[1]-1)/n.Block[1]
	codes, scales := make([]byte, len(w)), make([]float32, high*wide)
	at := func(r, c int) *float32 { return &scales[r/n.Block[0]*wide+c/n.Block[1]] }
	const most = 448
	for i, v := range w {
		s := at(i/cols, i%cols)
		*s = max(*s, float32(math.Abs(float64(v)))/most)
	}
	for i, v := range w {
		s := *at(i/cols, i%cols)
		if s == 0 {
			continue
		}
		codes[i] = nearest(e4m3, v/s)
		w[i] = e4m3[codes[i]] * s
	}
	return []Tensor{
		{tensor.Info{Name: t.Name, DType: tensor.F8E4M3, Shape: t.Shape}, codes},
		{tensor.Info{Name: t.Name + "_scale_inv", DType: tensor.F32, Shape: tensor.Shape{int64(high), int64(wide)}}, floatBytes(scales)},
	}
}

// mxfp4 rounds w, [experts, inputs, outputs], in place and returns blocks and scales.
func mxfp4(t tensor.Info, w []float32) ([]Tensor, error) {
	const block, largest = 32, 2 // the exponent of the largest value
	experts, inputs, outputs := int(t.Shape[0]), int(t.Shape[1]), int(t.Shape[2])
	if inputs%block != 0 {
		return nil, fmt.Errorf("%s: %d inputs do not divide into blocks of %d: %w", t.Name, inputs, block, tensor.ErrUnsupported)
	}
	var codes, scales []byte
	for e := range experts {
		for o := range outputs {
			for first := 0; first < inputs; first += block {
				at := func(i int) *float32 { return &w[(e*inputs+first+i)*outputs+o] }
				most := 0.0
				for i := range block {
					most = max(most, math.Abs(float64(*at(i))))
				}
				exponent := 0
				if most > 0 {
					_, exponent = math.Frexp(most)
				}
				exponent -= 1 + largest
				scale := float32(math.Ldexp(1, exponent))
				scales = append(scales, byte(exponent+127))
				for i := 0; i < block; i += 2 {
					low, high := nearest(e2m1, *at(i)/scale), nearest(e2m1, *at(i + 1)/scale)
					*at(i), *at(i + 1) = e2m1[low]*scale, e2m1[high]*scale
					codes = append(codes, low|high<<4)
				}
			}
		}
	}
	shape := tensor.Shape{t.Shape[0], t.Shape[2], t.Shape[1] / block}
	return []Tensor{
		{tensor.Info{Name: t.Name + "_blocks", DType: tensor.U8, Shape: append(slices.Clone(shape), block/2)}, codes},
		{tensor.Info{Name: t.Name + "_scales", DType: tensor.U8, Shape: shape}, scales},
	}, nil
}

// e4m3 and e2m1 are the values of codes: a sign, that many bits of exponent, so many of mantissa. The last of each half of e4m3
// is not a number.
var e4m3, e2m1 = narrowValues(4, 3, 7), narrowValues(2, 1, 1)

func narrowValues(exponent, mantissa, bias int) []float32 {
	half := 1 << (exponent + mantissa)
	v := make([]float32, 2*half)
	for c := range half {
		e, m := c>>mantissa, float64(c&(1<<mantissa-1))/float64(int(1)<<mantissa)
		x := math.Ldexp(m, 1-bias)
		if e > 0 {
			x = math.Ldexp(1+m, e-bias)
		}
		v[c], v[half+c] = float32(x), float32(math.Copysign(x, -1))
	}
	if exponent == 4 {
		v[half-1], v[2*half-1] = float32(math.NaN()), float32(math.NaN())
	}
	return v
}

// nearest is the first code of a value next to x.
func nearest(values []float32, x float32) byte {
	best, distance := 0, math.Inf(1)
	for c, v := range values {
		if d := math.Abs(float64(v) - float64(x)); d < distance {
			best, distance = c, d
		}
	}
	return byte(best)
}

func floatBytes(v []float32) []byte {
	b := make([]byte, 0, 4*len(v))
	for _, f := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
	}
	return b
}
