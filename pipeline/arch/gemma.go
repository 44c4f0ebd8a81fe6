package arch

import "math"

// Gemma is the first Gemma: token rows times sqrt(hidden_size), norms with 1 + w, an MLP with GELU (the tanh form, also where
// the file says "gelu"), head_dim on its own.
type Gemma struct{}

// Architectures implements [Family].
func (Gemma) Architectures() []string { return []string{"GemmaForCausalLM"} }

// Describe implements [Family].
func (Gemma) Describe(c *Config) (*Decoder, error) {
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

// beginGemma reads what all Gemmas share. causal are the values of use_bidirectional_attention with which text is causal.
func beginGemma(c *Config, causal ...string) *builder {
	b := begin(c, "rms_norm_eps", 1e-6)
	b.tied(true)
	b.onePlus, b.activation = true, GELUTanh
	b.d.EmbeddingScale, b.d.Precision = math.Sqrt(float64(b.d.Hidden)), "normal"
	b.Only("use_bidirectional_attention", causal...)
	b.Inert("cache_implementation")
	return b
}

// scoreScale reads query_pre_attn_scalar: scores are divided by its square root.
func (b *builder) scoreScale(a *Attention) {
	if s := b.number("query_pre_attn_scalar", 1e-3, 1e9, 256); s != float64(a.HeadDim) {
		a.Scale = 1 / math.Sqrt(s)
	}
}

// cap reads a bound of scores or logits: missing when the key is missing, none for null.
func (b *builder) cap(key string, missing float64) float64 {
	if b.Null(key) {
		missing = 0
	}
	return b.number(key, 1e-3, 1e6, missing)
}

// fourNorms is the layer of Gemma 2 and 3: both blocks between two norms.
func (b *builder) fourNorms(p string, attention, mlp Block) Layer {
	return Layer{
		{Norm: b.norms(p + "input_layernorm"), Block: attention, PostNorm: b.norms(p + "post_attention_layernorm")},
		{Norm: b.norms(p + "pre_feedforward_layernorm"), Block: mlp, PostNorm: b.norms(p + "post_feedforward_layernorm")},
	}
}
