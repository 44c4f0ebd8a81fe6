package lower

import (
	"fmt"
	"math/bits"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/mnn"
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
func Classic(d *arch.Decoder) (*Model, error) {
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
	cos, sin := b.rotary(positions, &d.Rope, split, high)
	for i := range d.Layers {
		h = b.layer(i, &d.Layers[i], h, cos, sin, mask)
	}
	h = b.slice("/last", h, index, sliceEnd, 1)
	h = b.norm("hidden_states", h, &d.FinalNorm)
	y := b.linear(HeadOp, h, &d.Head, Slot{Table: true, Lookup: d.Tied}, 1, -1, int32(d.Vocab))
	b.g.Tensors[y] = "logits"
	if !d.Tied {
		b.slots = append(b.slots, Slot{Kind: TableSlot, Name: "embedding", Op: -1, Weight: d.Embedding, Table: true, Lookup: true})
	}
	return &Model{Graph: b.g, Slots: b.slots}, nil
}

func (b *builder) layer(i int, l *arch.Layer, h, cos, sin, mask value) value {
	p := fmt.Sprintf("/layers.%d/", i)
	at := p + "self_attn/"
	a := &l.Attention
	heads, kv, dim := int32(a.Heads), int32(a.KVHeads), int32(a.HeadDim)

	x := b.norm(p+"input_layernorm", h, &l.AttentionNorm)
	q := b.linear(at+"q_proj/Linear", x, &a.Q, Slot{}, 1, -1, heads, dim)
	k := b.linear(at+"k_proj/Linear", x, &a.K, Slot{}, 1, -1, kv, dim)
	v := b.linear(at+"v_proj/Linear", x, &a.V, Slot{}, 1, -1, kv, dim)
	if a.QNorm != nil {
		q = b.norm(at+"q_norm", q, a.QNorm)
	}
	if a.KNorm != nil {
		k = b.norm(at+"k_norm", k, a.KNorm)
	}
	q = b.rotate(at+"q_rotary", q, cos, sin, a.HeadDim)
	k = b.rotate(at+"k_rotary", k, cos, sin, a.HeadDim)
	o := b.op(at+"FusedAttention", mnn.OpAttention, &mnn.Attention{KVCache: true, LayerIndex: int32(i)}, q, k, v, mask)
	o = b.linear(at+"o_proj/Linear", o, &a.O, Slot{}, 1, -1, int32(a.O.Weight.Rows))
	h = b.binary(at+"residual", mnn.BinaryAdd, h, o)

	ml := p + "mlp/"
	x = b.norm(p+"post_attention_layernorm", h, &l.MLPNorm)
	gate := b.linear(ml+"gate_proj/Linear", x, &l.MLP.Gate, Slot{}, 1, -1, int32(l.MLP.Intermediate))
	up := b.linear(ml+"up_proj/Linear", x, &l.MLP.Up, Slot{}, 1, -1, int32(l.MLP.Intermediate))
	x = b.binary(ml+"product", mnn.BinaryMul, b.unary(ml+"silu", mnn.UnarySilu, gate), up)
	x = b.linear(ml+"down_proj/Linear", x, &l.MLP.Down, Slot{}, 1, -1, int32(l.MLP.Down.Weight.Rows))
	return b.binary(LayerOutput(i), mnn.BinaryAdd, h, x)
}

// rotarySplit picks the power of two nearest above sqrt(positions) for the low table, which makes both
// tables about equal and their sum smallest, and the rows of the high table that cover all positions.
func rotarySplit(positions int) (split, high int) {
	split = 1 << ((bits.Len(uint(positions-1)) + 1) / 2)
	return split, (positions + split - 1) / split
}
