package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/llmexport/llmexport/internal/synthetic/checkpoint"
)

// planBytes is what the plan of the largest known models may take; runBytes is limits.memory of a run.
const (
	planBytes = 200 << 20
	runBytes  = 512 << 20
	smallRun  = 160 << 20
)

// Mixtures of experts as config.json has them.
var (
	terabyte = map[string]any{
		"architectures": []string{"DeepseekV3ForCausalLM"}, "model_type": "deepseek_v3", "num_hidden_layers": 61, "hidden_size": 7168,
		"intermediate_size": 18432, "moe_intermediate_size": 2048, "n_routed_experts": 384, "n_shared_experts": 1, "num_experts_per_tok": 8,
		"n_group": 1, "topk_group": 1, "first_k_dense_replace": 0, "num_attention_heads": 64, "num_key_value_heads": 64, "q_lora_rank": 1536,
		"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "num_nextn_predict_layers": 0,
		"max_position_embeddings": 131072, "rope_theta": 50000, "vocab_size": 163840, "tie_word_embeddings": false,
		"quantization_config": map[string]any{"quant_method": "fp8", "weight_block_size": []int{128, 128}},
	}
	qwen = map[string]any{
		"architectures": []string{"Qwen3MoeForCausalLM"}, "model_type": "qwen3_moe", "num_hidden_layers": 2, "hidden_size": 1024,
		"intermediate_size": 2048, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 128, "num_experts": 64,
		"num_experts_per_tok": 8, "moe_intermediate_size": 512, "norm_topk_prob": true, "max_position_embeddings": 40960,
		"rope_theta": 1000000, "vocab_size": 32000, "tie_word_embeddings": false,
	}
	// Layers of Qwen3-30B-A3B and of Qwen3-235B-A22B.
	qwen30b = with(qwen, map[string]any{
		"num_hidden_layers": 8, "hidden_size": 2048, "num_attention_heads": 32, "num_experts": 128, "moe_intermediate_size": 768, "vocab_size": 151936,
	})
	qwen235b = with(qwen30b, map[string]any{"num_hidden_layers": 2, "hidden_size": 4096, "num_attention_heads": 64, "moe_intermediate_size": 1536})
)

func with(config, change map[string]any) map[string]any {
	out := maps.Clone(config)
	maps.Copy(out, change)
	return out
}

// hollow writes a checkpoint whose weights are holes, with the tokenizer of a small one, and gives its size.
func hollow(t *testing.T, dir string, config map[string]any, stacked bool) int64 {
	t.Helper()
	text, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	source := checkpoint.New
	if stacked {
		source = checkpoint.NewStacked
	}
	src, err := source(text, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := checkpoint.WriteHoles(dir, src.Tensors(), 16<<30); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), text, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json"} {
		b, err := os.ReadFile(filepath.Join(families, "qwen3_moe", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return src.Size()
}

// peakOf runs the program in dir and gives the largest resident size of its process.
func peakOf(t *testing.T, dir string, args ...string) (peak int64) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "llmexport", args...)
	var stderr strings.Builder
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, io.Discard, &stderr
	start := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case err := <-done:
			if err != nil {
				t.Fatalf("%v: %s", err, stderr.String())
			}
			t.Logf("%s: %.2fs, peak RSS %d MiB", args[0], time.Since(start).Seconds(), peak>>20)
			return peak
		case <-time.After(5 * time.Millisecond):
		}
		// Not what the kernel says of a child that has ended: that counts the parent too.
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
		if _, v, ok := strings.Cut(string(status), "VmHWM:"); ok {
			kib, err := strconv.ParseInt(strings.Fields(v)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			peak = max(peak, kib<<10)
		}
	}
}

// Headers of a terabyte of experts are planned in little memory, whichever form they have.
func TestPlanOfATerabyte(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	for name, stacked := range map[string]bool{"fp8": false, "stacked": true} {
		t.Run(name, func(t *testing.T) {
			dir, config := t.TempDir(), terabyte
			if stacked {
				config = with(config, nil)
				delete(config, "quantization_config")
			}
			if size := hollow(t, filepath.Join(dir, "model"), config, stacked); size < 1e12 {
				t.Fatalf("%d bytes", size)
			}
			if peak := peakOf(t, dir, "plan", "model", "--json"); peak > planBytes {
				t.Errorf("peak RSS of %d MiB", peak>>20)
			}
		})
	}
}

// Experts pass through memory one after the other. LLMEXPORT_BIG makes the checkpoints as large as a disk of 16 GB and some
// minutes allow.
func TestExpertsStream(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	for _, tt := range []struct {
		name           string
		config         map[string]any
		stacked, large bool
		limit          int64
	}{
		{"single", qwen, false, false, smallRun},
		{"stacked", qwen, true, false, smallRun},
		{"Qwen3-30B-A3B, 8 layers", qwen30b, false, true, runBytes},
		{"Qwen3-30B-A3B, 8 layers, stacked", qwen30b, true, true, runBytes},
		{"Qwen3-235B-A22B, 2 layers", qwen235b, false, true, runBytes},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.large && os.Getenv("LLMEXPORT_BIG") == "" {
				t.Skip("large: set LLMEXPORT_BIG")
			}
			dir := t.TempDir()
			if parent := os.Getenv("LLMEXPORT_BIG_DIR"); tt.large && parent != "" {
				var err error
				if dir, err = os.MkdirTemp(parent, "experts"); err != nil {
					t.Fatal(err)
				}
				defer os.RemoveAll(dir)
			}
			size := hollow(t, filepath.Join(dir, "model"), tt.config, tt.stacked)
			recipe := fmt.Sprintf("version: 1\nname: experts\nmodel: {path: model}\nlimits: {memory: %d}\nverify: {enabled: false}\npublish: [{dir: dist}]\n", tt.limit)
			if err := os.WriteFile(filepath.Join(dir, "recipe.yaml"), []byte(recipe), 0o666); err != nil {
				t.Fatal(err)
			}
			peak := peakOf(t, dir, "run", "recipe.yaml", "--log-level", "warn")
			if t.Logf("%d MiB of weights", size>>20); peak > tt.limit {
				t.Errorf("peak RSS of %d MiB, limits.memory %d MiB", peak>>20, tt.limit>>20)
			}
		})
	}
}
