package arch

import "regexp"

// causalBuffers are masks that old versions of transformers saved with the weights.
var causalBuffers = Skip{Match: regexp.MustCompile(`^gpt_neox\.layers\.\d+\.attention\.(masked_)?bias$`), Reason: "mask buffer"}

// describeGPTNeoX describes Pythia, GPT-NeoX-20B and Dolly: LayerNorms with biases, q, k and v of each head adjacent in
// one matrix without sharing of heads, rotation of rotary_pct of every head (default 0.25), and an ungated MLP. With
// use_parallel_residual, the default, attention and MLP are parallel, each with its own norm.
func describeGPTNeoX(c *Config) (*Decoder, error) {
	b := begin(c, "layer_norm_eps", 1e-5)
	b.centered, b.normBias = true, true
	b.prefix, b.head = b.base("gpt_neox.", "embed_in"), "embed_out"
	b.embedding, b.finalNorm = b.prefix+"embed_in", b.prefix+"final_layer_norm"
	b.d.Skips = append(b.d.Skips, causalBuffers)
	b.tied(false)
	b.geluKeys("hidden_act", GELU)
	b.Inert("attention_probs_dropout_prob", "classifier_dropout", "hidden_dropout", "hidden_dropout_prob", "rms_norm_eps")
	a, bias := b.unshared("num_attention_heads"), b.Bool("attention_bias", true)
	parallel := b.Bool("use_parallel_residual", true)
	theta, _ := b.OptFloat("rotary_emb_base", 1, 1e15)
	rope := ropeRules{theta: theta, partial: .25, partialKey: "rotary_pct", innerPartial: true, innerTheta: true}.read(c)
	if theta != 0 && theta != rope.theta && b.Good("rotary_emb_base") {
		b.Wrong("rotary_emb_base", "%g contradicts rope_theta %g", theta, rope.theta)
	}
	return b.finish(&a, func(_ int, p string) Layer {
		x := b.perHead(p+"attention.query_key_value", a, bias)
		x.O = b.linear(p+"attention.dense", b.d.Hidden, b.d.Hidden, bias)
		x.Rope = b.rope(rope, a.HeadDim)
		layer := b.preNorm(p, x, b.plainMLP(p+"mlp.dense_h_to_4h", p+"mlp.dense_4h_to_h", b.intermediate, true))
		layer[1].Parallel = parallel
		return layer
	})
}

// unshared reads the dimensions of attention in families where every head has its own keys, of hidden_size / heads
// elements, regardless of the keys that other families read.
func (b *builder) unshared(key string) Attention {
	b.Inert("num_key_value_heads")
	heads := b.Int(key, maxHeads)
	a := Attention{Heads: heads, KVHeads: heads, HeadDim: b.d.Hidden / heads}
	switch {
	case !b.Good("hidden_size", key):
	case b.d.Hidden%heads != 0:
		b.Wrong(key, "hidden_size %d is not divisible by it", b.d.Hidden)
	case a.HeadDim > maxHeadDim || a.HeadDim%2 != 0:
		b.unsupported(key, "a head of %d elements is not supported", a.HeadDim)
	}
	if dim, ok := b.OptInt("head_dim", maxHeadDim); ok && dim != a.HeadDim && b.Good("head_dim", "hidden_size", key) {
		b.unsupported("head_dim", "%d is not hidden_size / %s", dim, key)
	}
	return a
}

// perHead takes q, k and v from a matrix in which they are adjacent for every head.
func (b *builder) perHead(name string, a Attention, bias bool) *Attention {
	part := func(what string, at int) Linear {
		runs := make([]Run, 0, a.Heads)
		for h := range a.Heads {
			runs = append(runs, Run{Start: (3*h + at) * a.HeadDim, Count: a.HeadDim})
		}
		return b.part(name+what, name, b.d.Hidden, bias, runs...)
	}
	a.Q, a.K, a.V = part(".q", 0), part(".k", 1), part(".v", 2)
	return &a
}
