package arch

// describeSolarOpen describes Solar Open: attention as in Llama, with heads of 128 by default and biases on q, k and
// v alone if attention_bias is set; every layer is a mixture of [groupedKeys].
func describeSolarOpen(c *Config) (*Decoder, error) {
	b := begin(c, "rms_norm_eps", 1e-5)
	b.code("SolarOpenConfig", "SolarOpenModel", "SolarOpenForCausalLM")
	b.tied(false)
	b.Only("hidden_act", `"silu"`)
	b.Only("use_qk_norm", "false")
	b.Only("first_k_dense_replace", "0") // the class has no dense layers
	b.Inert("intermediate_size")         // of dense layers
	a, bias, rope := b.heads(128), b.Bool("attention_bias", false), ropeRules{theta: 1e6}.read(c)
	g := b.groupedKeys(groupedKeys{experts: 128, topK: 8, intermediate: 1280, shared: 1, groups: 1, topGroups: 1, normalize: true, scale: 1})
	b.skipDrafts("num_nextn_predict_layers")
	return b.finish(&a, func(_ int, p string) Layer {
		x := b.projections(p+"self_attn.", a, bias, false)
		x.Rope = b.rope(rope, a.HeadDim)
		return b.preNorm(p, x, b.mixture(g, p+"mlp."))
	})
}
