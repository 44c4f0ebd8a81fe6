package arch

import (
	"strconv"
)

// miniCPMVTexts are the text models of MiniCPM-V by "version". Earlier ones give a patch another position.
var miniCPMVTexts = map[float64]func(c *Config) (*Decoder, error){2.6: describeQwen2, 4: describeLlama, 4.5: describeQwen3}

// describeMiniCPMVText describes the text model, whose keys are those of the class that the code of the checkpoint builds on.
func describeMiniCPMVText(c *Config) (*Decoder, error) {
	const key = "version"
	describe, ok := miniCPMVTexts[c.Float(key, 0, 100)]
	if !ok {
		if c.Good(key) {
			c.unsupported(key, "%s is not supported, only 2.6, 4.0 and 4.5", show(c.fields.values[key]))
		}
		return nil, problems{scope: configName, list: c.problems}
	}
	return describe(c)
}

const (
	// slicePatches is the edge of the square of learned positions, and sliceRows the number of rows of a view. Both are built into engines, as
	// are the area of a view, of 448 x 448 pixels, and that there are at most 9 slices.
	slicePatches, sliceRows = 70, 64
	// gatherDim is the least number of elements of a head that gathers rows, which is in the code of the checkpoints.
	gatherDim = 128
)

// miniCPMVTower describes the tower of MiniCPM-V 2.6, 4.0 and 4.5, whose code is not in transformers: SigLIP for an overview and slices of a
// picture, and a layer in which queries of their own gather what the patches of a view say.
func miniCPMVTower(c *Config, width int) *vision {
	v := beginVision(c, visionDefaults{768, 3072, 12, 12, 224, 16, "gelu_pytorch_tanh", 1e-6})
	if v == nil {
		return nil
	}
	c.code("MiniCPMVConfig", "MiniCPMV")
	c.Only("slice_mode", "true")
	c.Only("use_image_id", "true")
	c.Only("query_num", strconv.Itoa(sliceRows))
	c.Only("patch_size", strconv.Itoa(v.t.Patch))
	c.Inert("batch_3d_resampler", "batch_vision_input", "image_size", "vision_batch_size") // clips, and how the code calls the tower
	if s := c.Object("slice_config"); s != nil {
		s.Only("max_slice_nums", "9")
		s.Only("scale_resolution", "448")
		s.Only("patch_size", strconv.Itoa(v.t.Patch))
		s.Inert("model_type")
	}
	v.Only("model_type", `"siglip"`, `"siglip_vision_model"`)
	if v.t.Size != slicePatches*v.t.Patch && v.Good("image_size", "patch_size") {
		v.unsupported("image_size", "%d is not supported, only %d, which are %d patches: engines give positions in a square of them",
			v.t.Size, slicePatches*v.t.Patch, slicePatches)
	}
	if c.Bool("drop_vision_last_layer", false) {
		v.layers--
	}
	v.prefix, v.joiner = "vpm.", "resampler."
	t := v.t
	t.ModelType, t.Grid, t.Frames, t.Size = "siglip", true, 1, 0
	t.Mean, t.Deviation = halves3, halves3
	t.Start, t.End, t.After, t.PadWord = "<image>", "</image>", "\n", "<unk>"
	v.patches(v.prefix+"embeddings.patch_embedding", true)
	t.Positions = Weight{v.prefix + "embeddings.position_embedding.weight", slicePatches * slicePatches, t.Hidden}
	names := visionNames{"encoder.layers.", "layer_norm1", "layer_norm2", "self_attn.", "out_proj"}
	v.layersOf(names, func(p string) Layer { return v.block(names, p, true) })
	t.PostNorm = v.norm(v.prefix+"post_layernorm", t.Hidden)
	v.slices(width)
	return v.finish()
}

// slices describes how rows of width elements are gathered.
func (v *vision) slices(width int) {
	t, heads := v.t, max(1, width/gatherDim)
	if (width%heads != 0 || width%4 != 0) && v.outer.Good("hidden_size") {
		v.outer.unsupported("hidden_size", "%d is not supported, which does not divide into %d heads and into 4", width, heads)
	}
	v.eps = 1e-6 // in the code
	at := v.joiner + "attn."
	part := func(k int) Linear {
		name, runs := at+[]string{"q", "k", "v"}[k]+"_proj", []Run{{Start: k * width, Count: width}}
		return Linear{
			Weight: v.view(View{Name: name + ".weight", Tensor: at + "in_proj_weight", Rows: width, Cols: width, Runs: runs}),
			Bias:   v.view(View{Name: name + ".bias", Tensor: at + "in_proj_bias", Rows: width, Runs: runs}),
		}
	}
	s := &Slices{
		Frequencies: inverseFrequencies(10000, width/2),
		Number:      [2]string{"<image_id>", "</image_id>"}, Slice: [2]string{"<slice>", "</slice>"},
		Enter:   linearOf(v.joiner+"kv_proj", width, t.Hidden, false),
		Queries: Weight{v.joiner + "query", sliceRows, width}, QueryNorm: v.norm(v.joiner+"ln_q", width), KeyNorm: v.norm(v.joiner+"ln_kv", width),
		Attention: Attention{
			Heads: heads, KVHeads: heads, HeadDim: width / heads, Bidirectional: true, Q: part(0), K: part(1), V: part(2),
			O: linearOf(at+"out_proj", width, width, true),
		},
	}
	t.Slices, t.Projector.Norm = s, v.norm(v.joiner+"ln_post", width)
	t.In.Weight = v.view(View{
		Name: v.joiner + "proj.weight", Tensor: v.joiner + "proj", Rows: width, Cols: width, Runs: []Run{{Count: width}}, Transposed: true,
	})
}
