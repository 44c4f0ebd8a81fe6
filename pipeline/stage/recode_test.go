package stage_test

import (
	"errors"
	"testing"

	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/recipes"
)

// Layers that are encoded again over the codes of a package are those of the package, and those of another text are not.
func TestRecode(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	const text = "calibrate: {tokens: 512, window: 64, probe: 64}\n"
	for _, c := range []struct {
		family, sections string
	}{
		{"llama", text + "quantize: {method: [awq, gptq], block: 32, budget: {bpw: 5}}\n"},
		{"llama", text + "quantize: {method: [rotation, gptq], block: 32}\n"},
		{"qwen3_moe", text + "quantize: {method: gptq, block: auto}\n"},
		{"qwen3_5_text", text + "quantize: {method: gptq, block: auto}\n"},
	} {
		t.Run(c.family, func(t *testing.T) {
			t.Parallel()
			w := newWork(t, families+c.family, c.sections+unverified)
			w.must(t)
			p, err := place.Open(w.out())
			if err != nil {
				t.Fatal(err)
			}
			again := func(overrides ...string) (different int) {
				run, _ := newRun(t, newWork(t, families+c.family, c.sections+unverified), overrides...)
				list, err := run.Recode(t.Context(), p, []int{0, 1})
				if err != nil {
					t.Fatal(err)
				}
				for i, l := range list {
					if l.Layer != i || l.Matrices == 0 {
						t.Errorf("%+v", l)
					}
					different += len(l.Different)
				}
				return different
			}
			if n := again(); n != 0 {
				t.Errorf("%d matrices differ", n)
			}
			if n := again("calibrate.seed=1"); n == 0 {
				t.Error("another text gave the same codes")
			}
		})
	}
}

// What cannot be sampled is refused before any work.
func TestRecodeRefused(t *testing.T) {
	w := newWork(t, families+"llama", "quantize: {block: 32}\n"+unverified)
	w.must(t)
	p, err := place.Open(w.out())
	if err != nil {
		t.Fatal(err)
	}
	var usage *recipes.Error
	for _, method := range []string{"rtn", "[gptq, distill]"} {
		run, _ := newRun(t, w, "quantize.method="+method)
		if _, err := run.Recode(t.Context(), p, []int{0}); !errors.As(err, &usage) {
			t.Errorf("%s: %v", method, err)
		}
	}
	run, _ := newRun(t, w, "quantize.method=gptq")
	var none *stage.NoLayerError
	if _, err := run.Recode(t.Context(), p, []int{0, 40}); !errors.As(err, &none) || none.Layer != 40 || none.Layers == 0 {
		t.Errorf("%v", err)
	}
}
