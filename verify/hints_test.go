package verify_test

import (
	"strings"
	"testing"

	"github.com/llmexport/llmexport/verify"
)

// Every check has a hint of its own, and what helps against quantization is said of checks that it makes fail only.
func TestHints(t *testing.T) {
	quantized := map[string]bool{"weights": true, "layers": true, "perplexity": true, "kl": true, "decode": true}
	for _, name := range verify.Names() {
		h := verify.Hint(name)
		if h == "" || strings.ContainsAny(h, "\n") {
			t.Errorf("%s: hint %q", name, h)
		}
		if strings.Contains(h, "more bits") != quantized[name] {
			t.Errorf("%s: hint %q", name, h)
		}
	}
	if h := verify.Hint("none"); h != "" {
		t.Errorf("a check that does not exist: %q", h)
	}
}
