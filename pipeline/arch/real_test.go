package arch

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// hubFiles are copies of published config.json files, found in public repositories that hold them; the other files of
// testdata/hub were put together, see TestDescribeHubKeys.
var hubFiles = []struct {
	name string
	// parameters is the size of the model, without towers that are left out and draft heads. Publishers say it in billions.
	parameters int64
	// experts are tensors that a description looks at before it asks for any.
	experts []tensor.Info
}{
	{"DeepSeek-V2-Lite", 15_706_484_224, expertTensorsOf("mlp", 1, 27, 64, 2048, 1408, "gate_proj", "up_proj", "down_proj")},
	{"DeepSeek-V3", 671_026_419_200, expertTensorsOf("mlp", 3, 61, 256, 7168, 2048, "gate_proj", "up_proj", "down_proj")},
	{"EXAONE-3.5-7.8B-Instruct", 7_818_448_896, nil},
	{"EXAONE-4.0-32B", 32_003_216_384, nil},
	{"GLM-4.5", 352_797_829_024, expertTensorsOf("mlp", 3, 92, 160, 5120, 1536, "gate_proj", "up_proj", "down_proj")},
	{"GLM-4.7-Flash", 29_943_393_920, expertTensorsOf("mlp", 1, 47, 64, 2048, 1536, "gate_proj", "up_proj", "down_proj")},
	{"Ling-lite-1.5", 16_801_974_272, expertTensorsOf("mlp", 0, 28, 64, 2048, 1408, "gate_proj", "up_proj", "down_proj")},
	{"Llama-3.1-8B-Instruct", 8_030_261_248, nil},
	{"Llama-3.2-1B-Instruct", 1_235_814_400, nil},
	{"Llama-4-Scout-17B-16E-Instruct", 107_769_861_120,
		append(stackedTensorsOf("feed_forward", 48, 16, 5120, 8192, true), shaped("lm_head.weight", 202048, 5120))},
	{"Megrez-3B-Instruct", 2_915_207_680, nil},
	{"MiniCPM3-4B", 4_073_875_968, nil},
	{"MiniMax-M2.7", 228_689_764_864, expertTensorsOf("block_sparse_moe", 0, 62, 256, 3072, 1536, "w1", "w3", "w2")},
	{"Mistral-7B-Instruct-v0.3", 7_248_023_552, nil},
	{"Mixtral-8x7B-v0.1", 46_702_792_704, expertTensorsOf("block_sparse_moe", 0, 32, 8, 4096, 14336, "w1", "w3", "w2")},
	{"OLMo-2-1124-7B-Instruct", 7_298_617_344, nil},
	{"Olmo-3.1-32B-Instruct", 32_233_522_176, nil},
	{"Phi-3-mini-128k-instruct", 3_821_079_552, nil},
	{"Phi-3.5-MoE-instruct", 41_873_153_344, expertTensorsOf("block_sparse_moe", 0, 32, 16, 4096, 6400, "w1", "w3", "w2")},
	{"Phi-4-mini-instruct", 3_836_021_760, nil},
	{"Qwen2-VL-2B-Instruct", 2_208_985_600, nil},
	{"Qwen2.5-0.5B-Instruct", 494_032_768, nil},
	{"Qwen2.5-VL-7B-Instruct", 8_292_166_656, []tensor.Info{shaped("lm_head.weight", 152064, 3584)}},
	{"Qwen3-0.6B", 596_049_920, nil},
	{"Qwen3-235B-A22B-Instruct-2507", 235_093_634_560, expertTensorsOf("mlp", 0, 94, 128, 4096, 1536, "gate_proj", "up_proj", "down_proj")},
	{"Qwen3-30B-A3B", 30_532_122_624, expertTensorsOf("mlp", 0, 48, 128, 2048, 768, "gate_proj", "up_proj", "down_proj")},
	{"Qwen3-Next-80B-A3B-Instruct", 79_674_391_296, expertTensorsOf("mlp", 0, 48, 512, 2048, 512, "gate_proj", "up_proj", "down_proj")},
	{"Qwen3-VL-2B-Instruct", 2_127_532_032, nil},
	{"Qwen3.5-0.8B", 852_985_920, nil},
	{"Qwen3.5-35B-A3B", 35_107_181_936, stackedTensorsOf("mlp", 40, 256, 2048, 512, false)},
	{"Qwen3.6-27B", 27_356_728_560, nil},
	{"SmolLM2-1.7B-Instruct", 1_711_376_384, nil},
	{"bitnet-b1.58-2B-4T-bf16", 2_412_820_480, nil},
	{"c4ai-command-r-v01", 34_980_831_232, nil},
	{"chatglm3-6b", 6_243_584_000, nil},
	{"gemma-2-2b-it", 2_614_341_888, nil},
	{"gemma-3-1b-it", 999_885_952, nil},
	{"gemma-3-4b-it", 4_300_079_472, nil},
	{"gemma-4-31B-it", 31_273_088_876, nil},
	{"gemma-4-E4B-it", 7_941_101_802, nil},
	{"gemma-7b", 8_537_680_896, nil},
	{"glm-4-9b", 9_399_951_360, nil},
	{"gpt-oss-20b", 20_914_757_184, stackedTensorsOf("mlp", 24, 32, 2880, 2880, true)},
	{"granite-3.3-8b-instruct", 8_170_864_640, nil},
	{"gpt2", 124_439_808, nil},
	{"stablelm-3b-4e1t", 2_795_443_200, nil},
}

