package net

import (
	"errors"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// logitBound is what transformers and this package may differ by: both compute in float32, sum in different orders, and
// round rotary angles differently. Observed is a tenth of it.
const logitBound = 1e-4

// unknown are the checkpoints that calibration does not know, by what it says of them.
var unknown = map[string]string{
	"no attention":                        "axk1 bamba deepseek_v2 deepseek_v3 glm4_moe_lite granitemoehybrid lfm2 lfm2_moe minicpm3 qwen3_5_moe_text qwen3_5_text qwen3_next youtu",
	"parallel branches":                   "cohere cohere-norms cohere2 gpt_neox phi stablelm-norms",
	"3 branches":                          "falcon_h1",
	"no MLP":                              "bailing_moe dots1 ernie4_5_moe gemma4_text-moe glm4_moe gpt_oss granitemoe granitemoeshared hunyuan_v1_moe llama4_text minimax_m2 mixtral olmoe olmoe-clip phimoe qwen2_moe qwen3_moe solar_open",
	"attention temperature":               "ministral3",
	"values that are keys or have a norm": "gemma4_text",
}

// Goldens are logits of transformers from the same weights, for every family that calibration knows.
func TestGoldens(t *testing.T) {
	families, err := filepath.Glob(filepath.Join(familiesDir, "*", "golden.safetensors"))
	if err != nil || len(families) < 50 {
		t.Fatalf("%d families: %v", len(families), err)
	}
	for _, file := range families {
		dir := filepath.Dir(file)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			golden := readFile(t, file)
			d, src := openSource(t, dir)
			for what, names := range unknown {
				if slices.Contains(strings.Fields(names), filepath.Base(dir)) {
					if _, err := New(d, src, 2); !errors.Is(err, tensor.ErrUnsupported) || !strings.Contains(err.Error(), ": "+what+": ") {
						t.Errorf("%v, want %s", err, what)
					}
					return
				}
			}
			p := load(t, newModel(t, d, src, 2))
			var worst float64
			for _, i := range []string{"0", "1"} {
				got := p.logits(t, [][]int32{golden.tokens(t, "ids_"+i)})
				want := golden.floats("logits_" + i)
				if len(got) != len(want) {
					t.Fatalf("%d logits, want %d", len(got), len(want))
				}
				for j := range want {
					worst = max(worst, math.Abs(float64(got[j])-float64(want[j])))
					if math.IsNaN(float64(got[j])) {
						t.Fatalf("logit %d is NaN", j)
					}
				}
			}
			if worst > logitBound {
				t.Errorf("largest error of a logit: %.2g", worst)
			}
			t.Logf("largest error of a logit: %.2g", worst)
		})
	}
}
