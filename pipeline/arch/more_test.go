package arch

import (
	"path/filepath"
	"testing"
)

// more are checkpoints in testdata, by model type.
var more = []string{
	"apertus", "arcee", "axk1", "bailing_moe", "bamba", "bitnet", "bloom", "cohere", "cohere2", "dots1", "exaone", "exaone4", "falcon_h1", "gpt2",
	"gpt_neox", "helium", "internlm3", "iquestcoder", "llama4_text", "mimo", "minicpm3", "minimax_m2", "mixtral", "nemotron", "olmo", "olmoe", "opt",
	"phi", "phimoe", "qwen2_moe", "seed_oss", "solar_open", "stablelm", "starcoder2", "youtu",
}

// TestDescribeMore accounts for every key and every tensor of a checkpoint of each family.
func TestDescribeMore(t *testing.T) {
	for _, name := range more {
		t.Run(name, func(t *testing.T) {
			ck := loadCheckpoint(t, filepath.Join("testdata", name))
			d, err := Describe(ck.config, ck.tensors, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if d.ModelType != name || len(d.Claimed) != len(ck.tensors) {
				t.Errorf("%s with %d of %d tensors", d.ModelType, len(d.Claimed), len(ck.tensors))
			}
		})
	}
}
