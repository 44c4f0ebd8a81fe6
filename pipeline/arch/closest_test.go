package arch

import (
	stdflag "flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/runtime/tensor"
)

var update = stdflag.Bool("update", false, "rewrite parts.txt")

// TestParts holds parts.txt to the checkpoints in testdata.
func TestParts(t *testing.T) {
	dirs, err := filepath.Glob("testdata/*/model.safetensors")
	if err != nil || len(dirs) == 0 {
		t.Fatal(dirs, err)
	}
	var lines []string
	for _, path := range dirs {
		ck := loadCheckpoint(t, filepath.Dir(path))
		c, err := ParseConfig(ck.config)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, c.modelType()+": "+strings.Join(slices.Sorted(maps.Keys(parts(ck.tensors))), ", ")+"\n")
	}
	slices.Sort(lines)
	got := strings.Join(slices.Compact(lines), "")
	if strings.Contains(got, "unknown") {
		t.Errorf("tensors without a role:\n%s", got)
	}
	if *update {
		if err := os.WriteFile("parts.txt", []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
	} else if got != partsText {
		t.Error("parts.txt is not what the checkpoints in testdata say: go test ./pipeline/arch -run TestParts -update")
	}
}

// TestClosest renames tensors and keys: neither decides.
func TestClosest(t *testing.T) {
	llama := loadCheckpoint(t, "testdata/llama").tensors
	renamed := func(pairs ...string) []tensor.Info {
		r := strings.NewReplacer(pairs...)
		out := slices.Clone(llama)
		for i := range out {
			out[i].Name = r.Replace(out[i].Name)
		}
		return out
	}
	names := func(list ...string) (out []tensor.Info) {
		for _, n := range list {
			out = append(out, tensor.Info{Name: n})
		}
		return out
	}
	for _, tt := range []struct {
		modelType string
		infos     []tensor.Info
		want      string
	}{
		{"qwen4", loadCheckpoint(t, "testdata/qwen3-tied").tensors, "qwen3, which has all of its parts"},
		{"zamba", llama, "llama, which has all of its parts"},
		{"ministral4", llama, "ministral, which has all of its parts"},
		{"xverse", renamed("model.", "transformer.", "layers", "h", "self_attn.q_proj", "attn.wq", "self_attn.k_proj", "attn.wk",
			"self_attn.v_proj", "attn.wv", "self_attn.o_proj", "attn.wo", "gate_proj", "w3", "up_proj", "w1", "down_proj", "w2", "input_layernorm", "ln_1",
			"post_attention_layernorm", "ln_2"), "llama, which has all of its parts"},
		{"deepseek_v32", append(loadCheckpoint(t, "testdata/deepseek_v3").tensors,
			names("model.layers.0.self_attn.indexer.weights_proj.weight")...),
			"deepseek_v3, which lacks unknown self_attn.indexer.weights_proj.weight (model.layers.*.self_attn.indexer.weights_proj.weight)"},
		{"gpt4", names("wte.weight", "wpe.weight", "h.0.ln_1.weight", "h.0.ln_1.bias", "h.0.attn.bias", "h.0.attn.c_attn.weight",
			"h.0.attn.c_attn.bias", "h.0.attn.c_proj.weight", "h.0.attn.c_proj.bias", "h.0.ln_2.weight", "h.0.ln_2.bias", "h.0.mlp.c_fc.weight", "h.0.mlp.c_fc.bias",
			"h.0.mlp.c_proj.weight", "h.0.mlp.c_proj.bias", "ln_f.weight", "ln_f.bias"),
			"gpt2, which has all of its parts"},
		{"llama0", append(names("wpe.weight"), llama...), "llama, which lacks learned positions (wpe.weight)"},
		{"bert", names("pooler.weight"), ""},
	} {
		if got := closest(tt.modelType, tt.infos); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.modelType, got, tt.want)
		}
	}
}

// TestClosestHostile: the work for a checkpoint with a million names is that for the first of them.
func TestClosestHostile(t *testing.T) {
	infos := make([]tensor.Info, 0, 1<<16)
	for i := range cap(infos) {
		infos = append(infos, tensor.Info{Name: fmt.Sprintf("layers.0.x%d", i)})
	}
	if n := len(parts(infos)); n != maxRoles {
		t.Errorf("%d parts, want %d", n, maxRoles)
	}
	if text := closest("x", infos); len(text) > 4096 {
		t.Errorf("%d bytes", len(text))
	}
}
