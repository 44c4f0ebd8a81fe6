package effort

import (
	"testing"

	"github.com/llmexport/llmexport/pipeline/arch"
)

func layer(rows, cols int) arch.Linear {
	return arch.Linear{Weight: arch.Weight{Tensor: "w", Rows: rows, Cols: cols}}
}

// Work of blocks, computed by hand.
func TestBlocks(t *testing.T) {
	text := Text{Windows: 2, Length: 10}
	mlp := arch.MLP{Intermediate: 5, Gate: layer(5, 3), Up: layer(5, 3), Down: layer(3, 5)}
	experts := &arch.Experts{Router: layer(4, 3), TopK: 1, Experts: []arch.MLP{mlp, mlp, mlp, mlp}}
	for _, c := range []struct {
		name  string
		block arch.Block
		kind  Kind
		want  float64
	}{
		{"MLP", &mlp, Product, 2 * 20 * 45},
		{"functions of an MLP", &mlp, Element, 20 * 5},
		{"only active experts", experts, Product, 2*20*12 + 2*20*45},
		{"attention", &arch.Attention{Heads: 2, KVHeads: 1, HeadDim: 4, Q: layer(8, 3), K: layer(4, 3), V: layer(4, 3), O: layer(3, 8)},
			Product, 2*20*(24+12+12+24) + 2*2*100*2*(4+4)},
		{"convolution", &arch.ShortConv{In: layer(9, 3), Out: layer(3, 3), Taps: make([]arch.Weight, 4)}, Scalar, 2 * 20 * 3 * 4},
	} {
		if got := text.block(c.block)[c.kind]; got != c.want {
			t.Errorf("%s: %v of %v, want %v", c.name, got, c.kind, c.want)
		}
	}
}

// A window bounds what queries attend to, and so does a chunk; queries come in blocks.
func TestScores(t *testing.T) {
	for _, c := range []struct {
		length, window, chunk int
		want                  float64
	}{{64, 0, 0, 64 * 64}, {128, 0, 0, 64*64 + 64*128}, {128, 1, 0, 64*64 + 64*64}, {128, 0, 64, 64*64 + 64*64}, {10, 0, 0, 100}} {
		if got := (Text{3, c.length}).scores(c.window, c.chunk); got != 3*c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestSeconds(t *testing.T) {
	w := Of(Product, 100).Plus(Of(Disk, 30)).Times(2)
	if got := w.Seconds(Rates{Product: 50}); got != 4 {
		t.Errorf("%v s", got)
	}
	if got := w.Operations(); got != 200 {
		t.Errorf("%v operations", got)
	}
}
