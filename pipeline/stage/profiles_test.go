package stage_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/recipes"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// A target's backends are a promise: what one of them computes wrongly is refused, before anything is made.
func TestBackendsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, model, sections, what string }{
		{"unknown", "llama", `target: {backends: [cpu, banana]}`, `target.backends[1]: must be one of "cpu", "cuda"`},
		{"width", "llama", "target: {backends: [cpu, opencl]}\nquantize: {bits: 5}", "target.backends[1]: opencl misreads weights of 5 and 6 bits"},
		{"override", "llama", "target: {backends: [opencl]}\nquantize: {overrides: [{match: down, bits: 6}], block: 32}", "opencl misreads weights of 5 and 6 bits"},
		{"form", "llama", `target: {backends: [hexagon]}`, "hexagon runs only graphs in the C4 form"},
		{"windows", "gemma3_text", "target: {backends: [cpu, opencl]}\nquantize: {block: 32}", "opencl ignores attention masks"},
		{"sinks", "gpt_oss", "target: {backends: [vulkan]}\nquantize: {block: 32}", "vulkan ignores attention sinks"},
		{"windows with a budget", "gemma3_text", "target: {backends: [cpu, opencl]}\nquantize: {budget: {bpw: 5}, block: 32}", "opencl ignores attention masks"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWork(t, families+c.model, unverified+"\n"+c.sections)
			_, err := w.run(t)
			if err == nil || !strings.Contains(err.Error(), c.what) {
				t.Fatalf("%v, want %s", err, c.what)
			}
			var positioned *recipes.Error
			fromRecipe := strings.Contains(c.what, "target.backends[") || c.name == "form"
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
		{"inside the window", "mistral", `target: {backends: [cpu, opencl], context: 16}`, "positions up to 16", `"low"`},
		{"short convolutions", "lfm2", `target: {backends: [cpu, vulkan]}`, "vulkan leaves short convolutions to the CPU up to engine 3.6.0", `"low"`},
		{"capped scores", "gemma2", `target: {backends: [cpu, vulkan]}`, "vulkan: this package was not run on it", `"high"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWork(t, families+c.model, unverified+"\n"+c.sections+"\nquantize: {block: 32}")
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
