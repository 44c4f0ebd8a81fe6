package arch

// describeHyperCLOVAX describes Naver's HyperCLOVA X SEED: Granite with norms after the blocks, too, if use_post_norm
// is set, the usual scale of scores without attention_multiplier, and logits multiplied by logits_scaling.
func describeHyperCLOVAX(c *Config) (*Decoder, error) {
	b := begin(c, "rms_norm_eps", 1e-6)
	b.code("HyperCLOVAXConfig", "HyperCLOVAXModel", "HyperCLOVAXForCausalLM")
	b.tied(false)
	b.mlpKeys("hidden_act", "silu")
	a, bias, mlpBias, rope := b.heads(0), b.Bool("attention_bias", false), b.Bool("mlp_bias", false), readRope(c)
	const lo, hi = 1e-9, 1e9
	b.d.EmbeddingScale = orZero(b.number("embedding_multiplier", lo, hi, 1))
	b.d.LogitScale = orZero(b.number("logits_scaling", lo, hi, 1))
	a.Scale = b.number("attention_multiplier", lo, hi, 0)
	residual, post := orZero(b.number("residual_multiplier", lo, hi, 1)), b.Bool("use_post_norm", true)
	return b.finish(&a, func(_ int, p string) Layer {
		x := b.projections(p+"self_attn.", a, bias, bias)
		x.Rope = b.rope(rope, a.HeadDim)
		layer := b.preNorm(p, x, b.mlp(p+"mlp.", b.intermediate, mlpBias))
		if post {
			layer[0].PostNorm, layer[1].PostNorm = b.norms(p+"post_norm1"), b.norms(p+"post_norm2")
		}
		return scaled(residual, layer)
	})
}
