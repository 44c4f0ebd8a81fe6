package arch

// internVLTower describes the InternViT tower of InternVL in the form of transformers. The library cuts a picture into up to twelve
// tiles and an overview; the engine has no such branch, so a picture is one tile.
func internVLTower(c *Config, width int) *vision {
	c.Inert("image_seq_length")
	v := beginVision(c, visionDefaults{1024, 4096, 24, 16, 448, 14, "gelu", 1e-6})
	if v == nil {
		return nil
	}
	v.Only("model_type", `"internvl_vision"`)
	t := v.t
	t.Mean, t.Deviation, t.Start, t.End = imageNetMean, imageNetDeviation, "<img>", "</img>"
	t.Loss = "a picture is one tile: the library cuts large ones into up to 12 tiles and an overview, which the engine cannot, so small print is lost"
	kind := "layer_norm"
	if s, ok := v.OptString("norm_type"); ok {
		kind = s
	}
	if v.rms = kind == "rms_norm"; !v.rms && kind != "layer_norm" {
		v.Refuse("norm_type", "%s is not supported, only %s", show(kind), quoted([]string{"layer_norm", "rms_norm"}))
	}
	v.Inert("drop_path_rate", "layer_scale_init_value", "projection_dropout")
	v.Only("use_mask_token", "false")
	bias, normed, positions := v.Bool("attention_bias", false), v.Bool("use_qk_norm", false), v.Bool("use_absolute_position_embeddings", true)
	pooled := v.Bool("use_mean_pooling", true)
	if last := v.layer(-1); last && !pooled {
		t.PostNorm = v.norm(v.prefix+"layernorm", t.Hidden)
		t.PostNorm.Centered, t.PostNorm.Beta = true, Weight{Tensor: v.prefix + "layernorm.bias", Rows: t.Hidden}
	} else if !pooled {
		v.skip(`layernorm\.`)
	}
	v.selectRows()
	v.cell(c)

	v.patches(v.prefix+"embeddings.patch_embeddings.projection", true)
	t.Class = v.view(View{Name: v.prefix + "embeddings.cls_token.vector", Tensor: v.prefix + "embeddings.cls_token", Rows: t.Hidden})
	if positions {
		name := v.prefix + "embeddings.position_embeddings"
		t.Positions = v.view(View{Name: name + ".matrix", Tensor: name, Rows: t.States(), Cols: t.Hidden})
	}
	names := visionNames{"encoder.layer.", "layernorm_before", "layernorm_after", "attention.", "projection_layer"}
	v.layersOf(names, func(p string) Layer {
		l := v.block(names, p, bias)
		if a := l[0].Block.(*Attention); normed {
			at := p + names.attention
			a.QNorm = &Norm{Gamma: Weight{Tensor: at + "q_norm.weight", Rows: t.Hidden}, Eps: 1e-6}
			a.KNorm = &Norm{Gamma: Weight{Tensor: at + "k_norm.weight", Rows: t.Hidden}, Eps: 1e-6}
		}
		l[0].Factors, l[1].Factors = Weight{Tensor: p + "lambda_1", Rows: t.Hidden}, Weight{Tensor: p + "lambda_2", Rows: t.Hidden}
		return l
	})
	v.project(width, true)
	n := t.Cell * t.Cell * t.Hidden
	t.Norm = &Norm{
		Gamma: Weight{Tensor: v.joiner + "layer_norm.weight", Rows: n}, Beta: Weight{Tensor: v.joiner + "layer_norm.bias", Rows: n},
		Eps: 1e-5, Centered: true, // the default of PyTorch: the file has no key for it
	}
	t.Pad, t.After = c.tokenID("image_token_id", "image_token_index", 151667), "\n"
	return v.finish()
}

// cell reads downsample_ratio: cells of 1/ratio x 1/ratio patches become one row.
func (v *vision) cell(c *Config) {
	const key = "downsample_ratio"
	ratio := 0.5
	if r, ok := c.OptFloat(key, 1e-3, 1); ok {
		ratio = r
	}
	t := v.t
	if t.Cell = int(1 / ratio); float64(t.Cell)*ratio != 1 && c.Good(key) {
		c.unsupported(key, "%g is not one divided by a whole number", ratio)
	}
	if t.Cell > 1 && !t.DropFirst && c.Good(key) {
		c.unsupported("vision_feature_select_strategy", "cells of patches without leaving out the first row are not supported")
	}
	if t.Side()%t.Cell != 0 && v.Good("image_size", "patch_size") && c.Good(key) {
		c.Wrong(key, "%d x %d patches do not divide into cells of %d x %d", t.Side(), t.Side(), t.Cell, t.Cell)
	}
}
