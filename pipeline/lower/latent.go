package lower

import (
	"fmt"
	"math"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Forms of latent attention, for [Options].
const (
	// LatentExpanded computes keys and values of all heads from the latent and caches them.
	LatentExpanded = "expanded"
	// LatentCached caches the latent, which every head reads as its keys and values; the matrices that would expand it
	// transform queries and results instead.
	LatentCached = "latent"
)

// The latent form is chosen if it needs at most 1/latentSaving of the memory for a conversation of usualContext tokens, or
// of the package's context if that is shorter.
const (
	usualContext = 4096
	latentSaving = 5
)

// latentForm picks the form of a block.
//
// The cache of a token has 2·Heads·dim elements in the expanded form, dim being NopeDim+RopeDim, and
// 2·(KVRank+RopeDim) in the latent one. The latent form also keeps two matrices in float32, Heads·(NopeDim+ValueDim)·KVRank
// elements, which are quantized in the expanded form. And every head multiplies by KVRank+RopeDim elements of a cached token
// instead of dim, so attention takes longer by that factor, three in the models below.
//
//	bytes of a layer, 4096 tokens       expanded   latent, matrices   factor
//	DeepSeek-V3, 128 heads              805 MB     19 + 67 MB         9.4      latent
//	MiniCPM3, 40 heads of 96            126 MB      9 + 5 MB          8.6      latent
//	Kimi-K2, 64 heads                   403 MB     19 + 34 MB         7.7      latent
//	DeepSeek-V2-Lite, 16 heads          101 MB     19 + 8 MB          3.7      expanded
//	DeepSeek-V3 with 512 tokens         101 MB      2 + 67 MB         1.4      expanded
//
// Values longer than keys exist in the latent form only.
func latentForm(a *arch.LatentAttention, context int, forced string) string {
	dim, rank := int64(a.NopeDim+a.RopeDim), int64(a.KVRank+a.RopeDim)
	tokens, heads := int64(min(context, usualContext)), int64(a.Heads)
	expanded := 2 * heads * dim * tokens
	latent := 2*rank*tokens + heads*int64(a.NopeDim+a.ValueDim)*int64(a.KVRank)
	switch {
	case forced != "":
		return forced
	case int64(a.ValueDim) > dim || expanded > latentSaving*latent:
		return LatentCached
	}
	return LatentExpanded
}

// latentAttention lowers DeepSeek's attention in one of its two forms.
func (b *builder) latentAttention(at string, a *arch.LatentAttention, x value) (value, error) {
	heads, rope, rank := int32(a.Heads), int32(a.RopeDim), int32(a.KVRank)
	c := x
	if a.QDown.Weight.Tensor != "" {
		c = b.linear(at+"q_a_proj/Linear", x, &a.QDown, Slot{}, 1, -1, int32(a.QRank))
		c = b.norm(at+"q_a_norm", c, a.QNorm)
	}
	qn := b.linear(at+"q_nope_proj/Linear", c, &a.QNope, Slot{}, 1, -1, heads, int32(a.NopeDim))
	qr := b.linear(at+"q_rope_proj/Linear", c, &a.QRope, Slot{}, 1, -1, heads, rope)
	l := b.linear(at+"kv_a_proj/Linear", x, &a.KVDown, Slot{}, 1, -1, rank)
	l = b.norm(at+"kv_a_norm", l, a.KVNorm)
	kr := b.linear(at+"k_rope_proj/Linear", x, &a.KRope, Slot{}, 1, -1, 1, rope)
	qr = b.rotate(at+"q_rotary", qr, a.Rope, a.RopeDim)
	kr = b.rotate(at+"k_rotary", kr, a.Rope, a.RopeDim)

	var o value
	var err error
	if latentForm(a, b.context, b.latent) == LatentCached {
		o, err = b.cachedLatent(at, a, qn, qr, l, kr)
	} else {
		o, err = b.expandedLatent(at, a, qn, qr, l, kr)
	}
	if err != nil {
		return 0, err
	}
	return b.linear(at+"o_proj/Linear", o, &a.O, Slot{}, 1, -1, int32(a.O.Weight.Rows)), nil
}

// expandedLatent attends over keys [nope, rope] and values of all heads. qn and qr are [1, tokens, Heads, dim], the latent l
// [1, tokens, KVRank], kr [1, tokens, 1, RopeDim].
func (b *builder) expandedLatent(at string, a *arch.LatentAttention, qn, qr, l, kr value) (value, error) {
	heads, dim, valueDim := int32(a.Heads), int32(a.NopeDim+a.RopeDim), int32(a.ValueDim)
	if valueDim > dim {
		return 0, fmt.Errorf("values of %d elements and keys of %d in the expanded form: %w", valueDim, dim, tensor.ErrUnsupported)
	}
	kn := b.linear(at+"k_nope_proj/Linear", l, &a.KNope, Slot{}, 1, -1, heads, int32(a.NopeDim))
	v := b.linear(at+"v_proj/Linear", l, &a.V, Slot{}, 1, -1, heads, valueDim)
	q := b.concat(at+"q", 3, qn, qr)
	k := b.concat(at+"k", 3, kn, b.binary(at+"k_rope_heads", mnn.BinaryMul, kr, b.ones(1, 1, heads, 1)))
	if valueDim < dim {
		v = b.concat(at+"v", 3, v, b.times(at+"v_padding", b.slice(at+"v_padding/slice", k, b.list(0), dim-valueDim, 3), 0))
	}
	q = b.times(at+"q_scaled", q, a.Scale*math.Sqrt(float64(dim)))
	o := b.attend(at+"FusedAttention", a.Heads, a.Heads, int(dim), q, k, v, b.causal(false))
	if valueDim < dim {
		o = b.slice(at+"o_values", b.reshape(at+"o_heads", o, 1, -1, heads, dim), b.list(0), valueDim, 3)
		o = b.reshape(at+"o_rows", o, 1, -1, heads*valueDim)
	}
	return o, nil
}

// cachedLatent attends over one key and value head, [latent, rope] and [latent, 0].
func (b *builder) cachedLatent(at string, a *arch.LatentAttention, qn, qr, l, kr value) (value, error) {
	if a.KNope.Bias.Tensor != "" || a.V.Bias.Tensor != "" {
		return 0, fmt.Errorf("%s: a bias in the latent form: %w", a.KNope.Weight.Tensor, tensor.ErrUnsupported)
	}
	heads, rank, dim := int32(a.Heads), int32(a.KVRank), int32(a.KVRank+a.RopeDim)
	// Heads are a batch of matrices [tokens, dim].
	q := b.permute(at+"q_nope_heads", b.reshape(at+"q_nope_rows", qn, -1, heads, int32(a.NopeDim)), 1, 0, 2)
	q = b.op(at+"q_latent", mnn.OpBatchMatMul, &mnn.BatchMatMul{}, q,
		b.constant(at+"k_nope_proj", a.KNope.Weight, heads, int32(a.NopeDim), rank))
	q = b.reshape(at+"q_latent_heads", b.permute(at+"q_latent_rows", q, 1, 0, 2), 1, -1, heads, rank)
	q = b.concat(at+"q", 3, q, qr)
	l = b.reshape(at+"latent_head", l, 1, -1, 1, rank)
	k := b.concat(at+"k", 3, l, kr)
	v := b.concat(at+"v", 3, l, b.times(at+"v_padding", kr, 0))
	q = b.times(at+"q_scaled", q, a.Scale*math.Sqrt(float64(dim)))
	o := b.attend(at+"FusedAttention", a.Heads, 1, int(dim), q, k, v, b.causal(false))
	o = b.slice(at+"o_latent", b.reshape(at+"o_heads", o, -1, heads, dim), b.list(0), rank, 2)
	o = b.op(at+"o_values", mnn.OpBatchMatMul, &mnn.BatchMatMul{TransposeY: true}, b.permute(at+"o_latent_heads", o, 1, 0, 2),
		b.constant(at+"v_proj", a.V.Weight, heads, int32(a.ValueDim), rank))
	return b.reshape(at+"o_rows", b.permute(at+"o_values_rows", o, 1, 0, 2), 1, -1, heads*int32(a.ValueDim)), nil
}
