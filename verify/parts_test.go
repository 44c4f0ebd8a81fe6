package verify_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/verify"
)

// Checks of graphs and weights cover every part, and name the one that is damaged.
func TestParts(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	for _, c := range []struct {
		name   string
		damage func(e *edition)
		check  string // that fails; empty if none does
		detail string
	}{
		{name: "good", damage: func(*edition) {}},
		{"a weight", func(e *edition) {
			e.span("input_layernorm", func(b []byte) { b[3] ^= 0x40 }) // of the draft, which comes first
		}, "weights", "draft.mnn: model.layers.0.input_layernorm.weight: element"},
		{"two norms swapped", func(e *edition) {
			e.partGraph("draft", func(g *mnn.Graph) {
				_, a := op(e.t, g, "/layers.0/input_layernorm")
				_, b := op(e.t, g, "/layers.1/input_layernorm")
				p, q := a.Param.(*mnn.LayerNorm), b.Param.(*mnn.LayerNorm)
				p.External, q.External = q.External, p.External
			})
		}, "layout", "draft.mnn: op /layers.0/input_layernorm reads"},
		{"a byte after the weights", func(e *edition) {
			e.file("draft.mnn.weight", func(b []byte) []byte { return append(b, 0) })
		}, "layout", "draft.mnn: tensors cover"},
		{"tensors of another part", func(e *edition) {
			for i := range e.m.Tensors {
				if t := &e.m.Tensors[i]; t.Part != "" {
					t.Part = "other"
				}
			}
		}, "layout", `draft.mnn: model.layers.0.input_layernorm.weight: the manifest assigns it to part "other"`},
		{"a part that config.json does not name", func(e *edition) { e.parts = nil }, "layout", "are in draft.mnn.weight, which no part"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := edit(t, goodPackage(t))
			if err := stagetest.AddPart(t.Context(), e.dir, "draft"); err != nil {
				t.Fatal(err)
			}
			var err error
			if e.m, err = manifest.Open(e.dir); err != nil {
				t.Fatal(err)
			}
			e.parts = []string{"draft"}
			c.damage(e)
			e.seal()
			s := open(t, e.dir, tiny)
			s.Options.Window, s.Options.Windows = damagedWindow, 1
			res, err := verify.Run(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			if c.check == "" {
				if failed := res.Failed(); len(failed) > 0 {
					t.Errorf("failed: %v", failed)
				}
				return
			}
			i := slices.IndexFunc(res.Checks, func(x manifest.Check) bool { return x.Name == c.check })
			if x := res.Checks[i]; !x.Failed() || !strings.Contains(x.Detail, c.detail) {
				t.Errorf("%s: failed %v: %s", x.Name, x.Failed(), x.Detail)
			}
		})
	}
}
