package arch

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// needTensors are published files that are described with the facts of their tensors only: experts, quantized matrices.
var needTensors = []string{
	"A.X-K1", "DeepSeek-V2-Lite", "DeepSeek-V3", "GLM-4.5", "GLM-4.7-Flash", "Ling-lite-1.5", "Llama-4-Scout-17B-16E-Instruct", "MiniMax-M2.7",
	"Mixtral-8x7B-v0.1", "Phi-3.5-MoE-instruct", "Qwen3-235B-A22B-Instruct-2507", "Qwen3-30B-A3B", "Qwen3-Next-80B-A3B-Instruct", "Qwen3.5-35B-A3B",
	"Solar-Open-100B", "bitnet-b1.58-2B-4T-bf16", "gpt-oss-20b",
}

// otherBlocks are published files of models with parallel branches or blocks that calibration does not know.
var otherBlocks = []string{
	"MiniCPM3-4B", "Ministral-3-3B-Instruct-2512", "Qwen3.5-0.8B", "Qwen3.6-27B", "Youtu-LLM-2B", "c4ai-command-r-plus", "c4ai-command-r-v01",
	"gemma-4-31B-it", "phi-2", "pythia-1.4b", "stablelm-2-12b",
}

// Configs of published models, or in their shape: calibration knows all of them but those with parallel branches or blocks of
// another kind.
func TestPairsOfHub(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "hub", "*.json"))
	if err != nil || len(files) < 15 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	for _, path := range files {
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		if slices.Contains(needTensors, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			config, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			d, err := describeKeys(t, config, checkpoint{})
			if err != nil {
				t.Fatal(err)
			}
			err = d.CheckPairs()
			if want := !slices.Contains(otherBlocks, name); (err == nil) != want {
				t.Errorf("%v, known should be %v", err, want)
			}
		})
	}
}

func TestPairsRefused(t *testing.T) {
	values := Linear{Weight: Weight{Tensor: "v"}}
	attention, mlp := func() *Attention { return &Attention{V: values} }, func() *MLP { return &MLP{Activation: SiLU} }
	for _, c := range []struct {
		want  string
		layer Layer
	}{
		{"1 branches", Layer{{Block: attention()}}},
		{"parallel branches", Layer{{Block: attention()}, {Block: mlp(), Parallel: true}}},
		{"no attention", Layer{{Block: mlp()}, {Block: mlp()}}},
		{"no MLP", Layer{{Block: attention()}, {Block: &Experts{}}}},
		{"attention sinks", Layer{{Block: &Attention{Sinks: Weight{Tensor: "sinks"}}}, {Block: mlp()}}},
		{"attention temperature", Layer{{Block: &Attention{Temperature: &Temperature{}}}, {Block: mlp()}}},
		{"norms in parts with gains of their own", Layer{{Block: &Attention{V: values, KNorm: &Norm{Parts: 2}}}, {Block: mlp()}}},
		{"values that are keys or have a norm", Layer{{Block: &Attention{}}, {Block: mlp()}}},
		{"values that are keys or have a norm", Layer{{Block: &Attention{V: values, VNorm: &Norm{}}}, {Block: mlp()}}},
		{"a factor of the stream", Layer{{Block: attention()}, {Block: mlp(), Gain: Weight{Tensor: "gain"}}}},
		{"no MLP", Layer{{Block: attention()}, {Block: &Sum{}}}},
		{"an MLP of another kind", Layer{{Block: attention()}, {Block: &MLP{Activation: ClampedSwiGLU}}}},
	} {
		d := &Decoder{Layers: []Layer{{{Block: attention()}, {Block: mlp()}}, c.layer}}
		if err := d.CheckPairs(); !errors.Is(err, tensor.ErrUnsupported) || !strings.HasPrefix(err.Error(), "layer 1: "+c.want+": ") {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}
