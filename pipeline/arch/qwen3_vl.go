package arch

import "strconv"

// deepLayers is how many layers of the text model rows are added after: the engine has the number built in.
const deepLayers = 3

// qwen3VLTower describes the tower of Qwen3-VL: that of Qwen3.5, of which the states after some layers become rows too.
func qwen3VLTower(c *Config, width int) *vision {
	// Published files have the second word.
	v := beginQwen3(c, width, c.family+"_vision", c.family)
	if v == nil {
		return nil
	}
	t := v.t
	const key = "deepstack_visual_indexes"
	layers := []int{8, 16, 24}
	if v.Has(key) {
		layers = v.Ints(key, 0, maxLayers)
	}
	if n := len(layers); n != deepLayers && v.Good(key) {
		v.unsupported(key, "%d layers instead of %d, which the engine has built in", n, deepLayers)
	}
	n := t.Cell * t.Cell * t.Hidden
	for i, after := range layers {
		if i > 0 && after <= layers[i-1] {
			v.unsupported(key, "%v is not in ascending order", layers)
		}
		if after >= v.layers && v.Good("depth") {
			v.Wrong(key, "%d, but there are %d layers", after, v.layers)
		}
		p := v.prefix + "deepstack_merger_list." + strconv.Itoa(i) + "."
		t.Deep = append(t.Deep, Deep{After: after, Projector: Projector{
			Norm: v.norm(p+"norm", n), In: linearOf(p+"linear_fc1", n, n, true), Out: linearOf(p+"linear_fc2", width, n, true), Activation: GELU,
		}})
	}
	v.readSections(true, 24, 20, 20)
	t.Pad = c.tokenID("image_token_id", "image_token_index", 151655)
	return v.finish()
}

// qwen35Tower describes the tower of Qwen3.5, also with experts: that of Qwen2-VL with larger patches and learned positions, which are
// interpolated.
func qwen35Tower(c *Config, width int) *vision {
	// Published files have the second word.
	v := beginQwen3(c, width, c.family+"_vision", c.family)
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
