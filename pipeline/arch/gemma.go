package arch

import "math"

// describeGemma describes the first Gemma: token rows times sqrt(hidden_size), norms with 1 + w, an MLP with GELU (the
// tanh form, even if config.json has "gelu"), and an independent head_dim.
func describeGemma(c *Config) (*Decoder, error) {
	b := beginGemma(c, "false")
	b.mlpKeys("hidden_act", "gelu_pytorch_tanh", "gelu")
	b.Only("hidden_activation", `"gelu_pytorch_tanh"`)
	a, bias, rope := b.heads(256), b.Bool("attention_bias", false), readRope(c)
	return b.finish(&a, func(_ int, p string) Layer {
		x := b.projections(p+"self_attn.", a, bias, bias)
		x.Rope = b.rope(rope, a.HeadDim)
		return b.preNorm(p, x, b.mlp(p+"mlp.", b.intermediate, false))
	})
}

// beginGemma reads the keys that all Gemmas share. causal are the values of use_bidirectional_attention for which text
// is causal; without any, the caller reads it.
func beginGemma(c *Config, causal ...string) *builder {
	b := begin(c, "rms_norm_eps", 1e-6)
	b.tied(true)
	b.onePlus, b.activation = true, GELUTanh
	b.d.EmbeddingScale, b.d.Precision = math.Sqrt(float64(b.d.Hidden)), "normal"
	if causal != nil {
		b.Only("use_bidirectional_attention", causal...)
	}
	b.Inert("cache_implementation")
	return b
}

// scoreScale reads query_pre_attn_scalar, whose square root divides scores.
func (b *builder) scoreScale(a *Attention) {
	if s := b.number("query_pre_attn_scalar", 1e-3, 1e9, 256); s != float64(a.HeadDim) {
		a.Scale = 1 / math.Sqrt(s)
	}
}

// cap reads a bound of scores or logits: missing if the key is missing, none for null.
func (b *builder) cap(key string, missing float64) float64 {
	if b.Null(key) {
		missing = 0
	}
	return b.number(key, 1e-3, 1e6, missing)
}

// fourNorms is the layer of Gemma 2 and 3, with norms before and after both blocks.
func (b *builder) fourNorms(p string, attention, mlp Block) Layer {
	return Layer{
		{Norm: b.norms(p + "input_layernorm"), Block: attention, PostNorm: b.norms(p + "post_attention_layernorm")},
		{Norm: b.norms(p + "pre_feedforward_layernorm"), Block: mlp, PostNorm: b.norms(p + "post_feedforward_layernorm")},
	}
}
