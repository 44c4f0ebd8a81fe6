//go:build foreign

package verify_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/llmexport/llmexport/pipeline/stage"
)

// A package of the stock exporter, which has no manifest, is verified like one of ours.
func TestForeign(t *testing.T) {
	o := open(t, goodPackage(t), tiny).Options
	// Its table for NFC does not compose, and turns joiners and other format characters into spaces.
	o.Checks.Tokenizer.MaxPlain, o.Checks.Tokenizer.MaxHard = 0.02, 0.25
	res, err := stage.VerifyPackage(t.Context(), filepath.Join(os.Getenv("LLMEXPORT_FOREIGN"), "q8-classic"), tiny, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range res.Checks {
		t.Logf("%s: %v %v %s", c.Name, c.Passed, c.Skipped, c.Detail)
	}
	if f := res.Failed(); len(f) > 0 {
		t.Errorf("failed: %v", f)
	}
}
