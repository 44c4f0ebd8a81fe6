package lower

import (
	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/mnn"
)

// The engine looks up one row for a token. Of a model with a second table, the row has what both tables have of the token: that of the
// embedding first. Engines from 3.6.0 on know a second table too (ple_embeddings), but from the second prompt of a conversation on they
// give the graph the rows of the last token of the reply (llm.cpp, Llm::embedding).

// divided returns the rows of the embedding, [1, tokens, Hidden].
func (b *builder) divided(ids value) value {
	d := b.decoder
	rows := b.reshape("/embedding/both", ids, 1, -1, int32(d.Lookup.Cols))
	b.tokenRows = b.slice("/per_layer/rows", rows, b.list(int32(d.Hidden)), sliceEnd, 2)
	return b.slice("/embedding", rows, b.list(0), int32(d.Hidden), 2)
}

// perLayer makes the vectors of all layers, h being the states before the first one.
func (b *builder) perLayer(h value) {
	p, layers := b.decoder.PerLayer, int32(len(b.decoder.Layers))
	width := int32(p.Width)
	x := b.linear("/per_layer/projection/Linear", h, &p.Projection, Slot{}, 1, -1, layers, width)
	b.slots[len(b.slots)-1].Tower = true // calibration does not see what it reads
	x = b.norm("/per_layer/norm", b.times("/per_layer/projection_scale", b.unpacked(x), p.ProjectionScale), &p.Norm)
	rows := b.times("/per_layer/table_scale", b.reshape("/per_layer/table", b.tokenRows, 1, -1, layers, width), p.TableScale)
	b.side = b.times("/per_layer/vectors", b.binary("/per_layer/sum", mnn.BinaryAdd, x, rows), p.Scale)
}

// injection lowers a block that reads the vectors of its layer.
func (b *builder) injection(i int, p string, x *arch.Injection, h value) (value, error) {
	width := int32(x.Gate.Weight.Rows)
	gate := b.linear(p+"gate/Linear", h, &x.Gate, Slot{}, 1, -1, width)
	y, err := b.activate(p, &arch.MLP{Activation: x.Activation}, gate)
	if err != nil {
		return 0, err
	}
	e := b.slice(p+"vector/of_layer", b.side, b.list(int32(i)), int32(i+1), 2)
	y = b.binary(p+"product", mnn.BinaryMul, y, b.reshape(p+"vector", e, 1, -1, width))
	return b.linear(p+"projection/Linear", y, &x.Out, Slot{}, 1, -1, int32(x.Out.Weight.Rows)), nil
}
