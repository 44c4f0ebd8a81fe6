package arch

import (
	"math"
	"slices"
	"strconv"
)

// qwen2VLTower describes the tower of Qwen2-VL, which reads pictures of any size, in patches that follow one another in cells of
// spatial_merge_size x spatial_merge_size.
func qwen2VLTower(c *Config, width int) *vision {
	v := &vision{Config: c.Object("vision_config"), outer: c}
	if v.Config == nil {
		c.missing("vision_config")
		return nil
	}
	for key, n := range map[string]int{
		"depth": 32, "embed_dim": 1280, "num_heads": 16, "patch_size": 14, "temporal_patch_size": 2, "spatial_merge_size": 2, "hidden_size": 3584, "mlp_ratio": 4,
	} {
		v.provide(key, n)
	}
	t := &Tower{
		Grid: true, Hidden: v.Int("embed_dim", maxHidden), Patch: v.square("patch_size"), Frames: v.Int("temporal_patch_size", 16),
		Cell: v.Int("spatial_merge_size", 16), Mean: clipMean, Deviation: clipDeviation,
	}
	v.t = t
	t.ModelType = "qwen2_vl_vision"
	v.Only("model_type", `"qwen2_vl_vision"`, `"qwen2_vl"`) // published files have the second
	v.layers, v.heads = v.Int("depth", maxLayers), v.Int("num_heads", maxHeads)
	v.intermediate = t.Hidden * v.Int("mlp_ratio", 64)
	v.activation = v.function("hidden_act", "quick_gelu")
	v.Only("in_channels", "3")
	v.Only("in_chans", "3")
	v.Only("temporal_patch_size", "2") // the engine gives a picture twice
	v.Only("spatial_merge_size", "2")
	v.Only("patch_size", "14")
	v.Inert("initializer_range", "spatial_patch_size", "architectures")
	if n := v.Int("hidden_size", maxHidden); n != width && v.Good("hidden_size") && c.Good("hidden_size") {
		v.Wrong("hidden_size", "%d is not the %d of the text model", n, width)
	}
	if v.Good("embed_dim", "num_heads") && t.Hidden%(4*v.heads) != 0 {
		v.Wrong("num_heads", "embed_dim %d does not divide into %d heads of a multiple of 4", t.Hidden, v.heads)
	}
	theta := 10000.0
	if r := v.Object("rope_parameters"); r != nil {
		r.Only("rope_type", `"axial"`, `"default"`)
		if f, ok := r.OptFloat("rope_theta", 1, 1e15); ok {
			theta = f
		}
	}
	v.readSections(c)
	v.prefix, v.eps = v.locate("", "visual."), 1e-6
	v.patches(v.prefix+"patch_embed.proj", false)
	rope := axial(t.Hidden/v.heads, theta)
	names := visionNames{"blocks.", "norm1", "norm2", "attn.", "proj"}
	for i := range v.layers {
		p := v.prefix + names.layers + strconv.Itoa(i) + "."
		l := v.block(names, p, true)
		a := l[0].Block.(*Attention)
		a.Rope = rope
		for k, x := range []*Linear{&a.Q, &a.K, &a.V} {
			*x = v.third(p+"attn.qkv", k)
		}
		t.Layers = append(t.Layers, l)
	}
	t.PostNorm = v.norm(v.prefix+"merger.ln_q", t.Hidden)
	n := t.Cell * t.Cell * t.Hidden
	t.In, t.Out = linearOf(v.prefix+"merger.mlp.0", n, n, true), linearOf(v.prefix+"merger.mlp.2", width, n, true)
	t.Activation = GELU
	t.Pad = c.tokenID("image_token_id", "image_token_index", 151655)
	t.Start, t.End = "<|vision_start|>", "<|vision_end|>"
	return v.finish()
}

// third is one of three equal parts of the rows of a linear layer with a bias.
func (v *vision) third(of string, k int) Linear {
	name, n := of+[]string{".q", ".k", ".v"}[k], v.t.Hidden
	runs := []Run{{Start: k * n, Count: n}}
	return Linear{
		Weight: v.view(View{Name: name + ".weight", Tensor: of + ".weight", Rows: n, Cols: n, Runs: runs}),
		Bias:   v.view(View{Name: name + ".bias", Tensor: of + ".bias", Rows: n, Runs: runs}),
	}
}

// axial is the rotation of heads of dim elements by the row and by the column of a patch: the first half of the pairs by the row.
func axial(dim int, theta float64) *Rope {
	r := &Rope{Type: "axial", Dim: dim, Scale: 1}
	for axis := range 2 {
		for j := range dim / 4 {
			r.InvFreq, r.Axes = append(r.InvFreq, math.Pow(theta, -float64(2*j)/float64(dim/2))), append(r.Axes, axis)
		}
	}
	return r
}

// readSections reads mrope_section, the numbers of pairs of the text model that time, row and column of a token turn.
func (v *vision) readSections(c *Config) {
	v.text = c
	if inner, ok := c.fields.values["text_config"].(*object); ok {
		v.text = newConfig(inner, "text_config.", c.record)
	}
	v.rope, v.sections = "rope_parameters", []int{16, 24, 24}
	for _, key := range []string{"rope_parameters", "rope_scaling"} {
		o, ok := v.text.fields.values[key].(*object)
		if !ok {
			continue
		}
		r := newConfig(o, key+".", &record{}) // the text model reports values of the wrong type
		if v.rope = key; r.Has("mrope_section") {
			v.sections = r.Ints("mrope_section", 0, maxHeadDim)
		}
		if r.Bool("mrope_interleaved", false) {
			v.text.unsupported(key, "mrope_interleaved is not supported")
		}
	}
	if len(v.sections) != 3 {
		v.text.Wrong(v.rope, "mrope_section has %d numbers instead of 3", len(v.sections))
	}
}

// turn gives the rotary tables of the text model their axes.
func (v *vision) turn(d *Decoder) error {
	for _, r := range d.Ropes {
		for axis, n := range v.sections {
			r.Axes = append(r.Axes, slices.Repeat([]int{axis}, n)...)
		}
		if len(r.Axes) != len(r.InvFreq) {
			v.text.Wrong(v.rope, "mrope_section %v does not add up to the %d pairs of a head", v.sections, len(r.InvFreq))
		}
		if r.Long != nil {
			v.text.unsupported(v.rope, "longrope together with positions of several axes is not supported")
		}
	}
	for _, l := range d.Layers {
		for b := range l.Blocks() {
			if a, ok := b.(*Attention); ok && a.Window != 0 && v.text.Good("use_sliding_window") {
				v.text.unsupported("use_sliding_window", "windows together with positions of several axes are not supported")
			}
		}
	}
	if len(v.text.problems) > 0 {
		return problems{scope: configName, list: v.text.problems}
	}
	return nil
}
