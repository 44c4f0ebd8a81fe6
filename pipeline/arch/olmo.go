package arch

// describeOlmo describes the first OLMo: LayerNorms without weights, with a fixed epsilon of 1e-5. clip_qkv bounds q, k
// and v.
func describeOlmo(c *Config) (*Decoder, error) {
	b := begin(c, "rms_norm_eps", 1e-5)
	b.eps, b.centered = 1e-5, true // fixed in the class
	b.tied(false)
	b.mlpKeys("hidden_act", "silu")
	a, bias, rope := b.heads(0), b.Bool("attention_bias", false), readRope(c)
	a.Clip = b.clip()
	norm := &Norm{Gamma: b.ones("model.norm.ones", b.d.Hidden), Eps: b.eps, Centered: true}
	d, err := b.finish(&a, func(_ int, p string) Layer {
		x := b.projections(p+"self_attn.", a, bias, bias)
		x.Rope = b.rope(rope, a.HeadDim)
		return Layer{{Norm: norm, Block: x}, {Norm: norm, Block: b.mlp(p+"mlp.", b.intermediate, false)}}
	})
	if err != nil {
		return nil, err
	}
	d.FinalNorm = *norm
	return d, nil
}

// clip reads clip_qkv; 0 stands for none.
func (b *builder) clip() float64 {
	f, _ := b.OptFloat("clip_qkv", minMultiplier, maxMultiplier)
	return f
}

// ones returns the gamma of norms without weights, which they all share.
func (b *builder) ones(name string, n int) Weight {
	for _, v := range b.d.Views {
		if v.Name == name {
			return Weight{Tensor: name, Rows: n}
		}
	}
	return b.view(View{Name: name, Rows: n})
}
