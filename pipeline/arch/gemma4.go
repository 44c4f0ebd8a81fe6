package arch

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// describeGemma4 describes the text model of Gemma 4: norms before and after both blocks with plain weights, every head
// of q and k normalized, and of v without weights; unscaled scores; logits bounded by final_logit_softcapping. All
// layers but every sixth, or those that layer_types names, have a sliding_window. The others, which always include the
// last layer, have heads of global_head_dim (per_layer_config in newer files), only the first pairs of which are
// rotated ("proportional"), and with attention_k_eq_v num_global_key_value_heads, whose keys are also the values.
// layer_scalar multiplies the stream after every layer. With enable_moe_block, the MLP is the sum of one for every
// token and of top_k_experts of num_experts, chosen by a router with its own norm.
//
// The smallest models have a second table, with a vector for every layer (hidden_size_per_layer_input), and last layers that attend to the
// keys and values of the last layer of their kind before them (num_kv_shared_layers), with MLPs of twice the width (use_double_wide_mlp).
func describeGemma4(c *Config) (*Decoder, error) {
	b := beginGemma(c, `"vision"`) // only images have bidirectional attention
	b.onePlus = false
	b.mlpKeys("hidden_activation", "gelu_pytorch_tanh")
	a, bias := b.heads(256), b.Bool("attention_bias", false)
	a.Scale = 1
	b.d.LogitCap = b.cap("final_logit_softcapping", 0)
	slides := b.gemma4Slides()
	windows := b.spread(b.window(512), func(i int) bool { return slides[i] })
	full, sliding := b.gemma4Ropes(slides)
	dims, same := b.gemma4Heads(a, slides)
	n, k, width := b.gemma4Experts()
	inner := b.perLayer()
	wide, from := b.Bool("use_double_wide_mlp", false), b.lend(dims, slides)
	return b.finish(&a, func(i int, p string) Layer {
		x := b.gemma4Attention(p+"self_attn.", dims[i], bias, same && !slides[i])
		intermediate := b.intermediate
		if wide && i >= from {
			intermediate *= 2
		}
		x.OneWay = !slides[i]
		if x.Rope, x.Window = b.rope(full, x.HeadDim), windows[i]; slides[i] {
			x.Rope = b.rope(sliding, x.HeadDim)
		}
		layer := b.fourNorms(p, x, b.mlp(p+"mlp.", intermediate, false))
		if n > 0 {
			dense := layer[1]
			dense.PostNorm = b.norms(p + "post_feedforward_layernorm_1")
			layer[1].Norm, layer[1].Block = nil, &Sum{[]Branch{dense, {
				Block: b.gemma4Mixture(p, n, k, width), PostNorm: b.norms(p + "post_feedforward_layernorm_2"),
			}}}
		}
		if inner > 0 {
			layer = append(layer, Branch{PostNorm: b.norms(p + "post_per_layer_input_norm"), Block: &Injection{
				Activation: b.activation, At: i * inner,
				Gate: b.linear(p+"per_layer_input_gate", inner, b.d.Hidden, false), Out: b.linear(p+"per_layer_projection", b.d.Hidden, inner, false),
			}})
		}
		layer[len(layer)-1].Gain = vector(p+"layer_scalar", 1)
		return layer
	})
}

// perLayer describes the second table, and returns the width of its vectors; 0 without a table.
func (b *builder) perLayer() int {
	const size, rows = "hidden_size_per_layer_input", "vocab_size_per_layer_input"
	width := b.Range(size, 0, maxHidden, 256)
	if width == 0 {
		b.Inert(rows)
		return 0
	}
	d, all := b.d, b.layers*width
	if n := b.Range(rows, 1, maxVocab, 262144); n != d.Vocab && b.Good(rows, "vocab_size") {
		b.unsupported(rows, "%d is not supported, only the %d of vocab_size: a token has one row, with what both tables have of it", n, d.Vocab)
	}
	if b.Good(size, "num_hidden_layers") && int64(all)*int64(d.Vocab) > maxElements {
		b.unsupported(size, "a table of %d x %d elements is too large", d.Vocab, all)
	}
	table := b.prefix + "embed_tokens_per_layer.weight"
	d.PerLayer = &PerLayer{
		Width: width, Table: Weight{table, d.Vocab, all}, Projection: b.linear(b.prefix+"per_layer_model_projection", all, d.Hidden, false),
		Norm: b.norm(b.prefix+"per_layer_projection_norm", width), Scale: math.Sqrt(0.5), ProjectionScale: 1 / d.EmbeddingScale,
		TableScale: math.Sqrt(float64(width)), Pad: b.Range("pad_token_id", 0, maxVocab, 0),
	}
	if pad := d.PerLayer.Pad; pad >= d.Vocab && b.Good("pad_token_id", "vocab_size") {
		b.Wrong("pad_token_id", "%d is not in a vocabulary of %d", pad, d.Vocab)
	}
	d.Side = all
	d.Lookup = b.view(View{
		Name: b.prefix + "embed_tokens_and_per_layer.weight", Tensor: b.embedding + ".weight", Side: table,
		Rows: d.Vocab, Cols: d.Hidden + all, Zeros: all,
	})
	return width
}

