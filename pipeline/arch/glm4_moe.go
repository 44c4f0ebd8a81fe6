package arch

// describeGLM4Moe describes GLM-4.5 and 4.6: half of every head is rotated (partial_rotary_factor), half-split; heads
// of q and k are normalized if use_qk_norm is set; q, k and v have biases if attention_bias is set; the layers from
// first_k_dense_replace on are the mixtures of DeepSeek.
func describeGLM4Moe(c *Config) (*Decoder, error) {
	b := begin(c, "rms_norm_eps", 1e-5)
	b.tied(false)
	b.mlpKeys("hidden_act", "silu")
	a, rope := b.heads(0), ropeRules{partial: 0.5}.read(c)
	bias, norms := b.Bool("attention_bias", false), b.Bool("use_qk_norm", false)
	g := b.groupedKeys(groupedKeys{
		experts: 128, topK: 8, intermediate: 1408, shared: 1, dense: 1, groups: 1, topGroups: 1, normalize: true, scale: 1,
	})
	b.skipDrafts("num_nextn_predict_layers", "num_mtp_layers")
	return b.finish(&a, func(i int, p string) Layer {
		x := b.projections(p+"self_attn.", a, bias, false)
		x.Rope = b.rope(rope, a.HeadDim)
		if norms {
			b.headNorms(x, p+"self_attn.q_norm", p+"self_attn.k_norm")
		}
		return b.preNorm(p, x, b.groupedBlock(g, i, p+"mlp."))
	})
}
