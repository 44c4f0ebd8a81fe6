package arch

import (
	"math"
	"strconv"
)

// gemma4Patches is how many patches the engine gives to the tower of Gemma 4, and gemma4Edge is how many an edge has at most: a picture is
// at least a cell wide.
const gemma4Patches, gemma4Edge = 2520, 840

// gemma4Tower describes the tower of Gemma 4, which reads pictures of any size: learned positions for rows and for columns, layers like those
// of the text model, whose heads turn by column and row, and for each row the mean of 3 x 3 states. With use_bidirectional_attention
// "vision" tokens of a picture attend to later ones of it, in text layers with a window. It returns nil for a model without a tower.
func gemma4Tower(c *Config, width int) *vision {
	v := &vision{Config: c.Object("vision_config"), outer: c}
	if v.Config == nil {
		return nil
	}
	for key, n := range map[string]int{
		"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 16, "num_attention_heads": 12, "num_key_value_heads": 12, "head_dim": 64,
		"patch_size": 16, "pooling_kernel_size": 3, "position_embedding_size": 10240,
	} {
		v.provide(key, n)
	}
	v.Only("model_type", `"gemma4_vision"`)
	v.Only("patch_size", "16")         // as the engine makes patches
	v.Only("pooling_kernel_size", "3") // as the engine counts rows
	v.clipped = v.Bool("use_clipped_linears", false)
	v.Only("attention_bias", "false")
	v.Inert("architectures", "attention_dropout", "default_output_length", "global_head_dim", "initializer_range", "max_position_embeddings")
	t := &Tower{
		ModelType: "gemma4_vision", Grid: true, Pixels: true, Frames: 1, Patch: 16, Cell: 3, Pool: 3, Padded: gemma4Patches, Signed: true,
		Hidden: v.Int("hidden_size", maxHidden), Deviation: [3]float64{1, 1, 1}, Start: "<|image>", End: "<image|>",
	}
	v.t, v.rms, v.eps = t, true, 1e-6
	v.layers, v.intermediate = v.Int("num_hidden_layers", maxLayers), v.Int("intermediate_size", maxIntermediate)
	v.activation = v.function("hidden_activation", "gelu_pytorch_tanh")
	if v.Has("rms_norm_eps") {
		v.eps = v.Float("rms_norm_eps", 1e-30, 1)
	}
	v.prefix, v.joiner = v.locate("patch_embedder.", "vision_tower."), v.locate("", "embed_vision.")
	p := v.prefix + "patch_embedder."
	t.Embedding = linearOf(p+"input_proj", t.Hidden, 3*t.Patch*t.Patch, false)
	const positions = "position_embedding_size"
	n := v.Int(positions, maxPatches)
	if n < gemma4Edge && v.Good(positions) {
		v.unsupported(positions, "%d are not supported, only %d and more, because so many patches may be in a row", n, gemma4Edge)
	}
	for i, name := range []string{".columns", ".rows"} { // x is first
		table := p + "position_embedding_table"
		t.Places[1-i] = v.view(View{
			Name: table + name, Tensor: table, Rows: gemma4Edge, Cols: t.Hidden, Runs: []Run{{Start: i * n, Count: gemma4Edge, Spare: max(0, n-gemma4Edge)}},
		})
	}
	v.gemma4Layers()
	t.Gain = math.Sqrt(float64(t.Hidden))
	if v.Bool("standardize", false) {
		t.Center, t.Spread = vector(v.prefix+"std_bias", t.Hidden), vector(v.prefix+"std_scale", t.Hidden)
	}
	t.Norm = &Norm{Gamma: v.onesOf(v.joiner+"embedding_pre_projection_norm.ones", t.Hidden), Eps: v.eps}
	t.In = linearOf(v.joiner+"embedding_projection", width, t.Hidden, false)
	t.Pad = c.tokenID("image_token_id", "image_token_index", 258880)
	if text, ok := c.fields.values["text_config"].(*object); ok {
		v.marked = text.values["use_bidirectional_attention"] == "vision"
	}
	return v.finish()
}

