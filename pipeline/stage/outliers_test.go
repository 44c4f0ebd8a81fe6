package stage_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/internal/outliers"
	"github.com/llmexport/llmexport/pipeline/stage"
)

// A package of a model with outliers that fails because no folding was named says which one to name; other failures, other models and
// lists with a folding have no such advice.
func TestOutliersAdvice(t *testing.T) {
	t.Parallel()
	made := filepath.Join(t.TempDir(), "model")
	if err := outliers.Make(made, families+"qwen3-tied", outliers.Channels, outliers.Rows); err != nil {
		t.Fatal(err)
	}
	const (
		sections = "calibrate: {tokens: 512, window: 32, probe: 64}\nverify: {kl: {max: 0}, perplexity: {window: 16, windows: 1, decode: 4}}\n"
		advice   = "quantize.method: [awq, gptq"
	)
	for _, c := range []struct {
		name, checkpoint, method, want string
	}{
		{"gptq", made, "gptq", advice + "]"},
		{"tuned", made, "[gptq, {distill: {steps: 1, tokens: 32}}]", advice + ", distill]"},
		{"folded", made, "[awq, gptq]", ""},
		{"without outliers", families + "qwen3-tied", "gptq", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWork(t, c.checkpoint, "quantize: {block: 32, method: "+c.method+"}\n"+sections)
			for range 2 { // codes and verdict are there the second time
				_, err := w.run(t)
				var failed *stage.FailedError
				if !errors.As(err, &failed) {
					t.Fatalf("%v", err)
				}
				if c.want == "" && failed.Hint != "" || !strings.Contains(failed.Hint, c.want) {
					t.Errorf("the advice is %q", failed.Hint)
				}
			}
		})
	}
}
