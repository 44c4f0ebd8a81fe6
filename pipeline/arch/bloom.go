package arch

import "math/big"

// bloomPositions is the context length in BLOOM's training, the default of seq_length.
const bloomPositions = 2048

// describeBloom describes BLOOM and BLOOMZ: ALiBi (arXiv 2108.12409) instead of rotation, a LayerNorm after the
// embedding, LayerNorms and linear layers with biases, q, k and v of each head adjacent in one matrix, and an ungated
// MLP of 4·hidden_size. Names of tensors may begin with "transformer.h.0..." or "h.0...".
func describeBloom(c *Config) (*Decoder, error) {
	b := &builder{Config: c, d: &Decoder{Vocab: c.Int("vocab_size", maxVocab)}, eps: 1e-5}
	b.d.Hidden = b.either("n_embed", "hidden_size", maxHidden)
	b.layers = b.either("n_layer", "num_hidden_layers", maxLayers)
	b.d.MaxPositions = bloomPositions
	for _, key := range []string{"seq_length", "max_position_embeddings"} {
		if n, ok := b.OptInt(key, maxPositions); ok {
			b.d.MaxPositions = n
		}
	}
	if eps, ok := b.OptFloat("layer_norm_epsilon", 1e-30, 1); ok {
		b.eps = eps
	}
	b.tied(true)
	b.Only("apply_residual_connection_post_layernorm", "false")
	if n, ok := b.OptInt("n_inner", maxIntermediate); ok && n != 4*b.d.Hidden && b.Good("n_inner", "n_embed", "hidden_size") {
		b.Refuse("n_inner", "%d is not supported, only 4 * hidden_size", n)
	}
	// Keys that the class does not read, and alternative ways of the same computation.
	b.Inert("attention_softmax_in_fp32", "bias_dropout_fusion", "hidden_dropout", "intermediate_size", "masked_softmax_fusion",
		"offset_alibi", "pretraining_pp", "pretraining_tp", "rms_norm_eps", "skip_bias_add", "skip_bias_add_qkv", "slow_but_exact",
		"unk_token_id")
	heads := "n_head"
	if !b.Has(heads) {
		heads = "num_attention_heads"
	} else {
		b.sameInt(heads, "num_attention_heads", maxHeads)
	}
	a := b.unshared(heads)

	b.centered, b.normBias, b.activation = true, true, GELUTanh
	b.intermediate = 4 * b.d.Hidden
	root := b.base("transformer.", "word_embeddings")
	b.embedding, b.finalNorm, b.head = root+"word_embeddings", root+"ln_f", "lm_head"
	a.Slopes = alibi(a.Heads)
	d, err := b.finish(&a, func(i int, _ string) Layer {
		p := root + shortName(layerName(i))
		x := b.perHead(p+"self_attention.query_key_value", a, true)
		x.O = b.linear(p+"self_attention.dense", b.d.Hidden, b.d.Hidden, true)
		return b.preNorm(p, x, b.plainMLP(p+"mlp.dense_h_to_4h", p+"mlp.dense_4h_to_h", b.intermediate, true))
	})
	if err != nil {
		return nil, err
	}
	d.EmbeddingNorm = b.norms(root + "word_embeddings_layernorm")
	return d, nil
}

// alibi returns the slopes of heads (arXiv 2108.12409, section 3): the powers 1, 2, ... n of 2^(-8/n), n being the
// largest power of 2 that is at most heads, and then the odd powers of 2^(-4/n). They are computed in float32, as in
// all published code.
func alibi(heads int) []float64 {
	n := 1
	for 2*n <= heads {
		n *= 2
	}
	slopes := make([]float64, 0, heads)
	for i := 1; i <= n; i++ {
		slopes = append(slopes, halving(i*8, n))
	}
	for i := 1; len(slopes) < heads; i += 2 {
		slopes = append(slopes, halving(i*4, n))
	}
	return slopes
}

// halving returns 2^(-p/n) as a float32, n being a power of 2: square roots of a half, exact enough in big.Float that
// the result is correctly rounded.
func halving(p, n int) float64 {
	out, root := bigFloat(1), bigFloat(0.5)
	whole := p / n
	for p %= n; p > 0; {
		root.Sqrt(root)
		if p *= 2; p >= n {
			out.Mul(out, root)
			p -= n
		}
	}
	f, _ := new(big.Float).SetMantExp(out, -whole).Float32()
	return float64(f)
}
