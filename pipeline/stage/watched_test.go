package stage_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/publish/manifest"
)

// untrained lets a verification accept random weights, which find every text unlikely and lose much with few bits.
const untrained = "verify: {kl: {max: 1}, perplexity: {window: 64, windows: 2, decode: 4, max_source: 1e5, max_ratio: 10}}"

// klOf makes a package of a family at 4 bits, which must be verified, and returns its divergence from the source.
func klOf(t *testing.T, family, sections string) float64 {
	t.Helper()
	w := newWork(t, families+family, watch+untrained+"\n"+sections)
	w.must(t)
	m, err := manifest.Open(w.out())
	if err != nil || !m.Verified {
		t.Fatalf("verified %v: %v", m.Verified, err)
	}
	return m.Metrics["kl"].Value
}

// watchedFamilies are the checkpoints of families, without variants of the oldest.
func watchedFamilies(t *testing.T) (names []string) {
	t.Helper()
	dirs, err := filepath.Glob(families + "*/tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range dirs {
		name := filepath.Base(filepath.Dir(path))
		if _, err := os.Stat(families + name + "/model.safetensors"); err != nil {
			continue
		}
		src, err := source.Open(t.Context(), source.Origin{Dir: families + name}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if src.Decoder.Family != "llama" && src.Decoder.Family != "qwen3" {
			names = append(names, name)
		}
		src.Close()
	}
	if len(names) < 55 {
		t.Errorf("%d families: %v", len(names), names)
	}
	return names
}

// Packages whose codes were chosen while the model was watched are verified, and closer to the source than those that were
// rounded.
func TestWatchedFamilies(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	names := watchedFamilies(t)
	if os.Getenv("LLMEXPORT_FAMILIES") != "all" { // half a minute more
		names = []string{"bloom", "cohere", "deepseek_v3", "falcon_h1", "gemma3-untied", "gemma3_text", "gemma4_text-keys", "glm4", "gpt_oss", "lfm2", "olmo2",
			"phi3", "qwen3_moe", "qwen3_next", "starcoder2"}
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nearest := klOf(t, name, "quantize: {method: rtn, block: auto}")
			gptq := klOf(t, name, "quantize: {method: gptq, block: auto}")
			t.Logf("KL of rtn %.3g, gptq %.3g", nearest, gptq)
			if !(gptq < nearest) {
				t.Errorf("KL of rtn %g, gptq %g", nearest, gptq)
			}
		})
	}
}

// Foldings, rotations and tuning change what feeds a matrix, under names that may be views, shared or of norms with a beta;
// budgets measure every matrix.
func TestWatchedMethods(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	for _, c := range []struct{ name, sections string }{
		{"gemma3_text", "quantize: {method: [awq, gptq, {distill: {steps: 2, tokens: 128}}], block: auto}"},
		{"olmo", "quantize: {method: [awq, gptq, {distill: {steps: 2, tokens: 128}}], block: auto}"},
		{"bloom", "quantize: {method: [awq, search, {distill: {steps: 2, tokens: 128}}], block: auto}"},
		{"starcoder2", "quantize: {method: [awq, {omniquant: {steps: 4}}], block: auto}"},
		{"phi3", "quantize: {method: [rotation, gptq, {distill: {steps: 2, tokens: 128}}], block: auto}"},
		{"glm4", "target: {backends: [cpu, opencl]}\nquantize: {method: gptq, budget: {bpw: 5.5}}"},
		{"arcee", "target: {backends: [cpu, opencl]}\nquantize: {method: gptq, budget: {bpw: 5.5}}"},
		{"gemma2", "quantize: {method: gptq, budget: {bpw: 5.5}}"},
		{"qwen3_moe", "quantize: {method: [awq, gptq], block: auto}"},
		{"deepseek_v3", "quantize: {method: [rotation, gptq], block: auto}"},
		{"qwen3_next", "quantize: {method: [awq, {omniquant: {steps: 4}}], block: auto}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			nearest, kl := klOf(t, c.name, "quantize: {method: rtn, block: auto}"), klOf(t, c.name, c.sections)
			t.Logf("KL of rtn %.3g, here %.3g", nearest, kl)
			if !(kl < nearest) {
				t.Errorf("KL of rtn %g, here %g", nearest, kl)
			}
		})
	}
}

// What cannot be done with a model is refused at its place in the recipe, by name and before anything is made.
func TestWatchedRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, quantize, where, what string }{
		{"gpt_neox", "{method: [rotation, gptq], block: 32}", "quantize.method", "LayerNorm"},
		{"glm4", "{method: [rotation, gptq], block: 32}", "quantize.method", "norms after the blocks"},
		{"bitnet", "{method: [{rotation: {residual: false}}, gptq], block: 32}", "quantize.method", "attention with a gate or a norm before its output"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWork(t, families+c.name, watch+"quantize: "+c.quantize)
			_, err := w.run(t)
			if err == nil || !strings.Contains(err.Error(), c.where) || !strings.Contains(err.Error(), c.what) {
				t.Errorf("%v, want %s at %s", err, c.what, c.where)
			}
		})
	}
}
