package quantized

import (
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/internal/synthetic/packed"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// TestConfig: what quantization_config may say, and what is refused, by name.
func TestConfig(t *testing.T) {
	gptq := func(more string) string { return `{"quant_method":"gptq","bits":4,"group_size":128` + more + `}` }
	awq := func(more string) string { return `{"quant_method":"awq","bits":4,"group_size":128` + more + `}` }
	ct := func(more, weights string) string {
		return `{"quant_method":"compressed-tensors"` + more + `,"config_groups":{"group_0":{"targets":["Linear"],"weights":{"num_bits":4,` + weights + `}}}}`
	}
	const packedFormat, group = `,"format":"pack-quantized"`, `"strategy":"group","group_size":128`
	for _, c := range []struct {
		name, config string
		kind         error
		want         string
	}{
		{"gptq", gptq(``), nil, ""},
		{"gptq of AutoGPTQ", gptq(`,"desc_act":true,"static_groups":true,"sym":true,"model_name_or_path":null,` +
			`"model_file_base_name":"model","damp_percent":0.1,"true_sequential":true`), nil, ""},
		{"gptq of GPTQModel", gptq(`,"format":"gptq","checkpoint_format":"gptq","lm_head":false,"pack_dtype":"int32",` +
			`"method":"gptq","meta":{"quantizer":["gptqmodel:5.0"]},"dynamic":null`), nil, ""},
		{"gptq of transformers",
			gptq(`,"batch_size":1,"dataset":["x"],"exllama_config":{"version":1},"modules_in_block_to_quantize":null,"use_exllama":true,"tokenizer":null`), nil, ""},
		{"gptq with rules", gptq(`,"dynamic":{"-:.*down":{}}`), nil, ""},
		{"awq", awq(`,"version":"GEMM","zero_point":true,"modules_to_not_convert":["lm_head"]`), nil, ""},
		{"compressed", ct(packedFormat+`,"ignore":["lm_head","re:.*gate$"],"kv_cache_scheme":null,"sparsity_config":{},"transform_config":{},"version":"0.12"`,
			group+`,"actorder":"weight","block_structure":null,"dynamic":false,"observer":"minmax","observer_kwargs":{},"symmetric":true,"type":"int"`), nil, ""},

		{"bitsandbytes", `{"quant_method":"bitsandbytes","load_in_4bit":true}`, tensor.ErrUnsupported, `quant_method: "bitsandbytes" is not supported`},
		{"fp8", `{"quant_method":"fp8","fmt":"e4m3","activation_scheme":"dynamic","weight_block_size":[128,128],"modules_to_not_convert":["lm_head"]}`, nil, ""},
		{"floats that become ternary in use", `{"quant_method":"bitnet","linear_class":"autobitlinear","quantization_mode":"online"}`,
			tensor.ErrUnsupported, `quant_method: "bitnet"`},
		{"fp8 of MiniMax-M2", `{"quant_method":"fp8","fmt":"float8_e4m3fn","activation_scheme":"dynamic","weight_block_size":[128,128],` +
			`"modules_to_not_convert":["gate","e_score_correction_bias","lm_head"]}`, nil, ""},
		{"fp8 of Qwen3.5",
			`{"quant_method":"fp8","activation_scheme":"dynamic","weight_per_tensor":false,"act_per_tensor":false,"weight_block_size":[128,128]}`, nil, ""},
		{"fp8 of whole matrices", `{"quant_method":"fp8","weight_per_tensor":true,"weight_block_size":[128,128]}`, tensor.ErrUnsupported, `weight_per_tensor: true`},
		{"fp8 of one scale", `{"quant_method":"fp8","weight_block_size":null}`, tensor.ErrUnsupported, `weight_block_size: missing`},
		{"fp8 of another type", `{"quant_method":"fp8","fmt":"e5m2","weight_block_size":[128,128]}`, tensor.ErrUnsupported, `fmt: "e5m2"`},
		{"fp8 blocks", `{"quant_method":"fp8","weight_block_size":[128,0]}`, tensor.ErrCorrupt, `weight_block_size`},
		{"mxfp4", `{"quant_method":"mxfp4","modules_to_not_convert":["lm_head"]}`, nil, ""},
		{"exl2", `{"quant_method":"exl2"}`, tensor.ErrUnsupported, `"exl2"`},
		{"no method", `{"bits":4}`, tensor.ErrUnsupported, `""`},
		{"method of another type", `{"quant_method":4}`, tensor.ErrCorrupt, `quant_method: 4 is not a string`},
		{"no object", `[]`, tensor.ErrCorrupt, `not an object`},
		{"marlin", gptq(`,"checkpoint_format":"marlin"`), tensor.ErrUnsupported, `checkpoint_format: "marlin"`},
		{"old marlin", gptq(`,"is_marlin_format":true`), tensor.ErrUnsupported, `is_marlin_format`},
		{"planar", gptq(`,"format":"gptq_p"`), tensor.ErrUnsupported, `gptq_p`},
		{"two formats", gptq(`,"format":"gptq","checkpoint_format":"gptq_v2"`), tensor.ErrCorrupt, `contradicts`},
		{"words of 64 bits", gptq(`,"pack_dtype":"int64"`), tensor.ErrUnsupported, `pack_dtype`},
		{"adapter", gptq(`,"adapter":{"name":"lora"}`), tensor.ErrUnsupported, `adapter`},
		{"rotation", gptq(`,"rotation":"hadamard"`), tensor.ErrUnsupported, `rotation`},
		{"unknown key", gptq(`,"extra":1`), tensor.ErrUnsupported, `extra: unknown key`},
		{"bits", `{"quant_method":"gptq","bits":7,"group_size":128}`, tensor.ErrUnsupported, `bits: 7`},
		{"bits missing", `{"quant_method":"gptq","group_size":128}`, tensor.ErrCorrupt, `bits: missing`},
		{"group", `{"quant_method":"gptq","bits":4,"group_size":0}`, tensor.ErrCorrupt, `group_size: 0`},
		{"half a group", `{"quant_method":"gptq","bits":4,"group_size":12.5}`, tensor.ErrCorrupt, `group_size: 12.5`},
		{"gemv", awq(`,"version":"gemv"`), tensor.ErrUnsupported, `version: "gemv"`},
		{"awq of 3 bits", `{"quant_method":"awq","bits":3,"group_size":128}`, tensor.ErrUnsupported, `bits: 3`},
		{"awq sym", awq(`,"zero_point":true,"sym":true`), tensor.ErrCorrupt, `contradicts zero_point`},
		{"int-quantized", ct(`,"format":"int-quantized"`, group), tensor.ErrUnsupported, `format: "int-quantized"`},
		{"no format", ct(``, group), tensor.ErrUnsupported, `format`},
		{"float codes", ct(packedFormat, group+`,"type":"float"`), tensor.ErrUnsupported, `config_groups.group_0.weights.type: "float"`},
		{"strategy", ct(packedFormat, `"strategy":"block"`), tensor.ErrUnsupported, `strategy: "block"`},
		{"dynamic", ct(packedFormat, group+`,"dynamic":true`), tensor.ErrUnsupported, `dynamic`},
		{"unknown weights key", ct(packedFormat, group+`,"offset":1`), tensor.ErrUnsupported, `weights.offset: unknown key`},
		{"kv cache", ct(packedFormat+`,"kv_cache_scheme":{"num_bits":8}`, group), tensor.ErrUnsupported, `kv_cache_scheme`},
		{"sparse", ct(packedFormat+`,"sparsity_config":{"format":"sparse-24"}`, group), tensor.ErrUnsupported, `sparsity_config.format`},
		{"not compressed", ct(packedFormat+`,"quantization_status":"frozen"`, group), tensor.ErrUnsupported, `quantization_status`},
		{"no groups", `{"quant_method":"compressed-tensors","format":"pack-quantized","config_groups":{}}`, tensor.ErrCorrupt, `config_groups`},
		{"activations", `{"quant_method":"compressed-tensors","format":"pack-quantized",` +
			`"config_groups":{"g":{"targets":[],"input_activations":{"num_bits":8},"weights":{"num_bits":4,` + group + `}}}}`,
			tensor.ErrUnsupported, `input_activations`},
		{"no weights", `{"quant_method":"compressed-tensors","format":"pack-quantized","config_groups":{"g":{"targets":[],"weights":null}}}`,
			tensor.ErrCorrupt, `weights: missing`},
		{"pattern", ct(packedFormat+`,"ignore":["re:(?=x)"]`, group), tensor.ErrUnsupported, `ignore: pattern`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, rest, err := readConfig(withQuantization(c.config))
			if c.kind == nil {
				if err != nil || s == nil || strings.Contains(string(rest), configKey) {
					t.Fatalf("%v, %s, %v", s, rest, err)
				}
				return
			}
			if s != nil || !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "config.json: "+configKey) {
				t.Errorf("%v, want %v: %s", err, c.kind, c.want)
			}
		})
	}
	for _, bad := range []string{``, `[]`, `{"a":1,"a":2}`, `{"quantization_config":{"bits":4,"bits":4}}`, `{} {}`} {
		if s, _, err := readConfig([]byte(bad)); s != nil || !errors.Is(err, tensor.ErrCorrupt) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// checkpointOf packs a small matrix as m.
func checkpointOf(t testing.TB, o packed.Options) memory {
	t.Helper()
	m, err := o.Round(weights(32, 64), 32, 64)
	if err != nil {
		t.Fatal(err)
	}
	return o.Pack("m", m)
}

func (m memory) at(part string) *packed.Tensor {
	for i := range m {
		if m[i].Name == "m."+part {
			return &m[i]
		}
	}
	return nil
}

func (m memory) without(part string) memory {
	var out memory
	for _, t := range m {
		if t.Name != "m."+part {
			out = append(out, t)
		}
	}
	return out
}

// TestDamage: headers and numbers that make no sense are refused, where they are seen first.
func TestDamage(t *testing.T) {
	gptq := packed.Options{Format: packed.GPTQ, Bits: 4, Group: 32, Scale: tensor.F16}
	gptqSym := packed.Options{Format: packed.GPTQ, Bits: 4, Group: 32, Symmetric: true, Scale: tensor.F16}
	awq := packed.Options{Format: packed.AWQ, Bits: 4, Group: 32, Scale: tensor.F16}
	ct := packed.Options{Format: packed.Compressed, Bits: 4, Group: 32, Scale: tensor.BF16}
	ctSym := packed.Options{Format: packed.Compressed, Bits: 4, Group: 32, Symmetric: true, Scale: tensor.BF16}
	put := func(part string, at int, v uint32) func(memory) memory {
		return func(m memory) memory {
			binary.LittleEndian.PutUint32(m.at(part).Data[4*at:], v)
			return m
		}
	}
	drop := func(part string) func(memory) memory { return func(m memory) memory { return m.without(part) } }
	shape := func(part string, dims ...int64) func(memory) memory {
		return func(m memory) memory {
			m.at(part).Shape = dims
			return m
		}
	}
	for _, c := range []struct {
		name   string
		o      packed.Options
		damage func(memory) memory
		config func(string) string
		kind   error
		want   string
		late   bool // seen when scales and zero points are read
	}{
		{"no qzeros", gptq, drop("qzeros"), nil, tensor.ErrCorrupt, "qzeros is missing", false},
		{"no qweight", gptq, drop("qweight"), nil, tensor.ErrCorrupt, "m.qweight, to which it belongs, is missing", false},
		{"no scales", awq, drop("scales"), nil, tensor.ErrCorrupt, "scales is missing", false},
		{"no shape", ct, drop("weight_shape"), nil, tensor.ErrCorrupt, "weight_shape is missing", false},
		{"g_idx may be absent", gptq, drop("g_idx"), nil, nil, "", false},
		{"nothing packed", gptq, func(memory) memory { return nil }, nil, tensor.ErrCorrupt, "no tensor is named .qweight", false},
		{"both", gptq, func(m memory) memory {
			return append(m, packed.Tensor{Info: tensor.Info{Name: "m.weight", DType: tensor.F32, Shape: tensor.Shape{1, 1}}, Data: make([]byte, 4)})
		}, nil, tensor.ErrCorrupt, "both packed and as floats", false},
		{"type of codes", gptq, func(m memory) memory { m.at("qweight").DType = tensor.F32; return m }, nil, tensor.ErrUnsupported, "qweight is of type F32", false},
		{"type of scales", gptq, func(m memory) memory { m.at("scales").DType = tensor.I16; return m }, nil, tensor.ErrUnsupported, "scales is of type I16", false},
		{"rank", gptq, shape("qweight", 256), nil, tensor.ErrCorrupt, "qweight has shape [256]", false},
		{"rank 0", gptq, shape("g_idx"), nil, tensor.ErrCorrupt, "g_idx has shape []", false},
		{"no rows", gptq, shape("scales", 0, 32), nil, tensor.ErrCorrupt, "scales has shape [0 32]", false},
		{"negative", gptq, shape("scales", -2, 32), nil, tensor.ErrCorrupt, "scales has shape [-2 32]", false},
		{"huge", gptq, shape("qweight", 1<<40, 1<<40), nil, tensor.ErrCorrupt, "qweight has shape", false},
		{"more than stored", gptq, shape("qweight", 8, 33), nil, tensor.ErrCorrupt, "takes 1056 bytes, not 1024", false},
		{"rows differ", gptq, shape("qweight", 4, 64), nil, tensor.ErrCorrupt, "", false},
		{"zero points of other rows", gptq, shape("qzeros", 4, 2), nil, tensor.ErrCorrupt, "qzeros [4 2]", false},
		{"group of the config", gptq, nil, func(s string) string { return strings.Replace(s, `"group_size":32`, `"group_size":64`, 1) },
			tensor.ErrCorrupt, "2 groups of 64 columns, group_size of the config is 64", false},
		{"bits of the config", gptq, nil, func(s string) string { return strings.Replace(s, `"bits":4`, `"bits":8`, 1) }, tensor.ErrCorrupt, "", false},
		{"bits of a rule", gptq, nil, func(s string) string {
			return strings.Replace(s, `"bits":4`, `"dynamic":{"+:m":{"bits":4}},"bits":8`, 1)
		}, nil, "", false},
		{"group of a rule", gptq, nil, func(s string) string {
			return strings.Replace(s, `"group_size":32`, `"dynamic":{"+:m":{"group_size":32}},"group_size":64`, 1)
		}, nil, "", false},
		{"group out of range", gptq, put("g_idx", 3, 2), nil, tensor.ErrCorrupt, "g_idx: group 2 of column 3, there are 2", false},
		{"negative group", gptq, put("g_idx", 3, math.MaxUint32), nil, tensor.ErrCorrupt, "g_idx: group -1", false},
		{"short g_idx", gptq, func(m memory) memory {
			g := m.at("g_idx")
			g.Shape, g.Data = tensor.Shape{32}, g.Data[:128]
			return m
		}, nil, tensor.ErrCorrupt, "g_idx has 32 numbers, not 64", false},
		{"zero point of v1", gptq, put("qzeros", 0, 0xf), nil, tensor.ErrCorrupt, "zero point of group 0 is stored as 15", true},
		{"symmetric by the config only", gptqSym, put("qzeros", 0, 0x77777778), nil, tensor.ErrCorrupt,
			"zero point of group 0 is 9, but symmetric codes", true},
		{"NaN", gptq, put("scales", 0, 0x7e007e00), nil, tensor.ErrCorrupt, "row 0: scale of group 0 is NaN", true},
		{"infinity", ct, put("weight_scale", 0, 0x7f80), nil, tensor.ErrCorrupt, "scale of group 0 is +Inf", true},
		{"overflow", ct, put("weight_scale", 0, 0x7f7f), nil, tensor.ErrCorrupt, "scale of group 0 is 3.38", true},
		{"weight_shape", ct, put("weight_shape", 0, 31), nil, tensor.ErrCorrupt, "weight_shape is [31 64], weight_packed has 32 rows", false},
		{"columns of weight_shape", ct, put("weight_shape", 2, 128), nil, tensor.ErrCorrupt, "no group of config_groups matches", false},
		{"no zero points", ct, drop("weight_zero_point"), nil, tensor.ErrCorrupt, "zero points: false: no group", false},
		{"zero points of symmetric", ctSym, nil, func(s string) string { return strings.Replace(s, `"symmetric":true`, `"symmetric":false`, 1) },
			tensor.ErrCorrupt, "no group of config_groups", false},
		{"ignored", ct, nil, func(s string) string { return strings.Replace(s, `"lm_head"`, `"m"`, 1) }, tensor.ErrCorrupt,
			`quantization_config.ignore "m" names it`, false},
		{"ignored by pattern", ct, nil, func(s string) string { return strings.Replace(s, `"lm_head"`, `"re:[a-m]"`, 1) }, tensor.ErrCorrupt, "names it", false},
		{"not converted", awq, nil, func(s string) string {
			return strings.Replace(s, `"modules_to_not_convert":null`, `"modules_to_not_convert":["m"]`, 1)
		}, tensor.ErrCorrupt, "names it", false},
		{"index without groups", ctSym, func(m memory) memory {
			return append(m, packed.Tensor{Info: tensor.Info{Name: "m.weight_g_idx", DType: tensor.I32, Shape: tensor.Shape{64}},
				Data: []byte(strings.Repeat("\xff", 256))})
		}, nil, nil, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			base, config := checkpointOf(t, c.o), string(c.o.Config())
			if c.damage != nil {
				base = c.damage(base)
			}
			if c.config != nil {
				if config = c.config(config); config == string(c.o.Config()) {
					t.Fatal("the config did not change")
				}
			}
			s, err := Open(withQuantization(config), base)
			if c.late && err == nil {
				_, _, err = s.Spec("m.weight")
			} else if c.kind == nil && err == nil {
				s.all(t, "m.weight")
				return
			}
			if c.kind == nil || !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %v: %s", err, c.kind, c.want)
			}
		})
	}
}

