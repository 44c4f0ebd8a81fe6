package arch

// describeSeedOss describes Llama with heads of 128 elements and biases on q, k and v unless attention_bias is false,
// on o with attention_out_bias.
func describeSeedOss(c *Config) (*Decoder, error) {
	b := begin(c, "rms_norm_eps", 1e-6)
	b.tied(false)
	b.mlpKeys("hidden_act", "silu")
	b.Inert("residual_dropout")
	missing := 128
	if b.Null("head_dim") {
		missing = 0 // hidden_size / num_attention_heads
	}
	a, bias, outBias := b.heads(missing), b.Bool("attention_bias", true), b.Bool("attention_out_bias", false)
	mlpBias, rope := b.Bool("mlp_bias", false), readRope(c)
	return b.finish(&a, func(_ int, p string) Layer {
		x := b.projections(p+"self_attn.", a, bias, outBias)
		x.Rope = b.rope(rope, a.HeadDim)
		return b.preNorm(p, x, b.mlp(p+"mlp.", b.intermediate, mlpBias))
	})
}
