package arch

// qwen35 is the text model of Qwen 3.5: of every four layers (full_attention_interval, or layer_types) three are gated
// delta rules, see [DeltaNet], with linear_num_key_heads of linear_key_head_dim and linear_num_value_heads of
// linear_value_head_dim after a convolution of linear_conv_kernel_dim. The fourth is attention whose output is
// multiplied by the sigmoid of a gate, the second half of q_proj's rows for every head; a quarter of the head is
// rotated (partial_rotary_factor). Norms store w - 1, except those of the delta rule. With experts, the MLPs are
// mixtures with a gated shared expert, always normalized.
type qwen35 struct{ experts bool }

func (f qwen35) describe(c *Config) (*Decoder, error) {
	b := begin(c, "rms_norm_eps", 1e-6)
	b.tied(false)
	return f.finish(b)
}

func (f qwen35) finish(b *builder) (*Decoder, error) {
	b.onePlus = true
	h := b.hybridKeys()
	// Ignored by transformers: all layers of a model have the same kind of MLP, and the activation of the gate of a
	// delta rule is always silu.
	b.Only("mlp_only_layers", "[]")
	b.Only("output_gate_type", `"swish"`)
	b.skip(draftHead, false, `^mtp\.`)
	if f.experts {
		b.Only("hidden_act", `"silu"`)
		b.Inert("intermediate_size")
		b.Only("norm_topk_prob", "true")
		m := b.softmaxKeys(softmaxKeys{experts: 256, topK: 8, intermediate: 512, shared: 512, normalize: true})
		return b.finish(&h.attention, func(i int, p string) Layer {
			return b.preNorm(p, b.hybridBlock(h, i, p, b.splitDelta), b.softmaxExperts(p+"mlp.", m))
		})
	}
	b.mlpKeys("hidden_act", "silu")
	return b.finish(&h.attention, func(i int, p string) Layer {
		return b.preNorm(p, b.hybridBlock(h, i, p, b.splitDelta), b.mlp(p+"mlp.", b.intermediate, false))
	})
}

// hybrid has the common parameters of the layers of Qwen 3.5 and Qwen3-Next.
type hybrid struct {
	attention Attention
	bias      bool
	rope      ropeParams
	delta     DeltaNet // the dimensions
	kernel    int
	linear    func(i int) bool
}

// linearAttention is the name of recurrent layers in layer_types.
const linearAttention = "linear_attention"

// hybridKeys reads the keys of the layers.
func (b *builder) hybridKeys() hybrid {
	h := hybrid{
		attention: b.heads(b.headDim(256)),
		bias:      b.Bool("attention_bias", false),
		rope:      ropeRules{partial: 0.25, mrope: true}.read(b.Config),
		kernel:    b.Range("linear_conv_kernel_dim", 1, 64, 4),
		delta: DeltaNet{
			KeyHeads: b.Range("linear_num_key_heads", 1, maxHeads, 16), ValueHeads: b.Range("linear_num_value_heads", 1, maxHeads, 32),
			KeyDim: b.Range("linear_key_head_dim", 1, maxHeadDim, 128), ValueDim: b.Range("linear_value_head_dim", 1, maxHeadDim, 128),
		},
	}
	if h.delta.ValueHeads%h.delta.KeyHeads != 0 {
		b.Wrong("linear_num_value_heads", "%d value heads cannot share %d key heads", h.delta.ValueHeads, h.delta.KeyHeads)
	}
	every := b.Range("full_attention_interval", 1, maxLayers, 4)
	h.linear = everyNth(every)
	if types := b.layerTypes(fullAttention, linearAttention); types != nil {
		h.linear = func(i int) bool { return types[i] == linearAttention }
	}
	b.Only("attn_output_gate", "true")
	b.Inert("mamba_ssm_dtype", "mtp_num_hidden_layers", "mtp_use_dedicated_embeddings")
	return h
}

// hybridBlock returns the first block of a layer; delta sets the projections of a gated delta rule.
func (b *builder) hybridBlock(h hybrid, i int, p string, delta func(d *DeltaNet, p string)) Block {
	if h.linear(i) {
		d, p := h.delta, p+"linear_attn."
		delta(&d, p)
		width := 2*d.KeyHeads*d.KeyDim + d.ValueHeads*d.ValueDim
		d.Taps = b.convTaps(p+"conv1d.weight", width, h.kernel)
		d.Decay = b.mapped(p+"decay", p+"A_log", d.ValueHeads, NegExp)
		d.DtBias = vector(p+"dt_bias", d.ValueHeads)
		d.Norm = Norm{Gamma: vector(p+"norm.weight", d.ValueDim), Eps: b.eps}
		d.Out = b.linear(p+"out_proj", b.d.Hidden, d.ValueHeads*d.ValueDim, false)
		return &d
	}
	p += "self_attn."
	x := b.projections(p, h.attention, h.bias, h.bias)
	x.Q, x.Gate = b.gatedQuery(p+"q_proj", x.Heads, x.HeadDim, h.bias)
	x.Rope = b.rope(h.rope, x.HeadDim)
	b.headNorms(x, p+"q_norm", p+"k_norm")
	return x
}

// gatedQuery splits a projection whose rows alternate, by head, between query and gate.
func (b *builder) gatedQuery(name string, heads, dim int, bias bool) (q, gate Linear) {
	var queries, gates []Run
	for h := range heads {
		queries = append(queries, Run{Start: 2 * h * dim, Count: dim})
		gates = append(gates, Run{Start: (2*h + 1) * dim, Count: dim})
	}
	return b.part(name+".query", name, b.d.Hidden, bias, queries...), b.part(name+".gate", name, b.d.Hidden, bias, gates...)
}

// splitDelta is for checkpoints with a matrix for each of qkv, z, b and a.
func (b *builder) splitDelta(d *DeltaNet, p string) {
	d.QKV = b.linear(p+"in_proj_qkv", 2*d.KeyHeads*d.KeyDim+d.ValueHeads*d.ValueDim, b.d.Hidden, false)
	d.Z = b.linear(p+"in_proj_z", d.ValueHeads*d.ValueDim, b.d.Hidden, false)
	d.B = b.linear(p+"in_proj_b", d.ValueHeads, b.d.Hidden, false)
	d.A = b.linear(p+"in_proj_a", d.ValueHeads, b.d.Hidden, false)
}
