package lower

import (
	"maps"
	"slices"

	"github.com/llmexport/llmexport/backends"
	"github.com/llmexport/llmexport/runtime/mnn"
)

// features collects the features in which backends differ from the ops of the graph. Attention ops occur only in the graph
// itself, never in subgraphs of experts.
func (b *builder) features() backends.Features {
	f := backends.Features{HeadDims: slices.Sorted(maps.Keys(b.headDims))}
	for i := range b.g.Ops {
		switch p := b.g.Ops[i].Param.(type) {
		case *mnn.Attention:
			in := b.g.Ops[i].Inputs
			f.Masks = f.Masks || in[3] != b.mask
			f.Sinks = f.Sinks || len(in) > 4
		case *mnn.LinearAttention:
			f.ShortConv = f.ShortConv || p.Type == mnn.ShortConv
			f.NormedDelta = f.NormedDelta || p.Type == mnn.GatedDeltaRule && p.QKNorm
		}
	}
	return f
}
