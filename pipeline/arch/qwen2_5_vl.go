package arch

import "slices"

// qwen25VLTower describes the tower of Qwen2.5-VL: that of Qwen2-VL with RMS norms and gates, in most layers of which patches attend
// to those of their own square of window_size pixels only.
func qwen25VLTower(c *Config, width int) *vision {
	return qwen25Tower(c, width, []string{"qwen2_5_vl_vision", "qwen2_5_vl"}, false)
}

// qwen25Tower is qwen25VLTower by the checkpoint's words for it; apart says that queries, keys and values are matrices of their own.
func qwen25Tower(c *Config, width int, modelTypes []string, apart bool) *vision {
	v := beginGrid(c, width, gridKeys{modelTypes, "hidden_size", "out_hidden_size"}, map[string]int{
		"depth": 32, "hidden_size": 3584, "intermediate_size": 3420, "num_heads": 16, "patch_size": 14, "temporal_patch_size": 2,
		"spatial_merge_size": 2, "out_hidden_size": 3584, "window_size": 112,
	})
	if v == nil {
		return nil
	}
	t := v.t
	v.intermediate, v.activation, v.rms = v.Int("intermediate_size", maxIntermediate), v.function("hidden_act", "silu"), true
	v.apart = apart
	v.Inert("tokens_per_second") // of video
	square := v.Int("window_size", maxPixels) / t.Cell / t.Patch * t.Cell
	if square == 0 && v.Good("window_size", "patch_size", "spatial_merge_size") {
		v.Wrong("window_size", "is less than a cell of %d pixels", t.Cell*t.Patch)
	}
	whole := []int{7, 15, 23, 31}
	if v.Has("fullatt_block_indexes") {
		whole = v.Ints("fullatt_block_indexes", 0, maxLayers)
	}
	v.readSections(false, 16, 24, 24)
	v.prefix = v.locate("", "thinker.visual.", "visual.")
	v.patches(v.prefix+"patch_embed.proj", false)
	v.gridLayers(true, func(i int, p string, a *Attention, l Layer) {
		if !slices.Contains(whole, i) {
			a.Square = square
		}
		l[1].Block = v.gated(p+"mlp.", true)
	})
	t.PostNorm = v.norm(v.prefix+"merger.ln_q", t.Hidden)
	v.merge("merger.mlp.0", "merger.mlp.2", width)
	t.Pad = c.tokenID("image_token_id", "image_token_index", 151655)
	return v.finish()
}
