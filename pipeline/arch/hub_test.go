package arch

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// TestDescribeHubKeys uses configs in the shape of published models (transformers 4 spelling, inert keys and all). They were put
// together from descriptions of those models, so they may differ from the published files in keys that do not matter here. The
// number of parameters is the one that is commonly given, as exactly as it is given.
func TestDescribeHubKeys(t *testing.T) {
	for _, tt := range []struct {
		name       string
		parameters int64
		experts    []tensor.Info // that a description looks at
	}{
		{"A.X-K1", 518_983_052_288, expertTensorsOf("mlp", 1, 61, 192, 7168, 2048, "gate_proj", "up_proj", "down_proj")},
		{"Baichuan2-13B-Chat", 13_896_668_160, nil},
		{"Baichuan2-7B-Chat", 7_505_973_248, nil},
		{"HyperCLOVAX-SEED-Think-14B", 14_748_112_896, nil},
		{"IQuest-Coder-V1-40B-Instruct", 39_794_283_520, nil},
		{"MiMo-7B-RL", 7_622_619_136, nil},
		{"MiniCPM-2B-sft-bf16", 2_724_880_896, nil},
		{"Ministral-3-3B-Instruct-2512", 3_429_006_336, nil},
		{"MobileLLM-R1-140M", 140_248_512, nil},
		{"OLMo-1B-hf", 1_176_764_416, nil},
		{"OLMo-7B-0424-hf", 6_888_095_744, nil},
		{"OLMo-7B-hf", 6_888_095_744, nil},
		{"Qwen2-Audio-7B-Instruct", 8_397_094_912, []tensor.Info{shaped("lm_head.weight", 156032, 4096)}},
		{"Seed-OSS-36B-Instruct", 36_151_104_512, nil},
		{"SmolLM2-135M-Instruct", 134_515_008, nil},
		{"SmolLM3-3B", 3_075_098_624, nil},
		{"Solar-Open-100B", 102_651_799_552, expertTensorsOf("mlp", 0, 48, 128, 4096, 1280, "gate_proj", "up_proj", "down_proj")},
		{"TinyLlama-1.1B-Chat-v1.0", 1_100_048_384, nil},
		{"Youtu-LLM-2B", 1_961_560_064, nil},
		{"bloom-560m", 559_214_592, nil},
		{"c4ai-command-r-plus", 103_810_674_688, nil},
		{"cwm", 32_581_097_472, nil},
		{"glm-4-9b-chat", 9_399_951_360, nil},
		{"internlm2_5-7b-chat", 7_737_708_544, nil},
		{"internlm3-8b-instruct", 8_804_241_408, nil},
		{"opt-125m", 125_239_296, nil},
		{"phi-2", 2_779_683_840, nil},
		{"pythia-1.4b", 1_414_647_808, nil},
		{"stablelm-2-12b", 12_143_185_920, nil}, // its card says 419,840 more, as many as 41 more norms have
		{"stablelm-2-1_6b", 1_644_515_328, nil},
		{"starcoder2-3b", 3_030_371_328, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			config, err := os.ReadFile(filepath.Join("testdata", "hub", tt.name+".json"))
			if err != nil {
				t.Fatal(err)
			}
			m, err := describeModel(t, config, checkpoint{tensors: tt.experts})
			if err != nil {
				t.Fatal(err)
			}
			seen, n := map[string]bool{}, int64(0)
			m.weights(func(w Weight) {
				e, err := w.shape().Elements()
				if err != nil {
					t.Fatal(err)
				}
				for _, v := range m.Text.Views {
					if v.Name == w.Tensor && v.Tensor == "" {
						return // norms without weights
					}
				}
				if !seen[w.Tensor] {
					n, seen[w.Tensor] = n+e, true
				}
			})
			if n != tt.parameters {
				t.Errorf("%d parameters, want %d", n, tt.parameters)
			}
		})
	}
}

// TestDescribeHugeKeys demands that a file which promises more than any model has is refused before that takes much memory.
func TestDescribeHugeKeys(t *testing.T) {
	config := []byte(`{"model_type": "gpt_neox", "architectures": ["GPTNeoXForCausalLM"], "hidden_size": 262144, "vocab_size": 320,
		"max_position_embeddings": 512, "num_hidden_layers": 4096, "num_attention_heads": 16384, "intermediate_size": 64}`)
	const want = "have more than 2097152 pieces"
	if _, err := describeKeys(t, config, checkpoint{}); !errors.Is(err, tensor.ErrUnsupported) || !strings.Contains(err.Error(), want) {
		t.Fatal(err)
	}
}