// FuzzOpen: whatever config and tensors say, the result is an error of the two kinds, or a matrix whose view and blocks
// have the promised sizes.
func FuzzOpen(f *testing.F) {
	for _, o := range packings {
		if o.Group > 64 {
			o.Group = 64
		}
		base := checkpointOf(f, o)
		for i, t := range base {
			f.Add([]byte(o.Config()), i, t.Data, int64(0), int64(0))
		}
		f.Add([]byte(o.Config()), 0, base[0].Data, base[0].Shape[0], base[0].Shape[1])
	}
	f.Fuzz(func(t *testing.T, config []byte, which int, data []byte, rows, cols int64) {
		var base memory
		for _, o := range packings {
			o.Group = 32
			if strings.Contains(string(config), string(o.Format)) {
				base = checkpointOf(t, o)
			}
		}
		if len(base) == 0 {
			return
		}
		x := &base[uint(which)%uint(len(base))]
		x.Data = data
		if rows != 0 {
			x.Shape = tensor.Shape{rows, cols}
		}
		s, err := Open(withQuantization(string(config)), base)
		if err == nil && s != nil {
			_, _, err = s.Spec("m.weight")
		}
		if err != nil {
			if !errors.Is(err, tensor.ErrCorrupt) && !errors.Is(err, tensor.ErrUnsupported) {
				t.Fatalf("error of another kind: %v", err)
			}
			return
		}
		if s == nil {
			return
		}
		b, _ := s.all(t, "m.weight")
		if len(b.Codes)*4 != len(readTensor(t, s, "m.weight")) {
			t.Fatal("sizes differ")
		}
	})
}
