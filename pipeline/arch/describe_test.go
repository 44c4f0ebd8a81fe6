package arch

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// facts is what a test wants to know of a Decoder.
type facts struct {
	Architecture             string
	Hidden, Vocab, Positions int
	Layers, Heads, KVHeads   int
	HeadDim, Intermediate    int
	Tied                     bool
	Biases                   string // the linears of layer 0 with a bias
	HeadNorm                 bool
	Eps                      float64
	Rope                     string
	Tensors                  int
}

func factsOf(d *Decoder) facts {
	a, m := d.Layers[0][0].Block.(*Attention), d.Layers[0][1].Block.(*MLP)
	f := facts{
		Architecture: d.Architecture,
		Hidden:       d.Hidden, Vocab: d.Vocab, Positions: d.MaxPositions,
		Layers: len(d.Layers), Heads: a.Heads, KVHeads: a.KVHeads,
		HeadDim: a.HeadDim, Intermediate: m.Intermediate,
		Tied: d.Tied, HeadNorm: a.QNorm != nil && a.KNorm != nil,
		Eps: d.FinalNorm.Eps, Rope: d.Ropes[0].Type, Tensors: len(d.Claimed),
	}
	for i, x := range []Linear{a.Q, a.K, a.V, a.O, m.Gate, m.Up, m.Down} {
		if x.Bias.Tensor != "" {
			f.Biases += string("qkvogud"[i])
		}
	}
	return f
}

var supported = []struct {
	name string
	want facts
}{
	{"llama", facts{"LlamaForCausalLM", 64, 320, 512, 3, 4, 2, 16, 160, false, "", false, 1e-6, "default", 30}},
	{"llama-bias", facts{"LlamaForCausalLM", 64, 320, 512, 3, 4, 2, 16, 160, true, "qkvogud", false, 1e-6, "default", 50}},
	{"llama-linear-rope", facts{"LlamaForCausalLM", 64, 320, 512, 3, 4, 2, 16, 160, true, "", false, 1e-6, "linear", 29}},
	{"llama3-rope", facts{"LlamaForCausalLM", 64, 320, 512, 3, 4, 2, 16, 160, true, "", false, 1e-6, "llama3", 29}},
	{"qwen2-tied", facts{"Qwen2ForCausalLM", 64, 320, 512, 3, 4, 2, 16, 160, true, "qkv", false, 1e-6, "default", 38}},
	{"qwen2-untied", facts{"Qwen2ForCausalLM", 64, 320, 512, 3, 4, 2, 16, 160, false, "qkv", false, 1e-6, "default", 39}},
	{"qwen3-tied", facts{"Qwen3ForCausalLM", 64, 320, 512, 3, 4, 2, 32, 160, true, "", true, 1e-6, "default", 35}},
	{"qwen3-untied", facts{"Qwen3ForCausalLM", 64, 320, 512, 3, 4, 2, 16, 160, false, "", true, 1e-6, "default", 36}},
}

func TestDescribe(t *testing.T) {
	for _, tt := range supported {
		t.Run(tt.name, func(t *testing.T) {
			ck := loadCheckpoint(t, filepath.Join("testdata", tt.name))
			d, err := describe(ck.config, ck.tensors, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, factsOf(d)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			for _, info := range ck.tensors {
				if d.Claimed[info.Name] != "weight" {
					t.Errorf("%s is claimed as %q", info.Name, d.Claimed[info.Name])
				}
			}
			if len(d.Ropes[0].InvFreq) != d.Ropes[0].Dim/2 || d.Ropes[0].Dim != tt.want.HeadDim {
				t.Errorf("%d frequencies for %d dimensions", len(d.Ropes[0].InvFreq), d.Ropes[0].Dim)
			}
			if tied := d.Head.Weight == d.Embedding; tied != tt.want.Tied {
				t.Errorf("head is %v", d.Head.Weight)
			}
		})
	}
}

// refusedText is the reason for every kind of foreign model, in the words of the user's screen.
var refusedText = map[string]string{
	"gemma3n":      `config.json: model_type: "gemma3n" is not supported`,
	"deepseek-v32": `config.json: model_type: "deepseek_v32" is not supported`,
	"olmo3-global": `config.json: rope_theta: 10000 is not supported, only 500000: versions differ in whether sliding layers have it too`,
}

func TestDescribeRefused(t *testing.T) {
	files, err := filepath.Glob("testdata/refused/*.json")
	if err != nil || len(files) != len(refusedText) {
		t.Fatalf("%d files for %d cases (%v)", len(files), len(refusedText), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		t.Run(name, func(t *testing.T) {
			config, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			wantError(t, config, nil, Options{}, tensor.ErrUnsupported, refusedText[name])
		})
	}
}

// wantError wants a refusal of one kind (nil: neither sentinel) in exactly these words, and no Decoder.
func wantError(t *testing.T, config []byte, infos []tensor.Info, opts Options, kind error, want string) {
	t.Helper()
	d, err := describe(config, infos, opts)
	if err == nil {
		t.Fatalf("described, want %s", want)
	}
	if d != nil {
		t.Error("a Decoder together with an error")
	}
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if kind != nil && !errors.Is(err, kind) {
		t.Errorf("%q does not wrap %q", err, kind)
	}
	if kind == nil && (errors.Is(err, tensor.ErrCorrupt) || errors.Is(err, tensor.ErrUnsupported)) {
		t.Errorf("%q wraps a kind", err)
	}
}

// withoutLogits are model types whose tensors are those of others under other names: their tests rename checkpoints.
var withoutLogits = []string{
	"baichuan", "chatglm", "internlm2", "kimi_k2", "llama4", "mistral3", "qwen3_5_moe",
}

func TestFamilies(t *testing.T) {
	names := ModelTypes()
	if !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Errorf("not sorted or not unique: %v", names)
	}
	for _, f := range Table() {
		if len(f.Architectures) == 0 {
			t.Errorf("%s has no architecture", f.ModelType)
		}
		if slices.Contains(withoutLogits, f.ModelType) {
			continue
		}
		if dirs, err := filepath.Glob("testdata/" + f.ModelType + "*/golden.safetensors"); err != nil || len(dirs) == 0 {
			t.Errorf("%s has no checkpoint in testdata", f.ModelType)
		}
	}
}
