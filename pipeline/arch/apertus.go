package arch

import "regexp"

// describeApertus describes Apertus, which normalizes every head of q and k before rotation, and has an ungated MLP
// whose activation is xIELU with a learned positive and negative factor per layer:
//
//	x > 0: softplus(alpha_p)·x² + beta·x
//	else:  (beta + softplus(alpha_n))·(exp(x) - 1 - x) + beta·x
//
// The published code bounds the argument of exp by eps = -1e-6 instead of 0, which is left out.
func describeApertus(c *Config) (*Decoder, error) {
	b := begin(c, "rms_norm_eps", 1e-5)
	b.d.Skips = append(b.d.Skips, Skip{
		Match:  regexp.MustCompile(`^model\.layers\.\d+\.mlp\.act_fn\.eps$`),
		Reason: "bound of xIELU's argument",
	})
	b.tied(false)
	b.mlpKeys("hidden_act", "xielu")
	b.activation = XIELU
	b.Only("qk_norm", "true")
	b.Only("post_norm", "false")
	b.Only("mlp_bias", "false")
	b.Inert("hidden_dropout")
	a, bias := b.heads(0), b.Bool("attention_bias", false)
	// These are the defaults of the class.
	missing := ropeParams{kind: "llama3", theta: 12000000, factor: 8, low: 1, high: 4, original: 8192}
	rope := ropeRules{theta: 12000000, missing: missing}.read(c)
	return b.finish(&a, func(_ int, p string) Layer {
		x := b.projections(p+"self_attn.", a, bias, bias)
		x.Rope = b.rope(rope, a.HeadDim)
		b.headNorms(x, p+"self_attn.q_norm", p+"self_attn.k_norm")
		mlp, act := b.plainMLP(p+"mlp.up_proj", p+"mlp.down_proj", b.intermediate, false), p+"mlp.act_fn."
		mlp.XIELU = [3]Weight{
			b.view(View{Name: act + "positive", Rows: 1, Tensor: act + "alpha_p", Map: Softplus}),
			b.view(View{Name: act + "negative", Rows: 1, Tensor: act + "alpha_n", Map: Softplus, Plus: act + "beta"}),
			b.view(View{Name: act + "linear", Rows: 1, Tensor: act + "beta"}),
		}
		return Layer{
			{Norm: b.norms(p + "attention_layernorm"), Block: x},
			{Norm: b.norms(p + "feedforward_layernorm"), Block: mlp},
		}
	})
}
