package verify_test

import (
	"strings"
	"testing"

	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/verify"
)

// Every check has a hint of one line; that of a check with options names them.
func TestHints(t *testing.T) {
	t.Parallel()
	for _, c := range new(verify.Checks).All() {
		h := verify.Hint(manifest.Check{Name: c.String()})
		if h == "" || strings.Contains(h, "\n") {
			t.Errorf("%s: hint %q", c, h)
		}
		if _, options := c.(verify.Validator); options && !strings.Contains(h, "verify."+c.String()+".") {
			t.Errorf("%s: hint %q does not name its options", c, h)
		}
	}
	if h := verify.Hint(manifest.Check{Name: "none"}); h != "" {
		t.Errorf("a check that does not exist: %q", h)
	}
}

// The advice depends on what failed: more bits help only against the error of the weights.
func TestHintOfCause(t *testing.T) {
	t.Parallel()
	const bits, activations, bug = "use more bits", "int8 activations of the engine cause most", "is a bug in llmexport"
	for _, c := range []struct {
		name  string
		value map[string]float64
		want  string
	}{
		{"kl", map[string]float64{"kl": 0.3, "kl_float": 0.28}, bits},
		{"kl", map[string]float64{"kl": 0.3, "kl_float": 0.01}, activations},
		{"decode", map[string]float64{"gap": 1e-12, "kl": 0.3, "kl_float": 0.28}, bits},
		{"decode", map[string]float64{"gap": 1e-12, "kl": 0.3, "kl_float": 0.01}, activations},
		{"decode", map[string]float64{"gap": 1}, bug},
		{"perplexity", map[string]float64{"ratio": 1.3, "excess": 0.26, "excess_float": 0.25}, bits},
		{"perplexity", map[string]float64{"ratio": 1.3, "excess": 0.26, "excess_float": -0.01}, activations},
		{"perplexity", map[string]float64{"not_finite": 3}, bug},
		{"perplexity", map[string]float64{"perplexity": 1e6}, "does not predict the text"},
	} {
		h := verify.Hint(manifest.Check{Name: c.name, Value: c.value})
		if !strings.Contains(h, c.want) {
			t.Errorf("%s %v: %q, want %q", c.name, c.value, h, c.want)
		}
	}
}