// gemma4Layers describes the layers. The first half of a head turns by column and the second by row, each as a head of its own; in the order
// that is given to queries and keys, whole heads turn, the first pairs by row.
func (v *vision) gemma4Layers() {
	const count, shared, width = "num_attention_heads", "num_key_value_heads", "head_dim"
	a := Attention{Heads: v.Int(count, maxHeads), KVHeads: v.Int(shared, maxHeads), HeadDim: v.Int(width, maxHeadDim), Bidirectional: true, Scale: 1}
	if a.HeadDim%4 != 0 && v.Good(width) {
		v.unsupported(width, "%d is not a multiple of 4: half of a head turns by the column and half by the row", a.HeadDim)
	}
	if a.Heads%a.KVHeads != 0 && v.Good(count, shared) {
		v.Wrong(shared, "%d heads cannot share %d key-value heads", a.Heads, a.KVHeads)
	}
	a.Rope = v.axial(100, a.HeadDim)
	hidden := v.t.Hidden
	a.VNorm = &Norm{Gamma: v.onesOf(v.prefix+"v_norm.ones", a.HeadDim), Eps: v.eps}
	for i := range v.layers {
		p := v.prefix + "encoder.layers." + strconv.Itoa(i) + "."
		at, of := a, p+"self_attn."
		turned := func(name string, heads, cols int) Weight {
			return v.view(View{
				Name: name + ".turned.weight", Tensor: name + ".weight", Rows: heads * a.HeadDim, Cols: cols, Runs: columnsAndRows(heads, a.HeadDim),
			})
		}
		matrix := func(name string, rows, cols int) Linear {
			return v.bounded(name, linearOf(name+".linear", rows, cols, false))
		}
		at.Q = v.bounded(of+"q_proj", Linear{Weight: turned(of+"q_proj.linear", a.Heads, hidden)})
		at.K = v.bounded(of+"k_proj", Linear{Weight: turned(of+"k_proj.linear", a.KVHeads, hidden)})
		at.V, at.O = matrix(of+"v_proj", a.KVHeads*a.HeadDim, hidden), matrix(of+"o_proj", hidden, a.Heads*a.HeadDim)
		at.QNorm, at.KNorm = &Norm{Gamma: turned(of+"q_norm", 1, 0), Eps: v.eps}, &Norm{Gamma: turned(of+"k_norm", 1, 0), Eps: v.eps}
		norm := func(name string) *Norm { return v.norm(p+name, hidden) }
		v.t.Layers = append(v.t.Layers, Layer{
			{Norm: norm("input_layernorm"), Block: &at, PostNorm: norm("post_attention_layernorm")},
			{Norm: norm("pre_feedforward_layernorm"), PostNorm: norm("post_feedforward_layernorm"), Block: &MLP{
				Intermediate: v.intermediate, Activation: v.activation,
				Gate: matrix(p+"mlp.gate_proj", v.intermediate, hidden), Up: matrix(p+"mlp.up_proj", v.intermediate, hidden),
				Down: matrix(p+"mlp.down_proj", hidden, v.intermediate),
			}},
		})
	}
}

// bounded adds the bounds of a matrix by its name, if matrices have them.
func (v *vision) bounded(name string, l Linear) Linear { return bounded(v.view, v.clipped, name, l) }

func bounded(view func(View) Weight, clipped bool, name string, l Linear) Linear {
	if !clipped {
		return l
	}
	bound := func(of string) Weight {
		return view(View{Name: name + "." + of + ".flat", Tensor: name + "." + of, Rows: 1, Flat: true})
	}
	l.Clip = &Clip{InLow: bound("input_min"), InHigh: bound("input_max"), OutLow: bound("output_min"), OutHigh: bound("output_max")}
	return l
}

// columnsAndRows are the rows of heads whose halves turn by column and by row, in the order in which whole heads turn by row and by column.
func columnsAndRows(heads, dim int) (runs []Run) {
	quarter := dim / 4
	for h := range heads {
		for _, k := range []int{2, 0, 3, 1} {
			runs = append(runs, Run{Start: h*dim + k*quarter, Count: quarter})
		}
	}
	return runs
}

// onesOf is a vector of ones.
func (v *vision) onesOf(name string, n int) Weight { return v.view(View{Name: name, Rows: n}) }
