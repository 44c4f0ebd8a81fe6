package arch

// lfm2VLTower describes the SigLIP 2 tower of LFM2-VL, which reads pictures of any size. The engine gives such pictures in patches of 16
// pixels and cells of 2 x 2; it can put no words before tiles other than those of Idefics3, so a picture is one view.
func lfm2VLTower(c *Config, width int) *vision {
	c.Inert("do_image_splitting", "encoder_patch_size", "max_image_tokens", "max_num_patches", "max_pixels_tolerance",
		"max_tiles", "min_image_tokens", "min_tiles", "tile_size", "use_image_special_tokens", "use_thumbnail")
	c.Only("vision_feature_layer", "-1")
	v := beginVision(c, visionDefaults{768, 3072, 12, 12, 224, 16, "gelu_pytorch_tanh", 1e-6})
	if v == nil {
		return nil
	}
	v.Only("model_type", `"siglip2_vision_model"`)
	v.Inert("vision_use_head", "image_size") // the states before the head are used, and learned positions are stretched to every picture
	t := v.t
	t.Grid, t.Pixels, t.Frames, t.Size, t.Smooth = true, true, 2, 0, true
	t.Mean, t.Deviation, t.Start, t.End = halves3, halves3, "<|image_start|>", "<|image_end|>"
	t.Least, t.Most = 64, 256
	t.Loss = "a picture is one view: the library cuts large ones into up to 10 tiles and an overview, with a word before each, which the engine cannot, " +
		"so small print is lost"
	const patch, factor, positions = "patch_size", "downsample_factor", "num_patches"
	if t.Patch != 16 && v.Good(patch) {
		v.unsupported(patch, "%d pixels are not supported, only 16, as the engine makes patches", t.Patch)
	}
	if t.Cell = c.Range(factor, 1, 64, 2); t.Cell != 2 && c.Good(factor) {
		c.unsupported(factor, "%d is not supported, only 2, as the engine orders patches", t.Cell)
	}
	v.provide(positions, 256)
	v.prefix = v.locate("embeddings.", "vision_tower.vision_model.", "vision_tower.")
	t.Embedding = linearOf(v.prefix+"embeddings.patch_embedding", t.Hidden, 3*t.Patch*t.Patch, true)
	t.Positions = Weight{v.prefix + "embeddings.position_embedding.weight", v.Int(positions, maxPatches), t.Hidden}
	if side := t.PositionSide(); side*side != t.Positions.Rows && v.Good(positions) {
		v.unsupported(positions, "%d is not a square", t.Positions.Rows)
	}
	names := visionNames{"encoder.layers.", "layer_norm1", "layer_norm2", "self_attn.", "out_proj"}
	v.layersOf(names, func(p string) Layer { return v.block(names, p, true) })
	t.PostNorm = v.norm(v.prefix+"post_layernorm", t.Hidden)
	v.skip(`head\.`)
	n, bias := t.Cell*t.Cell*t.Hidden, c.Bool("projector_bias", true)
	if c.Bool("projector_use_layernorm", true) {
		name := v.joiner + "layer_norm"
		t.Norm = &Norm{
			Gamma: Weight{Tensor: name + ".weight", Rows: n}, Beta: Weight{Tensor: name + ".bias", Rows: n},
			Eps: 1e-5, Centered: true, // the default of PyTorch: the file has no key for it
		}
	}
	inner := c.Range("projector_hidden_size", 1, maxIntermediate, 2560)
	t.In, t.Out = linearOf(v.joiner+"linear_1", inner, n, bias), linearOf(v.joiner+"linear_2", width, inner, bias)
	t.Activation = c.function("projector_hidden_act", "gelu")
	t.Pad = c.tokenID("image_token_id", "image_token_index", 396)
	return v.finish()
}
