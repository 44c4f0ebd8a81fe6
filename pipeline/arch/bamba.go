package arch

import "slices"

// describeBamba describes Bamba, which has Mamba 2 blocks in all layers except those of attn_layer_indices, whose
// attention rotates a part of every head (partial_rotary_factor within rope_parameters, by default 0.5).
func describeBamba(c *Config) (*Decoder, error) {
	b := begin(c, "rms_norm_eps", 1e-5)
	b.finalNorm = b.prefix + "final_layernorm"
	b.tied(false)
	b.mlpKeys("hidden_act", "silu")
	b.Inert("z_loss_coefficient")
	a, bias, mlpBias := b.heads(0), b.Bool("attention_bias", false), b.Bool("mlp_bias", false)
	rope := ropeRules{partial: .5, innerPartial: true}.read(c)
	if n, ok := b.OptInt("attn_rotary_emb", maxHeadDim); ok && n != rope.rotary(a.HeadDim) && b.Good("attn_rotary_emb", "head_dim") {
		b.Wrong("attn_rotary_emb", "%d contradicts a partial_rotary_factor of %g", n, rope.partial)
	}
	attention := b.Ints("attn_layer_indices", 0, maxLayers)
	for _, i := range attention {
		if i >= b.layers && b.Good("num_hidden_layers") {
			b.Wrong("attn_layer_indices", "%d of %d layers", i, b.layers)
			break
		}
	}
	m := b.mambaKeys(0)
	return b.finish(&a, func(i int, p string) Layer {
		var block Block
		if slices.Contains(attention, i) {
			x := b.projections(p+"self_attn.", a, bias, bias)
			x.Rope = b.rope(rope, a.HeadDim)
			block = x
		} else {
			x := b.mamba2(p+"mamba.", m, m.projBias)
			x.Norm = b.partNorm(p+"mamba.norm", m.inner, m.groups)
			block = x
		}
		return Layer{
			{Norm: b.norms(p + "input_layernorm"), Block: block},
			{Norm: b.norms(p + "pre_ff_layernorm"), Block: b.mlp(p+"feed_forward.", b.intermediate, mlpBias)},
		}
	})
}
