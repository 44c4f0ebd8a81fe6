package arch

import (
	"maps"
	"slices"
	"strconv"
)

// gridKeys are the names of keys in which towers differ that read pictures of any size.
type gridKeys struct {
	modelTypes []string // the first one is that of the library
	hidden     string   // the width of the layers
	rows       string   // that of the rows
}

// beginGrid reads the keys of vision_config that towers share which read pictures of any size, in patches that follow one another
// in cells of spatial_merge_size x spatial_merge_size. missing are the values of the library's class. It returns nil after a problem
// with the object itself.
func beginGrid(c *Config, width int, k gridKeys, missing map[string]int) *vision {
	v := &vision{Config: c.Object("vision_config"), outer: c}
	if v.Config == nil {
		c.missing("vision_config")
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(missing)) {
		v.provide(key, missing[key])
	}
	t := &Tower{
		ModelType: k.modelTypes[0], Grid: true, Hidden: v.Int(k.hidden, maxHidden), Patch: v.square("patch_size"),
		Frames: v.square("temporal_patch_size"), Cell: v.Int("spatial_merge_size", 16), Mean: clipMean, Deviation: clipDeviation,
		Start: "<|vision_start|>", End: "<|vision_end|>",
	}
	v.t = t
	words := make([]string, len(k.modelTypes))
	for i, word := range k.modelTypes {
		words[i] = strconv.Quote(word)
	}
	v.Only("model_type", words...)
	v.layers, v.heads = v.Int("depth", maxLayers), v.Int("num_heads", maxHeads)
	v.Only("in_channels", "3")
	v.Only("in_chans", "3")
	v.Only("temporal_patch_size", "2") // the engine gives a picture twice
	v.Only("spatial_merge_size", "2")
	v.Only("patch_size", strconv.Itoa(missing["patch_size"]))
	v.Inert("initializer_range", "spatial_patch_size", "architectures")
	if n := v.Int(k.rows, maxHidden); n != width && v.Good(k.rows) && c.Good("hidden_size") {
		v.Wrong(k.rows, "%d is not the %d of the text model", n, width)
	}
	if v.Good(k.hidden, "num_heads") && t.Hidden%(4*v.heads) != 0 {
		v.Wrong("num_heads", "%s %d does not divide into %d heads of a multiple of 4", k.hidden, t.Hidden, v.heads)
	}
	v.eps = 1e-6
	return v
}

// axial reads the rotation of heads of dim elements by the row and by the column of a patch: the first half of the pairs by the row. theta is
// the base where the file says nothing else.
func (v *vision) axial(theta float64, dim int) *Rope {
	if r := v.Object("rope_parameters"); r != nil {
		r.Only("rope_type", `"axial"`, `"default"`)
		if f, ok := r.OptFloat("rope_theta", 1, 1e15); ok {
			theta = f
		}
	}
	r := &Rope{Type: "axial", Dim: dim, Scale: 1}
	for axis := range 2 {
		for _, f := range inverseFrequencies(theta, dim/2) {
			r.InvFreq, r.Axes = append(r.InvFreq, f), append(r.Axes, axis)
		}
	}
	return r
}

// gridLayers describes the layers, whose queries, keys and values are one matrix; bias says whether attention has biases. more changes
// a layer.
func (v *vision) gridLayers(bias bool, more func(i int, p string, a *Attention, l Layer)) {
	names := visionNames{"blocks.", "norm1", "norm2", "attn.", "proj"}
	rope := v.axial(10000, v.t.Hidden/v.heads)
	for i := range v.layers {
		p := v.prefix + names.layers + strconv.Itoa(i) + "."
		l := v.block(names, p, true)
		a := l[0].Block.(*Attention)
		a.Rope = rope
		for k, x := range []*Linear{&a.Q, &a.K, &a.V} {
			if v.apart {
				*x = linearOf(p+"attn."+[]string{"q", "k", "v"}[k], v.t.Hidden, v.t.Hidden, bias)
				continue
			}
			*x = v.third(p+"attn.qkv", v.t.Hidden, k, bias)
		}
		if !bias {
			a.O.Bias = Weight{}
		}
		if more != nil {
			more(i, p, a, l)
		}
		v.t.Layers = append(v.t.Layers, l)
	}
}

// third is one of three equal parts of the rows of a linear layer from n elements to three times as many.
func (v *vision) third(of string, n, k int, bias bool) Linear {
	name := of + []string{".q", ".k", ".v"}[k]
	runs := []Run{{Start: k * n, Count: n}}
	l := Linear{Weight: v.view(View{Name: name + ".weight", Tensor: of + ".weight", Rows: n, Cols: n, Runs: runs})}
	if bias {
		l.Bias = v.view(View{Name: name + ".bias", Tensor: of + ".bias", Rows: n, Runs: runs})
	}
	return l
}

// gated is an MLP with a gate.
func (v *vision) gated(p string, bias bool) *MLP {
	n, hidden := v.intermediate, v.t.Hidden
	return &MLP{
		Intermediate: n, Activation: v.activation,
		Gate: linearOf(p+"gate_proj", n, hidden, bias), Up: linearOf(p+"up_proj", n, hidden, bias),
		Down: linearOf(p+"down_proj", hidden, n, bias),
	}
}

// merge describes a projector of two matrices to rows of width elements.
func (v *vision) merge(first, second string, width int) {
	t := v.t
	n := t.Cell * t.Cell * t.Hidden
	t.In, t.Out = linearOf(v.prefix+first, n, n, true), linearOf(v.prefix+second, width, n, true)
	t.Activation = GELU
}

// readSections reads mrope_section, the numbers of pairs of the text model that time, row and column of a token turn. Interleaved, rows
// and columns turn every third pair, and time the others.
func (v *vision) readSections(interleaved bool, missing ...int) {
	c := v.outer
	v.text = c
	if inner, ok := c.fields.values["text_config"].(*object); ok {
		v.text = newConfig(inner, "text_config.", c.record)
	}
	v.rope, v.sections, v.interleaved = "rope_parameters", missing, interleaved
	for _, key := range []string{"rope_parameters", "rope_scaling"} {
		o, ok := v.text.fields.values[key].(*object)
		if !ok {
			continue
		}
		r := newConfig(o, key+".", &record{}) // the text model reports values of the wrong type
		if v.rope = key; r.Has("mrope_section") {
			v.sections = r.Ints("mrope_section", 0, maxHeadDim)
		}
		if x := r.Bool("mrope_interleaved", interleaved); x != interleaved {
			v.text.unsupported(key, "mrope_interleaved %t is not supported", x)
		}
	}
	if len(v.sections) != 3 {
		v.text.Wrong(v.rope, "mrope_section has %d numbers instead of 3", len(v.sections))
	}
}

// turn gives the rotary tables of the text model their axes.
func (v *vision) turn(d *Decoder) error {
	if len(v.sections) != 3 {
		return problems{scope: configName, list: v.text.problems}
	}
	for _, r := range d.Ropes {
		if v.interleaved {
			r.Axes = make([]int, len(r.InvFreq))
			for j := range r.Axes {
				if axis := j % 3; j < 3*v.sections[axis] {
					r.Axes[j] = axis
				}
			}
		}
		for axis, n := range v.sections {
			if !v.interleaved {
				r.Axes = append(r.Axes, slices.Repeat([]int{axis}, n)...)
			}
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
