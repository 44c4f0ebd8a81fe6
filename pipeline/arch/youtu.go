package arch

// describeYoutu describes Youtu-LLM: the latent attention of DeepSeek with dense MLPs, and a head that is the
// embedding unless tie_word_embeddings is false.
func describeYoutu(c *Config) (*Decoder, error) {
	b := begin(c, "rms_norm_eps", 1e-6)
	b.code("YoutuConfig", "YoutuModel", "YoutuForCausalLM")
	b.tied(true)
	b.mlpKeys("hidden_act", "silu")
	b.Only("mlp_bias", "false")
	b.Inert("embedding_initializer_range")
	a, rope := deepSeek{}.attention(b), readRope(c)
	bias, interleaved := b.Bool("attention_bias", false), b.Bool("rope_interleave", true)
	a.scaleBy(rope)
	shape := Attention{Heads: a.Heads, HeadDim: a.NopeDim + a.RopeDim}
	return b.finish(&shape, func(_ int, p string) Layer {
		x := b.latent(a, p+"self_attn.", rope, bias, interleaved)
		return b.preNorm(p, x, b.mlp(p+"mlp.", b.intermediate, false))
	})
}
