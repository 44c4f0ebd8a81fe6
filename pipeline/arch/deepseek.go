package arch

import "math"

// deepSeek is DeepSeek-V3 and R1, and with v2 DeepSeek-V2: multi-head latent attention, see [LatentAttention], with
// kv_lora_rank, q_lora_rank (null: q is projected directly), qk_nope_head_dim, qk_rope_head_dim and v_head_dim. Its
// inner norms always have an epsilon of 1e-6. Rotary pairs are interleaved, in V3 if rope_interleave is set. Scores are
// divided by sqrt(qk_nope_head_dim + qk_rope_head_dim); yarn with mscale_all_dim multiplies them by
// (0.1·mscale_all_dim·ln(factor) + 1)². The layers from first_k_dense_replace on are mixtures with n_shared_experts in
// one, see [groupedKeys]; those of V2 have softmax and no correction, and the score of a group is that of its best
// expert.
type deepSeek struct{ v2 bool }

// latentEps is the epsilon of the norms of latents, which config.json does not change.
const latentEps = 1e-6

func (f deepSeek) describe(c *Config) (*Decoder, error) {
	b := begin(c, "rms_norm_eps", 1e-6)
	b.code("DeepseekV2Config", "DeepseekV2Model", "DeepseekV2ForCausalLM", "DeepseekV3Config", "DeepseekV3Model", "DeepseekV3ForCausalLM")
	b.tied(false)
	b.mlpKeys("hidden_act", "silu")
	a, rope := f.attention(b), readRope(c)
	bias := b.Bool("attention_bias", false)
	interleaved := f.v2 || b.Bool("rope_interleave", true)
	a.scaleBy(rope)
	missing := groupedKeys{
		experts: 256, topK: 8, intermediate: 2048, shared: 1, dense: 3, groups: 8, topGroups: 4, normalize: true, scale: 2.5,
	}
	if f.v2 {
		missing = groupedKeys{experts: 64, intermediate: 1407, shared: 2, groups: 1, topGroups: 1, scale: 1, softmax: true}
		b.mlpBias = b.Bool("mlp_bias", false)
	}
	g := b.groupedKeys(missing)
	b.same(1, "moe_layer_freq")
	b.Inert("ep_size")
	b.skipDrafts("num_nextn_predict_layers", "num_mtp_layers")
	shape := Attention{Heads: a.Heads, HeadDim: a.NopeDim + a.RopeDim}
	return b.finish(&shape, func(i int, p string) Layer {
		return b.preNorm(p, b.latent(a, p+"self_attn.", rope, bias, interleaved), b.groupedBlock(g, i, p+"mlp."))
	})
}

// attention reads the dimensions.
func (f deepSeek) attention(b *builder) LatentAttention {
	a := b.latentKeys(LatentAttention{QRank: 1536, KVRank: 512, NopeDim: 128, RopeDim: 64, ValueDim: 128})
	if f.v2 {
		b.Inert("head_dim")
	} else {
		b.same(float64(a.RopeDim), "head_dim") // transformers uses it as the width of the rotation
	}
	return a
}

// latentKeys reads the dimensions of latent attention; missing has the defaults of the class.
func (b *builder) latentKeys(missing LatentAttention) LatentAttention {
	a := LatentAttention{
		Heads:    b.Int("num_attention_heads", maxHeads),
		KVRank:   b.Range("kv_lora_rank", 1, maxHidden, missing.KVRank),
		NopeDim:  b.Range("qk_nope_head_dim", 1, maxHeadDim, missing.NopeDim),
		RopeDim:  b.Range("qk_rope_head_dim", 2, maxHeadDim, missing.RopeDim),
		ValueDim: b.Range("v_head_dim", 1, maxHeadDim, missing.ValueDim),
	}
	if n, ok := b.OptInt("q_lora_rank", maxHidden); ok {
		a.QRank = n
	} else if !b.Null("q_lora_rank") {
		a.QRank = missing.QRank
	}
	if n, ok := b.OptInt("num_key_value_heads", maxHeads); ok && n != a.Heads {
		b.Refuse("num_key_value_heads", "%d is not supported, only num_attention_heads %d: all heads share the latent", n, a.Heads)
	}
	b.Inert("qk_head_dim") // follows from the others
	return a
}

// scaleBy sets the scale of the scores, which yarn may raise.
func (a *LatentAttention) scaleBy(rope ropeParams) {
	a.Scale = 1 / math.Sqrt(float64(a.NopeDim+a.RopeDim))
	if rope.mscaleAll != 0 {
		m := yarnScale(rope.factor, rope.mscaleAll)
		a.Scale *= m * m
	}
}

// latent sets the projections of latent attention, p being "model.layers.3.self_attn.".
func (b *builder) latent(a LatentAttention, p string, rope ropeParams, bias, interleaved bool) *LatentAttention {
	hidden, hd := b.d.Hidden, a.NopeDim+a.RopeDim
	norm := func(name string, n int) *Norm {
		return &Norm{Gamma: vector(p+name+".weight", n), Eps: latentEps}
	}
	a.Rope = b.rope(rope, a.RopeDim)
	query, width := p+"q_proj", hidden
	if a.QRank != 0 {
		a.QDown, a.QNorm = b.linear(p+"q_a_proj", a.QRank, hidden, bias), norm("q_a_layernorm", a.QRank)
		query, width = p+"q_b_proj", a.QRank
	}
	// turned returns rows of heads with rotation, stride apart, half-split.
	turned := func(start, heads, stride int) []Run {
		if interleaved {
			return halves(start, heads, a.RopeDim, stride, a.RopeDim)
		}
		return perHead(start, heads, a.RopeDim, stride)
	}
	a.QNope = b.part(query+".nope", query, width, false, perHead(0, a.Heads, a.NopeDim, hd)...)
	a.QRope = b.part(query+".rope", query, width, false, turned(a.NopeDim, a.Heads, hd)...)
	down, up := p+"kv_a_proj_with_mqa", p+"kv_b_proj"
	a.KVDown = b.part(down+".latent", down, hidden, bias, Run{Start: 0, Count: a.KVRank})
	a.KRope = b.part(down+".rope", down, hidden, bias, turned(a.KVRank, 1, 0)...)
	a.KVNorm = norm("kv_a_layernorm", a.KVRank)
	a.KNope = b.part(up+".key", up, a.KVRank, false, perHead(0, a.Heads, a.NopeDim, a.NopeDim+a.ValueDim)...)
	a.V = b.part(up+".value", up, a.KVRank, false, perHead(a.NopeDim, a.Heads, a.ValueDim, a.NopeDim+a.ValueDim)...)
	a.O = b.linear(p+"o_proj", hidden, a.Heads*a.ValueDim, bias)
	return &a
}

// perHead returns count rows of every head from start on, heads being stride apart.
func perHead(start, heads, count, stride int) []Run {
	runs := make([]Run, 0, heads)
	for h := range heads {
		runs = append(runs, Run{Start: start + h*stride, Count: count})
	}
	return runs
}
