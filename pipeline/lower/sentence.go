package lower

import (
	"fmt"
	"math"
	"slices"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// The engine's class Embedding runs a graph with the inputs input_ids, attention_mask and position_ids and the output
// sentence_embeddings. The mask is causal and of no use to bidirectional attention. The class of rerankers that it calls gte runs
// the same graph on several texts of equal length at a time: embeddings [texts, tokens, Hidden], a mask [texts, 1, 1, tokens]
// with the lowest float where a text is padded, positions [1, tokens].

// embeddedBefore is embedded for a model with a norm after the positions.
func (b *builder) embeddedBefore(h value) value {
	d := b.decoder
	if d.Segment.Tensor != "" {
		h = b.binary("/embedding_segment", mnn.BinaryAdd, h, b.constant("/segment", d.Segment))
	}
	if d.Positions.Tensor != "" {
		h = b.binary("/embedding_positions", mnn.BinaryAdd, h, b.learnedPositions())
	}
	h = b.norm("/embedding_norm", h, d.EmbeddingNorm)
	if b.length != nil {
		h = b.reshape("/embedding_rows", h, 1, -1, int32(d.Hidden))
	}
	return h
}

// pairs prepares the inputs of a reranker: it removes the second token of every text, because the engine writes
//
//	0 6 query 2 2 document 2
//
// and the model was trained on texts without the 6. The result is [texts, tokens, Hidden]; the builder has the number of tokens,
// the positions and the mask of what remains.
func (b *builder) pairs(ids value) value {
	width := int32(b.decoder.Hidden)
	if !b.decoder.NormLast {
		b.fail(fmt.Errorf("a reranker without vectors of positions: %w", tensor.ErrUnsupported))
	}
	shape := b.op("/pairs/shape", mnn.OpShape, nil, b.positions)
	all := b.slice("/pairs/length", shape, b.list(1), 2, 0)
	x := b.op("/pairs/texts", mnn.OpReshape, &mnn.Reshape{DimType: mnn.NCHW}, ids, b.concat("/pairs/texts_shape", 0, b.list(-1), all, b.list(width)))
	without := func(name string, x value, axis int32) value {
		return b.concat(name, axis, b.slice(name+"/first", x, b.list(0), 1, axis), b.slice(name+"/rest", x, b.list(2), sliceEnd, axis))
	}
	length := b.binary("/pairs/tokens", mnn.BinarySub, all, b.list(1))
	padding := b.binary("/pairs/padding", mnn.BinaryMaximum, without("/pairs/mask", b.mask, 3), b.scalarFloat(-hidden))
	b.length, b.padding = &length, &padding
	b.positions = b.slice("/pairs/positions", b.reshape("/pairs/all_positions", b.positions, -1), b.list(0), -1, 0)
	return without("/pairs/input", x, 1)
}

// sentence ends the graph of a model with a pooling after the layers, whose states are h.
func (b *builder) sentence(h value) (*Model, error) {
	d, p := b.decoder, b.decoder.Pooling
	pool := func(x value) value {
		switch p.Of {
		case arch.FirstToken:
			return b.slice("/pooling", x, b.list(0), 1, 1)
		case arch.LastToken:
			return b.slice("/pooling", x, b.list(-1), sliceEnd, 1)
		case arch.MeanTokens:
			return b.op("/pooling", mnn.OpReduction, &mnn.Reduction{Op: mnn.ReduceMean, Dims: []int32{1}, Keep: true, T: mnn.DTFloat}, x)
		}
		b.fail(fmt.Errorf("pooling %q: %w", p.Of, tensor.ErrUnsupported))
		return x
	}
	if b.length != nil {
		h = b.perText("/texts", h, d.Hidden)
	}
	norm := func(x value) value {
		if d.FinalNorm.Gamma.Tensor == "" {
			return x
		}
		return b.norm("hidden_states", x, &d.FinalNorm)
	}
	if p.Of == arch.MeanTokens {
		h = pool(norm(h))
	} else {
		h = norm(pool(h)) // of one token
	}
	for i := range p.Dense {
		l := &p.Dense[i]
		name := fmt.Sprintf("/dense.%d/", i)
		h = b.linear(name+"Linear", h, &l.Linear, Slot{Table: true}, 1, -1, int32(l.Weight.Rows))
		if l.Tanh {
			h = b.unary(name+"tanh", mnn.UnaryTanh, h)
		}
	}
	size := int32(p.Size(d.Hidden))
	if p.Normalize {
		h = b.unit("/normalize", h, int(size))
	}
	y := b.reshape("/sentence", h, -1, size)
	b.g.Tensors[y] = mnn.SentenceOutput
	b.g.Outputs = []string{mnn.SentenceOutput}
	if b.err != nil {
		return nil, b.err
	}
	b.whole = true
	b.maskCondition()
	b.slots = append(b.slots, Slot{Kind: TableSlot, Name: "embedding", Op: -1, Weight: d.Embedding, Table: true, Lookup: true})
	return &Model{
		Parts:   []*Part{{Graph: b.g, Slots: b.slots}},
		Context: b.context, Precision: b.precision, Pooled: true, Whole: b.whole, Caches: len(d.Layers), Conditions: b.conditions, Features: b.features(),
	}, nil
}

// unit divides vectors of n elements by their lengths: RMSNorm with gains of 1/sqrt(n).
func (b *builder) unit(name string, x value, n int) value {
	const tiny = 1e-30 // far below the square of any length; a vector of zeros stays as it is
	gain := float32(1 / math.Sqrt(float64(n)))
	return b.op(name, mnn.OpLayerNorm, &mnn.LayerNorm{
		Axis: []int32{-1}, Epsilon: tiny, Group: 1, RMS: true, Gamma: slices.Repeat([]float32{gain}, n), Beta: make([]float32, n),
	}, x)
}

// maskDims declares the shape of the mask that the engine feeds.
func maskDims(d *arch.Decoder) []int32 {
	if d.Pooling != nil && d.Pooling.Pairs {
		return []int32{-1, 1, 1, -1}
	}
	return []int32{1, 1, -1, -1}
}
