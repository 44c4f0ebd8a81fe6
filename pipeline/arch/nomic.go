package arch

// nomicMultiple is what the code of Nomic rounds the width of a gated MLP up to a multiple of.
const nomicMultiple = 256

// nomicActivations are the gated MLPs of Nomic by the words of its own code, in which "gelu" is one without a gate, and savedActivations
// by those of transformers.
var (
	nomicActivations = map[Activation][]string{SiLU: {"swiglu"}, GELU: {"geglu"}}
	savedActivations = map[Activation][]string{SiLU: {"silu"}, GELU: {"gelu"}}
)

// describeNomicBERT describes nomic-embed-text 1 and 1.5 (arXiv 2402.01613): BERT with rotary positions, one matrix for q, k and v, and
// a gated MLP whose gate is fc12. The words before a text ("search_query: ") are part of it. Keys are those of Nomic's own code, which
// are those of GPT-2, or of transformers; a file may have both.
//
// Where rotary_scaling_factor is set, frequencies change in texts beyond max_trained_positions, so a text must not be longer.
func describeNomicBERT(c *Config) (*Decoder, error) {
	c.code("NomicBertConfig", "NomicBertModel")
	own := c.Has("n_embd")
	b := &builder{
		Config: c, d: &Decoder{Hidden: c.either("n_embd", "hidden_size", maxHidden), Vocab: c.Int("vocab_size", maxVocab), NormLast: true},
		layers: c.either("n_layer", "num_hidden_layers", maxLayers), centered: true, normBias: true,
		prefix: "encoder.", embedding: "embeddings.word_embeddings",
	}
	if n := b.Range("pad_vocab_size_multiple", 1, maxVocab, 1); b.d.Vocab%n != 0 {
		b.d.Vocab += n - b.d.Vocab%n
	}
	b.nomicPositions(own)
	b.eps = b.number("layer_norm_eps", 1e-30, 1, 1e-12)
	if own {
		b.eps = b.number("layer_norm_epsilon", 1e-30, 1, 1e-5)
		b.same(b.eps, "layer_norm_eps")
	}
	b.intermediate = b.either("n_inner", "intermediate_size", maxIntermediate)
	if n := b.intermediate % nomicMultiple; own && n != 0 {
		b.intermediate += nomicMultiple - n
	}
	b.nomicActivation(own)
	heads := "num_attention_heads"
	if own {
		heads = "n_head"
		b.sameInt(heads, "num_attention_heads", maxHeads)
	}
	a, bias := b.unshared(heads), b.Bool("qkv_proj_bias", own)
	a.Bidirectional = true
	up, down := b.Bool("mlp_fc1_bias", own), b.Bool("mlp_fc2_bias", own)
	b.Only("causal", "false")
	b.Only("prenorm", "false")
	b.Only("parallel_block", "false")
	b.Only("use_rms_norm", "false")
	b.Only("scale_attn_weights", "true")
	b.Only("scale_attn_by_inverse_layer_idx", "false")
	b.Only("rotary_emb_interleaved", "false")
	b.Only("rotary_emb_scale_base", "null")
	b.Only("rotary_head_dim", "false")
	b.Only("num_experts", "0")
	rope := b.nomicRope(own, a.HeadDim)
	b.Inert("attention_probs_dropout_prob", "attn_pdrop", "classifier_dropout", "dense_seq_output", "embd_pdrop", "fused_bias_fc", "fused_dropout_add_ln",
		"hidden_dropout_prob", "matryoshka_dimensions", "parallel_block_tied_norm", "reorder_and_upcast_attn", "resid_pdrop", "summary_activation",
		"summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj", "tie_word_embeddings", "use_flash_attn", "use_xentropy")
	b.d.EmbeddingNorm = b.norms("emb_ln")
	b.segment("embeddings.", b.Range("type_vocab_size", 0, maxVocab, 2))
	b.skip("head of another task", false, `^(pooler|cls)\.`)
	return b.finishEncoder(&a, func(_ int, p string) Layer {
		x := b.fusedHeads(p+"attn.Wqkv", a, bias)
		x.O = b.linear(p+"attn.out_proj", b.d.Hidden, b.d.Hidden, bias)
		x.Rope = b.rope(rope, a.HeadDim)
		mlp := &MLP{
			Intermediate: b.intermediate, Activation: b.activation,
			Gate: b.linear(p+"mlp.fc12", b.intermediate, b.d.Hidden, up), Up: b.linear(p+"mlp.fc11", b.intermediate, b.d.Hidden, up),
			Down: b.linear(p+"mlp.fc2", b.d.Hidden, b.intermediate, down),
		}
		return Layer{{Block: x, SumNorm: b.norms(p + "norm1")}, {Block: mlp, SumNorm: b.norms(p + "norm2")}}
	})
}

// nomicPositions reads the longest text: n_positions, next to which max_position_embeddings has no effect, unless the frequencies
// limit it.
func (b *builder) nomicPositions(own bool) {
	key := "max_position_embeddings"
	if own {
		b.Inert(key)
		key = "n_positions"
	}
	n := b.Int(key, maxPositions)
	trained := b.Range("max_trained_positions", 1, maxPositions, n)
	if _, scaled := b.OptFloat("rotary_scaling_factor", 0, maxFactor); scaled && n > trained {
		b.note("rotary frequencies change with texts beyond %d positions in the original model only: these are not exported", trained)
		n = trained
	}
	b.d.MaxPositions = n
}

// nomicActivation reads the activation of the MLP, under both keys.
func (b *builder) nomicActivation(own bool) {
	if saved := b.readActivation("hidden_act", SiLU, savedActivations); !saved {
		name, _ := b.OptString("hidden_act")
		b.Refuse("hidden_act", `%s is not supported, only "gelu" or "silu"`, show(name))
	}
	if !own {
		return
	}
	saved := b.activation
	const key = "activation_function"
	if name, given := b.OptString(key); !given || !b.readActivation(key, SiLU, nomicActivations) {
		b.Refuse(key, `%s is not supported, only "geglu" or "swiglu"`, show(name))
	} else if b.Has("hidden_act") && b.activation != saved {
		b.Wrong("hidden_act", "contradicts %s", key)
	}
}

// nomicRope reads the rotary keys.
func (b *builder) nomicRope(own bool, headDim int) ropeParams {
	rope := ropeRules{theta: 1000}.read(b.Config)
	if !own {
		return rope
	}
	theta := b.number("rotary_emb_base", 1, 1e15, 10_000)
	if b.Has("rope_parameters") && rope.theta != theta {
		b.Wrong("rotary_emb_base", "%g contradicts the rope_theta %g of rope_parameters", theta, rope.theta)
	}
	rope.theta, rope.partial = theta, b.Float("rotary_emb_fraction", 1e-6, 1)
	if dim := rope.rotary(headDim); dim < 2 || dim%2 != 0 {
		b.unsupported("rotary_emb_fraction", "%d rotated elements of a head are not pairs", dim)
	}
	return rope
}
