package stage_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/backends/cpu"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/recipes"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// A target's backends are a promise: what one of them computes wrongly is refused, before anything is made.
func TestBackendsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, model, sections, what string }{
		{"unknown", "llama", `target: {backends: [cpu, banana]}`, `target.backends[1]: must be one of "cpu", "cuda"`},
		{"width", "llama", "target: {backends: [cpu, opencl]}\nquantize: {bits: 3}", "target.backends[1]: opencl misreads asymmetric weights of 2 and 3 bits"},
		{"override", "llama", "target: {backends: [opencl]}\nquantize: {overrides: [{match: down, bits: 2}], block: 32}",
			"opencl misreads asymmetric weights of 2 and 3 bits"},
		{"tq", "llama", "target: {kv_cache: tq4}", `target.kv_cache: "tq4" is rejected`},
		{"cache", "llama", "target: {kv_cache: fp8}", `target.kv_cache: must be one of "float"`},
		{"soc", "llama", "target: {soc: toaster}", `target.soc: must be one of "adreno"`},
		{"wide GPUs", "qwen3_5_text", "target: {backends: [opencl], soc: adreno}\nquantize: {block: 32}",
			"opencl computes short convolutions incorrectly up to engine 3.6.0"},
		{"form", "llama", `target: {backends: [hexagon]}`, "hexagon runs only graphs in the C4 form"},
		{"form and engine", "llama", `target: {backends: [hexagon], form: c4}`, "target.form: c4 is not loaded by engines before 3.6.1"},
		{"windows", "gemma3_text", "target: {backends: [cpu, opencl]}\nquantize: {block: 32}", "opencl ignores attention masks"},
		{"short convolutions", "lfm2", `target: {backends: [cpu, vulkan]}`, "vulkan leaves short convolutions to the CPU, where they forget their state"},
		{"sinks", "gpt_oss", "target: {backends: [vulkan]}\nquantize: {block: 32}", "vulkan ignores attention sinks"},
		{"wide delta rules", "gemma2", "target: {backends: [cpu, cuda]}\nquantize: {block: 32}", "cuda needs keys and values of delta rules"},
		{"windows with a budget", "gemma3_text", "target: {backends: [cpu, opencl]}\nquantize: {budget: {bpw: 5}, block: 32}",
			"opencl ignores attention masks"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWork(t, families+c.model, unverified+"\n"+c.sections)
			_, err := w.run(t)
			if err == nil || !strings.Contains(err.Error(), c.what) {
				t.Fatalf("%v, want %s", err, c.what)
			}
			var positioned *recipes.Error
			fromRecipe := c.name == "form" || slices.ContainsFunc([]string{"target.backends[", "target.form", "target.kv_cache", "target.soc"}, func(s string) bool {
				return strings.HasPrefix(c.what, s)
			})
			if errors.As(err, &positioned) != fromRecipe || errors.Is(err, tensor.ErrUnsupported) == fromRecipe {
				t.Errorf("%v: error of the recipe %v", err, fromRecipe)
			}
			if _, err := os.Stat(w.out()); err == nil {
				t.Error("there is a package")
			}
		})
	}
}

