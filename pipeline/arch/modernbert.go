package arch

// describeModernBERT describes ModernBERT (arXiv 2412.13663): an encoder with rotary positions, norms before the blocks (the
// embedding's own takes the place of the first) and a last one, one matrix for q, k and v and one for gate and up. Every
// global_attn_every_n_layers-th layer, from the first on, attends to all positions, turned with global_rope_theta. The others
// attend to local_attention/2 positions on either side, turned with local_rope_theta.
func describeModernBERT(c *Config) (*Decoder, error) {
	root := c.base("model.", "embeddings.tok_embeddings")
	b := &builder{
		Config: c, d: &Decoder{Hidden: c.Int("hidden_size", maxHidden), Vocab: c.Int("vocab_size", maxVocab), MaxPositions: c.positions()},
		layers: c.Int("num_hidden_layers", maxLayers), centered: true,
		prefix: root, embedding: root + "embeddings.tok_embeddings", finalNorm: root + "final_norm",
	}
	b.eps, b.normBias = b.number("norm_eps", 1e-30, 1, 1e-5), b.Bool("norm_bias", false)
	b.intermediate = b.Int("intermediate_size", maxIntermediate)
	b.ungatedKeys("hidden_activation", GELU)
	a, bias := b.unshared("num_attention_heads"), b.Bool("attention_bias", false)
	a.Bidirectional, b.mlpBias = true, b.Bool("mlp_bias", false)
	if b.Has("rope_scaling") {
		b.Refuse("rope_scaling", "is not supported")
	}
	full, local := readByType(c, ropeRules{theta: 160_000}, ropeRules{theta: 10_000}, "global_rope_theta", "local_rope_theta")
	every := b.Range("global_attn_every_n_layers", 1, maxLayers, 3)
	slides := func(i int) bool { return i%every != 0 }
	if types := b.layerTypes(fullAttention, slidingAttention); types != nil {
		slides = func(i int) bool { return types[i] == slidingAttention }
	}
	windows := b.spread(b.Range("local_attention", 2, maxPositions, 128)/2+1, slides)
	b.Only("position_embedding_type", `"absolute"`) // a key of BERT without effect
	b.Inert("classifier_activation", "classifier_bias", "classifier_dropout", "classifier_pooling", "cls_token_id", "decoder_bias",
		"deterministic_flash_attn", "embedding_dropout", "gradient_checkpointing", "initializer_cutoff_factor", "layer_norm_eps", "mlp_dropout", "reference_compile",
		"repad_logits_with_grad", "sep_token_id", "sparse_pred_ignore_index", "sparse_prediction", "tie_word_embeddings")
	if _, scored := b.Tensor(classifierName + "weight"); scored {
		b.unsupported("architectures", "a classifier of ModernBERT is not supported: the engine's class for pairs has the token ids of XLM-R built in")
	}
	b.d.EmbeddingNorm = b.norms(root + "embeddings.norm")
	b.skip("head of another task", false, `^(head|decoder)\.`)
	d, err := b.finish(&a, func(i int, p string) Layer {
		x := b.fusedHeads(p+"attn.Wqkv", a, bias)
		x.O = b.linear(p+"attn.Wo", b.d.Hidden, b.d.Hidden, bias)
		x.Rope, x.Window = b.rope(full, a.HeadDim), windows[i]
		if slides(i) {
			x.Rope = b.rope(local, a.HeadDim)
		}
		layer := Layer{{Block: x}, {Norm: b.norms(p + "mlp_norm"), Block: b.fusedMLP(p+"mlp.Wi", p+"mlp.Wo", b.intermediate)}}
		if i > 0 {
			layer[0].Norm = b.norms(p + "attn_norm")
		}
		return layer
	})
	if err != nil {
		return nil, err
	}
	d.Head = Linear{}
	return d, nil
}
