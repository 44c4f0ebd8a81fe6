//go:build engine

package enginetest

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/llmexport/llmexport/backends"
	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/runtime"
)

// maxGolden bounds KL(transformers || engine) of 16-bit packages, in nats.
const maxGolden = 1e-9

// TestFamilies: 16-bit packages of every family give the logits of transformers on the engine, at both recorded
// lengths; 4- and 8-bit ones, untied tables among them, those of our runtime.
func TestFamilies(t *testing.T) {
	all := engines(t)
	for _, name := range stagetest.Families {
		dir := filepath.Join("..", "..", "pipeline", "arch", "testdata", name)
		for _, target := range []string{"3.5", "3.6"} {
			for _, bits := range []int{16, 8, 4} {
				f := form{engine: target, bits: bits, table: min(bits*2, 8), block: "32"}
				t.Run(fmt.Sprintf("%s/%s-w%d", name, target, bits), func(t *testing.T) {
					p, err := runtime.Open(export(t, dir, f))
					if err != nil {
						t.Fatal(err)
					}
					defer p.Close()
					for _, n := range []string{"0", "1"} {
						g, err := stagetest.ReadGolden(filepath.Join(dir, "golden.safetensors"), n)
						if err != nil {
							t.Fatal(err)
						}
						w := [][]int32{g.IDs}
						if bits == 16 {
							for _, e := range runs(all, f) {
								kl, diff := divergence(t, g.Logits, e.logits(t, p.Dir, map[string]any{"memory": "high"}, w, 0), p.Vocabulary())
								t.Logf("engine %s, %d tokens: KL %.3g, largest difference %.3g", e.version, len(g.IDs), kl, diff)
								if !(kl <= maxGolden) {
									t.Errorf("engine %s, %d tokens: KL %.3g from transformers", e.version, len(g.IDs), kl)
								}
							}
							continue
						}
						compare(t, all, f, p, w, 8, "float", runtime.Options{Mode: backends.Float}, map[string]any{"memory": "high"}, maxFloat)
						compare(t, all, f, p, w, 8, "int8", runtime.Options{Mode: backends.Int8}, map[string]any{"memory": "low"}, maxInt8)
					}
				})
			}
		}
	}
}
