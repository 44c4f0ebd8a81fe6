package arch

import "math"

// describeMiniCPM3 describes MiniCPM3, which has the multipliers of MiniCPM and multi-head latent attention with
// half-split rotary pairs. The norms of the latents have an epsilon of 1e-6, regardless of rms_norm_eps.
func describeMiniCPM3(c *Config) (*Decoder, error) {
	b := begin(c, "rms_norm_eps", 1e-5)
	b.code("MiniCPM3Config", "MiniCPM3Model", "MiniCPM3ForCausalLM")
	b.tied(true)
	b.mlpKeys("hidden_act", "silu")
	b.Only("mlp_bias", "false")
	b.Only("num_experts", "0")
	// The head size of the class is that of the rotated part; there are as many keys and values as queries.
	b.Inert("head_dim", "qk_head_dim", "mup_denominator")
	scale, bias, rope := b.miniCPMScales(12, 1.4, 256), b.Bool("attention_bias", false), readRope(c)
	l := LatentAttention{
		Heads:    b.Int("num_attention_heads", maxHeads),
		NopeDim:  b.Range("qk_nope_head_dim", 1, maxHeadDim, 64),
		RopeDim:  b.Range("qk_rope_head_dim", 2, maxHeadDim, 32),
		ValueDim: b.Range("v_head_dim", 1, maxHeadDim, 0),
		QRank:    b.Range("q_lora_rank", 1, maxHidden, 768),
		KVRank:   b.Range("kv_lora_rank", 1, maxHidden, 256),
	}
	if b.Null("q_lora_rank") {
		l.QRank = 0
	}
	if n, ok := b.OptInt("num_key_value_heads", maxHeads); ok && n != l.Heads && b.Good("num_key_value_heads", "num_attention_heads") {
		b.unsupported("num_key_value_heads", "%d is not supported, only num_attention_heads", n)
	}
	if l.ValueDim == 0 && b.Good("hidden_size", "num_attention_heads") {
		if l.ValueDim = b.d.Hidden / l.Heads; b.d.Hidden%l.Heads != 0 {
			b.Wrong("v_head_dim", "missing, and hidden_size %d is not divisible by num_attention_heads %d", b.d.Hidden, l.Heads)
		}
	}
	l.Scale = 1 / math.Sqrt(float64(l.NopeDim+l.RopeDim))
	if rope.kind == "yarn" {
		g := yarnScale(rope.factor, rope.mscaleAll)
		l.Scale *= float64(g * g)
	}
	a := Attention{Heads: l.Heads, HeadDim: l.NopeDim + l.RopeDim}
	return b.finish(&a, func(_ int, p string) Layer {
		x := b.latent(l, p+"self_attn.", rope, bias, false)
		return scaled(scale, b.preNorm(p, x, b.mlp(p+"mlp.", b.intermediate, false)))
	})
}