// lend makes the last layers borrow keys and values, and returns the first of them: the number of layers if there are none.
func (b *builder) lend(dims []Attention, slides []bool) (from int) {
	const key = "num_kv_shared_layers"
	from = b.layers - b.Range(key, 0, maxLayers, 0)
	if from == b.layers || !b.Good(key, "num_hidden_layers") {
		return b.layers
	}
	if b.d.PerLayer == nil {
		b.Refuse(key, "%d is not supported without hidden_size_per_layer_input: transformers has no results to compare with", b.layers-from)
		return b.layers
	}
	last := map[bool]int{}
	for i := range max(from, 0) {
		last[slides[i]] = i
	}
	for i := max(from, 0); i < b.layers; i++ {
		k, there := last[slides[i]]
		if !there {
			b.Wrong(key, "layer %d has no layer of its kind before layer %d whose keys it could share", i, from)
			return b.layers
		}
		of := &dims[k]
		if !of.Lends {
			of.Lends, of.Lent = true, b.d.Side
			b.d.Side += 2 * of.KVHeads * of.HeadDim
		}
		dims[i].Borrows, dims[i].Lent = true, of.Lent
	}
	b.skip("not used by layers that share keys and values", false,
		`^`+regexp.QuoteMeta(b.prefix)+`layers\.(`+strings.Join(numbers(from, b.layers), "|")+`)\.self_attn\.([kv]_proj|[kv]_norm)\.`)
	return from
}

// numbers are those from lo to hi-1.
func numbers(lo, hi int) (all []string) {
	for i := lo; i < hi; i++ {
		all = append(all, strconv.Itoa(i))
	}
	return all
}

// gemma4Slides returns which layers have a window.
func (b *builder) gemma4Slides() []bool {
	slides, out := everyNth(6), make([]bool, b.layers)
	if types := b.layerTypes(fullAttention, slidingAttention); types != nil {
		slides = func(i int) bool { return types[i] == slidingAttention }
	}
	for i := range out[:b.layers-1] {
		out[i] = slides(i)
	}
	return out
}

// gemma4Ropes reads the rotary parameters of both kinds. If the file has any, it has those of every kind of layer.
func (b *builder) gemma4Ropes(slides []bool) (full, sliding ropeParams) {
	full, sliding = ropeParams{kind: "proportional", theta: 1e6, turning: 0.25, factor: 1}, ropeParams{kind: "default", theta: 1e4}
	o := b.Object("rope_parameters")
	if o == nil {
		return full, sliding
	}
	for _, x := range []struct {
		to   *ropeParams
		key  string
		used bool
	}{{&full, fullAttention, true}, {&sliding, slidingAttention, slices.Contains(slides, true)}} {
		switch kind := o.Object(x.key); {
		case kind != nil:
			*x.to = ropeRules{proportional: true}.readKind(b.Config, kind)
			if x.to.theta == 0 {
				kind.missing("rope_theta")
			}
		case x.used:
			o.missing(x.key)
		}
	}
	return full, sliding
}

// gemma4Heads returns the dimensions of attention in every layer, and whether the keys of full layers are their values.
func (b *builder) gemma4Heads(a Attention, slides []bool) (dims []Attention, same bool) {
	same = b.Bool("attention_k_eq_v", false)
	dims = make([]Attention, b.layers)
	const headDim, kvHeads, each = "global_head_dim", "num_global_key_value_heads", "per_layer_config"
	if o := b.Object(each); o != nil {
		for _, key := range []string{headDim, kvHeads} {
			if b.Has(key) {
				b.Refuse(key, "is not supported together with %s, which overrides it", each)
			}
			b.Inert(key)
		}
		for i := range dims {
			dims[i] = a
			if l := o.Object(strconv.Itoa(i)); l != nil {
				l.overrides(&dims[i])
			}
		}
		b.alikeHeads(dims, slides)
		return dims, same
	}
	global := a
	global.HeadDim = b.Range(headDim, 2, maxHeadDim, 512)
	if b.Null(headDim) {
		b.missing(headDim)
	}
	if n, ok := b.OptInt(kvHeads, maxHeads); ok && same {
		global.KVHeads = n
	}
	for i := range dims {
		if dims[i] = global; slides[i] {
			dims[i] = a
		}
		b.checkHeads(dims[i], headDim, kvHeads)
	}
	return dims, same
}

