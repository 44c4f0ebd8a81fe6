package arch

// describeBitNet describes BitNet b1.58 with plain float weights: norms of the inputs of o_proj and down_proj, and a
// gated MLP with squared ReLU. Published checkpoints quantize weights and activations at run time and say so in
// quantization_config, which is rejected.
func describeBitNet(c *Config) (*Decoder, error) {
	b := begin(c, "rms_norm_eps", 1e-5)
	b.code("BitNetConfig", "BitNetModel", "BitNetForCausalLM")
	b.tied(false)
	b.mlpKeys("hidden_act", "relu2")
	b.activation = ReLU2
	a, bias, rope := b.heads(0), b.Bool("attention_bias", false), ropeRules{theta: 500000}.read(c)
	return b.finish(&a, func(_ int, p string) Layer {
		x, mlp := b.projections(p+"self_attn.", a, bias, bias), b.mlp(p+"mlp.", b.intermediate, false)
		x.Rope = b.rope(rope, a.HeadDim)
		out, down := b.norm(p+"self_attn.attn_sub_norm", a.Heads*a.HeadDim), b.norm(p+"mlp.ffn_sub_norm", b.intermediate)
		x.OutNorm, mlp.Norm = &out, &down
		return b.preNorm(p, x, mlp)
	})
}
