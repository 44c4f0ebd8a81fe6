package lower

import (
	"fmt"
	"math/bits"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Names of ops by which checks find things in our graphs.
const (
	// HeadOp is the linear that makes logits.
	HeadOp = "/lm/lm_head/Linear"
)

// LayerOutput names the op that adds the last branch of layer i to the residual stream.
func LayerOutput(i int) string { return fmt.Sprintf("/layers.%d/mlp/residual", i) }

// Classic lowers to the form that every engine from 3.5.0 on loads: plain tensors between layers, rotary
// embedding from elementary ops, one Attention op per layer.
func Classic(d *arch.Decoder, o Options) (*Model, error) {
	split, high := rotarySplit(d.MaxPositions)
	if err := checkLimits(d, split, high); err != nil {
		return nil, err
	}
	b := newBuilder()
	hidden := int32(d.Hidden)
	ids := b.input("input_ids", mnn.DTFloat, 1, 1, hidden)
	mask := b.input("attention_mask", mnn.DTFloat, 1, 1, -1, -1)
	positions := b.input("position_ids", mnn.DTInt32, 1, -1)
	index := b.input("logits_index", mnn.DTInt32, 1)

	h := b.reshape("/embedding", ids, 1, -1, hidden)
	b.decoder, b.mask, b.positions, b.split, b.high = d, mask, positions, split, high
	for _, r := range d.Ropes {
		b.rotary(positions, r, split, high)
	}
	for i, l := range d.Layers {
		var err error
		if h, err = b.layer(i, l, h); err != nil {
			return nil, fmt.Errorf("layer %d: %w", i, err)
		}
	}
	h = b.slice("/last", h, index, sliceEnd, 1)
	h = b.norm("hidden_states", h, &d.FinalNorm)
	y := b.linear(HeadOp, h, &d.Head, Slot{Table: true, Lookup: d.Tied}, 1, -1, int32(d.Vocab))
	b.g.Tensors[y] = "logits"
	if !d.Tied {
		b.slots = append(b.slots, Slot{Kind: TableSlot, Name: "embedding", Op: -1, Weight: d.Embedding, Table: true, Lookup: true})
	}
	return &Model{Graph: b.g, Slots: b.slots, Context: d.MaxPositions, CacheElements: d.CacheElements()}, nil
}

// layer adds the branches of layer i to the residual stream h.
func (b *builder) layer(i int, l arch.Layer, h value) (value, error) {
	p := fmt.Sprintf("/layers.%d/", i)
	before := h
	for k := range l {
		br := &l[k]
		if !br.Parallel {
			before = h
		}
		name := p + blockName(br.Block) + "/"
		x := before
		if br.Norm != nil {
			x = b.norm(b.normName(p, br, "input_layernorm", "post_attention_layernorm"), x, br.Norm)
		}
		y, err := b.block(i, name, br.Block, x)
		if err != nil {
			return 0, err
		}
		out := name + "residual"
		if k == len(l)-1 {
			out = LayerOutput(i)
		}
		h = b.binary(out, mnn.BinaryAdd, h, y)
	}
	return h, nil
}

// blockName is the part of the names of a block's ops.
func blockName(x arch.Block) string {
	switch x.(type) {
	case *arch.Attention, *arch.LatentAttention:
		return "self_attn"
	}
	return "mlp"
}

// normName names the norm of a branch: one name before attention and its kind, another before the MLP.
func (b *builder) normName(p string, br *arch.Branch, attention, mlp string) string {
	if blockName(br.Block) == "mlp" {
		return p + mlp
	}
	return p + attention
}

// block lowers what a branch computes; the names of its ops begin with p. What the engine cannot run is
// tensor.ErrUnsupported.
func (b *builder) block(i int, p string, block arch.Block, x value) (value, error) {
	switch block := block.(type) {
	case *arch.Attention:
		return b.attention(i, p, block, x)
	case *arch.MLP:
		return b.mlp(p, block, x)
	}
	return 0, fmt.Errorf("%T: %w", block, tensor.ErrUnsupported)
}

func (b *builder) attention(i int, at string, a *arch.Attention, x value) (value, error) {
	heads, kv, dim := int32(a.Heads), int32(a.KVHeads), int32(a.HeadDim)
	q := b.linear(at+"q_proj/Linear", x, &a.Q, Slot{}, 1, -1, heads, dim)
	k := b.linear(at+"k_proj/Linear", x, &a.K, Slot{}, 1, -1, kv, dim)
	v := b.linear(at+"v_proj/Linear", x, &a.V, Slot{}, 1, -1, kv, dim)
	if a.QNorm != nil {
		q = b.norm(at+"q_norm", q, a.QNorm)
	}
	if a.KNorm != nil {
		k = b.norm(at+"k_norm", k, a.KNorm)
	}
	cos, sin := b.rotary(b.positions, a.Rope, b.split, b.high)
	q = b.rotate(at+"q_rotary", q, cos, sin, a.HeadDim)
	k = b.rotate(at+"k_rotary", k, cos, sin, a.HeadDim)
	o := b.op(at+"FusedAttention", mnn.OpAttention, &mnn.Attention{KVCache: true, LayerIndex: int32(i)}, q, k, v, b.mask)
	return b.linear(at+"o_proj/Linear", o, &a.O, Slot{}, 1, -1, int32(a.O.Weight.Rows)), nil
}

// mlp lowers an MLP of rows of the sink, be it the graph or an expert.
func (b *builder) mlp(ml string, m *arch.MLP, x value) (value, error) {
	gate := b.linear(ml+"gate_proj/Linear", x, &m.Gate, Slot{}, b.rows(m.Intermediate)...)
	up := b.linear(ml+"up_proj/Linear", x, &m.Up, Slot{}, b.rows(m.Intermediate)...)
	x = b.binary(ml+"product", mnn.BinaryMul, b.unary(ml+"silu", mnn.UnarySilu, gate), up)
	return b.linear(ml+"down_proj/Linear", x, &m.Down, Slot{}, b.rows(m.Down.Weight.Rows)...), nil
}

// rotarySplit picks the power of two nearest above sqrt(positions) for the low table, which makes both
// tables about equal and their sum smallest, and the rows of the high table that cover all positions.
func rotarySplit(positions int) (split, high int) {
	split = 1 << ((bits.Len(uint(positions-1)) + 1) / 2)
	return split, (positions + split - 1) / split
}
