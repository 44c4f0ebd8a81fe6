package verify_test

import (
	"strings"
	"testing"

	"github.com/llmexport/llmexport/verify"
)

// Every check has a hint of one line; that of a check with options names them.
func TestHints(t *testing.T) {
	t.Parallel()
	for _, c := range new(verify.Checks).All() {
		h := verify.Hint(c.String())
		if h == "" || strings.Contains(h, "\n") {
			t.Errorf("%s: hint %q", c, h)
		}
		if _, options := c.(verify.Validator); options && !strings.Contains(h, "verify."+c.String()+".") {
			t.Errorf("%s: hint %q does not name its options", c, h)
		}
	}
	if h := verify.Hint("none"); h != "" {
		t.Errorf("a check that does not exist: %q", h)
	}
}
