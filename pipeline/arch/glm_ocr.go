package arch

// describeGLMOCRText describes the text model of GLM-OCR: GLM-4-0414 without biases, whose whole heads are rotated by three axes.
// The layer for speculative decoding is left out.
func describeGLMOCRText(c *Config) (*Decoder, error) {
	b := begin(c, "rms_norm_eps", 1e-5)
	b.tied(false)
	b.mlpKeys("hidden_act", "silu")
	b.Only("attention_bias", "false")
	a, rope := b.heads(0), ropeRules{partial: 1, mrope: true}.read(c)
	b.skipDrafts("num_nextn_predict_layers")
	return b.finish(&a, func(_ int, p string) Layer {
		x := b.projections(p+"self_attn.", a, false, false)
		x.Rope = b.rope(rope, a.HeadDim)
		b.interleaved(x, false)
		return b.glm4Norms(p, b.preNorm(p, x, b.fusedMLP(p+"mlp.gate_up_proj", p+"mlp.down_proj", b.intermediate)))
	})
}

// glmOCRTower describes the tower of GLM-OCR: that of Qwen2.5-VL without windows, with norms of queries and keys, and a projector that
// begins with a convolution over the cells.
func glmOCRTower(c *Config, width int) *vision {
	v := beginGrid(c, width, gridKeys{[]string{"glm_ocr_vision"}, "hidden_size", "out_hidden_size"}, map[string]int{
		"depth": 24, "hidden_size": 1024, "intermediate_size": 4096, "num_heads": 16, "patch_size": 14, "temporal_patch_size": 2,
		"spatial_merge_size": 2, "out_hidden_size": 1536,
	})
	if v == nil {
		return nil
	}
	t := v.t
	v.intermediate, v.activation, v.rms = v.Int("intermediate_size", maxIntermediate), v.function("hidden_act", "silu"), true
	if v.eps = 1e-5; v.Has("rms_norm_eps") {
		v.eps = v.Float("rms_norm_eps", 1e-30, 1)
	}
	bias := v.Bool("attention_bias", true)
	v.Inert("attention_dropout", "hidden_dropout_prob", "image_size")
	v.readSections(false, 8, 12, 12)
	v.prefix = v.locate("", "visual.")
	v.patches(v.prefix+"patch_embed.proj", true)
	dim := t.Hidden / v.heads
	v.gridLayers(bias, func(_ int, p string, a *Attention, l Layer) {
		a.QNorm, a.KNorm = v.norm(p+"attn.q_norm", dim), v.norm(p+"attn.k_norm", dim)
		l[1].Block = v.gated(p+"mlp.", bias)
	})
	t.PostNorm = v.norm(v.prefix+"post_layernorm", t.Hidden)
	n, of := t.Cell*t.Cell*t.Hidden, v.prefix+"downsample"
	down := Linear{
		Weight: v.view(View{Name: of + "_matrix.weight", Tensor: of + ".weight", Rows: width, Cols: n, Flat: true}),
		Bias:   Weight{Tensor: of + ".bias", Rows: width},
	}
	p, inner := v.prefix+"merger.", 3*width // in_channels times
	t.Projector = Projector{
		Planes: true, Front: []Linear{down, linearOf(p+"proj", width, width, false)},
		Norm: &Norm{
			Gamma: Weight{Tensor: p + "post_projection_norm.weight", Rows: width},
			Beta:  Weight{Tensor: p + "post_projection_norm.bias", Rows: width}, Eps: 1e-5, Centered: true,
		},
		Between: GELU, Gate: linearOf(p+"gate_proj", inner, width, false), In: linearOf(p+"up_proj", inner, width, false),
		Out: linearOf(p+"down_proj", width, inner, false), Activation: v.activation,
	}
	t.Pad = c.tokenID("image_token_id", "image_token_index", 59280)
	t.Counted = t.Frames
	t.Start, t.End = "<|begin_of_image|>", "<|end_of_image|>"
	return v.finish()
}
