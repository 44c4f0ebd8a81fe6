package arch

// qwen2VLTower describes the tower of Qwen2-VL.
func qwen2VLTower(c *Config, width int) *vision {
	// Published files have the second word.
	v := beginGrid(c, width, gridKeys{[]string{"qwen2_vl_vision", "qwen2_vl"}, "embed_dim", "hidden_size"}, map[string]int{
		"depth": 32, "embed_dim": 1280, "num_heads": 16, "patch_size": 14, "temporal_patch_size": 2, "spatial_merge_size": 2, "hidden_size": 3584, "mlp_ratio": 4,
	})
	if v == nil {
		return nil
	}
	v.intermediate = v.t.Hidden * v.Int("mlp_ratio", 64)
	v.activation = v.function("hidden_act", "quick_gelu")
	v.readSections(false, 16, 24, 24)
	v.prefix = v.locate("", "visual.")
	v.patches(v.prefix+"patch_embed.proj", false)
	v.gridLayers(true, nil)
	v.t.PostNorm = v.norm(v.prefix+"merger.ln_q", v.t.Hidden)
	v.merge("merger.mlp.0", "merger.mlp.2", width)
	v.t.Pad = c.tokenID("image_token_id", "image_token_index", 151655)
	return v.finish()
}
