package arch

import (
	"encoding/json"
	"errors"
	"maps"
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

// TestDescribeOddValues puts values that make no sense, or too much of it, under every key of every config. Nothing may
// panic, and every error says whose fault it is.
func TestDescribeOddValues(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	odd := []any{nil, true, 0, 7, 1 << 14, 0.5, "x", []any{-1, "x"}, map[string]any{"x": 1}}
	files, err := filepath.Glob("testdata/*/config.json")
	hub, errHub := filepath.Glob("testdata/hub/*.json")
	if err != nil || errHub != nil || len(files) == 0 || len(hub) == 0 {
		t.Fatal(err, errHub)
	}
	for n, file := range append(files, hub...) {
		if slices.Contains(needTensors, strings.TrimSuffix(filepath.Base(file), ".json")) {
			continue // without tensors nothing but keys is judged, and thousands of experts take long
		}
		config, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var infos []tensor.Info
		if filepath.Base(file) == "config.json" {
			infos = readHeader(t, filepath.Join(filepath.Dir(file), "model.safetensors"))
		}
		var keys map[string]any
		if err := json.Unmarshal(config, &keys); err != nil {
			t.Fatal(err)
		}
		for i, key := range slices.Sorted(maps.Keys(keys)) {
			for k, v := range odd {
				// Every third value, others for the next key and file; of published files one.
				if (i+k+n)%3 != 0 || infos == nil && (i+k+n)%len(odd) != 0 {
					continue
				}
				_, err := describe(edit(t, config, map[string]any{key: v}), infos, Options{})
				if err != nil && !errors.Is(err, tensor.ErrCorrupt) && !errors.Is(err, tensor.ErrUnsupported) {
					t.Errorf("%s: %s %v: %v", file, key, v, err)
				}
			}
		}
	}
}
