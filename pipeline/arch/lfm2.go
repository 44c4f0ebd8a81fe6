package arch

// lfm2 is Liquid's LFM2: short convolutions of conv_L_cache taps, see [ShortConv], with biases if conv_bias is set, and
// attention with normalized heads in the layers that layer_types calls full_attention (or full_attn_idxs; by default
// all). The epsilon of norms is norm_eps. With block_auto_adjust_ff_dim, the MLP has two thirds of intermediate_size
// (formerly block_ff_dim), times block_ffn_dim_multiplier, rounded up to block_multiple_of. With experts, the layers
// from num_dense_layers on are mixtures: sigmoid, chosen with expert_bias, normalized if norm_topk_prob is set, times
// routed_scaling_factor.
type lfm2 struct{ experts bool }

// convLayer is the name of a short convolution in layer_types.
const convLayer = "conv"

func (f lfm2) describe(c *Config) (*Decoder, error) {
	b := begin(c, "norm_eps", 1e-5)
	b.finalNorm = b.prefix + "embedding_norm"
	b.tied(true)
	if b.Has("tie_embedding") {
		b.d.Tied = b.Bool("tie_embedding", true)
	}
	b.Inert("rms_norm_eps") // not used
	a, rope := b.heads(0), ropeRules{theta: 1e6}.read(c)
	bias, taps := b.Bool("conv_bias", false), b.Range("conv_L_cache", 1, 64, 3)
	conv := b.lfm2Layers(f.experts)
	b.lfm2Training(&a)
	ff := f.feedForward(b)
	return b.finish(&a, func(i int, p string) Layer {
		layer := Layer{{Norm: b.norms(p + "operator_norm")}, {Norm: b.norms(p + "ffn_norm"), Block: ff(i, p+"feed_forward.")}}
		if conv(i) {
			q := p + "conv."
			s := &ShortConv{
				In:   b.linear(q+"in_proj", 3*b.d.Hidden, b.d.Hidden, bias),
				Taps: b.convTaps(q+"conv.weight", b.d.Hidden, taps),
				Out:  b.linear(q+"out_proj", b.d.Hidden, b.d.Hidden, bias),
			}
			if bias {
				s.Bias = vector(q+"conv.bias", b.d.Hidden)
			}
			layer[0].Block = s
			return layer
		}
		q := p + "self_attn."
		x := b.projections(q, a, false, false)
		x.O = b.linear(q+"out_proj", b.d.Hidden, a.Heads*a.HeadDim, false)
		x.Rope = b.rope(rope, a.HeadDim)
		b.headNorms(x, q+"q_layernorm", q+"k_layernorm")
		layer[0].Block = x
		return layer
	})
}

// lfm2Layers returns which layers are convolutions.
func (b *builder) lfm2Layers(listed bool) func(i int) bool {
	if types := b.layerTypes(fullAttention, convLayer); types != nil {
		b.Inert("full_attn_idxs")
		return func(i int) bool { return types[i] == convLayer }
	}
	if listed && b.Good("layer_types") {
		b.missing("layer_types")
	}
	if !b.Has("full_attn_idxs") {
		b.Inert("full_attn_idxs")
		return func(int) bool { return false }
	}
	full := b.chosen("full_attn_idxs")
	return func(i int) bool { return !full[i] }
}

// lfm2Training checks the keys of the first checkpoints that the class does not have.
func (b *builder) lfm2Training(a *Attention) {
	b.Inert("block_mlp_init_scale", "block_out_init_scale", "block_use_xavier_init", "conv_use_xavier_init")
	b.Only("block_use_swiglu", "true")
	b.Only("use_pos_enc", "true")
	b.same(float64(b.d.Hidden), "block_dim", "conv_dim", "conv_dim_out")
	b.same(float64(a.Heads), "num_heads")
	b.same(b.eps, "block_norm_eps")
	if b.Has("theta") {
		b.same(b.number("rope_theta", 1, 1e15, 1e6), "theta")
	}
}

// feedForward reads the keys of the second block, and returns a function that makes it.
func (f lfm2) feedForward(b *builder) func(i int, p string) Block {
	plain := func(p string, n int) *MLP {
		return &MLP{
			Intermediate: n, Activation: SiLU,
			Gate: b.linear(p+"w1", n, b.d.Hidden, false), Up: b.linear(p+"w3", n, b.d.Hidden, false),
			Down: b.linear(p+"w2", b.d.Hidden, n, false),
		}
	}
	key := "intermediate_size"
	if b.Has("block_ff_dim") {
		b.Inert(key)
		key = "block_ff_dim"
	}
	b.intermediate = b.Int(key, maxIntermediate)
	if !f.experts {
		multiple, factor := b.Range("block_multiple_of", 1, maxIntermediate, 256), b.number("block_ffn_dim_multiplier", 1e-3, 1e3, 1)
		if b.Bool("block_auto_adjust_ff_dim", true) {
			n := 2 * b.intermediate / 3
			if !b.Null("block_ffn_dim_multiplier") {
				n = int(factor * float64(n))
				n = multiple * ((n + multiple - 1) / multiple)
			}
			b.intermediate = max(n, 1)
		}
		return func(_ int, p string) Block { return plain(p, b.intermediate) }
	}
	n, k := b.expertKeys("num_experts_per_tok", 4, 32, "num_experts")
	size := b.Range("moe_intermediate_size", 1, maxIntermediate, 1792)
	dense := b.Range("num_dense_layers", 0, maxLayers, 2)
	normalize, bias := b.Bool("norm_topk_prob", true), b.Bool("use_expert_bias", true)
	scale := b.number("routed_scaling_factor", 1e-6, 1e6, 1)
	b.routerKeys()
	names := expertTensors{Gate: "w1", Up: "w3", Down: "w2", GateUp: "gate_up_proj", StackedDown: "down_proj"}
	return func(i int, p string) Block {
		if i < dense {
			return plain(p, b.intermediate)
		}
		e := &Experts{
			Router: b.linear(p+"gate", n, b.d.Hidden, false), Scoring: Sigmoid, TopK: k,
			Normalize: normalize, Epsilon: 1e-6, Scale: orZero(scale),
			Experts: b.experts(p+"experts.", n, size, names),
		}
		if bias {
			e.Correction = vector(p+"expert_bias", n)
		}
		return e
	}
}
