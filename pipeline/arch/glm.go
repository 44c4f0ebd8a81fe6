package arch

// describeGLM describes GLM-4 9B as stored by transformers: half of every head is rotated (partial_rotary_factor), in
// interleaved pairs; q, k and v have biases if attention_bias is set; gate and up are one matrix.
func describeGLM(c *Config) (*Decoder, error) {
	b, a, block := beginGLM(c)
	return b.finish(&a, func(_ int, p string) Layer {
		return b.preNorm(p, block(p), b.fusedMLP(p+"mlp.gate_up_proj", p+"mlp.down_proj", b.intermediate))
	})
}

// describeGLM4 describes GLM-4-0414: GLM with norms after the blocks, too. Its post_attention_layernorm is the one
// before the MLP.
func describeGLM4(c *Config) (*Decoder, error) {
	b, a, block := beginGLM(c)
	return b.finish(&a, func(_ int, p string) Layer {
		return b.glm4Norms(p, b.preNorm(p, block(p), b.fusedMLP(p+"mlp.gate_up_proj", p+"mlp.down_proj", b.intermediate)))
	})
}

// glm4Norms adds the norms after the blocks of a layer.
func (b *builder) glm4Norms(p string, layer Layer) Layer {
	layer[0].PostNorm = b.norms(p + "post_self_attn_layernorm")
	layer[1].PostNorm = b.norms(p + "post_mlp_layernorm")
	return layer
}

// beginGLM reads the keys of both, and returns a function that makes attention.
func beginGLM(c *Config) (b *builder, a Attention, block func(p string) *Attention) {
	b = begin(c, "rms_norm_eps", 1.5625e-7)
	b.tied(false)
	b.mlpKeys("hidden_act", "silu")
	a = b.heads(b.headDim(128))
	bias, rope := b.Bool("attention_bias", true), ropeRules{partial: 0.5}.read(c)
	return b, a, func(p string) *Attention {
		x := b.projections(p+"self_attn.", a, bias, false)
		x.Rope = b.rope(rope, a.HeadDim)
		b.interleaved(x, bias)
		return x
	}
}
