package arch

import (
	"path/filepath"
	"strings"
	"testing"
)

// more are checkpoints in testdata, by model type, and what is special about them.
var more = []string{
	"apertus", "arcee", "axk1", "bailing_moe", "bamba", "bitnet", "bloom", "cohere", "cohere2", "cwm", "dots1", "exaone", "exaone4", "falcon_h1",
	"gemma4_text", "gemma4_text-moe", "glm4_moe_lite", "gpt2", "gpt_neox", "granitemoeshared", "helium", "hyperclovax", "internlm3", "iquestcoder",
	"llama4_text", "llama4_text-dense", "mimo", "minicpm3", "minimax_m2", "ministral3", "mixtral", "nemotron", "olmo", "olmoe", "opt", "phi", "phimoe",
	"qwen2_moe", "seed_oss", "solar_open", "stablelm", "starcoder2", "youtu",
}

// TestDescribeMore accounts for every key and every tensor of a checkpoint of each family.
func TestDescribeMore(t *testing.T) {
	for _, name := range more {
		t.Run(name, func(t *testing.T) {
			ck := loadCheckpoint(t, filepath.Join("testdata", name))
			d, err := describe(ck.config, ck.tensors, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if modelType, _, _ := strings.Cut(name, "-"); d.ModelType != modelType || len(d.Claimed) != len(ck.tensors) {
				t.Errorf("%s with %d of %d tensors", d.ModelType, len(d.Claimed), len(ck.tensors))
			}
		})
	}
}