// shaped is a tensor of a shape.
func shaped(name string, shape ...int64) tensor.Info {
	return tensor.Info{Name: name, DType: tensor.BF16, Shape: shape}
}

// expertTensorsOf lists the matrices of n experts in the layers from first on, called as given.
func expertTensorsOf(block string, first, layers, n int, hidden, width int64, gate, up, down string) []tensor.Info {
	var out []tensor.Info
	for i := first; i < layers; i++ {
		q := "model." + layerName(i) + block
		if gate == "w1" {
			out = append(out, shaped(q+".gate.weight", int64(n), hidden)) // says what the block is called
		}
		for j := range n {
			p := q + ".experts." + strconv.Itoa(j) + "."
			out = append(out, shaped(p+gate+".weight", width, hidden), shaped(p+up+".weight", width, hidden), shaped(p+down+".weight", hidden, width))
		}
	}
	return out
}

// stackedTensorsOf lists the tensors that hold the matrices of n experts each, columns being outputs if turned.
func stackedTensorsOf(block string, layers int, n, hidden, width int64, turned bool) []tensor.Info {
	var out []tensor.Info
	for i := range layers {
		p := "model." + layerName(i) + block + ".experts."
		if turned {
			out = append(out, shaped(p+"gate_up_proj", n, hidden, 2*width), shaped(p+"down_proj", n, width, hidden))
		} else {
			out = append(out, shaped(p+"gate_up_proj", n, 2*width, hidden), shaped(p+"down_proj", n, hidden, width))
		}
	}
	return out
}

// askedFor adds to the tensors at hand those that a description asks for, with the shapes that it must have had in mind:
// of a tensor that views show, the rows up to the last one that they use.
func askedFor(m *Model, have []tensor.Info) []tensor.Info {
	seen := map[string]bool{}
	for _, info := range have {
		seen[info.Name] = true
	}
	type size struct{ rows, cols int }
	var names []string
	sizes := map[string]size{}
	need := func(name string, rows, cols int) {
		if name == "" || seen[name] {
			return
		}
		s, ok := sizes[name]
		if !ok {
			names = append(names, name)
		}
		sizes[name] = size{max(s.rows, rows), max(s.cols, cols)}
	}
	views := map[string]*View{}
	for i := range m.Text.Views {
		views[m.Text.Views[i].Name] = &m.Text.Views[i]
	}
	m.weights(func(w Weight) {
		v := views[w.Tensor]
		if v == nil {
			need(w.Tensor, w.Rows, w.Cols)
			return
		}
		rows, cols := v.Rows, v.Cols-v.Zeros
		if v.Runs != nil {
			rows = 0
		}
		for _, r := range v.Runs {
			rows = max(rows, r.Start+(r.Count-1)*max(r.Step, 1)+1+r.Spare)
		}
		if v.Transposed {
			_, n := v.turnedShape()
			rows, cols = v.From+n, rows
		}
		need(v.Tensor, rows, cols)
		need(v.Plus, v.Rows, 0)
	})
	out := append([]tensor.Info(nil), have...)
	for _, name := range names {
		shape := tensor.Shape{int64(sizes[name].rows)}
		if cols := sizes[name].cols; cols > 0 {
			shape = append(shape, int64(cols))
		}
		out = append(out, shaped(name, shape...))
	}
	return out
}

// TestDescribeHub describes published files twice: with the tensors that the first description asked for, the second must
// account for every key and tensor, and all of them must have as many elements as the model has parameters.
func TestDescribeHub(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	for _, tt := range hubFiles {
		t.Run(tt.name, func(t *testing.T) {
			config, err := os.ReadFile(filepath.Join("testdata", "hub", tt.name+".json"))
			if err != nil {
				t.Fatal(err)
			}
			config = edit(t, config, map[string]any{"quantization_config": removed}) // pipeline/quantized judges it
			m, err := describeModel(t, config, checkpoint{tensors: tt.experts})
			if err != nil {
				t.Fatal(err)
			}
			tensors := askedFor(m, tt.experts)
			if _, err := describe(config, tensors, Options{}); err != nil {
				t.Fatal(err)
			}
			var n int64
			for _, info := range tensors {
				e, err := info.Shape.Elements()
				if err != nil {
					t.Fatal(err)
				}
				n += e
			}
			if n != tt.parameters {
				t.Errorf("%d parameters, want %d", n, tt.parameters)
			}
		})
	}
}