// overrides reads the overrides of a layer.
func (c *Config) overrides(a *Attention) {
	if n, ok := c.OptInt("head_dim", maxHeadDim); ok {
		a.HeadDim = n
	}
	if n, ok := c.OptInt("num_key_value_heads", maxHeads); ok {
		a.KVHeads = n
	}
}

// alikeHeads requires that layers of one kind have the same heads, as transformers does.
func (b *builder) alikeHeads(dims []Attention, slides []bool) {
	const key = "per_layer_config"
	first := map[bool]Attention{}
	for i, a := range dims {
		f, seen := first[slides[i]]
		if !seen {
			f, first[slides[i]] = a, a
		}
		if (a.HeadDim != f.HeadDim || a.KVHeads != f.KVHeads) && b.Good(key) {
			b.Wrong(key, "layer %d has %d heads of %d, others of its kind %d of %d", i, a.KVHeads, a.HeadDim, f.KVHeads, f.HeadDim)
		}
		b.checkHeads(a, key, key)
	}
}

// checkHeads checks dimensions from other keys than the usual ones.
func (b *builder) checkHeads(a Attention, headDim, kvHeads string) {
	if a.KVHeads > 0 && a.Heads%a.KVHeads != 0 && b.Good("num_attention_heads", "num_key_value_heads", kvHeads) {
		b.Wrong(kvHeads, "%d heads cannot share %d key-value heads", a.Heads, a.KVHeads)
	}
	if a.HeadDim%2 != 0 && b.Good("head_dim", headDim) {
		b.unsupported(headDim, "%d is odd, and rotation needs pairs", a.HeadDim)
	}
}

// gemma4Attention sets the projections and norms.
func (b *builder) gemma4Attention(p string, a Attention, bias, same bool) *Attention {
	x := b.projections(p, a, bias, bias)
	if same {
		x.V = Linear{}
	}
	b.headNorms(x, p+"q_norm", p+"k_norm")
	if a.Borrows {
		x.K, x.V, x.KNorm = Linear{}, Linear{}, nil
		return x
	}
	x.VNorm = &Norm{Gamma: b.ones("v_norm.ones."+strconv.Itoa(a.HeadDim), a.HeadDim), Eps: b.eps}
	return x
}

// gemma4Experts reads the keys of mixtures; n is 0 without them.
func (b *builder) gemma4Experts() (n, k, width int) {
	b.Only("expert_intermediate_size") // an older name, null in published files
	if !b.Bool("enable_moe_block", false) {
		b.Inert("num_experts", "top_k_experts", "moe_intermediate_size")
		return 0, 0, 0
	}
	n, k = b.Int("num_experts", maxExperts), b.Int("top_k_experts", maxExperts)
	if k > n && b.Good("num_experts", "top_k_experts") {
		b.Wrong("top_k_experts", "%d of %d experts", k, n)
	}
	return n, k, b.Int("moe_intermediate_size", maxIntermediate)
}

// gemma4Mixture returns the mixture of a layer, p being "model.layers.3.". The router's norm has no weights; its result
// is multiplied by router.scale and divided by sqrt(hidden_size).
func (b *builder) gemma4Mixture(p string, n, k, width int) *Experts {
	scale := View{
		Name: p + "router.gamma", Tensor: p + "router.scale", Rows: b.d.Hidden,
		Runs: []Run{{Count: b.d.Hidden, Scale: 1 / b.d.EmbeddingScale}},
	}
	return &Experts{
		RouterNorm: &Norm{Gamma: b.view(scale), Eps: b.eps}, Norm: b.norms(p + "pre_feedforward_layernorm_2"),
		Router: b.linear(p+"router.proj", n, b.d.Hidden, false), Scoring: Softmax, TopK: k, Normalize: true,
		Gains:   vector(p+"router.per_expert_scale", n),
		Experts: b.experts(p+"experts.", n, width, usualExperts),
	}
}