// What all of them compute correctly is made, and the package says on what that rests.
func TestBackendsAccepted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, model, sections, condition, precision string }{
		{"plain", "llama", `target: {backends: [cpu, opencl, vulkan, metal]}`, "opencl: this package was not run on it", `"low"`},
		{"six bits", "llama", "target: {backends: [cpu, opencl]}\nquantize: {bits: 6, block: 32}", "opencl: this package was not run on it", `"low"`},
		{"inside the window", "mistral", `target: {backends: [cpu, opencl], context: 16}`, "positions up to 16", `"low"`},
		{"routers", "qwen3_moe", "target: {backends: [cpu, vulkan], engine: \"3.5\"}\nquantize: {bits: 16}",
			"vulkan leaves the routers of experts to the CPU up to engine 3.5.0", `"low"`},
		{"exact GELU", "gpt_neox", `target: {backends: [cpu, opencl, vulkan]}`, "vulkan: this package was not run on it", `"low"`},
		{"windows", "mistral", `target: {backends: [cpu, opencl, vulkan], engine: "3.6.1", context: 64}`,
			"attention is computed from simple ops, which costs memory and time for every one of the 64 positions", `"high"`},
		{"capped scores", "gemma2", `target: {backends: [cpu, vulkan]}`, "vulkan: this package was not run on it", `"high"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			sections := unverified + "\n" + c.sections
			if !strings.Contains(sections, "quantize:") {
				sections += "\nquantize: {block: 32}"
			}
			w := newWork(t, families+c.model, sections)
			w.must(t)
			m, err := manifest.Open(w.out())
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(m.Conditions, func(s string) bool { return strings.Contains(s, c.condition) }) {
				t.Errorf("conditions %q, want %q", m.Conditions, c.condition)
			}
			b, err := os.ReadFile(filepath.Join(w.out(), "config.json"))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(b), `"precision": `+c.precision) {
				t.Errorf("config.json %s, want precision %s", b, c.precision)
			}
		})
	}
}

// logitsInParts are those of the package in dir for tokens that it gets in parts of so many.
func logitsInParts(t *testing.T, dir string, lengths ...int) (logits []float32) {
	t.Helper()
	p, err := runtime.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	s, err := runtime.NewSession(p, cpu.Backend{}, runtime.Options{})
	if err != nil {
		t.Fatal(err)
	}
	k := 0
	for _, n := range lengths {
		ids := make([]int32, n)
		for i := range ids {
			ids[i] = int32(7*k*k+k+3) % 64
			k++
		}
		l, err := s.Forward(t.Context(), ids)
		if err != nil {
			t.Fatal(err)
		}
		logits = append(logits, l...)
	}
	return logits
}

// Sinks and windows, which other backends ignore, have the same effect in attention from simple ops, in prompts and in single tokens.
func TestStoredAttention(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	var logits [2][]float32
	for i, target := range []string{"context: 64", "context: 64, backends: [cpu, vulkan]"} {
		w := newWork(t, families+"gpt_oss", unverified+"\ntarget: {"+target+"}\nquantize: {bits: 16}")
		w.must(t)
		logits[i] = logitsInParts(t, w.out(), 30, 1, 8, 1)
	}
	const bound = 1e-4 // of logits up to 5; the ops sum in another order
	for k, want := range logits[0] {
		if off := math.Abs(float64(logits[1][k] - want)); !(off <= bound) {
			t.Fatalf("logit %d is %g, want %g", k, logits[1][k], want)
		}
	}
}

// Packages for CUDA look quotients of positions up, and have the logits of those that divide, bit for bit.
func TestTabledQuotients(t *testing.T) {
	t.Parallel()
	var logits [2][]float32
	var graphs [2][]byte
	for i, target := range []string{"backends: [cpu]", "backends: [cpu, cuda]"} {
		w := newWork(t, families+"llama", unverified+"\ntarget: {"+target+"}\nquantize: {bits: 8, block: 32}")
		w.must(t)
		b, err := os.ReadFile(filepath.Join(w.out(), mnn.GraphFile("")))
		if err != nil {
			t.Fatal(err)
		}
		logits[i] = logitsInParts(t, w.out(), 60, 1, 19)
		graphs[i] = b
	}
	if bytes.Equal(graphs[0], graphs[1]) {
		t.Error("both packages have the same graph")
	}
	if !slices.Equal(logits[0], logits[1]) {
		t.Error("logits differ")
	}
}

// A package has a configuration for each backend of the target, over the same weights.
func TestBackendsConfigured(t *testing.T) {
	t.Parallel()
	type config struct {
		Backend       string `json:"backend_type"`
		Threads       int    `json:"thread_num"`
		Precision     string `json:"precision"`
		Memory        string `json:"memory"`
		AttentionMode int    `json:"attention_mode"`
		Weights       string `json:"llm_weight"`
		Own           struct {
			Content string `json:"content"`
		} `json:"llmexport"`
	}
	for _, c := range []struct {
		name, model, sections string
		want                  map[string]config
	}{
		{"plain", "llama", "target: {backends: [cpu, opencl, vulkan, metal], kv_cache: int8}", map[string]config{
			"config.json":        {Backend: "cpu", Threads: 4, Precision: "low", Memory: "low", AttentionMode: 10},
			"config.opencl.json": {Backend: "opencl", Threads: 68, Precision: "low", Memory: "low"},
			"config.vulkan.json": {Backend: "vulkan", Threads: 4, Precision: "low", Memory: "low"},
			"config.metal.json":  {Backend: "metal", Threads: 4, Precision: "low", Memory: "low", AttentionMode: 10},
		}},
		{"experts", "qwen3_moe", "target: {backends: [vulkan, cpu], kv_cache: int8_keys}", map[string]config{
			"config.json":        {Backend: "cpu", Threads: 4, Precision: "low", Memory: "low", AttentionMode: 9},
			"config.vulkan.json": {Backend: "vulkan", Threads: 4, Precision: "high", Memory: "low"},
		}},
		{"16 bits", "llama", "target: {backends: [cpu, cuda]}", map[string]config{
			"config.json":      {Backend: "cpu", Threads: 4, Precision: "low", Memory: "low"},
			"config.cuda.json": {Backend: "cuda", Threads: 4, Precision: "low", Memory: "normal"},
		}},
		{"8 bits", "llama", "target: {backends: [cpu, cuda]}\nquantize: {bits: 8, block: 32}", map[string]config{
			"config.json":      {Backend: "cpu", Threads: 4, Precision: "low", Memory: "low"},
			"config.cuda.json": {Backend: "cuda", Threads: 4, Precision: "high", Memory: "low"},
		}},
		{"cpu", "llama", "", map[string]config{"config.json": {Backend: "cpu", Threads: 4, Precision: "low", Memory: "low"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			sections := unverified + "\n" + c.sections
			if !strings.Contains(sections, "quantize:") {
				sections += "\nquantize: {bits: 16}"
			}
			w := newWork(t, families+c.model, sections)
			w.must(t)
			files, err := filepath.Glob(filepath.Join(w.out(), "config*.json"))
			if err != nil || len(files) != len(c.want) {
				t.Fatalf("%q, %v", files, err)
			}
			content := ""
			for _, path := range files {
				b, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				var got config
				if err := json.Unmarshal(b, &got); err != nil {
					t.Fatal(err)
				}
				if content == "" {
					content = got.Own.Content
				}
				if got.Own.Content != content || got.Weights != "llm.mnn.weight" {
					t.Errorf("%s: other weights", path)
				}
				got.Own.Content, got.Weights = "", ""
				if got != c.want[filepath.Base(path)] {
					t.Errorf("%s: %+v, want %+v", path, got, c.want[filepath.Base(path)])
				}
			}
		})
	}
}
