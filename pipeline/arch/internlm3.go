package arch

// describeInternLM3 describes Llama with heads of 128 elements; qkv_bias adds biases to q, k and v, bias to o and the
// MLP. transformers calls them attention_bias and mlp_bias.
func describeInternLM3(c *Config) (*Decoder, error) {
	b := begin(c, "rms_norm_eps", 1e-5)
	b.code("InternLM3Config", "InternLM3Model", "InternLM3ForCausalLM")
	b.tied(false)
	b.mlpKeys("hidden_act", "silu")
	missing := 128
	if b.Null("head_dim") {
		missing = 0 // hidden_size / num_attention_heads
	}
	a, rope := b.heads(missing), readRope(c)
	qkvBias, bias := b.eitherBool("qkv_bias", "attention_bias"), b.eitherBool("bias", "mlp_bias")
	return b.finish(&a, func(_ int, p string) Layer {
		x := b.projections(p+"self_attn.", a, qkvBias, bias)
		x.Rope = b.rope(rope, a.HeadDim)
		return b.preNorm(p, x, b.mlp(p+"mlp.", b.intermediate, bias))
	})
}
