package arch

// llavaTower describes the CLIP or SigLIP tower of LLaVA 1.5 and the models in its form.
func llavaTower(c *Config, width int) *vision {
	c.Inert("image_seq_length", "ignore_index")
	kind := "clip_vision_model"
	if v, ok := c.fields.values["vision_config"].(*object); ok {
		if s, ok := v.values["model_type"].(string); ok {
			kind = s
		}
	}
	missing := visionDefaults{768, 3072, 12, 12, 224, 32, "quick_gelu", 1e-5}
	clip := kind == "clip_vision_model"
	if !clip {
		missing = visionDefaults{768, 3072, 12, 12, 224, 16, "gelu_pytorch_tanh", 1e-6}
	}
	v := beginVision(c, missing)
	if v == nil {
		return nil
	}
	if !clip && kind != "siglip_vision_model" {
		v.Refuse("model_type", "%s is not supported, only %s", show(kind), quoted([]string{"clip_vision_model", "siglip_vision_model"}))
	}
	t := v.t
	t.Mean, t.Deviation = clipMean, clipDeviation
	if !clip {
		t.Mean, t.Deviation = halves3, halves3
		v.Inert("vision_use_head")
	}
	v.layer(-2)
	v.selectRows()
	v.patches(v.prefix+"embeddings.patch_embedding", !clip)
	if clip {
		t.Class = Weight{Tensor: v.prefix + "embeddings.class_embedding", Rows: t.Hidden}
		t.PreNorm = v.norm(v.prefix+"pre_layrnorm", t.Hidden) // the library's spelling
	}
	t.Positions = Weight{v.prefix + "embeddings.position_embedding.weight", t.States(), t.Hidden}
	names := visionNames{"encoder.layers.", "layer_norm1", "layer_norm2", "self_attn.", "out_proj"}
	v.layersOf(names, func(p string) Layer { return v.block(names, p, true) })
	v.skip(`(post_layernorm\.|head\.|embeddings\.position_ids$)`)
	v.project(width, c.Bool("multimodal_projector_bias", true))
	t.Pad, t.After = c.tokenID("image_token_index", "image_token_id", 32000), "\n"
	return v.finish()
}
