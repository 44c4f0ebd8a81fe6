package forward

import (
	"errors"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// What is wrong with columns next to the stream is found before anything runs.
func TestSideErrors(t *testing.T) {
	lender := func(d *arch.Decoder) *arch.Attention { return attentionOf(d, 0) }
	borrower := func(d *arch.Decoder) *arch.Attention { return attentionOf(d, 3) }
	injection := func(d *arch.Decoder) *arch.Injection { return d.Layers[4][2].Block.(*arch.Injection) }
	for _, c := range []struct {
		name   string
		change func(d *arch.Decoder)
		want   error
		text   string
	}{
		{"fewer columns", func(d *arch.Decoder) { d.Side -= 1 }, tensor.ErrCorrupt, "layer 1: 64 columns from 112 on, of 175"},
		{"no columns", func(d *arch.Decoder) { d.Side = 0 }, tensor.ErrCorrupt, "80 columns from 0 on, of 0"},
		{"negative", func(d *arch.Decoder) { d.Side = -1 }, tensor.ErrCorrupt, "-1 columns next to the stream"},
		{"vectors of no width", func(d *arch.Decoder) { d.PerLayer.Width = 0 }, tensor.ErrCorrupt, "vectors of layers"},
		{"factor", func(d *arch.Decoder) { d.PerLayer.Scale = math.NaN() }, tensor.ErrCorrupt, "factors NaN"},
		{"padding", func(d *arch.Decoder) { d.PerLayer.Pad = d.Vocab }, tensor.ErrCorrupt, "padding 320"},
		{"table", func(d *arch.Decoder) { d.PerLayer.Table.Tensor = "none" }, tensor.ErrCorrupt, `table of layers: the checkpoint has no tensor "none"`},
		{"columns of a layer", func(d *arch.Decoder) { d.PerLayer.Table.Cols -= d.PerLayer.Width }, tensor.ErrCorrupt, "64 columns for 5 layers of 16"},
		{"columns", func(d *arch.Decoder) { d.PerLayer.Table.Cols++ }, tensor.ErrCorrupt, "81 columns for 5 layers of 16"},
		{"projection", func(d *arch.Decoder) { d.PerLayer.Projection.Weight.Rows = 3 }, tensor.ErrCorrupt, "projection to layers"},
		{"norm", func(d *arch.Decoder) { d.PerLayer.Norm.Eps = -1 }, tensor.ErrCorrupt, "norm of layers: epsilon -1"},
		{"vector before the first", func(d *arch.Decoder) { injection(d).At = -1 }, tensor.ErrCorrupt, "layer 4: 16 columns from -1 on"},
		{"activation", func(d *arch.Decoder) { injection(d).Activation = arch.XIELU }, tensor.ErrUnsupported, `activation "xielu"`},
		{"gate", func(d *arch.Decoder) { injection(d).Gate.Weight.Cols = 5 }, tensor.ErrCorrupt, "injection.gate"},
		{"lent after the last", func(d *arch.Decoder) { lender(d).Lent = 170 }, tensor.ErrCorrupt, "layer 0: 32 columns from 170 on"},
		{"borrowed after the last", func(d *arch.Decoder) { borrower(d).Lent = 170 }, tensor.ErrCorrupt, "layer 3: 32 columns from 170 on"},
		{"keys of two layers", func(d *arch.Decoder) { borrower(d).K = lender(d).K }, tensor.ErrCorrupt, "keys of another layer"},
		{"lent again", func(d *arch.Decoder) { borrower(d).Lends = true }, tensor.ErrCorrupt, "keys of another layer"},
		{"bounds of text", func(d *arch.Decoder) { mlpOf(d, 0).Up.Clip = new(arch.Clip) }, tensor.ErrUnsupported, "mlp.up: bounds outside of a tower"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, src := openSource(t, filepath.Join(familiesDir, "gemma4_text-edge"))
			c.change(d)
			if _, err := New(d, src, 1); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%v, want %s", err, c.text)
			}
		})
	}
}
