package arch

// optFirstPosition is the row of the first position.
const optFirstPosition = 2

// describeOPT describes OPT, which has a vector for every position, in a table whose first two rows are unused,
// LayerNorms and linear layers with biases (the latter unless enable_bias is false), and an ungated MLP of ffn_dim.
// Names of tensors may begin with "model.decoder..." or "decoder...". Norms after the residual sum
// (do_layer_norm_before false) and embeddings of another width (word_embed_proj_dim), both of OPT-350M, are rejected.
func describeOPT(c *Config) (*Decoder, error) {
	b := &builder{Config: c, eps: 1e-5, centered: true, normBias: true, d: &Decoder{
		Hidden: c.Int("hidden_size", maxHidden), Vocab: c.Int("vocab_size", maxVocab),
		MaxPositions: c.positions(), FirstPosition: optFirstPosition,
	}}
	b.layers, b.intermediate = b.Int("num_hidden_layers", maxLayers), b.Int("ffn_dim", maxIntermediate)
	b.tied(true)
	b.ungatedKeys("activation_function", ReLU)
	b.Only("do_layer_norm_before", "true")
	b.Only("_remove_final_layer_norm", "false")
	b.Only("layer_norm_elementwise_affine", "true")
	b.same(float64(b.d.Hidden), "word_embed_proj_dim")
	b.Inert("activation_dropout", "dropout", "init_std", "layerdrop")
	a, bias := b.unshared("num_attention_heads"), b.Bool("enable_bias", true)
	root := b.base("model.", "decoder.embed_tokens") + "decoder."
	b.prefix, b.embedding, b.finalNorm, b.head = root, root+"embed_tokens", root+"final_layer_norm", "lm_head"
	b.d.Positions = Weight{root + "embed_positions.weight", optFirstPosition + b.d.MaxPositions, b.d.Hidden}
	return b.finish(&a, func(_ int, p string) Layer {
		x := b.projections(p+"self_attn.", a, bias, bias)
		x.O = b.linear(p+"self_attn.out_proj", b.d.Hidden, b.d.Hidden, bias)
		mlp := b.plainMLP(p+"fc1", p+"fc2", b.intermediate, bias)
		return Layer{{Norm: b.norms(p + "self_attn_layer_norm"), Block: x}, {Norm: b.norms(p + "final_layer_norm"), Block: mlp}}
	})
}
