//go:build foreign

package mnn

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestForeignGraphsEqualTheirDumps reads whole packages of the stock exporter, each with a JSON dump of its graph.
func TestForeignGraphsEqualTheirDumps(t *testing.T) {
	dumps, err := filepath.Glob(filepath.Join(os.Getenv("LLMEXPORT_FOREIGN"), "*", "llm.mnn.json"))
	if err != nil || len(dumps) == 0 {
		t.Fatalf("LLMEXPORT_FOREIGN names no packages with dumps (%v)", err)
	}
	for _, dump := range dumps {
		dir := filepath.Dir(dump)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			g := openFile(t, filepath.Join(dir, "llm.mnn"))
			compareDump(t, g, dump)
			again := reopen(t, g)
			if d := cmp.Diff(g, again, sameGraph); d != "" {
				t.Errorf("Open(Marshal(g)) differs:\n%s", d)
			}
		})
	}
}
