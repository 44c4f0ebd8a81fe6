package verify_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/llmexport/llmexport/pipeline/assemble"
	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/verify"
)

// Only graph detects differences after the evaluated windows and the first tokens: windows of another size, chunks, and
// the other rotary frequencies of longrope.
func TestFar(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	const far = 131 // more than any window of this test, and no other number of these models
	constant := func(from, to int32) func(e *edition) {
		return func(e *edition) {
			e.graph(func(g *mnn.Graph) {
				found := false
				for _, o := range g.Ops {
					if p, ok := o.Param.(*mnn.Blob); ok && slices.Equal(p.Int32s, []int32{from}) {
						p.Int32s[0], found = to, true
					}
				}
				if !found {
					e.t.Fatalf("no constant %d", from)
				}
			})
		}
	}
	window := func(n int) func(e *edition) {
		return func(e *edition) { e.json(assemble.LLMConfigFile, "sliding_window", n) }
	}
	for _, c := range []struct {
		family, key string
		damage      map[string]func(e *edition)
		says        string
	}{
		{"mistral", "sliding_window", map[string]func(e *edition){"a larger window": window(far + 1), "a smaller window": window(far - 1)}, "layers [0] alone"},
		{"gemma3_text", "sliding_window", map[string]func(e *edition){"a larger window": window(far + 16)}, "layers [0 5] alone"},
		{"llama4_text", "attention_chunk_size", map[string]func(e *edition){
			"a larger chunk": constant(far, far+8), "a smaller chunk": constant(far, far-8),
		}, "layers [0 1 3] alone"},
		{"phi3-longrope", "", map[string]func(e *edition){"a long factor": func(e *edition) {
			e.graph(func(g *mnn.Graph) { // a row has the six angles of long contexts, then those of short ones
				_, o := op(e.t, g, "/rotary/table/sin_high")
				v := o.Param.(*mnn.Blob).Float32s
				for i := range v {
					if i%12 < 6 {
						v[i] *= 1.01
					}
				}
			})
		}}, "layers [0] alone"},
	} {
		t.Run(c.family, func(t *testing.T) {
			t.Parallel()
			source := editCheckpoint(t, families+c.family, func(path func(string) string) {
				b, err := os.ReadFile(path("config.json"))
				if err == nil && c.key != "" {
					err = os.WriteFile(path("config.json"), setKey(t, b, c.key, far), 0o666)
				}
				if err != nil {
					t.Fatal(err)
				}
			})
			dir, err := stagetest.Export(t.Context(), t.TempDir(), source, "quantize: {bits: 16}\nverify: {enabled: false}")
			if err != nil {
				t.Fatal(err)
			}
			check := func(e *edition, want []string, says string) {
				t.Helper()
				e.seal()
				s := open(t, e.dir, source)
				s.Options.Window, s.Options.Checks.Perplexity.MaxSource = 48, new(1e5) // random weights know nothing of the text
				s.Package.Config.MaxPositions = 0                                      // the check positions has nothing to compare
				res, err := verify.Run(t.Context(), s)
				if err != nil {
					t.Fatal(err)
				}
				// Weights of 16 bits are so close that layers may detect it too.
				failed := slices.DeleteFunc(res.Failed(), func(name string) bool { return name == "layers" && want != nil })
				if diff := cmp.Diff(want, failed, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("failing checks (-want +got):\n%s", diff)
				}
				i := slices.IndexFunc(res.Checks, func(c manifest.Check) bool { return c.Name == "graph" })
				if d := res.Checks[i].Detail; !strings.Contains(d, says) {
					t.Errorf("graph says %q, want %q in it", d, says)
				}
			}
			check(edit(t, dir), nil, c.says)
			for name, damage := range c.damage {
				t.Log(name)
				e := edit(t, dir)
				damage(e)
				check(e, []string{"graph"}, "a window, a chunk or rotary frequencies differ there")
			}
		})
	}
}
