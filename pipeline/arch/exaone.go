package arch

import "strings"

// describeExaone describes EXAONE 3 and 3.5, and EXAONE Deep: Llama with other names. The class is not in transformers
// but in the repositories of the checkpoints (modeling_exaone.py).
func describeExaone(c *Config) (*Decoder, error) {
	b := &builder{Config: c, d: &Decoder{
		Hidden: c.Int("hidden_size", maxHidden), Vocab: c.Int("vocab_size", maxVocab),
		MaxPositions: c.Int("max_position_embeddings", maxPositions),
	}, activation: SiLU}
	b.layers = b.either("num_layers", "num_hidden_layers", maxLayers)
	b.eps = b.number("layer_norm_epsilon", 1e-30, 1, 1e-5)
	b.code("ExaoneConfig", "ExaoneModel", "ExaoneForCausalLM")
	// Without the key, some versions of the code tie the head, and others do not.
	if !b.Has("tie_word_embeddings") {
		b.missing("tie_word_embeddings")
	}
	b.tied(false)
	b.mlpKeys("activation_function", "silu")
	b.Inert("embed_dropout", "resid_dropout")
	a, rope := b.heads(0), readRope(c)
	root := b.base("transformer.", "wte")
	b.prefix, b.embedding, b.finalNorm, b.head = root, root+"wte", root+"ln_f", "lm_head"
	return b.finish(&a, func(_ int, p string) Layer {
		p = shortName(p)
		x := b.projections(p+"attn.attention.", a, false, false)
		x.O = b.linear(p+"attn.attention.out_proj", b.d.Hidden, a.Heads*a.HeadDim, false)
		x.Rope = b.rope(rope, a.HeadDim)
		return Layer{{Norm: b.norms(p + "ln_1"), Block: x}, {Norm: b.norms(p + "ln_2"), Block: &MLP{
			Intermediate: b.intermediate,
			Activation:   b.activation,
			Gate:         b.linear(p+"mlp.c_fc_0", b.intermediate, b.d.Hidden, false),
			Up:           b.linear(p+"mlp.c_fc_1", b.intermediate, b.d.Hidden, false),
			Down:         b.linear(p+"mlp.c_proj", b.d.Hidden, b.intermediate, false),
		}}}
	})
}

// shortName returns the prefix of a layer in families that call their layers h, as GPT-2 did.
func shortName(prefix string) string { return strings.Replace(prefix, "layers.", "h.", 1) }
