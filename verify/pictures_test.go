package verify_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/verify"
)

const seeing = families + "internvl"

// goodSeeing makes, once, a package with a tower.
var goodSeeing = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(scratch, "seeing")
	if err := os.Mkdir(dir, 0o777); err != nil {
		return "", err
	}
	return stagetest.Export(context.Background(), dir, seeing, "quantize: {block: auto}\nverify: {enabled: false}")
})

// The check pictures passes on a good package with a tower, and fails where the tower or what the engine is told about pictures is damaged,
// but the text model is not.
func TestPictures(t *testing.T) {
	for _, c := range []struct {
		name   string
		damage func(e *edition)
		fails  []string
		detail string
	}{
		{"good", func(*edition) {}, nil, "; the engine's resize of pictures 3 times as large costs "},
		{"queries and keys swapped", func(e *edition) {
			e.partGraph(mnn.VisualPart, func(g *mnn.Graph) {
				_, a := op(e.t, g, "/layers.0/self_attn/scores")
				slices.Reverse(a.Inputs)
			})
		}, []string{"pictures"}, "visual.mnn at the source's precision"},
		{"another epsilon", func(e *edition) {
			e.partGraph(mnn.VisualPart, func(g *mnn.Graph) {
				_, a := op(e.t, g, "/projector/norm")
				a.Param.(*mnn.LayerNorm).Epsilon = 1
			})
		}, []string{"pictures"}, "visual.mnn at the source's precision"},
		{"cells in another order", func(e *edition) {
			e.partGraph(mnn.VisualPart, func(g *mnn.Graph) {
				_, a := op(e.t, g, "/cells/each")
				a.Param.(*mnn.Permute).Dims = []int32{2, 1, 0, 3}
			})
		}, []string{"pictures"}, "visual.mnn at the source's precision"},
		{"a weight", func(e *edition) {
			e.span("linear_1", func(b []byte) { b[len(b)-9] ^= 0x40 })
		}, []string{"weights"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir, err := goodSeeing()
			if err != nil {
				t.Fatal(err)
			}
			e := edit(t, dir)
			e.parts = []string{mnn.VisualPart}
			c.damage(e)
			e.seal()
			s := open(t, e.dir, seeing)
			s.Options.Window, s.Options.Windows = 32, 1
			limit := 1e6 // random weights know nothing of the text
			s.Options.Checks.Perplexity.MaxSource, s.Options.Checks.Perplexity.MaxRatio = &limit, &limit
			s.Manifest.Goldens = nil
			res, err := verify.Run(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(res.Failed(), c.fails) {
				t.Errorf("failed: %v, want %v", res.Failed(), c.fails)
			}
			last := res.Checks[len(res.Checks)-1]
			t.Log(last.Detail)
			if last.Name != "pictures" || !strings.Contains(last.Detail, c.detail) {
				t.Errorf("%s: %s", last.Name, last.Detail)
			}
			if kl, rows := last.Value["kl_resize"], last.Value["rows_resize"]; c.fails == nil && !(kl > 0 && kl < 10 && rows > 0.01 && rows < 2) {
				t.Errorf("the engine's resize costs %g nats, rows differ by %g", kl, rows)
			}
			if h := verify.Hint(manifest.Check{Name: "pictures", Value: last.Value}); h == "" || strings.Contains(h, "\n") {
				t.Errorf("hint %q", h)
			}
		})
	}
}
