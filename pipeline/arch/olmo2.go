package arch

// describeOlmo2 describes OLMo 2: norms after the blocks instead of before them, and q and k normalized as whole
// projections.
func describeOlmo2(c *Config) (*Decoder, error) {
	b, a, bias := beginOlmo(c)
	rope := readRope(c)
	return b.finish(&a, func(_ int, p string) Layer {
		x := b.projections(p+"self_attn.", a, bias, bias)
		x.Rope = b.rope(rope, a.HeadDim)
		b.wideNorms(x, p+"self_attn.q_norm", p+"self_attn.k_norm")
		return b.postNorm(p, x, b.mlp(p+"mlp.", b.intermediate, false))
	})
}

// olmo3Theta is the default base of OLMo 3's rotary frequencies.
const olmo3Theta = 500000

// describeOlmo3 describes OLMo 3: Olmo2 with a sliding_window in three of four layers, or those that layer_types
// names. Full and sliding layers may have different rotary frequencies: in older files, rope_scaling is for full layers
// only.
func describeOlmo3(c *Config) (*Decoder, error) {
	b, a, bias := beginOlmo(c)
	full, sliding := readByType(c, ropeRules{theta: olmo3Theta}, ropeRules{theta: olmo3Theta}, "rope_theta", "")
	if c.Has("rope_theta") && full.theta != sliding.theta && !c.Has("rope_parameters") {
		// transformers 4 uses it for all layers, transformers 5 for full ones.
		c.Refuse("rope_theta", "%g is not supported, only %d: versions differ in whether sliding layers have it too", full.theta, olmo3Theta)
	}
	slides := everyNth(4)
	if types := b.layerTypes(fullAttention, slidingAttention); types != nil {
		slides = func(i int) bool { return types[i] == slidingAttention }
	}
	windows := b.spread(b.window(4096), slides)
	return b.finish(&a, func(i int, p string) Layer {
		x := b.projections(p+"self_attn.", a, bias, bias)
		x.Rope, x.Window = b.rope(full, a.HeadDim), windows[i]
		if slides(i) {
			x.Rope = b.rope(sliding, a.HeadDim)
		}
		b.wideNorms(x, p+"self_attn.q_norm", p+"self_attn.k_norm")
		return b.postNorm(p, x, b.mlp(p+"mlp.", b.intermediate, false))
	})
}

func beginOlmo(c *Config) (b *builder, a Attention, bias bool) {
	b = begin(c, "rms_norm_eps", 1e-5)
	b.tied(false)
	b.mlpKeys("hidden_act", "silu")
	return b, b.heads(0), b.Bool("attention_bias", false)
}
