package arch

// qwen35Tower describes the tower of Qwen3.5: that of Qwen2-VL with larger patches and learned positions, which are interpolated.
func qwen35Tower(c *Config, width int) *vision {
	// Published files have the second word.
	v := beginQwen3(c, width, "qwen3_5_vision", "qwen3_5")
	if v == nil {
		return nil
	}
	v.Only("deepstack_visual_indexes", "[]")
	v.readSections(true, 11, 11, 10)
	v.t.Pad = c.tokenID("image_token_id", "image_token_index", 248056)
	return v.finish()
}

// beginQwen3 describes what the towers of Qwen3-VL and Qwen3.5 share.
func beginQwen3(c *Config, width int, modelTypes ...string) *vision {
	v := beginGrid(c, width, gridKeys{modelTypes, "hidden_size", "out_hidden_size"}, map[string]int{
		"depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "num_heads": 16, "patch_size": 16, "temporal_patch_size": 2,
		"spatial_merge_size": 2, "out_hidden_size": 3584, "num_position_embeddings": 2304,
	})
	if v == nil {
		return nil
	}
	t := v.t
	v.intermediate, v.activation = v.Int("intermediate_size", maxIntermediate), v.function("hidden_act", "gelu_pytorch_tanh")
	const positions = "num_position_embeddings"
	v.prefix = v.locate("", "visual.")
	v.patches(v.prefix+"patch_embed.proj", true)
	t.Positions = Weight{v.prefix + "pos_embed.weight", v.Int(positions, maxPatches), t.Hidden}
	if side := t.PositionSide(); side*side != t.Positions.Rows && v.Good(positions) {
		v.unsupported(positions, "%d is not a square", t.Positions.Rows)
	}
	v.gridLayers(true, func(_ int, p string, _ *Attention, l Layer) {
		l[1].Block = &MLP{
			Intermediate: v.intermediate, Activation: v.activation,
			Up: linearOf(p+"mlp.linear_fc1", v.intermediate, t.Hidden, true), Down: linearOf(p+"mlp.linear_fc2", t.Hidden, v.intermediate, true),
		}
	})
	t.PostNorm = v.norm(v.prefix+"merger.norm", t.Hidden)
	v.merge("merger.linear_fc1", "merger.linear_fc2", width)
	return v
}
