package arch

import "math"

// gemma3Tower describes the SigLIP tower of Gemma 3. The mean of a square of patches is a row. Tokens of a picture attend to each other.
func gemma3Tower(c *Config, width int) *vision {
	v := beginVision(c, visionDefaults{768, 3072, 12, 12, 224, 16, "gelu_pytorch_tanh", 1e-6})
	if v == nil {
		return nil
	}
	v.Only("model_type", `"siglip_vision_model"`)
	v.Inert("vision_use_head") // the states before it are used
	c.Inert("initializer_range")
	t := v.t
	t.Mean, t.Deviation, t.Start, t.End, v.marked = halves3, halves3, "<start_of_image>", "<end_of_image>", true
	t.Before, t.After = "\n\n", "\n\n"
	t.Loss = "the library puts two line ends before and after a picture; chat and serve do, prompts of your own have to have them"
	const key = "mm_tokens_per_image"
	rows := c.Range(key, 1, maxPixels, 256)
	side := int(math.Sqrt(float64(rows)))
	switch {
	case !c.Good(key) || !v.Good("image_size", "patch_size"):
	case side*side != rows:
		c.Wrong(key, "%d is not a square", rows)
	case t.Side()%side != 0:
		c.Wrong(key, "%d x %d patches do not divide into %d x %d squares", t.Side(), t.Side(), side, side)
	default:
		t.Pool = t.Side() / side
	}
	v.patches(v.prefix+"embeddings.patch_embedding", true)
	t.Positions = Weight{v.prefix + "embeddings.position_embedding.weight", t.States(), t.Hidden}
	names := visionNames{"encoder.layers.", "layer_norm1", "layer_norm2", "self_attn.", "out_proj"}
	v.layersOf(names, func(p string) Layer { return v.block(names, p, true) })
	t.PostNorm = v.norm(v.prefix+"post_layernorm", t.Hidden)
	v.skip(`(head\.|embeddings\.position_ids$)`)
	name := v.joiner + "mm_soft_emb_norm"
	t.Norm = &Norm{Gamma: v.view(View{Name: name + ".gamma", Tensor: name + ".weight", Rows: t.Hidden, Map: OnePlus}), Eps: v.eps}
	name = v.joiner + "mm_input_projection"
	t.In.Weight = v.view(View{Name: name + ".weight", Tensor: name + "_weight", Rows: width, Cols: t.Hidden, Transposed: true})
	t.Pad = c.tokenID("image_token_index", "image_token_id", 262144)
	return v.finish()
}

// marksOf is the number of columns that rows of so many elements get for marks. One is needed; with more of them, rows divide into the
// blocks of up to 64 elements that they divided into before, and codes of 4 bits into bytes.
func marksOf(hidden int) int {
	n := 2
	for n < 64 && hidden%(2*n) == 0 {
		n *= 2
	}
	return n
}
